"""All curves of a run."""

from __future__ import annotations

from typing import Any

from strop.services import runs
from strop.web.charts import rollout_groups
from strop.web.components import MetricGrid
from strop.web.context import Address, services
from strop.web.pages.tabs.subject import Subject

SETTINGS = ("smoothing", "first", "last", "scale")


async def build(subject: Subject, address: Address) -> None:
    """Charts of rollouts, of training, and of each reward component."""

    def step(number: Any) -> None:
        address.set({"step": number, "by": "prompt", "row": "", "rollout": ""})
        subject.open_tab("Rollouts")

    components = await runs.reward_components(services(), [subject.run_id])
    MetricGrid(
        [{"id": subject.run_id, "name": subject.name}],
        rollout_groups(components),
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
