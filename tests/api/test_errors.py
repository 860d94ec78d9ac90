"""Every error has one shape, and a status that clients understand."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi import FastAPI
from fastapi.testclient import TestClient
from pydantic import BaseModel, Field

from served import services
from strop import errors
from strop.api.app import create_app
from strop.errors import StropError
from strop.http.errors import STATUS, param_of
from strop.services.container import Services

Raise = Callable[[Exception], Any]


class Body(BaseModel):
    steps: list[dict[str, int]] = Field(min_length=1)


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    with services(tmp_path_factory.mktemp("data")) as given:
        yield given


@pytest.fixture(scope="module")
def app(given: Services) -> FastAPI:
    return create_app(given)


@pytest.fixture(scope="module")
def client(app: FastAPI) -> TestClient:
    return TestClient(app, base_url="http://localhost:8100")


@pytest.fixture(scope="module")
def answer_to(app: FastAPI, client: TestClient) -> Raise:
    """The answer of a route that raises."""

    def ask(error: Exception) -> Any:
        def fail() -> None:
            raise error

        path = f"/fail/{len(app.routes)}"
        app.add_api_route(path, fail)
        return client.get(path)

    return ask


def kinds(base: type[StropError] = StropError) -> Iterator[type[StropError]]:
    for kind in base.__subclasses__():
        yield kind
        yield from kinds(kind)


@pytest.mark.parametrize("kind", list(kinds()), ids=lambda kind: kind.__name__)
def test_every_error_of_ours_is_answered_with_its_message(kind: type[StropError], answer_to: Raise) -> None:
    answer = answer_to(kind("the step -1 is below 0", param="step"))
    error = answer.json()["error"]
    assert (error["message"], error["param"], error["code"]) == ("the step -1 is below 0", "step", kind.code)
    assert error["type"]
    assert answer.status_code == next((STATUS[parent] for parent in kind.__mro__ if parent in STATUS), 500)


def test_a_conflict_is_not_worth_another_try(answer_to: Raise) -> None:
    assert answer_to(errors.Conflict("finished")).headers["x-should-retry"] == "false"


@pytest.mark.parametrize("kind", [errors.RateLimited, errors.Unavailable])
def test_what_passes_says_when_to_come_back(kind: type[errors.TryLater], answer_to: Raise) -> None:
    assert answer_to(kind("busy", retry_after=1.2)).headers["retry-after"] == "2"


def test_without_a_key_the_scheme_is_named(answer_to: Raise) -> None:
    assert answer_to(errors.Unauthorized("no key")).headers["www-authenticate"] == "Bearer"


def test_a_defect_shows_nothing_of_itself(answer_to: Raise) -> None:
    answer = answer_to(ValueError("rosebud"))
    assert answer.status_code == 500
    assert answer.json()["error"]["type"] == "server_error"
    assert "rosebud" not in answer.text
    assert answer.headers["x-request-id"].startswith("req_")


def test_a_full_disk_is_said(answer_to: Raise) -> None:
    answer = answer_to(OSError(errno.ENOSPC, "No space left on device", "/data/strop.db"))
    assert (answer.status_code, answer.json()["error"]["code"]) == (507, "disk_full")
    assert answer_to(OSError(errno.EIO, "Input/output error")).status_code == 500


def test_a_database_that_is_away_shows_no_statement(answer_to: Raise) -> None:
    answer = answer_to(sa.exc.OperationalError("INSERT rosebud", {"value": "rosebud"}, Exception("disk is full")))
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    assert "rosebud" not in answer.text


def test_a_value_that_the_database_cannot_hold_is_the_clients_fault(answer_to: Raise) -> None:
    assert answer_to(sa.exc.DataError("INSERT", {}, Exception("NUL"))).status_code == 400


@pytest.mark.parametrize(
    ("sent", "param"),
    [({}, "steps"), ({"steps": []}, "steps"), ({"steps": [{}, {"a": "x"}]}, "steps[1].a"), ([], None)],
)
def test_a_malformed_body_names_the_field(app: FastAPI, client: TestClient, sent: Any, param: str | None) -> None:
    def take(body: Body) -> None: ...

    path = f"/body/{len(app.routes)}"
    app.add_api_route(path, take, methods=["POST"])
    answer = client.post(path, json=sent)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param


def test_a_body_that_is_no_json_is_said(client: TestClient) -> None:
    answer = client.post("/v1/strop/keys", content=b'{"name": ', headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_json")


def test_a_value_that_was_refused_is_not_sent_back(client: TestClient) -> None:
    answer = client.put("/v1/strop/secrets/TOKEN", json={"value": ["rosebud"]})
    assert answer.status_code == 400
    assert "rosebud" not in answer.text


def test_an_unknown_path_is_answered_in_json(client: TestClient) -> None:
    answer = client.get("/v1/fine_tuning/nothing")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "unknown_url")
    assert "/v1" not in answer.json()["error"]["message"].partition(": ")[2]


@pytest.mark.parametrize("path", ["/files", "/", "/chat/completions", "/v1x/files"])
def test_a_path_outside_is_told_about_v1(client: TestClient, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 404
    assert "add it to the base URL, as in http://localhost:8100/v1" in answer.json()["error"]["message"]


def test_another_method_is_refused_with_those_that_are_possible(client: TestClient) -> None:
    answer = client.put("/v1/strop/keys")
    assert answer.status_code == 405
    assert set(answer.headers["allow"].split(", ")) == {"GET", "POST"}
    assert client.post("/health").headers["allow"] == "GET"


def test_unknown_paths_under_v1_stay_json_where_pages_are_mounted(given: Services) -> None:
    app = create_app(given)
    client = TestClient(app, base_url="http://localhost:8100")
    pages = FastAPI()
    pages.add_api_route("/{path:path}", lambda path: f"<p>{path}")
    app.mount("/", pages)
    assert client.get("/jobs").text == '"<p>jobs"'
    assert client.get("/v1/nothing").json()["error"]["code"] == "unknown_url"
    assert client.put("/v1/strop/keys").status_code == 405


@pytest.mark.parametrize(
    ("location", "param"),
    [
        (("body", "messages", 0, "content"), "messages[0].content"),
        (("query", "limit"), "limit"),
        (("body",), None),
        (("body", "grader", "function-after[check(), Grader]", "name"), "grader.name"),
    ],
)
def test_a_field_is_named_as_in_javascript(location: tuple[str | int, ...], param: str | None) -> None:
    assert param_of(location) == param
