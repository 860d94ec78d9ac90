"""Rows of an evaluation: from the folder's rollouts.jsonl into the database.

A row is what all answers to one prompt came to. Taking a file in again changes nothing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.dialects import postgresql, sqlite

from strop.store.rollout_lines import TOKEN_KEYS, upgraded
from strop.store.runfiles import PREVIEW, storable
from strop.store.tables import evaluation_rows
from strop.types import Json

_ELSEWHERE = frozenset({"step", "row", "line", "prompt", "advantage"})
"""What all rollouts of a row share, or only training has."""


class AnswerFile:
    """A rollouts.jsonl that grows, and now and then is written anew: hands out whole rows, once each."""

    def __init__(self, path: Path, samples: int) -> None:
        """A row is whole once it has `samples` answers."""
        self._path = path
        self._samples = samples
        self._inode = 0
        self._offset = 0

    def new_rows(self) -> list[list[dict[str, Json]]]:
        """The answers of each row that was added; of all rows, where the file is another one."""
        try:
            with open(self._path, "rb") as file:
                facts = os.fstat(file.fileno())
                if facts.st_ino != self._inode or facts.st_size < self._offset:
                    self._inode, self._offset = facts.st_ino, 0
                file.seek(self._offset)
                content = file.read()
        except FileNotFoundError:
            return []
        lines = content[: content.rfind(b"\n") + 1].splitlines(keepends=True)
        whole = lines[: len(lines) - len(lines) % self._samples]
        self._offset += sum(map(len, whole))
        answers = [upgraded(json.loads(line)) for line in whole]
        return [answers[start : start + self._samples] for start in range(0, len(answers), self._samples)]


def row_values(answers: Sequence[Mapping[str, Json]], pass_threshold: float) -> dict[str, Any]:
    """The columns of a row, but for the evaluation that it belongs to."""
    first = answers[0]
    rewards = [answer["reward"] for answer in answers if answer["reward"] is not None]
    failures = [answer["failure"]["message"] for answer in answers if answer["failure"]]
    names = dict.fromkeys(name for answer in answers for name in answer["components"])
    asked = [turn["content"] for turn in first["prompt"] if turn["role"] == "user"]
    return {
        "row": storable(first["row"]),
        "line": first["line"],
        "prompt": storable((asked or [""])[-1][:PREVIEW]),
        "reward": None if failures or not rewards else fmean(rewards),
        "passed": sum(reward >= pass_threshold for reward in rewards),
        "samples": len(answers),
        "components": json.dumps(
            {name: fmean(a["components"][name] for a in answers if name in a["components"]) for name in names}
        ),
        "failure": storable(failures[0]) if failures else None,
        "rollouts": json.dumps(
            {"prompt": first["prompt"], "rollouts": [_without_tokens(answer) for answer in answers]}
        ),
    }


def _without_tokens(line: Mapping[str, Json]) -> dict[str, Json]:
    """The rollout as pages show it: tokens stay in the folder."""
    turns = [{key: value for key, value in turn.items() if key not in TOKEN_KEYS} for turn in line["turns"]]
    return {**{key: value for key, value in line.items() if key not in _ELSEWHERE}, "turns": turns}


def save_rows(connection: Connection, evaluation: int, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert rows of an evaluation, named by `seq`, or replace what was known of them."""
    if not rows:
        return
    insert: Any = sqlite.insert if connection.dialect.name == "sqlite" else postgresql.insert
    statement = insert(evaluation_rows)
    keys = ["evaluation", "row"]
    changed = {column.name: statement.excluded[column.name] for column in evaluation_rows.c if column.name not in keys}
    connection.execute(
        statement.on_conflict_do_update(index_elements=keys, set_=changed),
        [{"evaluation": evaluation, **row} for row in rows],
    )
