"""Step 3: how the model works on a prompt, and the parameters of training."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial

from strop.errors import StropError
from strop.services.drafts.estimate import work_of
from strop.services.drafts.parameters import MAIN, MORE, Parameter, fault_of, value_of
from strop.types import Json
from strop.web.context import services
from strop.web.forms import Complaining, area_field, choice_field, complain, number_field
from strop.web.theme import tag, tag_text, text
from strop.web.wizard.frame import Wizard


async def build(wizard: Wizard) -> None:
    """Draw the step."""
    await ToolsStep(wizard).build()


class ToolsStep:
    """The mode of conversation, and the parameters."""

    def __init__(self, wizard: Wizard) -> None:
        self._wizard = wizard
        self._controls: dict[str, Complaining] = {}

    async def build(self) -> None:
        """Draw it."""
        with tag("section", "s-card", 'aria-labelledby="mode"'):
            tag_text("h2", "Conversation mode", props='id="mode"')
            about = (
                "Single-turn: the model generates one completion per prompt, and the completion is scored. Other "
                "modes are not available yet."
            )
            tag_text("p", about)
        with tag("section", "s-card", 'aria-labelledby="training"'):
            tag_text("h2", "Training parameters", props='id="training"')
            with tag("div", "s-fields"):
                self._fields(MAIN)
            self._sum = tag("p", "s-note", 'aria-live="polite"')
            with tag("details") as more:
                tag_text("summary", "More parameters")
                with tag("div", "s-fields s-after-summary"):
                    self._fields(MORE)
            if any(parameter.key in self._wizard.draft.values for parameter in MORE):
                more.props("open")
        await self._draw_sum()

    def _fields(self, parameters: Sequence[Parameter]) -> None:
        for parameter in parameters:
            if parameter.only == "validation" and not self._wizard.draft.validation:
                continue
            if parameter.only == "lora" and self._wizard.draft.method != "lora":
                continue
            self._controls[parameter.key] = self._wizard.at(self._field(parameter), f"strop.{parameter.key}")

    def _field(self, parameter: Parameter) -> Complaining:
        values = self._wizard.draft.values
        value = values.get(parameter.key) if parameter.empty else value_of(values, parameter.key)
        changed = partial(self._set, parameter)
        if parameter.kind == "choice":
            options = dict(parameter.options or {})
            return choice_field(parameter.label, {value: str(value), **options}, value, changed, hint=parameter.hint)
        if parameter.kind == "switch":
            options = {False: "no", True: "yes"}
            return choice_field(parameter.label, options, value, changed, hint=parameter.hint)
        if parameter.kind == "list":
            return area_field(
                parameter.label, "\n".join(value or ()), changed, hint=f"{parameter.hint} One per line.", rows=2
            )
        if parameter.kind == "json":
            return area_field(parameter.label, json.dumps(value) if value else "", changed, hint=parameter.hint, rows=2)
        shown = None if isinstance(value, str) else value
        placeholder = parameter.empty or str(parameter.default)
        step = 1 if parameter.kind == "whole" else None
        return number_field(parameter.label, shown, changed, hint=parameter.hint, placeholder=placeholder, step=step)

    async def _set(self, parameter: Parameter, shown: Json) -> None:
        try:
            value = meant(parameter, shown)
        except ValueError as error:
            value, problem = shown, f"not valid JSON: {error}"
        else:
            problem = fault_of(parameter.key, value) if value not in (None, "") else ""
        self._wizard.set_value(parameter.key, value)
        complain(self._controls[parameter.key], problem)
        await self._draw_sum()

    async def _draw_sum(self) -> None:
        """What the parameters come to."""
        draft = self._wizard.draft
        try:
            work = await work_of(services(), draft) if draft.train else None
        except (StropError, ValueError, TypeError):  # not all of it is filled in, or right
            work = None
        if self._sum.is_deleted:  # the wizard shows another step by now
            return
        self._sum.clear()
        self._sum.set_visibility(work is not None)
        if work is not None:
            with self._sum:
                text(
                    f"{work.steps:,} steps of {work.batch_size} prompts × {work.samples} samples: {work.answers:,} "
                    f"completions are sampled, scored and trained on."
                )


def meant(parameter: Parameter, shown: Json) -> Json:
    """The value that a field stands for; None for an empty one. ValueError for JSON that is none."""
    if shown is None or shown == "":
        return None
    if parameter.kind == "list":
        return [line for line in str(shown).splitlines() if line]
    if parameter.kind == "json":
        return json.loads(shown) if isinstance(shown, str) else shown
    if parameter.kind == "whole" and isinstance(shown, float) and shown == int(shown):
        return int(shown)
    return shown
