"""Prompts of a run in the database, each with what came of it in the newest step that it was drawn in."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy import Connection

from strop.store.bulk import insert_rows
from strop.store.runfiles import RolloutLine, components_of, prompt_text
from strop.store.tables import prompts, rollouts
from strop.types import StopReason


class Answer(NamedTuple):
    """A rollout, as far as its prompt shows it."""

    sample: int
    reward: float | None
    cause: str | None
    """Of its failure."""
    stop_reason: str
    components: str
    """JSON."""
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
    """The `seq` of each row that the run has seen."""
    query = sa.select(prompts.c.row, prompts.c.seq).where(prompts.c.run == run)
    return dict(connection.execute(query).tuples().all())


def add_prompts(connection: Connection, run: int, known: dict[str, int], drawn: Sequence[RolloutLine]) -> None:
    """Add to the run, and to `known`, the prompts that are new; `drawn` has one rollout of each."""
    new = [line for line in drawn if line.row not in known]
    if not new:
        return
    insert_rows(connection, prompts, [_prompt_row(run, line) for line in new])
    highest = max(known.values(), default=0)
    query = sa.select(prompts.c.row, prompts.c.seq).where(prompts.c.run == run, prompts.c.seq > highest)
    known |= dict(connection.execute(query).tuples().all())


def update_latest(connection: Connection, newest: Mapping[int, tuple[int, Sequence[Answer]]]) -> None:
    """Note what came of prompts, named by `seq`, in a step."""
    if newest:
        columns = [column.name for column in prompts.c if column.name.startswith("latest_")]
        change = sa.update(prompts).where(prompts.c.seq == sa.bindparam("prompt"))
        change = change.values({name: sa.bindparam(f"new_{name}") for name in columns})
        rows = [{"prompt": prompt, **_latest(step, answers)} for prompt, (step, answers) in newest.items()]
        connection.execute(change, rows)


def repair_prompts(connection: Connection, run: int, after: int) -> None:
    """Once rollouts of steps above `after` are gone: what is newest now; prompts without any go."""
    stale = sa.select(prompts.c.seq).where(prompts.c.run == run, prompts.c.latest_step > after)
    changed = list(connection.scalars(stale))
    newest = {prompt: _newest(connection, prompt) for prompt in changed}
    unused = [{"prompt": prompt} for prompt, (_, answers) in newest.items() if not answers]
    if unused:
        connection.execute(sa.delete(prompts).where(prompts.c.seq == sa.bindparam("prompt")), unused)
    update_latest(connection, {prompt: found for prompt, found in newest.items() if found[1]})


def _prompt_row(run: int, line: RolloutLine) -> dict[str, Any]:
    text = prompt_text(line)
    shown = {"preview": text.preview, "search": text.search}
    return {"run": run, "row": line.row, "line": line.line, **shown, **_NOTHING}


def _newest(connection: Connection, prompt: int) -> tuple[int, list[Answer]]:
    step = connection.scalar(sa.select(sa.func.max(rollouts.c.step)).where(rollouts.c.prompt == prompt))
    columns = [rollouts.c[name] for name in Answer._fields]
    query = sa.select(*columns).where(rollouts.c.prompt == prompt, rollouts.c.step == step)
    query = query.order_by(rollouts.c.seq)
    return step or 0, [Answer(*row) for row in connection.execute(query)]


def _latest(step: int, answers: Sequence[Answer]) -> dict[str, Any]:
    """Columns of a prompt for what came of it in a step."""
    rewards = [answer.reward for answer in answers if answer.reward is not None]
    components: dict[str, list[float]] = defaultdict(list)
    for answer in answers:
        for name, value in components_of(answer.components).items():
            components[name].append(value)
    facts = {
        "step": step,
        "samples": len(answers),
        "failed": sum(answer.cause is not None for answer in answers),
        "truncated": sum(answer.stop_reason == StopReason.LENGTH for answer in answers),
        "reward": fmean(rewards) if rewards else None,
        "best": max(rewards, default=None),
        "components": json.dumps({name: fmean(values) for name, values in components.items()}),
        "answer": min(answers).answer,
    }
    return {f"new_latest_{name}": value for name, value in facts.items()}
