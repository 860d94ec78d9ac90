"""Tests of rewards: what they make of answers, before anything is trained with them."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any, Literal

from pydantic import Field

from strop.config import RewardConfig
from strop.data.faults import Refused
from strop.data.rows import build_row
from strop.data.strict_json import parse_object
from strop.errors import InvalidRequest
from strop.http.bodies import Body
from strop.services.container import Services
from strop.services.datasets import path_of
from strop.services.job_request import RewardOption
from strop.services.objects import Answer
from strop.services.reward_tables import reward_tables
from strop.services.rowpages import read_page
from strop.services.scoring import Case, try_rewards
from strop.services.server_library import ServerLibrary
from strop.services.threads import in_thread
from strop.types import Json, Row

MAX_ROWS = 100
MAX_ANSWERS = 32
"""For each row."""
MAX_SECONDS = 300


class TrialRequest(Body):
    """Rewards as in `strop.rewards` of a job, and answers to score with them."""

    rewards: Annotated[list[RewardOption], Field(min_length=1, max_length=16)]
    rows: Annotated[list[dict[str, Any]] | None, Field(min_length=1, max_length=MAX_ROWS)] = None
    dataset_id: str | None = None
    """Takes the first rows of a data set."""
    limit: Annotated[int, Field(ge=1, le=MAX_ROWS)] = 5
    """Rows of the data set."""
    answers: list[Annotated[list[str], Field(min_length=1, max_length=MAX_ANSWERS)]] | None = None
    """For each row the answers to score; without them its reference is scored, which should get the most there is."""
    seconds: Annotated[float, Field(gt=0, le=MAX_SECONDS)] = 60
    """After these, what is left counts as not reached."""


class FailureObject(Answer):
    """Why an answer could not be scored."""

    cause: str
    message: str
    detail: str


class AnswerObject(Answer):
    """One answer with its reward."""

    answer: str
    reward: float | None
    """None where it could not be scored."""
    components: dict[str, float]
    weights: dict[str, float]
    """Of each component; 0 is logged, not trained on."""
    failure: FailureObject | None
    logs: str
    seconds: float


class TriedRow(Answer):
    """One row with its answers."""

    id: str
    line: int
    messages: list[dict[str, Any]]
    reference: Any
    answers: list[AnswerObject]
    mean: float | None
    spread: bool
    """Whether its answers differ in reward: only then does training learn from the row."""


class TrialSummary(Answer):
    """All answers together."""

    answers: int
    scored: int
    failures: dict[str, int]
    """By cause."""
    mean: float | None
    lowest: float | None
    highest: float | None
    components: dict[str, float]
    """Means."""
    rows_with_spread: float | None
    """Share of the rows with several answers; None where each has one."""
    seconds: float
    """For the mean answer."""
    slowest: float


class TrialObject(Answer):
    """The result of a test."""

    object: Literal["reward.test"] = "reward.test"
    data: list[TriedRow]
    summary: TrialSummary


@in_thread
def run(services: Services, body: TrialRequest) -> TrialObject:
    """Score answers as training would, in processes of their own and in bounded time.

    A reward that cannot be loaded is an error; one that fails on an answer says so there.
    """
    rows = _rows(body, services)
    cases = _cases(rows, body.answers)
    tables, files = reward_tables(body.rewards, ServerLibrary(services))
    with tempfile.TemporaryDirectory(prefix="strop-test-") as scratch:
        configs = [_config(table, files, Path(scratch), services.folder.path) for table in tables]
        results = try_rewards(services.trials, configs, cases, body.seconds)
    scored = [AnswerObject(answer=case.answer, **found) for case, found in zip(cases, results, strict=True)]
    tried = [_tried(row, [a for a, case in zip(scored, cases, strict=True) if case.row is row]) for row in rows]
    return TrialObject(data=tried, summary=_summary(tried))


def _rows(body: TrialRequest, services: Services) -> list[Row]:
    if (body.rows is None) == (body.dataset_id is None):
        raise InvalidRequest("give either rows or dataset_id", param="rows")
    if body.dataset_id is not None:
        return list(read_page(path_of(services, body.dataset_id), None, body.limit).rows)
    return [_row(place, fields) for place, fields in enumerate(body.rows or ())]


def _row(place: int, fields: dict[str, Json]) -> Row:
    """The row as a data file would have it, with the same rules."""
    try:
        found = build_row(place + 1, parse_object(json.dumps(fields)))
    except Refused as refused:
        found = [refused.at(place + 1)]
    if not isinstance(found, Row):
        raise InvalidRequest(f"rows[{place}]: {'; '.join(map(str, found))}", param=f"rows[{place}]")
    return found


def _cases(rows: Sequence[Row], answers: Sequence[Sequence[str]] | None) -> list[Case]:
    if answers is None:
        lacking = [row.line for row in rows if row.reference is None]
        if lacking:
            raise InvalidRequest(f"row {lacking[0]} has no reference to score; give answers", param="answers")
        return [Case(row, _said(row.reference)) for row in rows]
    if len(answers) != len(rows):
        raise InvalidRequest(f"{len(answers)} lists of answers for {len(rows)} rows", param="answers")
    return [Case(row, answer) for row, given in zip(rows, answers, strict=True) for answer in given]


def _said(reference: Json) -> str:
    """The reference as an answer would have it."""
    return reference if isinstance(reference, str) else json.dumps(reference, ensure_ascii=False)


def _config(table: Mapping[str, Any], files: Mapping[str, str], scratch: Path, folder: Path) -> RewardConfig:
    """The table with a source that is there: what came with the request is written for the test only."""
    path, colon, function = table["source"].partition(":")
    place = folder / path
    if path in files:
        place = scratch / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(files[path], encoding="utf-8")
    return RewardConfig.model_validate({**table, "source": f"{place}{colon}{function}"})


def _tried(row: Row, answers: list[AnswerObject]) -> TriedRow:
    rewards = [answer.reward for answer in answers if answer.reward is not None]
    return TriedRow(
        id=row.id,
        line=row.line,
        messages=[message.as_dict() for message in row.messages],
        reference=row.reference,
        answers=answers,
        mean=fmean(rewards) if rewards else None,
        spread=len(set(rewards)) > 1,
    )


def _summary(rows: Sequence[TriedRow]) -> TrialSummary:
    answers = [answer for row in rows for answer in row.answers]
    rewards = [answer.reward for answer in answers if answer.reward is not None]
    names = dict.fromkeys(name for answer in answers for name in answer.components)
    several = [row.spread for row in rows if len(row.answers) > 1]
    seconds = [answer.seconds for answer in answers]
    return TrialSummary(
        answers=len(answers),
        scored=len(rewards),
        failures=dict(Counter(answer.failure.cause for answer in answers if answer.failure)),
        mean=fmean(rewards) if rewards else None,
        lowest=min(rewards, default=None),
        highest=max(rewards, default=None),
        components={name: fmean(a.components[name] for a in answers if name in a.components) for name in names},
        rows_with_spread=fmean(several) if several else None,
        seconds=fmean(seconds),
        slowest=max(seconds),
    )
