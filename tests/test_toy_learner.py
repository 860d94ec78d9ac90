"""A learner without a model, torch or gradients: training and checkpoints need the protocol only."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from train_cases import config, row

from strop.data.order import DataOrder
from strop.envs.single_turn import SingleTurn
from strop.rollout import Player
from strop.seeds import derive_seed
from strop.store.rundir import RunDir
from strop.train.batch import Sample
from strop.train.learner import Learner, Update
from strop.train.loop import Ending, Trainer
from strop.types import Context, Message, Reward, Rollout, Row, SamplingParams, StepRecord, StopReason, Turn, TurnTokens
from strop.worker.checkpoints import TrainingCheckpoints, checkpoint_store

WORDS = ("north", "east", "south", "west")
WANTED = 2


@dataclass
class Preferences:
    """A policy over four words: the chance of each is the softmax of its preference."""

    values: list[float] = field(default_factory=lambda: [0.0] * len(WORDS))
    version: int = 0

    @property
    def chances(self) -> list[float]:
        weights = [math.exp(value) for value in self.values]
        return [weight / sum(weights) for weight in weights]


class ToyLearner:
    """Climbs the policy gradient of a table; the sampler sees every `lag`-th version."""

    def __init__(self, lag: int = 1) -> None:
        self.own = Preferences()
        self.sampled = Preferences()
        self._lag = lag

    def update(self, samples: Sequence[Sample], learning_rate: float) -> Update:
        for sample in samples:
            for segment, advantage in zip(sample.segments, sample.advantages_G, strict=True):
                (word,) = segment.token_ids_T
                for other, chance in enumerate(self.own.chances):
                    self.own.values[other] += learning_rate * advantage * ((other == word) - chance)
        self.own.version += 1
        return Update({"chance": self.own.chances[WANTED]})

    def save(self, folder: Path) -> None:
        state = [dataclasses.asdict(each) for each in (self.own, self.sampled)]
        (folder / "preferences.json").write_text(json.dumps(state))

    def restore(self, folder: Path) -> None:
        self.own, self.sampled = (Preferences(**each) for each in json.loads((folder / "preferences.json").read_text()))

    def publish(self) -> int:
        if self.own.version - self.sampled.version >= self._lag:
            self.sampled = dataclasses.replace(self.own, values=list(self.own.values))
        return self.sampled.version


@dataclass
class Speaker:
    """A completer that says one word, drawn from what the learner published."""

    learner: ToyLearner

    async def complete(self, context: Context, count: int, params: SamplingParams) -> list[Turn]:
        policy = self.learner.sampled
        draw = random.Random(derive_seed(params.seed, "toy"))
        words = draw.choices(range(len(WORDS)), policy.chances, k=count)
        return [
            Turn(
                Message("assistant", WORDS[word]),
                StopReason.STOP,
                1,
                TurnTokens((1,), (word,), (math.log(policy.chances[word]),)),
                entropy=1.0,
                version=policy.version,
                seconds=0.1,
            )
            for word in words
        ]


class OneWordWanted:
    """Scores 1 for the wanted word and 0 for others."""

    async def score(self, row: Row, rollout: Rollout, seed: int) -> Rollout:
        value = float(rollout.turns[0].message.content == WORDS[WANTED])
        return dataclasses.replace(rollout, reward=Reward(value, {"score": value}, {"score": 1.0}))


@dataclass
class Records:
    """A recorder that keeps everything."""

    steps: list[StepRecord] = field(default_factory=list)

    def record(self, record: StepRecord) -> None:
        self.steps.append(record)

    def close(self) -> None: ...

    @property
    def versions(self) -> list[set[int | None]]:
        """Of each step, the versions of the policies that its rollouts came from."""
        return [
            {turn.version for group in step.groups for rollout in group.rollouts for turn in rollout.turns}
            for step in self.steps
        ]

    @property
    def measured(self) -> list[dict[str, float]]:
        """The metrics of each step that no clock made."""
        return [
            {name: value for name, value in step.metrics.items() if not name.startswith(("time/", "tokens_per"))}
            for step in self.steps
        ]


@dataclass
class Training:
    trainer: Trainer
    learner: ToyLearner
    records: Records
    checkpoints: TrainingCheckpoints

    def go(self, done: int = 0, until: int | None = None) -> Ending:
        steps = self.records.steps
        return asyncio.run(self.trainer.run(done, lambda: until is not None and len(steps) >= until))


def training(folder: Path, lag: int = 1) -> Training:
    settings = config(batch_size=2, samples_per_prompt=4, epochs=4, save_every=100)
    run = RunDir(folder) if folder.exists() else RunDir.create(folder, settings)
    order = DataOrder(8, settings.train.batch_size, settings.seed)
    learner: ToyLearner = ToyLearner(lag)
    seam: Learner = learner
    checkpoints = TrainingCheckpoints(run, settings, checkpoint_store(run, settings), seam, order)
    records = Records()
    trainer = Trainer(
        config=settings,
        rows=[row(number) for number in range(8)],
        order=order,
        learner=seam,
        peak_rate=0.2,
        player=Player(Speaker(learner), SingleTurn()),
        scorer=OneWordWanted(),
        recorders=[records],
        checkpoints=checkpoints,
        validate=None,
        prompts_dropped=0,
    )
    return Training(trainer, learner, records, checkpoints)


def test_the_loop_trains_a_learner_of_any_kind(tmp_path: Path) -> None:
    made = training(tmp_path / "run")
    assert made.go() is Ending.FINISHED
    assert made.learner.own.chances[WANTED] > 0.8
    assert made.records.versions == [{version} for version in range(16)]


def test_rollouts_say_which_version_of_a_sampler_that_lags_made_them(tmp_path: Path) -> None:
    made = training(tmp_path / "run", lag=3)
    made.go()
    assert made.records.versions == [{step - step % 3} for step in range(16)]


def test_a_learner_of_any_kind_goes_on_from_its_checkpoint_as_if_never_stopped(tmp_path: Path) -> None:
    whole, first, second = (training(tmp_path / name, lag=2) for name in ("whole", "stopped", "stopped"))
    whole.go()
    assert first.go(until=5) is Ending.PAUSED
    (checkpoint,) = second.checkpoints.store.list()
    second.checkpoints.restore(checkpoint)
    assert second.go(done=checkpoint.step) is Ending.FINISHED
    assert first.records.measured + second.records.measured == whole.records.measured
    assert first.records.versions + second.records.versions == whole.records.versions
    assert second.learner.own == whole.learner.own
