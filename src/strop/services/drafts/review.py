"""A draft once more before it becomes a job: its values, what it takes, and its other forms."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from strop.errors import StropError
from strop.policy.memory import Memory, training_memory
from strop.policy.weights import shape_in
from strop.services import datasets
from strop.services.container import Services
from strop.services.drafts.check import Checked, usual_name
from strop.services.drafts.draft import JobDraft
from strop.services.drafts.estimate import estimate, pace_of, work_of
from strop.services.drafts.export import as_curl, as_python, as_toml
from strop.services.drafts.parameters import MAIN, PARAMETERS, value_of
from strop.services.drafts.start_models import GB, Fit, described, folder_of, label_of, this_machine
from strop.services.job_creation import write_files
from strop.services.numbers import clock, size
from strop.services.threads import in_thread
from strop.types import Json

Tone = Literal["", "muted", "warn", "bad"]
Language = Literal["Python", "JSON", "TOML", "Shell"]


@dataclass(frozen=True)
class Review:
    """What a person looks at before the job is created."""

    usual_name: str
    """Default name of the job."""
    values: Sequence[tuple[str, str, str]]
    """Each value: its label, the value, and the step that it is changed in."""
    takes: Sequence[tuple[str, Tone]]
    """Time and memory in sentences."""


@in_thread
def review(services: Services, draft: JobDraft) -> Review:
    """Look at a draft as a whole."""
    return Review(_usual_name(services, draft), tuple(_table(services, draft)), tuple(_takes(services, draft)))


@in_thread
def exports(services: Services, checked: Checked, url: str) -> dict[str, tuple[Language, str]]:
    """Each form by its name, with the files that the TOML names in place."""
    assert checked.order is not None and checked.request is not None
    write_files(checked.order, services)
    local = services.settings.loopback
    return {
        "TOML": ("TOML", as_toml(checked.order, services.folder.path)),
        "curl": ("Shell", as_curl(checked.request, url, local)),
        "Python": ("Python", as_python(checked.request, url, local)),
    }


def _usual_name(services: Services, draft: JobDraft) -> str:
    try:
        return usual_name(services, draft)
    except StropError:
        return ""


def _table(services: Services, draft: JobDraft) -> Iterator[tuple[str, str, str]]:
    """Fields of the review, their values, and the steps that they are changed in."""
    yield "Base model", label_of(services, draft.model) or "none", "model"
    yield "Method", {"lora": "LoRA", "full": "Full"}.get(draft.method, draft.method), "model"
    yield "Dataset", _dataset(services, draft.train) or "none", "dataset"
    yield "Held-out rows", _dataset(services, draft.validation) or "none", "dataset"
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


def _dataset(services: Services, dataset: str) -> str:
    try:
        found = datasets.get.blocking(services, dataset) if dataset else None
    except StropError as error:
        return error.message
    return f"{found.name} ({found.rows or 0:,} rows)" if found else ""


def _takes(services: Services, draft: JobDraft) -> Iterator[tuple[str, Tone]]:
    """Time and memory, each with its tone."""
    try:
        work = work_of.blocking(services, draft)
    except (StropError, ValueError, TypeError):
        yield "Unknown until all settings are filled in.", "muted"
        return
    validations = f", and {work.validations} validations" if work.validations else ""
    yield (
        f"{work.steps:,} steps of {work.batch_size} prompts × {work.samples} samples: {work.answers:,} "
        f"completions{validations}.",
        "",
    )
    pace = pace_of(draft)
    if pace is None:
        yield "Run the test in the Reward step to get a time estimate.", "muted"
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
    yield from _memory(services, draft)


def _memory(services: Services, draft: JobDraft) -> Iterator[tuple[str, Tone]]:
    choice, room = described.blocking(services, draft.model), this_machine()
    need = choice.memory_gb(draft.method)
    if need is None:
        yield "Memory: unknown, because the model is not on this machine yet.", "muted"
        return
    found = _estimated(draft, folder_of(services, draft.model), need * GB)
    total = found.total if found else need * GB
    told = (
        f"Memory: about {size(total)} of {room.gb:.0f} GB ({room.name}): {size(need * GB)} for weights and "
        f"optimizer state"
    )
    if found:
        told += f", plus {size(found.cache)} for sampling or {size(found.activations)} for activations"
    fit = room.fit(total / GB)
    tones: Mapping[Fit, Tone] = {"too large": "bad", "tight": "warn"}
    yield f"{told}.", tones.get(fit, "")
    if fit == "too large":
        yield (
            "This exceeds the available memory. Use LoRA or a smaller model, or lower Micro-batch tokens or Max "
            "concurrent samples.",
            "bad",
        )


def _estimated(draft: JobDraft, folder: Path | None, weights: float) -> Memory | None:
    shape = shape_in(folder) if folder else None
    if shape is None:
        return None
    value: Callable[[str], int] = lambda key: int(value_of(draft.values, key))  # noqa: E731
    return training_memory(
        weights,
        shape,
        concurrent=min(value("sampling.max_concurrent"), value("train.batch_size") * value("train.samples_per_prompt")),
        tokens_each=value("sampling.max_prompt_tokens") + value("sampling.max_completion_tokens"),
        forward_tokens=value("train.micro_batch_tokens"),
        recompute=bool(value_of(draft.values, "train.gradient_checkpointing")),
    )
