"""Reward functions with immutable versions, each stored as a file that configurations can refer to."""

from __future__ import annotations

import ast
import json
import re
import time
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import sqlalchemy as sa

from strop.errors import Conflict, InvalidRequest, NotFound, RewardError
from strop.store.datafolder import DataFolder
from strop.store.datasets import ENDED
from strop.store.db import Database
from strop.store.files import write_atomic
from strop.store.ids import new_id
from strop.store.names import checked_name, unique_name
from strop.store.tables import evaluations, jobs, reward_versions, rewards, tasks

Kind = Literal["python", "grader"]

FUNCTION = "grade"
"""Name of the function that a Python reward must define."""
MAX_SOURCE_BYTES = 1024 * 1024
MAX_ENV = 32
_FILES: dict[Kind, str] = {"python": "reward.py", "grader": "grader.json"}
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")


@dataclass(frozen=True)
class Draft:
    """The content of a version."""

    kind: Kind
    source: str
    """Python code, or the JSON of a grader."""
    env: tuple[str, ...] = ()
    """Names of the secrets that are passed to it as environment variables."""


@dataclass(frozen=True)
class RewardVersion:
    """One immutable version of a reward function. Times are seconds since 1970."""

    reward_id: str
    version: int
    created_at: float
    draft: Draft
    path: Path = field(compare=False)
    """The source file."""


@dataclass(frozen=True)
class StoredReward:
    """A reward function of the server's library. Times are seconds since 1970."""

    id: str
    created_at: float
    name: str
    latest: int
    """Newest version; versions start at 1."""
    kind: Kind
    """Secrets of the newest version."""
    env: tuple[str, ...]
    updated_at: float
    """Creation time of the newest version."""


class RewardStore:
    """The reward functions of a server."""

    def __init__(self, database: Database, folder: DataFolder) -> None:
        self._database = database
        self._folder = folder.rewards

    def create(self, name: str, draft: Draft) -> StoredReward:
        """Create a reward function with its first version.

        Raises InvalidRequest or RewardError for invalid content, Conflict for a name that is taken.
        """
        name, reward_id = checked_name(name, "a reward"), new_id("rw_")
        _check(draft)
        with self._database.write() as connection:
            values = {"id": reward_id, "created_at": time.time(), "name": name, "latest": 1}
            with unique_name(name):
                connection.execute(rewards.insert().values(**values))
            self._add(connection, reward_id, 1, draft)
            return _get(connection, reward_id)

    def add_version(self, reward_id: str, draft: Draft) -> RewardVersion:
        """Add a version, or return the newest one if nothing changed. Raises the same errors as `create`."""
        _check(draft)
        with self._database.write() as connection:
            newest = self._version(connection, reward_id, None)
            if newest.draft == draft:
                return newest
            change = rewards.update().where(rewards.c.id == reward_id).values(latest=newest.version + 1)
            connection.execute(change)
            self._add(connection, reward_id, newest.version + 1, draft)
            return self._version(connection, reward_id, newest.version + 1)

    def get(self, reward_id: str) -> StoredReward:
        """One reward function. Raises NotFound for an unknown id."""
        with self._database.read() as connection:
            return _get(connection, reward_id)

    def versions(self, reward_id: str) -> list[RewardVersion]:
        """All versions, newest first. Raises NotFound for an unknown reward."""
        with self._database.read() as connection:
            _get(connection, reward_id)
            query = _VERSIONS.where(rewards.c.id == reward_id).order_by(reward_versions.c.version.desc())
            return [self._found(row) for row in connection.execute(query)]

    def version(self, reward_id: str, version: int | None = None) -> RewardVersion:
        """One version, by default the newest. Its file is restored if it is missing or was edited.

        Raises NotFound for an unknown reward or version.
        """
        with self._database.read() as connection:
            found = self._version(connection, reward_id, version)
        if not found.path.is_file() or found.path.read_bytes() != found.draft.source.encode():
            _write(found.path, found.draft.source)
        return found

    def rename(self, reward_id: str, name: str) -> StoredReward:
        """Change the name. Raises InvalidRequest, Conflict, or NotFound."""
        name = checked_name(name, "a reward")
        with self._database.write() as connection:
            _get(connection, reward_id)
            with unique_name(name):
                connection.execute(rewards.update().where(rewards.c.id == reward_id).values(name=name))
            return _get(connection, reward_id)

    def delete(self, reward_id: str) -> StoredReward:
        """Delete a reward function with all versions. Files that run configurations refer to are kept.

        Raises Conflict while a job or evaluation uses it.
        """
        with self._database.write() as connection:
            found = _get(connection, reward_id)
            for table, column in ((jobs, jobs.c.config), (evaluations, evaluations.c.spec)):
                uses = sa.and_(column.contains(reward_id), tasks.c.status.not_in(ENDED))
                user = connection.scalar(sa.select(tasks.c.id).join_from(tasks, table).where(uses).limit(1))
                if user is not None:
                    raise Conflict(f"{reward_id} is used by {user}; cancel it, or wait until it has finished")
            connection.execute(rewards.delete().where(rewards.c.id == reward_id))
            return found

    def list(self, after: str | None = None, limit: int = 100, search: str = "") -> list[StoredReward]:
        """Reward functions, newest first, up to `limit` + 1; `search` is part of a name."""
        query = _SELECT.order_by(rewards.c.seq.desc()).limit(limit + 1)
        if search:
            query = query.where(sa.func.lower(rewards.c.name).contains(search.lower(), autoescape=True))
        with self._database.read() as connection:
            if after is not None:
                place = connection.scalar(sa.select(rewards.c.seq).where(rewards.c.id == after))
                if place is None:
                    raise NotFound(f"no reward {after!r}", param="after")
                query = query.where(rewards.c.seq < place)
            return [_reward(row) for row in connection.execute(query)]

    def _add(self, connection: sa.Connection, reward_id: str, version: int, draft: Draft) -> None:
        """Write the file first, so that the row never refers to a missing file."""
        seq = connection.scalar(sa.select(rewards.c.seq).where(rewards.c.id == reward_id))
        _write(self._path(reward_id, version, draft.kind), draft.source)
        values = {"reward": seq, "version": version, "created_at": time.time(), "kind": draft.kind}
        statement = reward_versions.insert().values(**values, source=draft.source, env=json.dumps(draft.env))
        connection.execute(statement)

    def _version(self, connection: sa.Connection, reward_id: str, version: int | None) -> RewardVersion:
        wanted = rewards.c.latest if version is None else version
        query = _VERSIONS.where(rewards.c.id == reward_id, reward_versions.c.version == wanted)
        row = connection.execute(query).one_or_none()
        if row is None:
            latest = _get(connection, reward_id).latest
            raise NotFound(f"{reward_id} has no version {version}; the newest is {latest}", param="version")
        return self._found(row)

    def _found(self, row: Any) -> RewardVersion:
        reward_id, version, created_at, kind, source, env = row
        draft = Draft(_kind(kind), source, tuple(json.loads(env)))
        return RewardVersion(reward_id, version, created_at, draft, self._path(reward_id, version, draft.kind))

    def _path(self, reward_id: str, version: int, kind: Kind) -> Path:
        return self._folder / reward_id / str(version) / _FILES[kind]


