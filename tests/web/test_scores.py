from __future__ import annotations

from collections.abc import Sequence

import pytest

from strop.services.reward_tests import AnswerObject, FailureObject, TriedRow
from strop.web.scores import Scores, advice


def row(*rewards: float | None) -> TriedRow:
    answers = [
        AnswerObject(
            answer="",
            reward=reward,
            components={} if reward is None else {"a": reward, "b": 1.0},
            weights={"a": 1.0, "b": 0.0},
            failure=FailureObject(cause="timeout", message="", detail="") if reward is None else None,
            logs="",
            seconds=0.5,
        )
        for reward in rewards
    ]
    scored = [reward for reward in rewards if reward is not None]
    return TriedRow(
        id="r", line=1, messages=[], reference=None, answers=answers, mean=None, spread=len(set(scored)) > 1
    )


def test_answers_together() -> None:
    scores = Scores.of([row(0.0, 1.0, None), row(0.5, 0.5)])
    assert (scores.answers, scores.mean, scores.useful) == (5, 0.5, 0.5)
    assert scores.failures == {"timeout": 1}
    assert scores.components == {"a": 0.5, "b": 1.0}
    assert (scores.seconds, scores.slowest) == (0.5, 0.5)


def test_rows_with_one_answer_tell_nothing_of_spread() -> None:
    assert Scores.of([row(0.0), row(1.0)]).useful is None


@pytest.mark.parametrize(
    "rows, words",
    [
        ([row(None, None)], "No completion could be scored"),
        ([row(1.0, None)], "1 of 2 completions could not be scored"),
        ([row(0.0, 0.0), row(0.0, 0.0)], "Every completion scored 0"),
        ([row(1.0, 1.0)], "Every completion scored 1"),
        ([row(0.0, 0.0)] * 5 + [row(1.0, 1.0)] * 5 + [row(0.0, 1.0)], "Only 9% of the prompts"),
    ],
)
def test_what_to_know_before_training(rows: Sequence[TriedRow], words: str) -> None:
    found = advice(Scores.of(rows))
    assert found is not None
    assert words in found[1]


@pytest.mark.parametrize("rows", [[], [row(0.0, 1.0)], [row(1.0)], [row(0.0, 1.0), row(0.0, 0.0)]])
def test_nothing_is_said_where_all_is_well(rows: Sequence[TriedRow]) -> None:
    assert advice(Scores.of(rows)) is None
