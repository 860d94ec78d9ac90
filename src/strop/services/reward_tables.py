"""From rewards as requests name them to `[[rewards]]` tables and the files that those name."""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from strop.config import REWARD_NAME
from strop.errors import InvalidRequest
from strop.rewards.graders.parse import parse_grader
from strop.services.job_request import RewardOption

_LIMITS = ("timeout_s", "env", "workers", "memory_mb")
_GRADER_SECONDS = 120.0
"""OpenAI's time limit for grading one answer."""
_OPENAI_KEY = "OPENAI_API_KEY"
_OPENAI_URL = "OPENAI_BASE_URL"
_JUDGED = ("score_model", "label_model")
"""Graders that ask a model."""


@dataclass(frozen=True)
class RewardSource:
    """A version of a reward of this server."""

    source: str
    """What the configuration names."""
    env: tuple[str, ...]


class RewardLibrary(Protocol):
    """What the names in rewards stand for."""

    def reward(self, name: str, version: int | None) -> RewardSource:
        """A version of a reward, by default the newest. InvalidRequest for one that is unknown."""

    def judge_url(self, model: str) -> str | None:
        """Base URL of this server where it can answer for a model; None where it cannot."""

    def has_variable(self, name: str) -> bool:
        """Whether a secret or a variable of the server has that name."""


def reward_tables(
    options: Sequence[RewardOption], library: RewardLibrary
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """The `[[rewards]]` that are meant, and the files that they name, by path in the data folder."""
    files: dict[str, str] = {}
    return [_reward(option, index, files, library) for index, option in enumerate(options)], files


def grader_tables(
    grader: Mapping[str, Any], where: str, library: RewardLibrary
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """The same for a grader alone; `where` is the field that holds it."""
    files: dict[str, str] = {}
    return [{"name": grader_name(grader), **_graded(grader, files, library, where)}], files


def _reward(option: RewardOption, index: int, files: dict[str, str], library: RewardLibrary) -> dict[str, Any]:
    where = f"strop.rewards[{index}]"
    given = [key for key in ("reward", "python", "grader") if getattr(option, key) is not None]
    if len(given) != 1:
        found = " and ".join(given) or "none of them"
        raise InvalidRequest(f"{where}: one of reward, python and grader is needed, found {found}", param=where)
    if option.reward is not None:
        stored = library.reward(option.reward, option.version)
        table: dict[str, Any] = {"source": stored.source, "env": stored.env}
    elif option.python is not None:
        _check_python(option.python, option.function, where)
        table = {"source": f"{_file(option.python, 'reward.py', files)}:{option.function}"}
    else:
        table = _graded(option.grader or {}, files, library, where)
    limits = {key: getattr(option, key) for key in _LIMITS if getattr(option, key) is not None}
    return {"name": option.name, "weight": option.weight, **table, **limits}


def _graded(grader: Mapping[str, Any], files: dict[str, str], library: RewardLibrary, where: str) -> dict[str, Any]:
    """The table of a grader, which has been read once so that faults show now."""
    parse_grader(grader, f"{where}.grader")
    variables: dict[str, None] = {}
    text = json.dumps(with_judge(grader, variables, library), ensure_ascii=False, indent=2) + "\n"
    return {"source": _file(text, "grader.json", files), "timeout_s": _GRADER_SECONDS, "env": list(variables)}


def with_judge(grader: Mapping[str, Any], variables: dict[str, None], library: RewardLibrary) -> dict[str, Any]:
    """The grader with this server's address where it has the judge itself; `variables` gets the names
    of those that say where the others are and with which key."""
    if grader["type"] == "multi":
        parts = grader["graders"]
        if isinstance(parts, list):
            return {**grader, "graders": [with_judge(part, variables, library) for part in parts]}
        if isinstance(parts.get("type"), str):
            return {**grader, "graders": with_judge(parts, variables, library)}
        return {**grader, "graders": {name: with_judge(part, variables, library) for name, part in parts.items()}}
    if grader["type"] not in _JUDGED:
        return dict(grader)
    url = grader.get("base_url") or library.judge_url(grader["model"])
    if url is None and library.has_variable(_OPENAI_URL):
        variables[_OPENAI_URL] = None
    key = grader.get("api_key_env") or (_OPENAI_KEY if url is None else None)
    if key is not None:
        variables[key] = None
    return dict(grader) if url is None else {**grader, "base_url": url}


def _file(text: str, name: str, files: dict[str, str]) -> str:
    """Where a reward that came with a request lies. The same text has one place, whichever job uses it."""
    path = f"rewards/inline/{hashlib.sha256(text.encode()).hexdigest()[:24]}/{name}"
    files[path] = text
    return path


def _check_python(source: str, function: str, where: str) -> None:
    """Refuse code that cannot be read, or lacks the function, before a job waits in the queue for it."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise InvalidRequest(f"{where}.python is not valid Python code: {error}", param=f"{where}.python") from None
    names = {getattr(node, "name", None) or getattr(node, "id", None) for node in ast.walk(tree)}
    if function not in names:
        raise InvalidRequest(f"{where}.python has no function {function!r}", param=f"{where}.function")


def grader_name(grader: Mapping[str, Any]) -> str:
    """What a grader is called in metrics: its name as far as that can be one, else its type."""
    for key in ("name", "type"):
        name = re.sub(r"[^A-Za-z0-9_-]+", "_", str(grader.get(key) or "")).strip("_-")
        if re.match(REWARD_NAME, name):
            return name
    return "grader"
