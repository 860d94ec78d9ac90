"""The base model answers a few rows, and the rewards score the answers, before anything is trained.

The model process samples; a process of its own scores. Rows are scored as soon as they are
answered, so that there is something to look at while the rest goes on.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from strop.errors import InvalidRequest, NotFound, StropError
from strop.seeds import derive_seed
from strop.services import datasets, reward_tests
from strop.services.container import Services
from strop.services.datasets import DatasetRow
from strop.services.drafts.draft import JobDraft, Trial
from strop.services.drafts.parameters import value_of
from strop.services.job_request import RewardOption
from strop.services.reward_tables import reward_tables
from strop.services.reward_tests import MAX_ANSWERS, TrialRequest, TriedRow
from strop.services.server_library import ServerLibrary
from strop.services.threads import in_thread
from strop.types import Json

ROWS = 4
MOST_ROWS = 20
_SECONDS = 120


class Phase(StrEnum):
    """Phase of a test."""

    LOADING = "loading the model"
    SAMPLING = "sampling answers"
    SCORING = "scoring answers"
    DONE = "done"
    FAILED = "failed"
    STOPPED = "stopped"

    @property
    def running(self) -> bool:
        """Whether more is to come."""
        return self in (Phase.LOADING, Phase.SAMPLING, Phase.SCORING)


@dataclass(frozen=True)
class Answers:
    """The model's answers to one row."""

    row: DatasetRow
    texts: tuple[str, ...]
    prompt_tokens: int
    tokens: int
    cut_off: int
    ended: float
    """Monotonic time in seconds."""


@dataclass
class ModelTest:
    """A test in the background of the server, independent of open pages."""

    services: Services
    draft: JobDraft
    rows: int = ROWS
    samples: int = 8
    phase: Phase = Phase.LOADING
    tried: list[TriedRow] = field(default_factory=list)
    """Rows that are scored, in their order in the file."""
    answered: int = 0
    """Answers that are complete."""
    wanted: int = 0
    """Answers in all; 0 before it is known."""
    fault: StropError | None = None
    trial: Trial | None = None
    """The result, once the test is done."""
    _task: asyncio.Task[None] | None = None

    def start(self, on_done: Callable[[Trial], object]) -> None:
        """Start the test. `on_done` receives the result if the test completes."""
        self._task = asyncio.create_task(self._run(on_done))

    async def stop(self) -> None:
        """End it; the model stops answering at once. Does nothing where it has ended."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self, on_done: Callable[[Trial], object]) -> None:
        try:
            self.trial = await self._test()
            self.phase = Phase.DONE
            on_done(self.trial)
        except StropError as error:
            self.phase, self.fault = Phase.FAILED, error
        except asyncio.CancelledError:
            self.phase = Phase.STOPPED
            raise

    async def _test(self) -> Trial:
        options = [part.option for part in self.draft.rewards]
        await _load(self.services, options)
        rows = (await datasets.list_rows(self.services, self.draft.train, None, self.rows)).data
        if not rows:
            raise InvalidRequest("the data set holds no rows", param="training_file")
        self.wanted = len(rows) * self.samples
        model, memory = await self._model()
        self.phase, begun = Phase.SAMPLING, time.monotonic()
        tasks = [asyncio.create_task(self._answer(model, row, place)) for place, row in enumerate(rows)]
        answers: list[Answers] = []
        try:
            for next_done in asyncio.as_completed(tasks):
                answers.append(await next_done)
                if len(answers) == len(rows):
                    self.phase = Phase.SCORING
                await self._score(options, answers[-1])
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return Trial(
            of=self.draft.tested,
            rows=tuple(self.tried),
            tokens=sum(found.tokens for found in answers),
            answers=self.wanted,
            seconds=max(found.ended for found in answers) - begun,
            cut_off=sum(found.cut_off for found in answers),
            memory_bytes=memory,
            prompt_tokens=sum(found.prompt_tokens for found in answers),
        )

    async def _model(self) -> tuple[str, int]:
        """Have the model in memory: under which name, and how much it takes there."""
        deployments, source = self.services.deployments, self.draft.model
        try:
            deployed = await deployments.resolve(source)
        except NotFound:
            known = await deployments.list(limit=1000)
            same = next((one for one in known if one.source == source), None)
            if same is None and not source.startswith((".", "/", "~")):
                raise
            deployed = await (deployments.load(same.id) if same else deployments.create(source))
        return deployed.name, deployed.engine.memory_bytes if deployed.engine else 0

    async def _answer(self, model: str, row: DatasetRow, place: int) -> Answers:
        texts = [""] * self.samples
        cut_off = 0
        usage: Mapping[str, int] = {}
        async with aclosing(self.services.deployments.chat_stream(self._request(model, row, place))) as chunks:
            async for chunk in chunks:
                usage = chunk["usage"]
                for choice in chunk["choices"]:
                    texts[choice["index"]] += choice["delta"].get("content") or ""
                    self.answered += choice["finish_reason"] is not None
                    cut_off += choice["finish_reason"] == "length"
        prompt_tokens, tokens = usage["prompt_tokens"], usage["completion_tokens"]
        return Answers(row, tuple(texts), prompt_tokens, tokens, cut_off, time.monotonic())

    def _request(self, model: str, row: DatasetRow, place: int) -> dict[str, Json]:
        values = self.draft.values
        request = {
            "model": model,
            "messages": row.messages,
            "tools": row.tools or None,
            "chat_template_kwargs": value_of(values, "sampling.template"),
            "n": self.samples,
            "max_tokens": value_of(values, "sampling.max_completion_tokens"),
            "temperature": value_of(values, "sampling.temperature"),
            "stop": list(value_of(values, "sampling.stop")) or None,
            "seed": derive_seed(self.draft.seed, "test", place),
        }
        return {key: value for key, value in request.items() if value is not None}

    async def _score(self, options: Sequence[Mapping[str, Json]], found: Answers) -> None:
        body = TrialRequest.model_validate(
            {"rewards": options, "rows": [found.row.fields], "answers": [found.texts], "seconds": _SECONDS}
        )
        result = await reward_tests.run(self.services, body)
        scored = result.data[0].model_copy(update={"line": found.row.line, "id": found.row.id})
        self.tried = sorted([*self.tried, scored], key=lambda row: row.line)


def sample_count(draft: JobDraft) -> int:
    """How many answers a row gets in a test: as many as in training, as far as a test goes."""
    count: Any = value_of(draft.values, "train.samples_per_prompt")
    return min(int(count), MAX_ANSWERS)


@in_thread
def _load(services: Services, options: Sequence[Mapping[str, Json]]) -> None:
    """Read the rewards once, before the model is loaded for them."""
    reward_tables([RewardOption.model_validate(option) for option in options], ServerLibrary(services))
