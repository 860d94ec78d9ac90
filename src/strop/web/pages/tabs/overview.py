"""The first look at an experiment: what runs, how it goes, what looks wrong."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from strop.errors import NotFound
from strop.web.charts import OVERVIEW
from strop.web.components import ChartGroup, MetricGrid
from strop.web.context import Address
from strop.web.pages.tabs.findings import Findings
from strop.web.pages.tabs.metrics import settings_of
from strop.web.pages.tabs.snapshot import Snapshot
from strop.web.pages.tabs.subject import Subject
from strop.web.theme import facts, tag, tag_text


def build(subject: Subject, address: Address) -> None:
    """Four charts, the newest evaluation, the configuration."""

    def step(number: Any) -> None:
        address.set({"step": number, "row": "", "rollout": ""})
        subject.open_tab("Rollouts")

    Findings(subject)
    MetricGrid(
        [{"id": subject.run_id or "", "name": subject.name}],
        [ChartGroup("Progress", OVERVIEW)],
        active=subject.active,
        initial=settings_of(address),
        on_view=address.set,
        on_step=step,
    )
    config = subject.run["config"]
    Snapshot(subject)
    with tag("div", "s-grid s-wide"):
        with tag("section", "s-card"):
            tag_text("h2", "Configuration")
            facts(tuple(_configuration(subject, config)))
        with tag("section", "s-card"):
            tag_text("h2", "Reinforcement learning")
            facts(tuple(_learning(config)))
    _code(subject)


def _configuration(subject: Subject, config: dict[str, Any]) -> list[tuple[str, str]]:
    train, data = config["train"], config["data"]
    rate = train["learning_rate"]
    return [
        ("Status", subject.state),
        ("Training mode", "LoRA" if train["method"] == "lora" else "full fine-tuning"),
        ("Base model", config["model"]),
        ("Training dataset", _dataset(subject, data["train"])),
        ("Evaluation dataset", _dataset(subject, data["validation"]) if data["validation"] else "none"),
        ("Batch size", str(train["batch_size"])),
        ("Learning rate", rate if isinstance(rate, str) else f"{rate:g}"),
        ("Epochs", str(train["epochs"])),
        ("Seed", str(config["seed"])),
        ("Run folder", str(subject.services.ingester.folder(subject.run_id or ""))),
    ]


def _dataset(subject: Subject, path: str) -> str:
    """What a person called an uploaded file; the path of any other."""
    with suppress(NotFound):
        return subject.services.files.get(Path(path).name).filename
    return path


def _learning(config: dict[str, Any]) -> list[tuple[str, str]]:
    train, sampling = config["train"], config["sampling"]
    return [
        ("Samples per prompt", str(train["samples_per_prompt"])),
        ("Temperature", f"{sampling['temperature']:g}"),
        ("Max prompt length", f"{sampling['max_prompt_tokens']} tokens"),
        ("Max response length", f"{sampling['max_completion_tokens']} tokens"),
        ("Loss", train["loss"]),
        ("KL coefficient", f"{train['kl_coefficient']:g}"),
        ("Save every", f"{train['save_every']} steps" if train["save_every"] else "once an epoch"),
        ("Rewards", ", ".join(f"{reward['name']} × {reward['weight']:g}" for reward in config["rewards"])),
    ]


def _code(subject: Subject) -> None:
    for reward in subject.run["config"]["rewards"]:
        source = str(reward["source"])
        path = subject.services.folder.found(source if source.endswith(".json") else source.rpartition(":")[0])
        with tag("details", "s-card"):
            tag_text("summary", f"Reward function: {reward['name']}")
            try:
                content = path.read_text(encoding="utf-8")
            except (OSError, ValueError) as error:
                content = f"{path} cannot be read: {error}"
            tag_text("pre", content)
