"""Every rollout: by prompt or by step, the heat map of a prompt, one attempt as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from strop.errors import StropError
from strop.services import rollouts, runs
from strop.web.components import Explorer, HeatMap, Inspector
from strop.web.context import Address, services
from strop.web.pages.tabs.subject import Subject
from strop.web.theme import button, tag, tag_text, text

VIEW = ("by", "search", "component", "least", "most", "only", "sort")
INSPECTOR_VIEW = ("show", "text")


async def build(subject: Subject, address: Address) -> None:
    """The explorer, and below it what was chosen in it."""
    components = await runs.reward_components(services(), [subject.run_id])
    await Rollouts(subject, address, components).draw(grab=False)


class Rollouts:
    """The tab and what it shows at the moment; all of it stands in the address."""

    def __init__(self, subject: Subject, address: Address, components: list[str]) -> None:
        self._subject = subject
        self._address = address
        self._explorer = Explorer(
            subject.run_id,
            components,
            active=subject.active,
            step=self._step,
            initial=address.view(*VIEW),
            on_view=address.set,
            on_prompt=self._open_prompt,
            on_step=self._open_step,
        )
        self._detail = tag("section", "s-column", 'aria-label="Chosen prompt"')

    @property
    def _step(self) -> int | None:
        step = self._address.values.get("step", "")
        return int(step) if step.isdecimal() else None

    async def draw(self, *, grab: bool) -> None:
        """Show the rollout in the address; with `grab`, after a request of the user, scroll to it."""
        row, rollout = self._address.values.get("row"), self._address.values.get("rollout")
        step = None if row else self._step
        self._explorer.set_chosen(row, step)
        self._detail.clear()
        with self._detail:
            if row:
                await self._draw_prompt(row, rollout, grab)
            elif step is not None:
                await self._draw_step(step)
            if rollout and not row:
                self._inspect(rollout)
        if grab and (row or step is not None):
            self._detail.run_method("scrollIntoView", {"block": "start"})

    async def _draw_prompt(self, row: str, rollout: str | None, grab: bool) -> None:
        run_id = self._subject.run_id
        self._title(await rollouts.preview(services(), run_id, row))
        with tag("div", "s-detail s-detail--beside"):
            HeatMap(
                run_id,
                row,
                selected=rollout,
                active=self._subject.active,
                grab=grab,
                on_select=self._select,
                on_close=lambda _: self._close(),
            )
            self._inspect(rollout or "")

    def _title(self, title: str) -> None:
        with tag("div", "s-row s-row--title"):
            tag_text("h2", title, "s-grow s-lines")
            button("Close", self._close, "bare")

    async def _draw_step(self, step: int) -> None:
        self._title(f"Step {step}")
        try:
            found = await rollouts.of_step(services(), self._subject.run_id, step)
        except StropError as error:
            tag_text("p", error.message, "s-error")
            return
        if not found:
            tag_text("p", "No rollouts were recorded for this step.", "s-empty")
        for group in found:
            with tag("div", "s-card"):
                _link(group.preview, lambda row=group.row: self._open_prompt(row))
                with tag("div", "s-row s-attempts"):
                    for rollout in group.rollouts:
                        self._attempt(rollout)

    def _attempt(self, rollout: Mapping[str, Any]) -> None:
        worth = rollout["cause"] or f"{rollout['reward']:.2f}"
        label = f"attempt {rollout['sample'] + 1}: {worth}"
        row, name = rollout["row"], rollout["id"]
        button(label, lambda: self._open_prompt(row, name)).classes(
            "s-attempt s-attempt--bad" if rollout["cause"] else "s-attempt"
        )

    async def _open_prompt(self, row: str, rollout: str = "") -> None:
        self._address.set({"row": row, "step": "", "rollout": rollout}, push=True)
        await self.draw(grab=True)

    async def _open_step(self, step: int) -> None:
        self._address.set({"step": step, "row": "", "rollout": ""}, push=True)
        await self.draw(grab=True)

    def _select(self, rollout: str) -> None:
        """Heat map and inspector know already; the address is to know too."""
        self._address.set({"rollout": rollout} if rollout else {"rollout": "", "show": ""})

    def _inspect(self, rollout: str) -> None:
        with tag("div", "s-card"):
            Inspector(
                rollout,
                self._address.view(*INSPECTOR_VIEW),
                follows=True,
                on_open=self._select,
                on_view=self._address.set,
            )

    async def _close(self) -> None:
        self._address.set({"row": "", "step": "", "rollout": "", "show": ""})
        await self.draw(grab=False)


def _link(label: str, act: Any) -> None:
    element = tag("button", "s-link")
    with element:
        text(label)
    element.on("click", act)
