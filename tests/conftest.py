"""Fixtures that all tests share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of public data sets: $STROP_TEST_DATA, or `shared/data` in or beside the checkout."""
    named = os.environ.get("STROP_TEST_DATA")
    places = [Path(named)] if named else [folder / "shared" / "data" for folder in Path(__file__).parents]
    found = next((place for place in places if place.is_dir()), None)
    if found is None:
        pytest.skip("no public data sets here: set STROP_TEST_DATA to their folder")
    return found
