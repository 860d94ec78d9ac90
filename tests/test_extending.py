"""Extension points: a toy of each kind works through the public registries, without other changes."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from job_cases import NoIngester, until
from sqlalchemy import RowMapping
from torch import Tensor
from train_cases import config, row

from fake_completers import FakeCompleter
from strop.config import EnvironmentConfig, RewardConfig, RunConfig
from strop.data.order import DataOrder
from strop.envs.registry import ENVIRONMENTS, open_environment
from strop.envs.single_turn import opening_of
from strop.insight import doctor
from strop.insight.findings import Curves, Finding, Severity
from strop.insight.trend import Curve
from strop.jobs.kind import Change, Exit, Outcome, Settled, Tools
from strop.jobs.kinds import KINDS, make_kinds
from strop.jobs.launcher import LocalLauncher
from strop.jobs.queue import TaskQueue
from strop.jobs.supervisor import Supervisor
from strop.jobs.task import Task, TaskStatus, to_task
from strop.policy.tool_calls import ToolCallFormat
from strop.policy.tool_families import FAMILIES, Family
from strop.policy.tool_readers import ReadCall, Schemas
from strop.rewards.graders.grade import Grade, Part, Settings, Values
from strop.rewards.graders.grader import Grader
from strop.rollout import Player, run_group
from strop.store.datafolder import DataFolder
from strop.store.db import open_database
from strop.store.taskdir import TaskDir
from strop.train.advantage import ADVANTAGES
from strop.train.batch import Sample
from strop.train.learner import Update
from strop.train.loop import Trainer
from strop.train.loss import LOSSES, LossInputs, LossSettings, StepTotals, by_token, policy_loss
from strop.types import Context, Failure, Message, Reward, Rollout, Row, SamplingParams, StepRecord, StopReason, Turn
from strop.worker.trackers import TRACKERS, open_trackers

# Toys


class Echo:
    """A completer without a model."""

    async def complete(self, context: Context, count: int, params: SamplingParams) -> Sequence[Turn | Failure]:
        text = context.messages[-1].content
        return [Turn(Message("assistant", text), StopReason.STOP, len(text))] * count


class Countdown:
    """An environment that asks `turns` times."""

    def __init__(self, turns: int) -> None:
        self._turns = turns

    async def start(self, row: Row, seed: int) -> CountdownEpisode:
        return CountdownEpisode(opening_of(row), self._turns)


class CountdownEpisode:
    def __init__(self, opening: Context, turns: int) -> None:
        self.opening = opening
        self._left = turns

    async def step(self, turn: Turn) -> tuple[Message, ...] | None:
        self._left -= 1
        return (Message("user", str(self._left)),) if self._left else None

    async def close(self) -> None: ...


class LongestWins:
    """A scorer: the reward is the index of the rollout."""

    async def score(self, row: Row, rollout: Rollout, seed: int) -> Rollout:
        value = float(rollout.index)
        return dataclasses.replace(rollout, reward=Reward(value, {"score": value}, {"score": 1.0}))


class Counter:
    """A learner that only counts, with a metric of its own."""

    def __init__(self) -> None:
        self.samples: list[Sample] = []

    def update(self, samples: Sequence[Sample], learning_rate: float) -> Update:
        self.samples += samples
        return Update({"samples_seen": float(len(self.samples))})

    def save(self, folder: Path) -> None: ...

    def restore(self, folder: Path) -> None: ...

    def publish(self) -> int:
        return len(self.samples)


class Memory:
    """A recorder, and checkpoints that keep nothing."""

    best_reward: float | None = None

    def __init__(self) -> None:
        self.records: list[StepRecord] = []

    def record(self, record: StepRecord) -> None:
        self.records.append(record)

    def close(self) -> None: ...

    def save(self, step: int, validation_reward: float | None) -> None: ...


class Backend:
    """An experiment tracker that writes lines."""

    def __init__(self, module: Any, config: RunConfig, folder: Path) -> None:
        self._file = folder / "toy.txt"

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._file.write_text(f"{step} {dict(metrics)}")

    def close(self) -> None: ...


class Vowels(Grader):
    """A grader: the share of vowels."""

    type: Literal["vowels"]

    def part(self, settings: Settings) -> Part:
        return self

    async def start(self) -> None: ...

    async def grade(self, sample: Values, item: Values, seed: int) -> Grade:
        text = str(sample["output_text"])
        return Grade(sum(letter in "aeiou" for letter in text) / len(text))

    async def close(self) -> None: ...


SUM_UP = """
import sys
from pathlib import Path
from strop.store.taskdir import TaskDir

