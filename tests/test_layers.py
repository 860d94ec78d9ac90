"""Imports point down only, as the design draws the layers, and torch stays where it belongs.

core    config errors metrics seeds types
parts   data endpoints envs http policy store   on core
        rewards                                 on endpoints
        rollout                                 on envs and rewards
uses    train evals                             on parts and rollout
        jobs                                    on data and store
        serve                                   on http and policy
        insight                                 on store
fronts  api                                     on parts and uses, but not on models
        web                                     on api
roots   worker app cli                          on everything below
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import strop

PACKAGE = Path(strop.__file__).parent

CORE = frozenset({"config", "errors", "metrics", "seeds", "types"})
PARTS = frozenset({"data", "endpoints", "envs", "http", "policy", "rewards", "store"})

# What each part may import besides itself.
ALLOWED: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(CORE | PARTS, CORE),
    "envs": CORE | {"endpoints"},
    "rewards": CORE | {"endpoints"},
    "rollout": CORE | {"envs", "rewards"},
    "train": CORE | {"data", "policy", "rollout"},
    "evals": CORE | {"data", "rollout"},
    "jobs": CORE | {"data", "store"},
    "serve": CORE | {"http", "policy"},
    "insight": CORE | {"store"},
    "api": CORE | PARTS | {"rollout", "evals", "jobs", "serve", "insight"},
    "web": CORE | PARTS | {"rollout", "evals", "jobs", "serve", "api", "insight"},
    "worker": CORE | PARTS | {"rollout", "train", "evals", "serve"},
    "app": CORE | PARTS | {"evals", "jobs", "serve", "api", "insight", "web"},
    "cli": CORE | PARTS | {"evals", "jobs", "worker", "app"},
    "": frozenset(),
    "__main__": frozenset({"cli"}),
}

# Only code in these may reach torch; the listed modules may not, since servers use them too.
WITH_TORCH = frozenset({"policy", "train", "serve", "worker"})
WITHOUT_TORCH = frozenset(
    {
        "strop.policy.catalogue",
        "strop.policy.installed",
        "strop.policy.tokens",
        "strop.policy.tool_calls",
        "strop.policy.weights",
        "strop.serve.client",
        "strop.serve.supervisor",
        "strop.serve.wire",
    }
)

# Imports inside a function, beside those of the command line.
LATE = frozenset({("strop.rewards.verdict", "asyncio")})  # half of the start-up time of a reward process


@dataclass(frozen=True)
class Import:
    """One import statement."""

    module: str
    """Dotted name of the file that it stands in."""
    line: int
    target: str
    """Dotted name of the module that it names."""
    top_level: bool

    def __str__(self) -> str:
        return f"{self.module}:{self.line} imports {self.target}"


def module_name(file: Path) -> str:
    parts = file.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {module_name(file): file for file in sorted(PACKAGE.rglob("*.py"))}


def imports_of(module: str) -> Iterator[Import]:
    tree = ast.parse(FILES[module].read_text(encoding="utf-8"))
    top = {id(node) for node in top_level(tree)}
    for node in ast.walk(tree):
        for target in targets(node):
            yield Import(module, node.lineno, target, id(node) in top)  # type: ignore[attr-defined]


def top_level(tree: ast.AST) -> Iterator[ast.AST]:
    """Statements that run when the module is imported, those in `if` and `try` included."""
    for node in ast.iter_child_nodes(tree):
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from top_level(node)


def targets(node: ast.AST) -> Iterator[str]:
    """Modules that a statement imports; `from strop.policy import lora` names `strop.policy.lora`."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0, "relative import"
        assert node.module is not None
        for alias in node.names:
            inner = f"{node.module}.{alias.name}"
            yield inner if inner in FILES else node.module


IMPORTS = [found for module in FILES for found in imports_of(module)]
OWN = [found for found in IMPORTS if found.target.split(".")[0] == "strop"]


def part_of(module: str) -> str:
    """`train` for `strop.train.loop`; empty for the package itself."""
    return module.split(".")[1] if "." in module else ""


def reached_from(module: str) -> frozenset[str]:
    """Every module of strop that importing one brings in, itself and all parents included."""
    seen: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name not in seen and name in FILES:
            seen.add(name)
            waiting += [found.target for found in OWN if found.module == name and found.top_level]
            waiting += [name.rpartition(".")[0]] if "." in name else []
    return frozenset(seen)


def uses_torch(found: Import) -> bool:
    return found.target.split(".")[0] in ("torch", "transformers", "peft", "safetensors")


def test_every_part_has_its_place_in_the_layers() -> None:
    assert {part_of(module) for module in FILES} <= ALLOWED.keys()


@pytest.mark.parametrize("part", sorted(ALLOWED))
def test_imports_point_down_only(part: str) -> None:
    allowed = ALLOWED[part] | {part, ""}
    wrong = [found for found in OWN if part_of(found.module) == part and part_of(found.target) not in allowed]
    assert [str(found) for found in wrong] == []


def test_no_module_imports_itself_through_others() -> None:
    graph = {module: {found.target for found in OWN if found.module == module} - {module} for module in FILES}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"import cycle: {' -> '.join(error.args[1])}")


def test_torch_is_imported_only_where_models_live() -> None:
    wrong = [found for found in IMPORTS if uses_torch(found) and part_of(found.module) not in WITH_TORCH]
    assert [str(found) for found in wrong if part_of(found.module) != "cli" or found.top_level] == []


@pytest.mark.parametrize(
    "module",
    sorted(WITHOUT_TORCH | {module for module in FILES if part_of(module) not in WITH_TORCH}),
)
def test_importing_what_has_no_model_does_not_reach_torch(module: str) -> None:
    reached = reached_from(module)
    assert [str(found) for found in IMPORTS if found.module in reached and found.top_level and uses_torch(found)] == []


def test_imports_stand_at_the_top_of_their_module_but_for_the_command_line() -> None:
    # A command imports torch only when it runs, so that `strop --help` answers at once.
    late = [found for found in IMPORTS if not found.top_level and part_of(found.module) != "cli"]
    wrong = [found for found in late if (found.module, found.target) not in LATE]
    assert [str(found) for found in wrong] == []


def test_the_core_opens_no_file_and_starts_no_process() -> None:
    forbidden = {"asyncio", "os", "shutil", "socket", "subprocess", "sys", "tempfile", "threading"}
    wrong = [found for found in IMPORTS if part_of(found.module) in CORE and found.target.split(".")[0] in forbidden]
    assert [str(found) for found in wrong] == []


def test_no_private_name_of_another_part_is_used() -> None:
    tree = {module: ast.parse(file.read_text(encoding="utf-8")) for module, file in FILES.items()}
    wrong = [
        f"{module} imports {node.module}.{alias.name}"
        for module, body in tree.items()
        for node in ast.walk(body)
        if isinstance(node, ast.ImportFrom) and node.module is not None and node.module.startswith("strop")
        for alias in node.names
        if alias.name.startswith("_") and not alias.name.startswith("__")
    ]
    assert wrong == []
