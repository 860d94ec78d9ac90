"""Figures of evaluations: means with their intervals, as numbers and as bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from strop.services.evaluation_objects import EstimateObject
from strop.web.theme import tag, tag_text


def interval(estimate: EstimateObject | None, signed: bool = False) -> str:
    """`0.94 [0.88, 0.98]`, or a dash."""
    if estimate is None:
        return "–"
    form = "+.3f" if signed else ".3f"
    mean = format(estimate.mean, form)
    if estimate.low is None or estimate.high is None:
        return mean
    return f"{mean} [{format(estimate.low, form)}, {format(estimate.high, form)}]"


def bars(rows: Sequence[tuple[str, Mapping[str, EstimateObject]]], names: Sequence[str]) -> None:
    """For each component a bar for each model, with a line for its interval.

    `rows` are the models with their estimates by component.
    """
    values = [found for _, estimates in rows for name in names if (found := estimates.get(name))]
    most = max([1e-9, *(max(abs(value.mean), abs(value.high or 0)) for value in values)])
    with tag("div", "s-bars"):
        for name in names:
            tag_text("span", name, "s-bars-name")
            with tag("div", "s-column s-tight"):
                for place, (model, estimates) in enumerate(rows):
                    _bar(model, estimates.get(name), most, place)


def _bar(model: str, estimate: EstimateObject | None, most: float, place: int) -> None:
    label = f"{model}: {interval(estimate)}"
    with tag("div", "s-bar-row"):
        with tag("div", "s-bar", f'role="img" aria-label="{label}"'):
            if estimate is not None:
                share = max(estimate.mean, 0) / most
                tag("div", f"s-bar-fill s-bar-fill--{place}").style(f"width: {100 * share:.1f}%")
                if estimate.low is not None and estimate.high is not None:
                    low, high = max(estimate.low, 0) / most, max(estimate.high, 0) / most
                    tag("div", "s-bar-range").style(f"left: {100 * low:.1f}%; width: {100 * (high - low):.1f}%")
        tag_text("span", interval(estimate), "mono s-small")
        tag_text("span", model, "s-small s-muted s-clip")