task = TaskDir(Path(sys.argv[1]))
with task.lock(int(sys.argv[3])):
    (task.path / "result.txt").write_text(str(sum(task.spec()["numbers"])))
"""


class Sums(TaskQueue[Task]):
    """Tasks of the toy kind."""

    kind = "sum"
    noun = "sum"
    created = "sum created"

    def create(self, folder: str) -> str:
        with self.database.write() as connection:
            self._insert(connection, "sum-1", folder, TaskStatus.QUEUED)
        return "sum-1"

    def read(self, row: RowMapping) -> Task:
        return to_task(row)


class SumKind:
    """A task kind whose process adds numbers."""

    def __init__(self, tools: Tools) -> None:
        self.launcher = LocalLauncher((sys.executable, "-c", SUM_UP))
        self._tools = tools

    def open(self, task: Task) -> SumHandler:
        return SumHandler(TaskDir(self._tools.folder.found(task.folder)))


class SumHandler:
    ends_with_server = False
    time_limit_s = 60.0

    def __init__(self, folder: TaskDir) -> None:
        self.folder = folder

    @property
    def prepared(self) -> bool:
        return self.folder.spec_file.is_file()

    def prepare(self) -> None:
        self.folder.path.mkdir(parents=True)
        self.folder.spec_file.write_text('{"numbers": [40, 2]}')

    def environment(self) -> dict[str, str]:
        return dict(os.environ)

    def follow(self) -> Iterator[Change]:
        return iter(())

    def conclude(self, ended: Exit) -> Outcome:
        return Settled(TaskStatus.SUCCEEDED if ended.code == 0 else TaskStatus.FAILED)

    def finish(self, outcome: Settled) -> Change:
        return Change()


class NoSecrets:
    def names(self) -> Sequence[Any]:
        return ()

    def reveal(self, names: Any) -> dict[str, str]:
        return {}


def train(settings: RunConfig, learner: Counter, memory: Memory) -> None:
    """Run one step of the real training loop."""
    trainer = Trainer(
        config=settings,
        rows=[row()],
        order=DataOrder(1, settings.train.batch_size, settings.seed),
        learner=learner,
        peak_rate=1.0,
        player=Player(FakeCompleter(), open_environment(EnvironmentConfig())),
        scorer=LongestWins(),
        recorders=[memory],
        checkpoints=memory,
        validate=None,
        prompts_dropped=0,
    )
    asyncio.run(trainer.run(0, lambda: False))


# Training


def test_a_loss_is_a_function_in_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    def reinforce(inputs: LossInputs, log_ratio_CL: Tensor, settings: LossSettings) -> Tensor:
        return -inputs.advantages_C[:, None] * inputs.logprobs_CL

    monkeypatch.setitem(LOSSES, "reinforce", (reinforce, by_token))  # type: ignore[misc]
    logprobs = torch.tensor([[-1.0, -2.0]], requires_grad=True)
    inputs = LossInputs(
        logprobs_CL=logprobs,
        old_logprobs_CL=logprobs.detach(),
        ref_logprobs_CL=None,
        mask_CL=torch.ones(1, 2, dtype=torch.bool),
        advantages_C=torch.tensor([3.0]),
        sampler_logprobs_CL=logprobs.detach(),
    )
    settings = LossSettings("reinforce", 0.2, 0.2, 0.0)  # type: ignore[arg-type]
    policy_loss(inputs, settings, StepTotals(tokens=2, sequences=1, max_tokens=8)).loss.backward()
    assert logprobs.grad is not None
    assert logprobs.grad.tolist() == [[-1.5, -1.5]]


def test_an_advantage_is_a_function_in_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    def ranks(rewards_NG: Sequence[Sequence[float]]) -> list[list[float]]:
        return [[10.0 * sorted(rewards_G).index(reward) for reward in rewards_G] for rewards_G in rewards_NG]

    monkeypatch.setitem(ADVANTAGES, "ranks", ranks)
    settings = config(batch_size=1, samples_per_prompt=3)
    toy = settings.model_copy(update={"train": settings.train.model_copy(update={"advantage_scale": "ranks"})})
    learner = Counter()
    train(toy, learner, Memory())
    assert [list(sample.advantages_G) for sample in learner.samples] == [[0.0, 10.0, 20.0]]


def test_a_learner_a_recorder_and_a_metric_work_in_the_training_loop() -> None:
    learner, memory = Counter(), Memory()
    train(config(batch_size=1, samples_per_prompt=3), learner, memory)
    (record,) = memory.records
    assert record.metrics["samples_seen"] == 1.0
    assert learner.publish() == 1


def test_a_tracker_is_a_class_in_a_table(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(TRACKERS, "toy", ("json", Backend))
    (tracker,) = open_trackers(config().model_copy(update={"recorders": ("toy",)}), tmp_path)
    tracker.record(StepRecord(4, {"reward": 0.5}))
    tracker.close()
    assert (tmp_path / "toy.txt").read_text() == "4 {'reward': 0.5}"


# Rollouts


def test_an_environment_and_a_completer_work_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENVIRONMENTS, "countdown", lambda options: Countdown(int(str(options["turns"]))))
    environment = open_environment(EnvironmentConfig(name="countdown", options={"turns": 3}))
    player = Player(Echo(), environment, max_turns=8)
    group = asyncio.run(run_group(row(), 2, SamplingParams(1.0, 8), player, LongestWins()))
    assert group.failure is None
    assert [message.content for message in group.rollouts[1].messages] == ["question 1", "2", "2", "1", "1"]
    assert group.rewards_G == [0.0, 1.0]


def test_a_tool_call_format_is_a_family_in_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    def read_bare(text: str, position: int, schemas: Schemas) -> tuple[list[ReadCall], int]:
        found = re.compile(r"(\w+)").match(text, position)
        if found is None:
            raise ValueError("the call has no name")
        return [ReadCall(found[1], {})], found.end()

    monkeypatch.setitem(FAMILIES, "bare", Family(re.compile("@"), read_bare, re.compile(";"), ("@",)))
    parsed = ToolCallFormat("bare", FAMILIES["bare"]).parse("I look. @weather;")
    assert parsed.content == "I look."
    assert [(call.name, call.arguments) for call in parsed.calls] == [("weather", "{}")]


# Rewards


def test_a_grader_is_a_class_with_its_own_type() -> None:
    settings = Settings(RewardConfig(name="toy", source="grader.json"), {})
    part = Vowels.model_validate({"type": "vowels"}).part(settings)
    assert asyncio.run(part.grade({"output_text": "aeix"}, {}, 0)) == Grade(0.75)


# Insight


def test_a_warning_sign_is_a_rule_in_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_slow(run: Curves) -> Finding | None:
        if run.recent("time/train").mean < 60:
            return None
        return Finding("too_slow", Severity.NOTICE, "Steps take long", "Large batches", "Lower batch_size", ())

    monkeypatch.setattr(doctor, "RULES", (too_slow,))
    slow = {"reward": Curve((1, 2), (0.1, 0.2)), "time/train": Curve((1, 2), (90.0, 95.0))}
    assert [found.rule for found in doctor.diagnose(Curves(slow, 8))] == ["too_slow"]
    assert doctor.diagnose(Curves({**slow, "time/train": Curve((1, 2), (9.0, 9.5))}, 8)) == []


# Tasks


def test_a_task_kind_is_a_class_in_a_table(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(KINDS, "sum", SumKind)
    folder = DataFolder.open(tmp_path / "data")
    database = open_database(None, folder.path)
    tools = Tools(database, folder, NoSecrets(), NoIngester())
    supervisor = Supervisor(tools, make_kinds(tools))
    queue = Sums(database)
    task_id = queue.create("sums/1")
    try:
        until(lambda: queue.get(task_id).status.finished, supervisor.tick)
    finally:
        supervisor.close()
        database.close()
    assert (folder.path / "sums/1/result.txt").read_text() == "42"
