"""The documentation keeps up: commands, configuration keys and files that it must name."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from strop.cli.main import app
from strop.config import (
    EnvironmentConfig,
    EvalConfig,
    LoraConfig,
    RewardConfig,
    RunConfig,
    SamplingConfig,
    TrainConfig,
    WandbConfig,
    parse_config,
)

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
TEXT = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Every command with its full name."""
    if hasattr(command, "commands"):
        for name, child in command.commands.items():
            yield from commands(child, (*path, name))
    else:
        yield " ".join(path), command


COMMANDS = dict(commands(typer.main.get_command(app)))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example(name: str) -> None:
    assert f"strop {name}" in (COMMANDS[name].help or "")
    assert "Example:" in (COMMANDS[name].help or "")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_has_help(name: str) -> None:
    assert [option.name for option in COMMANDS[name].params if not option.help and option.name != "help"] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_stands_in_the_readme(name: str) -> None:
    group, _, last = name.rpartition(" ")
    assert re.search(rf"`(strop {group} )?{last}\b" if group else rf"`strop {last}\b", TEXT)


@pytest.mark.parametrize(
    "table",
    [RunConfig, RewardConfig, EnvironmentConfig, SamplingConfig, TrainConfig, LoraConfig, EvalConfig, WandbConfig],
)
def test_every_key_of_the_configuration_is_documented(table: type[RunConfig]) -> None:
    assert [name for name in table.model_fields if f"`{name}`" not in TEXT and f"[{name}]" not in TEXT] == []


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8")):
            if not target.startswith("http"):
                assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_first_run_of_the_readme_is_a_valid_configuration() -> None:
    (block,) = re.findall(r"```toml\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert parse_config(tomllib.loads(block)).name == "sums"
