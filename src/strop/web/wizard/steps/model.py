"""Step 1: which model to start from, and what of it is trained."""

from __future__ import annotations

from functools import partial

from nicegui import ui

from strop.services.drafts.start_models import Choice, Fit, Offer, described, offer
from strop.web.context import services
from strop.web.forms import choice_field, radio, text_field
from strop.web.theme import tag, tag_text, text
from strop.web.wizard.frame import Wizard

_TONES: dict[Fit, str] = {"fits": "good", "tight": "warn", "too large": "bad", "unknown": ""}
_METHODS = {
    "lora": ("LoRA", "Trains small adapters on a frozen model. Uses the least memory and is enough for most tasks."),
    "full": ("Full", "Trains all weights. Uses about seven times the memory, for tasks beyond style and format."),
}


async def build(wizard: Wizard) -> None:
    """Draw the step."""
    await ModelStep(wizard).build()


class ModelStep:
    """The choice of a model, and of a method."""

    def __init__(self, wizard: Wizard) -> None:
        self._wizard = wizard
        self._trained: ui.select | None = None

    async def build(self) -> None:
        """Draw it."""
        found = await offer(services(), self._wizard.draft.model)
        room = self._room = found.room
        self._known = found.catalogue
        with tag("section", "s-card", 'aria-labelledby="base"'):
            tag_text("h2", "Base model", props='id="base"')
            text(
                f"Largest device: {room.name}, {room.gb:.0f} GB. The memory shown is for weights and optimizer state; "
                "the review adds the memory for your completion length.",
                "s-muted",
            )
            self._models = tag("div")
            self._draw_models()
            with tag("div", "s-fields s-wide-fields"):
                self._draw_others(found)
        with tag("section", "s-card", 'aria-labelledby="method"'):
            tag_text("h2", "Method", props='id="method"')
            self._methods = tag("div", "s-column")
        await self._draw_methods()

    def _draw_others(self, found: Offer) -> None:
        """Models outside the catalogue, and models trained on this server."""
        model, trained = self._wizard.draft.model, found.trained
        known = {choice.name for choice in self._known}
        field = text_field(
            "Another model",
            "" if model in known or model in trained else model,
            self._type,
            hint="A Hugging Face model id or a folder on the server.",
            placeholder="owner/name or /path/to/model",
        )
        field.props("debounce=300")
        self._other = self._wizard.at(field, "model")
        if trained:
            chosen = model if model in trained else None
            hint = "Continue training from a checkpoint."
            self._trained = choice_field("Checkpoints", trained, chosen, self._choose, hint=hint)

    def _draw_models(self) -> None:
        chosen = self._wizard.draft.model
        self._models.clear()
        with self._models, tag("div", "s-table-wrap"), tag("table", "s-table"):
            with tag("thead"), tag("tr"):
                for name in ("Model", "Parameters", "Memory (LoRA)", "Memory (full)"):
                    tag_text("th", name, "s-number" if name == "Parameters" else "")
            with tag("tbody", props="data-list"):
                for choice in self._known:
                    with tag("tr"):
                        with tag("td"):
                            mark = radio(
                                "model",
                                choice.name,
                                choice.name == chosen,
                                partial(self._choose, choice.name),
                                hint=choice.about + (", downloaded" if choice.here else ""),
                            )
                            mark.props("data-item")
                        tag_text("td", billions(choice), "s-number mono")
                        for method in ("lora", "full"):
                            need = choice.memory_gb(method)
                            with tag("td"), tag("div", "s-row s-need"):
                                text(gigabytes(need), "mono s-number")
                                fit = self._room.fit(need)
                                tag_text("span", fit, f"s-badge s-badge--{_TONES[fit]}")

    async def _choose(self, name: str | None, typed: bool = False) -> None:
        if name and name != self._wizard.draft.model:
            if not typed:
                self._other.value = ""
            if self._trained is not None and self._trained.value != name:
                self._trained.value = None
            self._wizard.change(lambda draft: draft.model_copy(update={"model": name}), "model")
            self._draw_models()
            await self._draw_methods()

    async def _type(self, name: str) -> None:
        if name.strip():
            await self._choose(name.strip(), typed=True)

    async def _draw_methods(self) -> None:
        model = self._wizard.draft.model
        choice = await described(services(), model) if model else None
        if self._methods.is_deleted:  # the wizard shows another step by now
            return
        self._methods.clear()
        with self._methods:
            if choice is not None:
                self._about(choice)
            for name, (title, about) in _METHODS.items():
                need = choice.memory_gb(name) if choice else None
                told = (
                    ""
                    if need is None
                    else f" Needs {gigabytes(need)} and room for activations: {self._room.fit(need)}."
                )
                radio(
                    "method",
                    title,
                    self._wizard.draft.method == name,
                    partial(self._set_method, name),
                    hint=about + told,
                )

    def _about(self, choice: Choice) -> None:
        with tag("div", "s-row"):
            text(choice.name, "s-strong")
            if choice.parameters is not None:
                text(
                    f"{billions(choice)} parameters{' (estimated from the name)' if choice.guessed else ''}", "s-muted"
                )
            if not choice.here:
                text("Not on this machine yet. It is downloaded when the job starts.", "s-warn")

    def _set_method(self, name: str) -> None:
        self._wizard.set_value("train.method", name)


def billions(choice: Choice) -> str:
    """`135M`, `30.5B`."""
    if choice.parameters is None:
        return "–"
    return f"{choice.parameters * 1000:.0f}M" if choice.parameters < 1 else f"{choice.parameters:g}B"


def gigabytes(gb: float | None) -> str:
    """`0.3 GB`, `67 GB`."""
    if gb is None:
        return "–"
    return f"{gb:.1f} GB" if gb < 10 else f"{gb:.0f} GB"
