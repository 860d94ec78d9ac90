"""The answers of evaluations: rows with every turn, and one answer in the inspector."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import quote

from nicegui import ui

from strop.services.evaluation_objects import EvaluationRow
from strop.services.rollout_objects import RolloutFields
from strop.web.components import Inspector
from strop.web.context import Address
from strop.web.theme import button, tag, tag_text, text

_CHOSEN = ("evaluation", "row", "sample")
_VIEW = ("show", "text")


@dataclass(frozen=True)
class Column:
    """What one evaluation made of a row."""

    evaluation: str
    model: str
    """Shown above the answers; empty where there is one column only."""
    row: EvaluationRow


class AnswerInspector:
    """Shows one answer as a whole, over the page. Which one stands in the address."""

    def __init__(self, address: Address, models: Mapping[str, str]) -> None:
        """Open the answer that the address names. `models` has the model of each evaluation on the page, by id."""
        self._address = address
        self._models = models
        self._first = next(iter(models))
        self._box = tag("div")
        evaluation, row, sample = (address.values.get(name, "") for name in _CHOSEN)
        evaluation = evaluation or self._first
        if evaluation in models and row and sample.isdecimal():
            self.open(evaluation, row, int(sample))

    def open(self, evaluation: str, row: str, sample: int) -> None:
        """Show an answer of a row."""
        named = "" if evaluation == self._first else evaluation
        self._address.set({"evaluation": named, "row": row, "sample": sample})
        with self._box, ui.dialog() as dialog, tag("div", "s-dialog s-dialog--wide"):
            dialog.props["aria-label"] = "Answer"
            Inspector(
                str(sample),
                self._address.view(*_VIEW),
                base=f"/v1/strop/evaluations/{evaluation}/rows/{quote(row, safe='')}/rollouts",
                on_open=lambda chosen: self._address.set({"sample": chosen}),
                on_view=self._address.set,
            )
            with tag("div", "s-row"):
                text(self._models[evaluation], "s-grow s-small s-muted")
                button("Close", dialog.close)

        def closed() -> None:
            dialog.delete()
            self._address.set(dict.fromkeys((*_CHOSEN, *_VIEW), ""))

        dialog.on("hide", closed)
        dialog.open()


def draw_row(columns: Sequence[Column], change: float | None, inspector: AnswerInspector) -> None:
    """A row with its answers, one column for each evaluation."""
    first = columns[0].row
    with tag("article", "s-card"):
        with tag("div", "s-row"):
            tag_text("h3", f"Line {first.line}", "s-grow").props["title"] = f"row {first.row}"
            if change is not None:
                tag_text("span", f"{change:+.3f}", "mono")
        for message in first.prompt:
            if message["role"] == "user":
                tag_text("pre", str(message["content"]), "s-turn s-turn--user")
        with tag("div", "s-columns").style(f"--columns: {len(columns)}"):
            for column in columns:
                _draw_column(column, inspector)


def _draw_column(column: Column, inspector: AnswerInspector) -> None:
    row = column.row
    with tag("div", "s-column"):
        worth = row.failure or ("–" if row.reward is None else f"{row.reward:.3f}")
        text(f"{column.model} {worth}, {row.passed} of {row.samples} pass", "s-small s-muted")
        with tag("div", "s-group"):
            for answer in row.rollouts:
                _draw_answer(answer, partial(inspector.open, column.evaluation, row.row, answer.sample))


def _draw_answer(answer: RolloutFields, on_click: Callable[[], None]) -> None:
    """A button with every turn of an answer, as in the inspector's view of a group."""
    with tag("button", "s-card s-group-item").on("click", on_click):
        with tag("span", "s-row s-small"):
            tag_text("strong", f"attempt {answer.sample + 1}", "s-grow")
            reward = "–" if answer.reward is None else f"{answer.reward:.2f}"
            text(answer.failure.cause if answer.failure else reward, "mono")
        for message in _messages(answer):
            with tag("span", f"s-turn s-turn--{message['role']}"):
                if len(answer.turns) > 1:
                    text(str(message["role"]), "s-small s-muted")
                for shown in _texts(message):
                    text(shown, "s-group-text")


def _messages(answer: RolloutFields) -> Iterator[dict[str, Any]]:
    for turn in answer.turns:
        yield turn.message
        yield from turn.observations


def _texts(message: dict[str, Any]) -> Iterator[str]:
    """The text of a message, and the calls that it asks for."""
    if message["content"]:
        yield str(message["content"])
    for call in message.get("tool_calls", ()):
        yield f"{call['function']['name']}({call['function']['arguments']})"
