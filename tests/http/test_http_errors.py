"""Errors over HTTP: the client raises what the server raised."""

from __future__ import annotations

import json

import pytest

from strop import errors
from strop.errors import ModelError, StropError
from strop.http.errors import body_of, error_of, headers_of, status_of
from strop.policy.draw import NotFinite

KINDS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, StropError) and "code" in vars(kind) and kind is not StropError
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_an_error_is_the_same_on_the_other_side(kind: type[StropError]) -> None:
    sent = kind("why", param="model")
    if isinstance(sent, errors.TryLater):
        sent.retry_after = 7.0
    found = error_of(status_of(sent), json.dumps(body_of(sent)), headers_of(sent))
    assert type(found) is kind
    assert vars(found) == vars(sent)


def test_a_class_of_one_module_comes_as_the_one_that_everybody_knows() -> None:
    sent = NotFinite([0])
    assert type(error_of(status_of(sent), body_of(sent), {})) is ModelError


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, errors.InvalidRequest),
        (404, errors.NotFound),
        (422, errors.InvalidRequest),
        (429, errors.RateLimited),
        (500, ModelError),
        (503, errors.Unavailable),
    ],
)
def test_servers_of_others_are_understood_by_their_status(status: int, kind: type[StropError]) -> None:
    body = {"error": {"message": "no", "type": "NotFoundError", "param": None, "code": status}}
    found = error_of(status, body, {"retry-after": "4"})
    assert (type(found), found.message) == (kind, "no")
    if isinstance(found, errors.TryLater):
        assert found.retry_after == 4


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"error": "x"}', b"\xff"])
def test_an_answer_without_an_error_object_is_named_by_its_status(body: bytes) -> None:
    assert error_of(502, body, {}).message == "HTTP status 502 without a reason"
