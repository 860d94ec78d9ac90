"""The API over real services in a temporary folder, asked in this process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from served import services
from strop.api.app import create_app
from strop.services.container import Services


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    """Services that the tests of a module share."""
    with services(tmp_path_factory.mktemp("server") / "data") as found:
        yield found


@pytest.fixture(scope="module")
def client(server: Services) -> Iterator[TestClient]:
    """A client of the API over them; paths are those under /v1/strop."""
    with TestClient(create_app(server), base_url="http://localhost/v1/strop/") as found:
        yield found
