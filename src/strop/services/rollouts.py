"""What pages ask about rollouts of runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from strop.services.container import Services
from strop.services.threads import in_thread
from strop.store import queries

_SHOWN = 512
_SEARCHED_RUNS = 20


@dataclass(frozen=True)
class PromptGroup:
    """The rollouts of one prompt in one step."""

    row: str
    preview: str
    """How the prompt begins."""
    rollouts: Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Sighting:
    """A rollout, and the run and the prompt that it belongs to."""

    run_id: str
    row: str
    rollout_id: str


@in_thread
def preview(services: Services, run_id: str, row: str) -> str:
    """How a prompt of a run begins; a name for one that the run has not drawn."""
    with services.database.read() as connection:
        return queries.prompt_previews(connection, run_id, [row]).get(row) or f"Prompt {row}"


@in_thread
def of_step(services: Services, run_id: str, step: int) -> list[PromptGroup]:
    """The rollouts of a step by prompt."""
    with services.database.read() as connection:
        found = queries.rollouts_page(connection, run_id, queries.RolloutFilter(step=step), limit=_SHOWN)
        rows = list(dict.fromkeys(rollout["row"] for rollout in found))
        previews = queries.prompt_previews(connection, run_id, rows)
    return [
        PromptGroup(row, previews.get(row) or f"prompt {row}", [one for one in found if one["row"] == row])
        for row in rows
    ]


@in_thread
def prompt_messages(services: Services, rollout_id: str) -> list[dict[str, Any]]:
    """The messages of a rollout's prompt. NotFound for an unknown rollout, RunError where its file is gone."""
    with services.database.read() as connection:
        found = queries.whole_rollout(connection, services.folder.path, rollout_id)
    return [{"role": turn["role"], "content": turn["content"]} for turn in found["prompt"]]


@in_thread
def newest(services: Services) -> Sighting | None:
    """A rollout of the newest run that has one."""
    with services.database.read() as connection:
        for run in queries.runs(connection, limit=_SEARCHED_RUNS):
            found = queries.rollouts_page(connection, str(run["id"]), sort="-step", limit=1)
            if found:
                return Sighting(str(run["id"]), str(found[0]["row"]), str(found[0]["id"]))
    return None
