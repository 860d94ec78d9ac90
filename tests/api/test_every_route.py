"""What holds for each route that the server documents, whoever wrote it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from served import services
from strop.api.app import create_app
from strop.services.container import Settings

OWN = "http://localhost:8100"


@dataclass(frozen=True)
class Route:
    """A documented operation."""

    method: str
    template: str
    operation: dict[str, Any]

    @property
    def path(self) -> str:
        """A path that fits: every parameter is an id that nothing has."""
        return re.sub(r"\{\w+\}", "0", self.template)

    def __str__(self) -> str:
        return f"{self.method} {self.template}"


@dataclass(frozen=True)
class Served:
    """The API and its routes."""

    client: TestClient
    routes: list[Route]

    def walk(self, headers: dict[str, str], **others: Any) -> Iterator[tuple[Route, Any]]:
        """The answer of every route to the same request."""
        for route in self.routes:
            yield route, self.client.request(route.method, route.path, headers=headers, **others)


def serve(folder: Path, settings: Settings) -> Iterator[Served]:
    with services(folder, settings=settings) as given:
        app = create_app(given)
        paths = app.openapi()["paths"].items()
        routes = [Route(method.upper(), path, op) for path, ops in paths for method, op in ops.items()]
        yield Served(TestClient(app, base_url=OWN), routes)


@pytest.fixture(scope="module")
def loopback(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server for this machine."""
    yield from serve(tmp_path_factory.mktemp("data"), Settings())


@pytest.fixture(scope="module")
def reachable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server that other machines reach."""
    yield from serve(tmp_path_factory.mktemp("data"), Settings(loopback=False))


def test_without_a_key_every_route_answers_401(reachable: Served) -> None:
    for headers in ({}, {"authorization": "Bearer sk-strop-guessed"}):
        open_routes = {str(route) for route, answer in reachable.walk(headers) if answer.status_code != 401}
        assert open_routes == {"GET /health"}


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"},
        {"host": "evil.example:8100"},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://localhost:3000"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_foreign_pages_reach_no_route(loopback: Served, headers: dict[str, str]) -> None:
    answered = [str(route) for route, answer in loopback.walk(headers) if answer.status_code != 403]
    assert answered == []


def test_bodies_that_any_page_may_send_are_no_bodies(loopback: Served) -> None:
    changing = [route for route in loopback.routes if route.method not in ("GET", "HEAD")]
    for kind in ("text/plain", "application/x-www-form-urlencoded"):
        walk = replace(loopback, routes=changing).walk({"content-type": kind}, content=b'{"a": 1}')
        taken = [str(route) for route, answer in walk if answer.status_code != 415]
        assert taken == []


def test_what_nothing_has_is_not_found_in_the_same_words(loopback: Served) -> None:
    for route, answer in loopback.walk({}):
        if "{" in route.template and route.method in ("GET", "DELETE") and "." not in route.template:
            assert answer.status_code in (404, 400), route
            assert set(answer.json()["error"]) == {"message", "type", "param", "code"}, route


def test_every_answer_has_an_id_and_may_not_be_framed(loopback: Served) -> None:
    for route, answer in loopback.walk({}):
        assert answer.status_code < 500, (str(route), answer.text)
        assert answer.headers["x-request-id"], route
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"], route


def test_every_route_says_what_it_does_and_what_it_answers(loopback: Served) -> None:
    for route in loopback.routes:
        assert route.operation.get("description"), route
        good = [status for status in route.operation["responses"] if status.startswith("2")]
        assert good, route
        assert {"4XX", "5XX"} <= route.operation["responses"].keys(), route
