"""All curves of a run."""

from __future__ import annotations

from typing import Any

from strop.store import queries
from strop.web.charts import rollout_groups
from strop.web.components import MetricGrid
from strop.web.context import Address
from strop.web.pages.tabs.subject import Subject

SETTINGS = ("smoothing", "first", "last", "scale")


def build(subject: Subject, address: Address) -> None:
    """Charts of rollouts, of training, and of each reward component."""

    def step(number: Any) -> None:
        address.set({"step": number, "by": "prompt", "row": "", "rollout": ""})
        subject.open_tab("Rollouts")

    MetricGrid(
        [{"id": subject.run_id or "", "name": subject.name}],
        rollout_groups(reward_components(subject)),
        active=subject.active,
        initial=settings_of(address),
        on_view=address.set,
        on_step=step,
    )


def settings_of(address: Address) -> dict[str, Any]:
    """How the curves were looked at when the address was copied."""
    found: dict[str, Any] = address.view(*SETTINGS)
    if "smoothing" in found:
        found["smoothing"] = _number(found["smoothing"])
    return found


def _number(given: str) -> float:
    try:
        return min(max(float(given), 0.0), 0.99)
    except ValueError:
        return 0.0


def reward_components(subject: Subject) -> list[str]:
    """Names of the components that the reward of a run has had."""
    with subject.services.database.read() as connection:
        names = queries.metric_names(connection, subject.run_id or "")
    return [name.removeprefix("reward/") for name in names if name.startswith("reward/")]
