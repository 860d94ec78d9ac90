"""How values are distributed, as a few bars."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from strop.web.theme import tag, tag_text


@dataclass(frozen=True)
class Bar:
    """Values from `low` up to `high`. What lies on the border of two bars is in the upper one."""

    low: float
    high: float
    count: int


def bars(values: Sequence[float], most: int = 24, *, whole: bool = False) -> list[Bar]:
    """Values in at most so many bars of one width. Whole numbers that `whole` promises are not cut apart.

    Values that are all the same make one bar; none make none.
    """
    if not values:
        return []
    low, high = min(values), max(values)
    if low == high:
        return [Bar(low, high, len(values))]
    span = high - low + 1 if whole else high - low
    width = max(1, math.ceil(span / most)) if whole else span / most
    counts = [0] * math.ceil(round(span / width, 9))
    for value in values:
        counts[min(int((value - low) / width), len(counts) - 1)] += 1
    gap = 1 if whole else 0
    return [Bar(low + place * width, low + (place + 1) * width - gap, found) for place, found in enumerate(counts)]


def draw_bars(found: Sequence[Bar], label: str, *, digits: int = 0, limit: float | None = None) -> None:
    """The bars side by side, with the lowest and the highest value below; what is beyond `limit` stands out."""
    if not found:
        return
    highest = max(bar.count for bar in found)
    with tag("figure", "s-histogram"):
        plot = tag("div", "s-histogram-plot", 'role="img"')
        plot.props["aria-label"] = f"{label}: {_said(found, digits)}"
        with plot:
            for bar in found:
                beyond = limit is not None and bar.low > limit
                column = tag("div", "s-histogram-bar s-histogram-bar--beyond" if beyond else "s-histogram-bar")
                column.style(f"height: {max(100 * bar.count / highest, 2 if bar.count else 0):.1f}%")
                column.props["title"] = f"{_range(bar, digits)}: {bar.count:,}"
        with tag("figcaption", "s-histogram-ends s-small s-muted mono"):
            tag_text("span", f"{found[0].low:,.{digits}f}")
            tag_text("span", label)
            tag_text("span", f"{found[-1].high:,.{digits}f}")


def _range(bar: Bar, digits: int) -> str:
    low, high = f"{bar.low:,.{digits}f}", f"{bar.high:,.{digits}f}"
    return low if low == high else f"{low} to {high}"


def _said(found: Sequence[Bar], digits: int) -> str:
    """The bars for who cannot see them: where most of the values are."""
    total = sum(bar.count for bar in found)
    whole = _range(Bar(found[0].low, found[-1].high, total), digits)
    return f"{total:,} values, {whole}; most often {_range(max(found, key=lambda bar: bar.count), digits)}"
