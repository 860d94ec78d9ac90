"""Every package that the source imports is declared, in the base installation or in the extra that its users have."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterable, Mapping
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest

from source_imports import FILES, IMPORTS, Import, reached_from

ROOT = Path(__file__).parents[1]
PROJECT: Mapping[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
DISTRIBUTIONS = packages_distributions()

BASE_COMMANDS = ("train", "evaluate", "models", "data", "presets")
"""Modules of the command line whose commands a base installation runs."""
GRADERS = (
    "strop.completers.endpoint",
    "strop.endpoints",
    "strop.rewards.graders.judge_part",
    "strop.rewards.graders.text_metrics",
)
"""What is imported only once a judge, a remote model or a text metric is used."""

NOT_IMPORTED = {
    "gguf": "transformers reads the default model's weights with it",
    "python-multipart": "FastAPI reads uploads with it",
    "psycopg": "SQLAlchemy loads it for a PostgreSQL URL",
    "tensorboard": "loaded by name for train.trackers",
    "wandb": "loaded by name for train.trackers",
    "mlflow-skinny": "loaded by name for train.trackers",
}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def named(requirements: Iterable[str]) -> set[str]:
    """Distributions that requirements name, without versions and extras."""
    return {normal(re.split(r"[^A-Za-z0-9._-]", requirement)[0]) for requirement in requirements}


BASE = named(PROJECT["project"]["dependencies"])
EXTRAS = {name: named(needs) - {"strop"} for name, needs in PROJECT["project"]["optional-dependencies"].items()}
SERVER = BASE | EXTRAS["graders"] | EXTRAS["server"]


def third_party(found: Import) -> bool:
    root = found.target.split(".")[0]
    return root != "strop" and root not in sys.stdlib_module_names


def undeclared(imports: Iterable[Import], declared: set[str]) -> list[str]:
    """Imports of packages that none of the declared distributions brings."""
    wrong = []
    for found in imports:
        if third_party(found):
            owners = {normal(name) for name in DISTRIBUTIONS.get(found.target.split(".")[0], ())}
            if owners.isdisjoint(declared):
                wrong.append(str(found))
    return wrong


def brought_in(module: str) -> list[Import]:
    """Imports at the top of everything that importing a module reaches."""
    reached = reached_from(module)
    return [found for found in IMPORTS if found.module in reached and found.top_level]


def test_every_import_is_declared_somewhere() -> None:
    assert undeclared(IMPORTS, BASE.union(*EXTRAS.values())) == []


@pytest.mark.parametrize("command", BASE_COMMANDS)
def test_a_base_installation_runs_the_commands_without_a_server(command: str) -> None:
    module = f"strop.cli.{command}"
    late = [found.target for found in IMPORTS if found.module == module and not found.top_level]
    for root in (module, *(target for target in late if target in FILES)):
        assert undeclared(brought_in(root), BASE) == []


def test_a_base_installation_trains_and_evaluates() -> None:
    assert undeclared(brought_in("strop.worker.__main__"), BASE) == []


def test_judges_and_remote_models_need_the_extra_graders_only() -> None:
    modules = [module for module in FILES if module.startswith(GRADERS)]
    assert undeclared((found for module in modules for found in brought_in(module)), BASE | EXTRAS["graders"]) == []


def test_the_server_needs_its_extra_only() -> None:
    assert undeclared(brought_in("strop.app"), SERVER) == []


def test_no_declared_package_is_without_use() -> None:
    roots = {found.target.split(".")[0] for found in IMPORTS if third_party(found)}
    used = {normal(name) for root in roots for name in DISTRIBUTIONS.get(root, ())}
    assert BASE.union(*EXTRAS.values()) - used == set(NOT_IMPORTED)


def test_every_declared_package_is_pinned() -> None:
    pinned = named((ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines())
    dev = named(PROJECT["dependency-groups"]["dev"])
    assert BASE.union(dev, *EXTRAS.values()) - pinned == set()
