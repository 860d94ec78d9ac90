"""Judges that fail in every way a server can: what is tried again, what is not, and what is said."""

from __future__ import annotations

import email.utils
import gzip
import re
from typing import Any

import pytest
from grading import grade, grades, settings
from judge_server import (
    JudgeServer,
    Reply,
    completion,
    drips,
    fails,
    floods,
    hangs,
    resets,
    says,
    scores,
    sends,
    serving,
)

from strop.errors import RewardError
from strop.rewards.graders.grade import Grade
from strop.types import Failure


def score_model(server: JudgeServer | str, **changes: Any) -> dict[str, Any]:
    url = server if isinstance(server, str) else server.url
    shape = {"type": "score_model", "model": "judge", "input": [{"role": "user", "content": "{{sample.output_text}}"}]}
    return shape | {"base_url": url} | changes


def judged(*replies: Reply, timeout_s: float = 20.0, **options: Any) -> tuple[Grade, int]:
    """The grade, and how many requests it took."""
    with serving(*replies) as server:
        graded = grade(score_model(server), "4", config=settings(timeout_s=timeout_s), **options)
        return graded, len(server.requests)


def failure(graded: Grade) -> Failure:
    """The failure; a judge that cannot be asked never gives a value."""
    assert graded.value is None and graded.failure is not None
    assert graded.failure.message.startswith("judge at http://127.0.0.1:")
    return graded.failure


# What may pass.


@pytest.mark.parametrize(
    "trouble",
    [
        fails(429, retry_after="0"),
        fails(429, retry_after="0.01"),
        fails(500),
        fails(503, retry_after=email.utils.formatdate(0, usegmt=True)),
        sends(502, b"<html>bad gateway</html>", content_type="text/html"),
        sends(408),
        resets,
        sends(200, b"<html>login</html>", content_type="text/html"),
        sends(200, b""),
        sends(200, completion("1")[:40]),
        sends(200, b'{"choices": []}'),
        sends(200, b"null"),
        sends(200, b"[" * 100_000),
        sends(200, completion("1"), content_length="100000", connection="close"),
    ],
    ids=[
        "429",
        "429 with a fraction",
        "500",
        "503 with a date",
        "502 in HTML",
        "408",
        "reset",
        "HTML with 200",
        "empty",
        "truncated",
        "no choices",
        "null",
        "deep",
        "too short",
    ],
)
def test_trouble_that_may_pass_is_waited_out(trouble: Reply) -> None:
    graded, requests = judged(trouble, scores(0.5))
    assert (graded.value, graded.failure, requests) == (0.5, None, 2)


@pytest.mark.parametrize("trouble", [hangs, drips])
def test_a_server_that_never_ends_is_asked_again_after_half_of_the_time(trouble: Reply) -> None:
    graded, requests = judged(trouble, scores(0.5), timeout_s=4.0)
    assert (graded.value, requests) == (0.5, 2)


@pytest.mark.parametrize("trouble", [hangs, drips])
def test_a_server_that_never_ends_twice_is_a_failure_in_bounded_time(trouble: Reply) -> None:
    graded, requests = judged(trouble, timeout_s=0.5)
    assert failure(graded).cause == "judge"
    assert re.search(r"no answer within 0\.2\d s \(2 tries\)", failure(graded).message)
    assert requests == 2


def test_trouble_that_lasts_is_a_failure_with_the_last_of_it() -> None:
    graded, requests = judged(fails(503, "overloaded", retry_after="0"))
    assert failure(graded).cause == "judge"
    assert failure(graded).message.endswith("/v1: 503: overloaded (8 tries)")
    assert requests == 8


def test_a_wait_that_is_longer_than_there_is_time_is_not_begun() -> None:
    graded, requests = judged(fails(429, "slow down", retry_after="3600"))
    assert failure(graded).message.endswith("429: slow down (1 try)")
    assert requests == 1


def test_a_server_that_is_not_there_is_a_failure() -> None:
    with serving() as server:
        url = server.url
    graded = grade(score_model(url), "4", config=settings(timeout_s=0.5))
    assert "no connection: ConnectError" in failure(graded).message


def test_a_name_that_does_not_exist_is_a_failure() -> None:
    graded = grade(score_model("http://judge.invalid/v1"), "4", config=settings(timeout_s=0.5))
    assert graded.failure and "judge.invalid has no address" in graded.failure.message


