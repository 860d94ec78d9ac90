"""Prompts of a run in the database, each with its results in the latest step that used it."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from statistics import fmean
from typing import Any, Protocol

import sqlalchemy as sa
from sqlalchemy import Connection

from strop.store.bulk import insert_rows
from strop.store.runfiles import RolloutLine, components_text, prompt_text
from strop.store.tables import prompts, rollouts
from strop.types import StopReason


class Scored(Protocol):
    """The values of a rollout that its prompt needs."""

    @property
    def step(self) -> int: ...
    @property
    def sample(self) -> int: ...
    @property
    def reward(self) -> float | None: ...
    @property
    def cause(self) -> str | None: ...
    @property
    def stop_reason(self) -> str: ...
    @property
    def components(self) -> Mapping[str, float]: ...
    @property
    def answer(self) -> str: ...


@dataclass(frozen=True)
class _Stored:
    """The same from the database."""

    step: int
    sample: int
    reward: float | None
    cause: str | None
    stop_reason: str
    components: Mapping[str, float]
    answer: str


_NOTHING = {
    "latest_step": -1,
    "latest_samples": 0,
    "latest_failed": 0,
    "latest_truncated": 0,
    "latest_components": "{}",
    "latest_answer": "",
}


def known_prompts(connection: Connection, run: int) -> dict[str, int]:
    """The `seq` of each row that the run has used."""
    query = sa.select(prompts.c.row, prompts.c.seq).where(prompts.c.run == run)
    return dict(connection.execute(query).all())


def add_prompts(connection: Connection, run: int, known: dict[str, int], drawn: Sequence[RolloutLine]) -> None:
    """Add new prompts to the run and to `known`; `drawn` has one rollout of each."""
    new = [line for line in drawn if line.row not in known]
    if not new:
        return
    insert_rows(connection, prompts, [_prompt_row(run, line) for line in new])
    highest = max(known.values(), default=0)
    query = sa.select(prompts.c.row, prompts.c.seq).where(prompts.c.run == run, prompts.c.seq > highest)
    known |= dict(connection.execute(query).all())


def update_latest(connection: Connection, newest: Mapping[int, Sequence[Scored]]) -> None:
    """Update the results of prompts, given by `seq`, from the rollouts of a step."""
    if newest:
        columns = [column.name for column in prompts.c if column.name.startswith("latest_")]
        change = sa.update(prompts).where(prompts.c.seq == sa.bindparam("prompt"))
        change = change.values({name: sa.bindparam(f"new_{name}") for name in columns})
        connection.execute(change, [{"prompt": prompt, **_latest(scored)} for prompt, scored in newest.items()])


def repair_prompts(connection: Connection, run: int, after: int) -> None:
    """Recompute the latest results after steps above `after` were deleted; delete prompts without rollouts."""
    stale = sa.select(prompts.c.seq).where(prompts.c.run == run, prompts.c.latest_step > after)
    newest = {prompt: _newest(connection, prompt) for prompt in connection.scalars(stale).all()}
    unused = [{"prompt": prompt} for prompt, scored in newest.items() if not scored]
    if unused:
        connection.execute(sa.delete(prompts).where(prompts.c.seq == sa.bindparam("prompt")), unused)
    update_latest(connection, {prompt: scored for prompt, scored in newest.items() if scored})


def _prompt_row(run: int, line: RolloutLine) -> dict[str, Any]:
    text = prompt_text(line)
    shown = {"preview": text.preview, "search": text.search}
    return {"run": run, "row": line.row, "line": line.line, **shown, **_NOTHING}


def _newest(connection: Connection, prompt: int) -> list[_Stored]:
    """The rollouts of a prompt in its latest step."""
    step = sa.select(sa.func.max(rollouts.c.step)).where(rollouts.c.prompt == prompt).scalar_subquery()
    columns = [rollouts.c[field.name] for field in fields(_Stored)]
    query = sa.select(*columns).where(rollouts.c.prompt == prompt, rollouts.c.step == step).order_by(rollouts.c.seq)
    rows = connection.execute(query).mappings()
    return [_Stored(**{**row, "components": json.loads(row["components"])}) for row in rows]


def _latest(scored: Sequence[Scored]) -> dict[str, Any]:
    """Result columns of a prompt for a step."""
    rewards = [rollout.reward for rollout in scored if rollout.reward is not None]
    components: dict[str, list[float]] = defaultdict(list)
    for rollout in scored:
        for name, value in rollout.components.items():
            components[name].append(value)
    first = min(scored, key=lambda rollout: rollout.sample)
    return {
        "new_latest_step": first.step,
        "new_latest_samples": len(scored),
        "new_latest_failed": sum(rollout.cause is not None for rollout in scored),
        "new_latest_truncated": sum(rollout.stop_reason == StopReason.LENGTH for rollout in scored),
        "new_latest_reward": fmean(rewards) if rewards else None,
        "new_latest_best": max(rewards, default=None),
        "new_latest_components": components_text({name: fmean(values) for name, values in components.items()}),
        "new_latest_answer": first.answer,
    }
