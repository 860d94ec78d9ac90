"""Fixtures that all tests share."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from databases import PostgresServer, find_postgres
from strop.store.db import Database, open_database


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


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server, where one is installed; with CI_REQUIRE_SERVICES=1 it has to be."""
    programs = find_postgres()
    if programs is None:
        problem = "PostgreSQL is not installed: no initdb in PATH or /usr/lib/postgresql"
        if os.environ.get("CI_REQUIRE_SERVICES") == "1":
            pytest.fail(problem)
        pytest.skip(problem)
    server = PostgresServer(programs)
    yield server
    server.stop()


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of a fresh database with strop's tables: every test that asks runs with both kinds."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'strop.db'}"
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    url = server.create()
    yield url
    server.drop(url)


@pytest.fixture
def database(database_url: str, tmp_path: Path) -> Iterator[Database]:
    """A fresh database, once SQLite and once PostgreSQL."""
    opened = open_database(database_url, tmp_path)
    yield opened
    opened.close()
