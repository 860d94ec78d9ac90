"""The training loop with fakes at its seams: what happens in which order, and when it ends."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from train_cases import config, row

from fake_completers import FakeCompleter, single_turn
from strop.config import RunConfig
from strop.data.order import DataOrder
from strop.errors import TooManyFailures, TrainingDiverged
from strop.train.batch import Sample
from strop.train.learner import Update
from strop.train.loop import Ending, Trainer
from strop.types import Failure, Reward, Rollout, Row, StepRecord

GOOD = Update({"loss": 0.5, "grad_norm": 1.0, "clip_ratio": 0.0})
DIVERGED = Update({}, skipped="the loss is nan", diverged=True)
EQUAL = Update({}, skipped="no group had rewards that differ")


@dataclass
class Scored:
    """A scorer: rewards 0, 1, 2 … within a group, or a failure where `fails` says so."""

    fails: Callable[[int, Row], bool] = lambda call, row: False
    calls: int = 0

    async def score(self, row: Row, rollout: Rollout, seed: int) -> Rollout:
        self.calls += 1
        if rollout.index == 0 and self.fails(self.calls, row):
            failure = Failure("exception", "ValueError: no", f"Traceback for {row.id}")
            return dataclasses.replace(rollout, failure=failure)
        value = float(rollout.index)
        return dataclasses.replace(rollout, reward=Reward(value, {"score": value}, {"score": 1.0}))


class Scripted:
    """A learner without a model: its updates are given, then repeat the last."""

    def __init__(self, updates: Sequence[Update]) -> None:
        self._updates = list(updates)
        self.samples: list[Sequence[Sample]] = []
        self.rates: list[float] = []
        self.published: list[int] = []
        """How many updates there had been at each publishing."""

    def save(self, folder: Path) -> None: ...

    def restore(self, folder: Path) -> None: ...

    def publish(self) -> int:
        self.published.append(len(self.samples))
        return len(self.samples)

    def update(self, samples: Sequence[Sample], learning_rate: float) -> Update:
        self.samples.append(samples)
        self.rates.append(learning_rate)
        return self._updates.pop(0) if len(self._updates) > 1 else self._updates[0]


@dataclass
class Kept:
    """Recorder and checkpoints in one, so that the order of their calls shows."""

    events: list[str] = field(default_factory=list)
    records: list[StepRecord] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)

    @property
    def best_reward(self) -> float | None:
        return max(self.rewards, default=None)

    def record(self, record: StepRecord) -> None:
        self.events.append(f"record {record.step}")
        self.records.append(record)

    def save(self, step: int, validation_reward: float | None) -> None:
        self.events.append(f"save {step}")
        if validation_reward is not None:
            self.rewards.append(validation_reward)

    def close(self) -> None: ...

    @property
    def saved(self) -> list[int]:
        return [int(event.removeprefix("save ")) for event in self.events if event.startswith("save")]


def validation(rewards: Sequence[float], kept: Kept) -> Callable[[], Any]:
    """Held-out rewards, one a call; each call is an event."""
    remaining: Iterator[float] = iter(rewards)

    async def validate() -> Mapping[str, float]:
        kept.events.append("validate")
        return {"reward": next(remaining)}

    return validate


@dataclass
class Run:
    trainer: Trainer
    kept: Kept
    completer: FakeCompleter
    learner: Scripted

    def go(self, done: int = 0, should_stop: Callable[[], bool] = lambda: False) -> Ending:
        return asyncio.run(self.trainer.run(done, should_stop))


def run(
    rows: int = 8,
    updates: Sequence[Update] = (GOOD,),
    fails: Callable[[int, Row], bool] = lambda call, row: False,
    held_out: Sequence[float] | None = None,
    **train: Any,
) -> Run:
    """A trainer of 8 rows, 2 a step, 3 samples each: four steps an epoch."""
    settings: RunConfig = config(**{"batch_size": 2, "samples_per_prompt": 3, **train})
    kept, completer, learner = Kept(), FakeCompleter(), Scripted(updates)
    trainer = Trainer(
        config=settings,
        rows=[row(number) for number in range(rows)],
        order=DataOrder(rows, settings.train.batch_size, settings.seed),
        learner=learner,
        peak_rate=1.0,
        player=single_turn(completer),
        scorer=Scored(fails),
        recorders=[kept],
        checkpoints=kept,
        validate=None if held_out is None else validation(held_out, kept),
        prompts_dropped=7,
    )
    return Run(trainer, kept, completer, learner)


# Steps


def test_weights_are_published_before_the_first_rollout_and_after_every_update() -> None:
    made = run(rows=6)
    made.go()
    assert made.learner.published == [0, 1, 2, 3]


def test_an_update_that_was_cut_short_is_noted_and_is_no_skipped_step() -> None:
    made = run(updates=[Update({"loss": 0.5}, diverged=True, cut_short="the loss is nan in pass 2 of 3")], rows=2)
    made.go()
    (record,) = made.kept.records
    assert record.notes == (
        "update cut short: the loss is nan in pass 2 of 3; the passes before it have changed the weights",
    )
    assert record.metrics["step_skipped"] == 0


def test_an_epoch_takes_every_row_once_and_finishes() -> None:
    made = run()
    assert made.go() is Ending.FINISHED
    assert [record.step for record in made.kept.records] == [1, 2, 3, 4]
    assert sorted(call[0].where for call in made.completer.asked) == [f"line {line}" for line in range(8)]
    assert {call[1] for call in made.completer.asked} == {3}


def test_a_last_batch_that_is_smaller_is_trained_too() -> None:
    made = run(rows=5)
    made.go()
    assert [len(samples) for samples in made.learner.samples] == [2, 2, 1]


def test_max_steps_ends_a_run_early_and_never_late() -> None:
    early, late = run(max_steps=3), run(max_steps=99)
    early.go()
    late.go()
    assert [len(each.kept.records) for each in (early, late)] == [3, 4]


def test_the_learner_gets_each_group_with_its_advantages() -> None:
    made = run(advantage_scale="none")
    made.go()
    for samples in made.learner.samples:
        assert [sample.advantages_G for sample in samples] == [(-1.0, 0.0, 1.0)] * 2
        assert [sample.prompt_ids for sample in samples] == [(1, 2, 3)] * 2
    assert made.kept.records[0].advantages == ((-1.0, 0.0, 1.0), (-1.0, 0.0, 1.0))


def test_sampling_follows_the_configuration_with_a_seed_for_each_step() -> None:
    made = run(epochs=2)
    made.go()
    asked = [params for _, _, params in made.completer.asked]
    assert {(params.temperature, params.max_tokens, params.top_p) for params in asked} == {(1.0, 8, 1.0)}
    # A row that comes again in a later epoch is drawn anew.
    assert len({params.seed for params in asked}) == 16


def test_a_resumed_run_does_what_the_whole_run_did_from_there_on() -> None:
    whole, resumed = run(schedule="linear"), run(schedule="linear")
    whole.go()
    resumed.go(done=2)
    assert resumed.completer.asked == whole.completer.asked[4:]
    assert resumed.learner.rates == whole.learner.rates[2:] == [0.5, 0.25]
    assert [record.step for record in resumed.kept.records] == [3, 4]


def test_a_run_that_is_done_has_nothing_left_to_do() -> None:
    made = run()
    assert made.go(done=4) is Ending.FINISHED
    assert made.kept.events == []


def test_a_record_holds_the_metrics_of_the_step() -> None:
    made = run()
    made.go()
    metrics = made.kept.records[0].metrics
    assert {key: metrics[key] for key in ("reward", "max_reward", "solve_rate", "loss", "prompts_dropped")} == {
        "reward": 1.0,
        "max_reward": 2.0,
        "solve_rate": 1.0,
        "loss": 0.5,
        "prompts_dropped": 7.0,
    }
    assert metrics["learning_rate"] == 1.0
    assert metrics["step_skipped"] == 0.0
    assert metrics["advantages"] == pytest.approx(0.0)
    assert metrics["time/sample"] == 0.25
    assert metrics["time/reward"] >= 0
    assert metrics["time/train"] >= 0
    assert metrics["tokens_per_second"] > 0


def test_phases_are_told_in_order() -> None:
    made = run(max_steps=1, held_out=[0.1, 0.2], eval_every=1)
    phases: list[tuple[int, str]] = []
    made.trainer.on_phase = lambda step, phase: phases.append((step, phase))
    made.go()
    assert phases == [(0, "validating"), (1, "sampling"), (1, "training"), (1, "validating"), (1, "saving")]


def test_every_recorder_hears_of_every_step() -> None:
    made, second = run(), Kept()
    made.trainer.recorders = [made.kept, second]
    made.go()
    assert second.records == made.kept.records


def test_a_step_that_cannot_be_recorded_stops_the_run_before_its_checkpoint() -> None:
    class Full(Kept):
        def record(self, record: StepRecord) -> None:
            raise OSError(28, "No space left on device")

    made = run(save_every=1)
    made.trainer.recorders = [Full()]
    with pytest.raises(OSError, match="No space left"):
        made.go()
    assert made.kept.saved == []


# Checkpoints


def test_by_default_a_checkpoint_is_saved_once_an_epoch() -> None:
    made = run(epochs=3)
    made.go()
    assert made.kept.saved == [4, 8, 12]


def test_save_every_counts_steps_and_the_last_step_is_always_saved() -> None:
    made = run(epochs=2, save_every=3)
    made.go()
    assert made.kept.saved == [3, 6, 8]


def test_a_step_is_recorded_before_the_checkpoint_that_contains_it() -> None:
    made = run(save_every=2)
    made.go()
    assert made.kept.events == ["record 1", "record 2", "save 2", "record 3", "record 4", "save 4"]


def test_a_checkpoint_is_saved_whenever_validation_has_never_been_better() -> None:
    # Step 0 is no checkpoint; then 0.3 is the best so far, 0.3 again is not, 0.5 is, 0.4 is not.
    made = run(epochs=2, max_steps=5, save_every=100, held_out=[0.9, 0.3, 0.3, 0.5, 0.4, 0.1], eval_every=1)
    made.go()
    assert made.kept.saved == [1, 3, 5]
    assert made.kept.rewards == [0.3, 0.5, 0.1]


# Validation


def test_validation_comes_before_the_first_step_every_so_often_and_at_the_end() -> None:
    made = run(epochs=2, max_steps=5, save_every=100, held_out=[0.5, 0.4, 0.3, 0.2], eval_every=2)
    made.go()
    assert made.kept.events == [
        "validate",
        "record 0",
        "record 1",
        "validate",
        "record 2",
        "save 2",
        "record 3",
        "validate",
        "record 4",
        "validate",
        "record 5",
        "save 5",
    ]
    found = {r.step: r.metrics["validation/reward"] for r in made.kept.records if "validation/reward" in r.metrics}
    assert found == {0: 0.5, 2: 0.4, 4: 0.3, 5: 0.2}
    assert all("time/validation" in made.kept.records[step].metrics for step in found)


def test_a_resumed_run_does_not_validate_before_its_first_step() -> None:
    made = run(held_out=[0.5, 0.5], eval_every=2)
    made.go(done=1)
    assert made.kept.events[0] == "validate"
    assert made.kept.events[1] == "record 2"
    assert "record 0" not in made.kept.events


@pytest.mark.parametrize(("held_out", "eval_every"), [([], 0), (None, 2)])
def test_without_rows_or_interval_nothing_is_validated(held_out: Sequence[float] | None, eval_every: int) -> None:
    made = run(held_out=held_out, eval_every=eval_every)
    made.go()
    assert made.kept.events == ["record 1", "record 2", "record 3", "record 4", "save 4"]


# Pausing


def test_a_stop_request_ends_the_run_after_the_step_with_a_checkpoint() -> None:
    made = run()
    assert made.go(should_stop=lambda: len(made.kept.records) == 2) is Ending.PAUSED
    assert made.kept.events == ["record 1", "record 2", "save 2"]


def test_a_stop_request_in_the_last_step_finds_the_run_finished() -> None:
    made = run()
    assert made.go(should_stop=lambda: len(made.kept.records) == 4) is Ending.FINISHED
    assert made.kept.saved == [4]


# Failures


def only(*lines: int) -> Callable[[int, Row], bool]:
    return lambda call, row: row.line in lines


def test_a_failed_group_is_left_out_and_counted() -> None:
    made = run(fails=only(3), rows=6, batch_size=6, max_failed_groups=1.0)
    made.go()
    (samples,), (record,) = made.learner.samples, made.kept.records
    assert len(samples) == 5
    assert record.metrics["rollouts_errored"] == 1
    assert record.metrics["failures/exception"] == 1
    failed = [group.row.line for group in record.groups if group.failure]
    assert failed == [3]
    assert [len(advantages) for advantages in record.advantages] == [0 if g.failure else 3 for g in record.groups]


def test_the_notes_name_each_failed_row_and_show_one_traceback() -> None:
    made = run(fails=only(0, 1), rows=2)
    made.go()
    (record,) = made.kept.records
    lines = sorted(note for note in record.notes if note.startswith("row at line"))
    assert lines == [f"row at line {line} dropped: ValueError: no" for line in (0, 1)]
    assert len([note for note in record.notes if note.startswith("Traceback for row-")]) == 1


def test_a_step_in_which_all_groups_failed_has_no_reward() -> None:
    made = run(updates=[EQUAL], fails=lambda call, row: True, max_failed_groups=1.0)
    made.go()
    assert made.learner.samples == [[]] * 4
    for record in made.kept.records:
        assert "reward" not in record.metrics
        assert "advantages" not in record.metrics
        assert record.metrics["rollouts_errored"] == 2


def test_too_many_failures_stop_the_run_after_recording_and_saving() -> None:
    made = run(fails=lambda call, row: True)
    with pytest.raises(TooManyFailures, match=r"(?s)4 of the last 4 groups.*max_failed_groups = 0.25.*Traceback for"):
        made.go()
    assert made.kept.events == ["record 1", "record 2", "save 2"]


@pytest.mark.parametrize("call", [1, 19])
def test_one_flaky_failure_does_not_stop_a_run(call: int) -> None:
    made = run(fails=lambda number, row: number == call)
    assert made.go() is Ending.FINISHED
    assert sum(record.metrics["rollouts_errored"] for record in made.kept.records) == 1


def test_a_single_failure_stops_the_run_where_none_is_allowed() -> None:
    made = run(fails=only(3), max_failed_groups=0.0)
    with pytest.raises(TooManyFailures):
        made.go()


def test_a_judge_that_dies_late_is_noticed_by_the_newest_groups() -> None:
    # 200 good groups, then nothing but failures: a quarter of the last 32 is passed at the 9th.
    made = run(rows=400, fails=lambda call, row: call > 600)
    with pytest.raises(TooManyFailures, match="of the last 32 groups"):
        made.go()
    assert made.kept.records[-1].step == 105


def test_half_the_groups_may_fail_where_the_configuration_says_so() -> None:
    made = run(rows=40, fails=lambda call, row: row.line % 2 == 0, max_failed_groups=1.0)
    assert made.go() is Ending.FINISHED


# Divergence


def test_steps_without_a_finite_loss_stop_the_run_after_recording_and_saving() -> None:
    made = run(updates=[GOOD, DIVERGED], epochs=5, max_skipped_steps=3)
    with pytest.raises(TrainingDiverged, match=r"3 consecutive steps.*train\.learning_rate"):
        made.go()
    assert [record.step for record in made.kept.records] == [1, 2, 3, 4]
    assert made.kept.events[-2:] == ["record 4", "save 4"]
    assert [record.metrics["step_skipped"] for record in made.kept.records] == [0, 1, 1, 1]
    assert "weights left alone: the loss is nan" in made.kept.records[-1].notes


def test_a_good_step_in_between_starts_the_count_anew() -> None:
    made = run(updates=[DIVERGED, DIVERGED, GOOD, DIVERGED, DIVERGED, GOOD], epochs=2, max_skipped_steps=3)
    assert made.go() is Ending.FINISHED
    assert sum(record.metrics["step_skipped"] for record in made.kept.records) == 4


def test_steps_with_nothing_to_learn_from_do_not_count_as_divergence() -> None:
    made = run(updates=[EQUAL], epochs=2, max_skipped_steps=1)
    assert made.go() is Ending.FINISHED
    assert [record.metrics["step_skipped"] for record in made.kept.records] == [1.0] * 8