# What will not.


@pytest.mark.parametrize(
    ("status", "why"),
    [
        (400, "400: went wrong"),
        (401, "401: the server refuses a request without a key; set api_key_env: went wrong"),
        (403, "403: the server refuses a request without a key; set api_key_env: went wrong"),
        (404, "404: check base_url (most end with /v1) and the model's name, 'judge': went wrong"),
        (413, "413: went wrong"),
    ],
)
def test_a_refused_request_is_a_failure_at_once_that_names_the_setting(status: int, why: str) -> None:
    graded, requests = judged(fails(status))
    assert failure(graded) == Failure("judge", failure(graded).message)
    assert failure(graded).message.endswith(f"/v1: {why}")
    assert requests == 1


def test_a_refused_key_is_named_and_not_shown() -> None:
    with serving(fails(401, "Incorrect API key provided: sk-wrong-key")) as server:
        grader = score_model(server, api_key_env="JUDGE_KEY")
        graded = grade(grader, "4", variables={"JUDGE_KEY": "sk-wrong-key"})
    assert failure(graded).message.endswith(
        "401: the server refuses the key in $JUDGE_KEY: Incorrect API key provided: [redacted JUDGE_KEY]"
    )


def test_an_account_without_credit_is_not_asked_again() -> None:
    body = b'{"error": {"message": "You exceeded your quota", "code": "insufficient_quota"}}'
    graded, requests = judged(sends(429, body))
    assert failure(graded).message.endswith("429: You exceeded your quota; the account has no credit left")
    assert requests == 1


@pytest.mark.parametrize("status", [301, 302, 307, 308])
@pytest.mark.parametrize("target", ["http://169.254.169.254/latest/meta-data/", "/elsewhere"])
def test_a_redirect_is_never_followed(status: int, target: str) -> None:
    graded, requests = judged(sends(status, location=target), scores(1))
    assert f"{status}: a redirect, which is not followed" in failure(graded).message
    assert requests == 1


@pytest.mark.parametrize("host", ["2852039166", "0xa9fea9fe", "[::ffff:a9fe:a9fe]"])
def test_an_address_out_of_bounds_is_seen_when_a_connection_is_made(host: str) -> None:
    try:
        graded = grade(score_model(f"http://{host}/v1"), "4")
    except RewardError as error:  # or even before
        assert "169.254.169.254" in error.message
    else:
        assert graded.failure and "base_url is refused: " in graded.failure.message
        assert "leads to 169.254.169.254" in graded.failure.message


def test_a_flood_is_cut_off() -> None:
    graded, requests = judged(floods)
    assert failure(graded).message.endswith("the response has more than 8,388,608 bytes")
    assert requests == 1


def test_a_packed_answer_is_not_unpacked() -> None:
    bomb = gzip.compress(b" " * 2**24)
    graded, requests = judged(sends(200, bomb, content_encoding="gzip"))
    assert failure(graded).message.endswith("the response has compressed content, which was not requested")
    assert requests == 1


# Servers without structured output.


def test_a_server_that_knows_no_schema_is_asked_in_words_from_then_on() -> None:
    def picky(handler: Any) -> None:
        wants_schema = "response_format" in handler.server.requests[-1]
        (fails(400, "This response_format type is unavailable now") if wants_schema else says("0.5"))(handler)

    with serving(picky) as server:
        graded = grades(score_model(server, max_concurrent=1), ["4", "5"])
    assert [one.value for one in graded] == [0.5, 0.5]
    assert ["response_format" in request for request in server.requests] == [True, False, False]


def test_another_fault_of_the_request_keeps_the_schema() -> None:
    graded, requests = judged(fails(400, "this model's context is 4,096 tokens"))
    assert failure(graded).message.endswith("400: this model's context is 4,096 tokens")
    assert requests == 1


@pytest.mark.parametrize("usage", [b'"usage": null', b'"usage": {"prompt_tokens": "7"}', b'"usage": [1]'])
def test_strange_token_counts_cost_nothing(usage: bytes) -> None:
    body = b'{"choices": [{"message": {"content": "1"}}], ' + usage + b"}"
    graded, _ = judged(sends(200, body))
    assert (graded.value, graded.usage.prompt_tokens, graded.answered_by) == (1.0, 0, "judge")
