"""The first look at an experiment: what runs, how it goes, what looks wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from strop.services import runs
from strop.web.charts import OVERVIEW
from strop.web.components import ChartGroup, MetricGrid
from strop.web.context import Address, services
from strop.web.pages.tabs.findings import Findings
from strop.web.pages.tabs.metrics import settings_of
from strop.web.pages.tabs.snapshot import Snapshot
from strop.web.pages.tabs.subject import Subject
from strop.web.theme import facts, tag, tag_text


async def build(subject: Subject, address: Address) -> None:
    """Four charts, the newest evaluation, the configuration."""

    def step(number: Any) -> None:
        address.set({"step": number, "row": "", "rollout": ""})
        subject.open_tab("Rollouts")

    await Findings(subject).build()
    MetricGrid(
        [{"id": subject.run_id, "name": subject.name}],
        [ChartGroup("Progress", OVERVIEW)],
        active=subject.active,
        initial=settings_of(address),
        on_view=address.set,
        on_step=step,
    )
    config = subject.newest.run["config"]
    files = await runs.dataset_names(services(), config["data"])
    await Snapshot(subject).build()
    with tag("div", "s-grid s-wide"):
        with tag("section", "s-card"):
            tag_text("h2", "Configuration")
            facts(tuple(_configuration(subject, config, files)))
        with tag("section", "s-card"):
            tag_text("h2", "Reinforcement learning")
            facts(tuple(_learning(config)))
    for reward in await runs.reward_sources(services(), subject.newest.run):
        with tag("details", "s-card"):
            tag_text("summary", f"Reward function: {reward.name}")
            tag_text("pre", reward.source)


def _configuration(subject: Subject, config: dict[str, Any], files: Mapping[str, str]) -> list[tuple[str, str]]:
    train = config["train"]
    rate = train["learning_rate"]
    return [
        ("Status", subject.newest.state),
        ("Training mode", "LoRA" if train["method"] == "lora" else "full fine-tuning"),
        ("Base model", config["model"]),
        ("Training dataset", files["train"]),
        ("Evaluation dataset", files.get("validation", "none")),
        ("Batch size", str(train["batch_size"])),
        ("Learning rate", rate if isinstance(rate, str) else f"{rate:g}"),
        ("Epochs", str(train["epochs"])),
        ("Seed", str(config["seed"])),
        ("Run folder", subject.newest.folder),
    ]


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
