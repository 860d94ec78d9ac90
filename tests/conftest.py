"""Fixtures that all tests share."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let the exceptions in pyproject.toml count under `pytest -W error` too, which comes after them."""
    for item in items:
        for line in item.config.getini("filterwarnings"):
            if line.startswith("ignore:"):
                item.add_marker(pytest.mark.filterwarnings(line))


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Tiny models gain nothing from threads, and lose much on a machine that is busy."""
    torch = sys.modules.get("torch")  # most tests do without it
    if torch is None:
        yield
        return
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of public data sets: $STROP_TEST_DATA, or `shared/data` in or beside the checkout."""
    named = os.environ.get("STROP_TEST_DATA")
    places = [Path(named)] if named else [folder / "shared" / "data" for folder in Path(__file__).parents]
    found = next((place for place in places if place.is_dir()), None)
    if found is None:
        pytest.skip("no public data sets here: set STROP_TEST_DATA to their folder")
    return found
