"""Helper: the imports of strop, as its source has them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import strop

PACKAGE = Path(strop.__file__).parent


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
