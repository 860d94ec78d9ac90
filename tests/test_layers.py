"""Imports point down only, as the design draws the layers, and torch stays where it belongs.

core    config errors metrics seeds text types
parts   data endpoints envs http policy store   on core
        completers rewards                      on endpoints
        rollout                                 on envs and rewards
uses    train evals                             on parts and rollout
        jobs                                    on data and store
        serve                                   on http and policy
        insight                                 on store
        services                                on parts and uses, but not on models
fronts  api                                     on services
        web                                     on services
roots   worker app cli                          on everything below
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter

import pytest

from source_imports import FILES, IMPORTS, OWN, Import, part_of, reached_from

CORE = frozenset({"config", "errors", "metrics", "seeds", "text", "types"})
PARTS = frozenset({"completers", "data", "endpoints", "envs", "http", "policy", "rewards", "store"})

# What each part may import besides itself.
ALLOWED: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(CORE | PARTS, CORE),
    "completers": CORE | {"endpoints"},
    "rewards": CORE | {"endpoints"},
    "rollout": CORE | {"envs", "rewards"},
    "train": CORE | {"data", "policy", "rollout"},
    "evals": CORE | {"data", "rollout"},
    "jobs": CORE | {"data", "store"},
    "serve": CORE | {"http", "policy"},
    "insight": CORE | {"store"},
    "services": CORE | PARTS | {"rollout", "evals", "jobs", "serve", "insight"},
    "api": CORE | PARTS | {"rollout", "evals", "jobs", "serve", "insight", "services"},
    "web": CORE | {"api", "data", "insight", "jobs", "rewards", "services"},
    "worker": CORE | PARTS | {"rollout", "train", "evals", "serve"},
    "app": CORE | PARTS | {"evals", "jobs", "serve", "services", "api", "insight", "web"},
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
        "strop.policy.memory",
        "strop.policy.tokens",
        "strop.policy.tool_calls",
        "strop.policy.weights",
        "strop.serve.answers",
        "strop.serve.app",
        "strop.serve.bodies",
        "strop.serve.client",
        "strop.serve.server",
        "strop.serve.supervisor",
    }
)

# Imports inside a function, beside those of the command line.
LATE = frozenset({("strop.rewards.verdict", "asyncio")})  # half of the start-up time of a reward process


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


def test_pages_reach_data_through_services_only() -> None:
    # Of the API they share the session of a browser; what routes do is a service.
    shared = {"strop.api.auth"}
    pages = [found for found in IMPORTS if part_of(found.module) == "web"]
    routes = [found for found in pages if part_of(found.target) == "api" and found.target not in shared]
    stores = [found for found in pages if found.target.startswith(("sqlalchemy", "strop.store"))]
    assert [str(found) for found in (*routes, *stores)] == []


def test_services_know_nothing_of_their_fronts() -> None:
    services = [found for found in IMPORTS if part_of(found.module) == "services"]
    assert [str(found) for found in services if found.target.split(".")[0] in ("fastapi", "nicegui")] == []
