"""Fixtures of the policy tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from models import TinyModels


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> TinyModels:
    """Tiny models that the tests share; nobody may change them."""
    return TinyModels(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Tiny products gain nothing from threads, and lose much on a machine that is busy."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
