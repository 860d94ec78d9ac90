"""Several reward functions together: weights, components, failures."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from reward_files import children

from strop.config import RewardConfig
from strop.errors import RewardError
from strop.rewards.reward_function import Outcome
from strop.rewards.scorer import Scorer, Weighted
from strop.types import Failure, Message, Reward, Rollout, Row, StopReason, Turn

ROW = Row("r1", 1, (Message("user", "6 * 7?"),), (), "42", {"metadata": {"answer": "42"}})
ROLLOUT = Rollout(
    index=0,
    turns=(Turn(Message("assistant", "42"), StopReason.STOP, 1),),
    stop_reason=StopReason.STOP,
    timing={"sample": 1.5},
)


@dataclass
class Fixed:
    """A reward function with a fixed outcome."""

    name: str
    outcome: Outcome
    seeds: list[int] = field(default_factory=list)

    async def start(self) -> None: ...

    async def score(self, row: Row, rollout: Rollout, seed: int) -> Outcome:
        self.seeds.append(seed)
        return self.outcome

    async def close(self) -> None: ...


def score(*weighted: tuple[str, float, Outcome]) -> Rollout:
    async def main() -> Rollout:
        async with Scorer([Weighted(Fixed(name, outcome), weight) for name, weight, outcome in weighted]) as scorer:
            return await scorer.score(ROW, ROLLOUT, 3)

    return asyncio.run(main())


FAILED = Outcome(failure=Failure("timeout", "no answer", "line 3"), logs="thinking\n")


def test_the_number_of_a_single_function_is_its_component() -> None:
    assert score(("accuracy", 2.0, Outcome(0.5))).reward == Reward(1.0, {"accuracy": 0.5}, {"accuracy": 2.0})


def test_the_dict_of_a_single_function_names_the_components() -> None:
    reward = score(("accuracy", 2.0, Outcome({"form": 0.25, "fact": 1.0}))).reward
    assert reward == Reward(2.5, {"form": 0.25, "fact": 1.0}, {"form": 2.0, "fact": 2.0})


def test_components_of_several_functions_carry_the_functions_names() -> None:
    reward = score(("a", 1.0, Outcome({"x": 0.5, "y": 0.25})), ("b", -2.0, Outcome(0.25))).reward
    assert reward == Reward(0.25, {"a/x": 0.5, "a/y": 0.25, "b": 0.25}, {"a/x": 1.0, "a/y": 1.0, "b": -2.0})


def test_a_weight_of_zero_is_logged_and_not_counted() -> None:
    reward = score(("a", 1.0, Outcome(0.5)), ("length", 0.0, Outcome(300.0))).reward
    assert reward == Reward(0.5, {"a": 0.5, "length": 300.0}, {"a": 1.0, "length": 0.0})


@pytest.mark.parametrize("weight", [1.0, -1.0])
def test_a_failed_function_fails_the_rollout_by_name(weight: float) -> None:
    scored = score(("a", 1.0, Outcome(0.5)), ("judge", weight, FAILED))
    assert scored.reward is None
    assert scored.failure == Failure("timeout", "judge: no answer", "line 3")


def test_what_a_function_logs_is_shown_under_its_name_and_never_counted() -> None:
    logged = {"form": 1.0, "fact": 0.25}
    reward = score(("a", 2.0, Outcome(0.5, logged=logged))).reward
    assert reward == Reward(1.0, {"a": 0.5, "a/form": 1.0, "a/fact": 0.25}, {"a": 2.0, "a/form": 0.0, "a/fact": 0.0})


def test_what_a_failed_function_of_weight_zero_logged_is_still_shown() -> None:
    failed = Outcome(failure=Failure("formula", "division by zero"), logged={"form": 1.0})
    reward = score(("a", 1.0, Outcome(0.5)), ("b", 0.0, failed)).reward
    assert reward == Reward(0.5, {"a": 0.5, "b/form": 1.0}, {"a": 1.0, "b/form": 0.0})


def test_a_failed_function_of_weight_zero_is_only_logged() -> None:
    scored = score(("a", 1.0, Outcome(0.5)), ("judge", 0.0, FAILED))
    assert (scored.failure, scored.reward) == (None, Reward(0.5, {"a": 0.5}, {"a": 1.0}))
    assert scored.logs == "[judge]\nthinking\n[failed: no answer]\nline 3"


@pytest.mark.parametrize(
    ("weight", "value"), [(1e10, 1e300), (1.0, {"a": 1e308, "b": 1e308})], ids=["by weight", "by sum"]
)
def test_a_total_that_overflows_is_a_failure(weight: float, value: float | dict[str, float]) -> None:
    scored = score(("a", weight, Outcome(value)))
    assert scored.failure and scored.failure.cause == "nan"


def test_a_weight_of_zero_hides_an_overflow() -> None:
    reward = score(("a", 1.0, Outcome(0.5)), ("b", 0.0, Outcome({"x": 1e308, "y": 1e308}))).reward
    assert reward and reward.total == 0.5


def test_logs_are_kept_by_function_if_there_are_several() -> None:
    assert score(("a", 1.0, Outcome(1.0, logs="one\n"))).logs == "one"
    scored = score(("a", 1.0, Outcome(1.0, logs="one\n")), ("b", 1.0, Outcome(1.0)), ("c", 1.0, FAILED))
    assert scored.logs == "[a]\none\n[c]\nthinking"


def test_the_time_of_the_slowest_function_is_added_to_the_others() -> None:
    scored = score(("a", 1.0, Outcome(1.0, seconds=0.25)), ("b", 1.0, Outcome(1.0, seconds=0.5)))
    assert scored.timing == {"sample": 1.5, "reward": 0.5}


def test_all_functions_get_the_seed() -> None:
    functions = [Fixed("a", Outcome(1.0)), Fixed("b", Outcome(1.0))]
    asyncio.run(Scorer([Weighted(function, 1.0) for function in functions]).score(ROW, ROLLOUT, 7))
    assert [function.seeds for function in functions] == [[7], [7]]


# With real files.


def table(path: Path, name: str, code: str, **settings: object) -> RewardConfig:
    file = path / f"{name}.py"
    file.write_text(code, encoding="utf-8")
    return RewardConfig.model_validate({"name": name, "source": f"{file}:grade"} | settings)


def test_python_files_are_scored_from_their_tables(tmp_path: Path) -> None:
    tables = [
        table(tmp_path, "answer", "def grade(s, i):\n    return s.output_text == i.metadata.answer == i.reference\n"),
        table(tmp_path, "length", "def grade(s, i):\n    return {'chars': len(s['output_text'])}\n", weight=0),
    ]

    async def main() -> Rollout:
        async with Scorer.from_config(tables) as scorer:
            return await scorer.score(ROW, ROLLOUT, 1)

    scored = asyncio.run(main())
    assert scored.reward == Reward(1.0, {"answer": 1.0, "length/chars": 2.0}, {"answer": 1.0, "length/chars": 0.0})
    assert scored.timing["reward"] > 0


def test_functions_that_were_started_are_closed_if_a_later_one_fails(tmp_path: Path) -> None:
    tables = [table(tmp_path, "good", "def grade(s, i): return 1\n"), table(tmp_path, "bad", "1 / 0\n")]

    async def main() -> None:
        async with Scorer.from_config(tables):
            pass

    before = children()
    with pytest.raises(RewardError, match="'bad' cannot be loaded: ZeroDivisionError"):
        asyncio.run(main())
    assert children() == before