_SELECT = sa.select(
    rewards.c.id,
    rewards.c.created_at,
    rewards.c.name,
    rewards.c.latest,
    reward_versions.c.kind,
    reward_versions.c.env,
    reward_versions.c.created_at.label("updated_at"),
).join_from(
    rewards,
    reward_versions,
    sa.and_(reward_versions.c.reward == rewards.c.seq, reward_versions.c.version == rewards.c.latest),
)
_VERSIONS = sa.select(
    rewards.c.id,
    reward_versions.c.version,
    reward_versions.c.created_at,
    reward_versions.c.kind,
    reward_versions.c.source,
    reward_versions.c.env,
).join_from(rewards, reward_versions, reward_versions.c.reward == rewards.c.seq)


def _get(connection: sa.Connection, reward_id: str) -> StoredReward:
    row = connection.execute(_SELECT.where(rewards.c.id == reward_id)).one_or_none()
    if row is None:
        raise NotFound(f"no reward {reward_id!r}", param="reward_id")
    return _reward(row)


def _reward(row: Any) -> StoredReward:
    reward_id, created_at, name, latest, kind, env, updated_at = row
    return StoredReward(reward_id, created_at, name, latest, _kind(kind), tuple(json.loads(env)), updated_at)


def _kind(text: str) -> Kind:
    return "grader" if text == "grader" else "python"


def _write(path: Path, source: str) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_atomic(path, source)


def _check(draft: Draft) -> None:
    """Reject content that can never be loaded. Only a test on rows shows whether it works."""
    if len(draft.source.encode("utf-8", "surrogatepass")) > MAX_SOURCE_BYTES:
        raise InvalidRequest(f"the source exceeds {MAX_SOURCE_BYTES // 1024} KiB", param="source")
    if re.search(r"[\0\ud800-\udfff]", draft.source):
        raise InvalidRequest("the source contains a NUL or a lone surrogate; remove it", param="source")
    if len(draft.env) > MAX_ENV or len(set(draft.env)) < len(draft.env):
        raise InvalidRequest(f"env may list at most {MAX_ENV} secrets, each once", param="env")
    for name in draft.env:
        if not _VARIABLE.fullmatch(name):
            raise InvalidRequest(f"{name!r} is not a valid environment variable name", param="env")
    if draft.kind == "python":
        _check_python(draft.source)
    else:
        _check_json(draft.source)


def _check_python(source: str) -> None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            tree = ast.parse(source)
    except SyntaxError as error:
        raise RewardError(f"line {error.lineno}: not valid Python: {error.msg}", param="source") from None
    except (RecursionError, MemoryError):
        raise RewardError("nested too deeply to be parsed; simplify it", param="source") from None
    if not any(_binds(node) for node in ast.walk(tree)):
        raise RewardError(f"defines no {FUNCTION}; write `def {FUNCTION}(sample, item):`", param="source")


def _binds(node: ast.AST) -> bool:
    """Whether a node defines the name."""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return name == FUNCTION
        case ast.Name(id=name, ctx=ast.Store()):
            return name == FUNCTION
        case ast.alias(name=name, asname=other):
            return (other or name) in (FUNCTION, "*")
    return False


def _check_json(source: str) -> None:
    try:
        value = json.loads(source)
    except (ValueError, RecursionError) as error:
        raise RewardError(f"not valid JSON: {error}", param="source") from None
    if not isinstance(value, dict):
        raise RewardError("a grader must be a JSON object", param="source")
