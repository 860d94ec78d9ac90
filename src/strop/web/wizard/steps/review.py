"""Step 5: everything once more, what it will take, and the button that creates the job."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from nicegui import run, ui

from strop.api.openai.creation import create_job, write_files
from strop.api.openai.requests import JobRequest
from strop.api.services import Services
from strop.api.strop.datasets import get_dataset
from strop.errors import StropError
from strop.policy.weights import base_of, whole_folder
from strop.types import Json
from strop.web.context import services
from strop.web.editor import Language, code_editor
from strop.web.faults import faults
from strop.web.forms import text_field
from strop.web.numbers import clock, size
from strop.web.theme import button, tag, tag_text, text
from strop.web.wizard.check import Checked, usual_name
from strop.web.wizard.choices import GB, described, folder_of, label_of, this_machine
from strop.web.wizard.draft import JobDraft
from strop.web.wizard.estimate import Memory, estimate, memory, shape_of
from strop.web.wizard.export import as_curl, as_python, as_toml
from strop.web.wizard.frame import Wizard, step_of
from strop.web.wizard.parameters import MAIN, PARAMETERS, value_of
from strop.web.wizard.work import pace_of, work_of


async def build(wizard: Wizard) -> None:
    """Draw the step."""
    await ReviewStep(wizard).build()


class ReviewStep:
    """The whole job, to be looked at and created."""

    def __init__(self, wizard: Wizard) -> None:
        self._wizard = wizard
        self._sure = False

    async def build(self) -> None:
        """Draw it."""
        checked = await self._wizard.look()
        draft = self._wizard.draft
        self._draw_faults()
        with tag("section", "s-card", 'aria-labelledby="job"'):
            tag_text("h2", "Job", props='id="job"')
            with tag("div", "s-fields"):
                usual = await run.io_bound(_usual_name, draft, services())
                name = text_field(
                    "Name", draft.name, self._set_name, placeholder=usual or "", hint="Name of the job and its run."
                )
                self._wizard.at(name, "strop.name")
            for row in await run.io_bound(lambda: list(_table(draft, services()))) or ():
                self._row(*row) if row[2] else None
        with tag("section", "s-card", 'aria-labelledby="takes"'):
            tag_text("h2", "Time and memory", props='id="takes"')
            for line, tone in await run.io_bound(lambda: list(_takes(draft, services()))) or ():
                tag_text("p", line, tone)
        with tag("section", "s-card", 'aria-labelledby="create"'):
            tag_text("h2", "Create", props='id="create"')
            ui.checkbox(
                "I have reviewed these settings and want to train.", on_change=lambda event: self._agree(event.value)
            )
            with tag("div", "s-row"):
                self._create = button("Confirm & Create", self._make, "primary")
            self._refusal = tag("div")
        with tag("details", "s-card") as shown:
            tag_text("summary", "Show as TOML / curl / Python")
            self._export = tag("div", "s-column s-after-summary")
        shown.on("toggle", self._draw_export, args=[])
        self._agree(False)
        self._ready = not checked.faults

    def _draw_faults(self) -> None:
        """What is wrong, with the way to where it is mended."""
        with tag("div", "s-column") as self._faults:
            for name, message in self._wizard.faults.items():
                with tag("div", "s-error s-row", 'role="alert"'):
                    text(f"{name}: {message}", "s-grow s-break")
                    button("Fix", partial(self._wizard.go, step_of(name)))

    def _row(self, field: str, value: str, step: str) -> None:
        with tag("div", "s-review-row"):
            tag_text("span", field, "s-muted")
            tag_text("span", value, "s-break")
            change = button("Change", partial(self._wizard.go, step), "bare")
            change.props["aria-label"] = f"Change {field}"

    def _set_name(self, name: str) -> None:
        self._wizard.change(lambda draft: draft.model_copy(update={"name": name.strip()}), "strop.name")

    def _agree(self, sure: bool) -> None:
        self._sure = sure
        self._create.set_enabled(sure)

    async def _make(self) -> None:
        self._create.disable()
        checked = await self._wizard.look()
        try:
            if checked.request is not None:
                job = await run.io_bound(_create, checked.request, services())
                assert job is not None
                await self._wizard.finish(job)
                return
        except (StropError, ValueError) as error:
            self._wizard.faults |= faults(error)
        await self._wizard.draw()
        self._wizard.redraw_faults()

    async def _draw_export(self) -> None:
        if self._export.slots["default"].children:
            return
        checked = await self._wizard.look()
        request = ui.context.client.request
        url = str(request.base_url).rstrip("/") if request else ""
        self._export.clear()
        with self._export:
            if checked.request is None or checked.order is None:
                tag_text(
                    "p", "Some settings are missing or invalid (see above), so there is no job to show yet.", "s-muted"
                )
                return
            texts = await run.io_bound(_exports, checked, services(), url)
            assert texts is not None
            text("The same job with the same seed. Files and rewards are stored on this server.", "s-muted")
            with ui.tabs().props("align=left inline-label no-caps") as bar:
                for name in texts:
                    ui.tab(name)
            with ui.tab_panels(bar, value="TOML", animated=False):
                for name, (language, content) in texts.items():
                    with ui.tab_panel(name):
                        code_editor(f"The job as {name}", content, language)
                        with tag("div", "s-row"):
                            button("Copy", partial(ui.clipboard.write, content))


def _exports(checked: Checked, given: Services, url: str) -> dict[str, tuple[Language, str]]:
    """Each form by its name, with the files that the TOML names in place."""
    assert checked.order is not None and checked.request is not None
    write_files(checked.order, given)
    local = given.settings.loopback
    return {
        "TOML": ("TOML", as_toml(checked.order, given.folder.path)),
        "curl": ("Shell", as_curl(checked.request, url, local)),
        "Python": ("Python", as_python(checked.request, url, local)),
    }


def _create(request: Mapping[str, Json], given: Services) -> str:
    return create_job(JobRequest.model_validate(request), given, None, repeated=False).id


def _usual_name(draft: JobDraft, given: Services) -> str:
    try:
        return usual_name(draft, given)
    except StropError:
        return ""


def _table(draft: JobDraft, given: Services) -> Iterator[tuple[str, str, str]]:
    """Fields of the review, their values, and the steps that they are changed in."""
    yield "Base model", label_of(given, draft.model) or "none", "model"
    yield "Method", {"lora": "LoRA", "full": "Full"}.get(draft.method, draft.method), "model"
    yield "Dataset", _dataset(draft.train, given) or "none", "dataset"
    yield "Held-out rows", _dataset(draft.validation, given) or "none", "dataset"
    yield "Mode", "Single-turn", "tools"
    kinds = {"python": "Python function", "grader": "grader", "stored": "from Rewards"}
    rewards = [f"{part.name} ({kinds[part.kind]}, weight {part.weight or 0:g})" for part in draft.rewards]
    yield "Rewards", ", ".join(rewards) or "none", "reward"
    secrets = dict.fromkeys(name for part in draft.rewards for name in part.env)
    if secrets:
        yield "Secrets", ", ".join(secrets), "reward"
    for parameter in MAIN:
        if parameter.only == "validation" and not draft.validation:
            continue
        value = value_of(draft.values, parameter.key)
        at_default = parameter.key not in draft.values and parameter.empty
        yield parameter.label, parameter.empty if at_default else _said(value), "tools"
    for key, value in draft.values.items():
        if key in PARAMETERS and PARAMETERS[key] not in MAIN:
            yield PARAMETERS[key].label, _said(value), "tools"
    yield "Seed", str(draft.seed), "tools"


def _said(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _dataset(dataset: str, given: Services) -> str:
    try:
        found = get_dataset(dataset, given) if dataset else None
    except StropError as error:
        return error.message
    return f"{found.name} ({found.rows or 0:,} rows)" if found else ""


def _takes(draft: JobDraft, given: Services) -> Iterator[tuple[str, str]]:
    """Time and memory, each with its tone."""
    try:
        work = work_of(draft, given)
    except (StropError, ValueError, TypeError):
        yield "Unknown until all settings are filled in.", "s-muted"
        return
    validations = f", and {work.validations} validations" if work.validations else ""
    yield (
        f"{work.steps:,} steps of {work.batch_size} prompts × {work.samples} samples: {work.answers:,} "
        f"completions{validations}.",
        "",
    )
    pace = pace_of(draft)
    if pace is None:
        yield "Run the test in the Reward step to get a time estimate.", "s-muted"
    else:
        found = estimate(work, pace)
        parts = {
            "sampling": found.sampling,
            "training": found.training,
            "waiting for rewards": found.rewards,
            "validation": found.validation,
        }
        told = ", ".join(f"{name} {clock(seconds)}" for name, seconds in parts.items() if seconds >= 1)
        yield (
            f"About {clock(found.total)} on this machine, if completions stay as long as in the test "
            f"({pace.tokens:.0f} tokens) and nothing else runs: {told}.",
            "",
        )
    yield from _memory(draft, given)


def _memory(draft: JobDraft, given: Services) -> Iterator[tuple[str, str]]:
    choice, room = described(given, draft.model), this_machine()
    need = choice.memory_gb(draft.method)
    if need is None:
        yield "Memory: unknown, because the model is not on this machine yet.", "s-muted"
        return
    found = _estimated(draft, folder_of(given, draft.model), need * GB)
    total = found.total if found else need * GB
    told = (
        f"Memory: about {size(total)} of {room.gb:.0f} GB ({room.name}): {size(need * GB)} for weights and "
        f"optimizer state"
    )
    if found:
        told += f", plus {size(found.cache)} for sampling or {size(found.activations)} for activations"
    fit = room.fit(total / GB)
    yield f"{told}.", {"too large": "s-bad", "tight": "s-warn"}.get(fit, "")
    if fit == "too large":
        yield (
            "This exceeds the available memory. Use LoRA or a smaller model, or lower Micro-batch tokens or Max "
            "concurrent samples.",
            "s-bad",
        )


def _estimated(draft: JobDraft, folder: Path | None, weights: float) -> Memory | None:
    base = base_of(folder) if folder else None
    place: Path | None = whole_folder(base) if base else folder
    try:
        shape = shape_of(json.loads((place / "config.json").read_text(encoding="utf-8"))) if place else None
    except (OSError, ValueError):
        shape = None
    if shape is None:
        return None
    value: Callable[[str], int] = lambda key: int(value_of(draft.values, key))  # noqa: E731
    return memory(
        weights,
        shape,
        concurrent=min(value("sampling.max_concurrent"), value("train.batch_size") * value("train.samples_per_prompt")),
        tokens_each=value("sampling.max_prompt_tokens") + value("sampling.max_completion_tokens"),
        forward_tokens=value("train.micro_batch_tokens"),
        recompute=bool(value_of(draft.values, "train.gradient_checkpointing")),
    )
