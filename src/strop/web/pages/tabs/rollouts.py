"""Every rollout: by prompt or by step, the heat map of a prompt, one attempt as a whole."""

from __future__ import annotations

from typing import Any

from nicegui.element import Element

from strop.errors import StropError
from strop.store import queries
from strop.web.components import Explorer, HeatMap, Inspector
from strop.web.context import Address
from strop.web.pages.tabs.metrics import reward_components
from strop.web.pages.tabs.subject import Subject
from strop.web.theme import button, tag, tag_text, text

VIEW = ("by", "search", "component", "least", "most", "only", "sort")


def build(subject: Subject, address: Address) -> None:
    """The explorer, and below it what was chosen in it."""
    Rollouts(subject, address)


class Rollouts:
    """The tab and what it shows at the moment; all of it stands in the address."""

    def __init__(self, subject: Subject, address: Address) -> None:
        self._subject = subject
        self._address = address
        self._map: HeatMap | None = None
        self._inspector: Inspector | None = None
        step = address.values.get("step", "")
        Explorer(
            subject.run_id or "",
            reward_components(subject),
            active=subject.active,
            step=int(step) if step.isdecimal() else None,
            initial=address.view(*VIEW),
            on_view=address.set,
            on_prompt=self._open_prompt,
            on_step=self._open_step,
        )
        self._detail = tag("section", "s-column", 'aria-label="Chosen prompt"')
        self._draw()

    def _draw(self) -> None:
        """Show what the address names."""
        row, rollout = self._address.values.get("row"), self._address.values.get("rollout")
        step = self._address.values.get("step", "")
        self._detail.clear()
        self._map = self._inspector = None
        with self._detail:
            if row:
                self._draw_prompt(row, rollout)
            elif step.isdecimal():
                self._draw_step(int(step))
            self._place = tag("div")
            if rollout:
                self._inspect(rollout)

    def _draw_prompt(self, row: str, rollout: str | None) -> None:
        with tag("div", "s-row"):
            tag_text("h2", f"Prompt {row}", "s-grow")
            button("Close", self._close, "bare")
        self._map = HeatMap(
            self._subject.run_id or "",
            row,
            selected=rollout,
            active=self._subject.active,
            on_open=self._open_rollout,
            on_select=self._select,
        )

    def _draw_step(self, step: int) -> None:
        with tag("div", "s-row"):
            tag_text("h2", f"Step {step}", "s-grow")
            button("Close", self._close, "bare")
        with self._subject.services.database.read() as connection:
            wanted = queries.RolloutFilter(step=step)
            try:
                found = queries.rollouts_page(connection, self._subject.run_id or "", wanted, limit=512)
            except StropError as error:
                tag_text("p", error.message, "s-error")
                return
        if not found:
            tag_text("p", "No rollouts were recorded in this step.", "s-empty")
        groups: dict[str, list[dict[str, Any]]] = {}
        for rollout in found:
            groups.setdefault(rollout["row"], []).append(rollout)
        for row, members in groups.items():
            with tag("div", "s-card"):
                _link(f"prompt {row}", lambda row=row: self._open_prompt(row))
                with tag("div", "s-row"):
                    for rollout in members:
                        self._attempt(rollout)

    def _attempt(self, rollout: dict[str, Any]) -> Element:
        worth = rollout["cause"] or f"{rollout['reward']:.2f}"
        label = f"attempt {rollout['sample'] + 1}: {worth}"
        return button(label, lambda: self._open_rollout(rollout["id"]))

    def _open_prompt(self, row: str) -> None:
        self._address.set({"row": row, "step": "", "rollout": ""}, push=True)
        self._draw()

    def _open_step(self, step: int) -> None:
        self._address.set({"step": step, "row": "", "rollout": ""}, push=True)
        self._draw()

    def _open_rollout(self, rollout: str) -> None:
        self._select(rollout)
        if self._inspector is None:
            with self._detail:
                self._inspect(rollout)

    def _select(self, rollout: str) -> None:
        """Show another attempt where one is shown already."""
        self._address.set({"rollout": rollout})
        if self._map:
            self._map.select(rollout)
        if self._inspector:
            self._inspector.show(rollout)

    def _inspect(self, rollout: str) -> None:
        with self._place, tag("div", "s-card"):
            self._inspector = Inspector(rollout, on_open=self._select)

    def _close(self) -> None:
        self._address.set({"row": "", "step": "", "rollout": ""})
        self._draw()


def _link(label: str, act: Any) -> None:
    element = tag("button", "s-link")
    with element:
        text(label)
    element.on("click", act)
