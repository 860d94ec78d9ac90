"""Fixtures of the serving tests."""

from __future__ import annotations

import pytest

from models import TinyModels


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> TinyModels:
    """Tiny models that the tests share; nobody may change them."""
    return TinyModels(tmp_path_factory.mktemp("tiny"))
