"""The library of rewards: versions that never change, in the database and as files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import stored_tasks
from strop.errors import Conflict, InvalidRequest, NotFound, RewardError, StropError
from strop.store.datafolder import DataFolder
from strop.store.db import Database
from strop.store.rewards import Draft, RewardStore

CODE = "def grade(sample, item):\n    return 1.0\n"
BETTER = CODE.replace("1.0", "0.5")
GRADER = json.dumps({"type": "string_check", "name": "same", "operation": "eq", "input": "a", "reference": "a"})


@pytest.fixture
def folder(tmp_path: Path) -> DataFolder:
    return DataFolder.open(tmp_path / "data")


@pytest.fixture
def store(database: Database, folder: DataFolder) -> RewardStore:
    return RewardStore(database, folder)


def test_a_reward_has_a_first_version_that_is_a_file_too(store: RewardStore, folder: DataFolder) -> None:
    made = store.create("exact", Draft("python", CODE, ("API_KEY",)))
    assert (made.name, made.latest, made.kind, made.env) == ("exact", 1, "python", ("API_KEY",))
    version = store.version(made.id)
    assert version.path == folder.rewards / made.id / "1" / "reward.py"
    assert version.path.read_text(encoding="utf-8") == CODE


def test_a_grader_is_kept_as_json(store: RewardStore) -> None:
    version = store.version(store.create("same", Draft("grader", GRADER)).id)
    assert version.path.name == "grader.json"


def test_a_new_version_leaves_the_old_one_alone(store: RewardStore) -> None:
    made = store.create("exact", Draft("python", CODE))
    second = store.add_version(made.id, Draft("python", BETTER))
    assert second.version == 2
    assert [version.draft.source for version in store.versions(made.id)] == [BETTER, CODE]
    assert store.version(made.id, 1).path.read_text(encoding="utf-8") == CODE
    assert store.version(made.id).version == store.get(made.id).latest == 2


def test_the_kind_may_change_from_version_to_version(store: RewardStore) -> None:
    made = store.create("exact", Draft("python", CODE))
    store.add_version(made.id, Draft("grader", GRADER))
    assert store.get(made.id).kind == "grader"


def test_a_version_without_a_change_is_none(store: RewardStore) -> None:
    made = store.create("exact", Draft("python", CODE, ("A",)))
    assert store.add_version(made.id, Draft("python", CODE, ("A",))).version == 1
    assert store.add_version(made.id, Draft("python", CODE, ("B",))).version == 2


def test_a_file_that_was_edited_or_lost_is_made_anew(store: RewardStore) -> None:
    made = store.create("exact", Draft("python", CODE))
    path = store.version(made.id).path
    path.write_text("import os", encoding="utf-8")
    assert store.version(made.id).path.read_text(encoding="utf-8") == CODE
    path.unlink()
    path.parent.rmdir()
    assert store.version(made.id).path.read_text(encoding="utf-8") == CODE


@pytest.mark.parametrize(
    ("draft", "kind", "problem"),
    [
        (Draft("python", "def grade(sample, item)\n    return 1"), RewardError, "line 1: not valid Python"),
        (Draft("python", "def score(sample, item): return 1"), RewardError, "defines no grade"),
        (Draft("python", "print(grade)"), RewardError, "defines no grade"),
        (Draft("python", "(" * 100_000), RewardError, "not valid Python|too deep"),
        (Draft("python", CODE + "\0"), InvalidRequest, "NUL"),
        (Draft("python", CODE + "\ud800"), InvalidRequest, "surrogate"),
        (Draft("python", CODE + "#" * 2**20), InvalidRequest, "exceeds 1024 KiB"),
        (Draft("python", CODE, ("A B",)), InvalidRequest, "'A B'"),
        (Draft("python", CODE, ("A", "A")), InvalidRequest, "each once"),
        (Draft("grader", "{"), RewardError, "not valid JSON"),
        (Draft("grader", "[]"), RewardError, "JSON object"),
        (Draft("grader", "[" * 100_000), RewardError, "not valid JSON"),
    ],
)
def test_what_can_never_be_loaded_is_refused_and_leaves_nothing(
    store: RewardStore, folder: DataFolder, draft: Draft, kind: type[StropError], problem: str
) -> None:
    with pytest.raises(kind, match=problem):
        store.create("broken", draft)
    assert store.list() == []
    assert list(folder.rewards.iterdir()) == []


@pytest.mark.parametrize(
    "code", ["from library import grade", "try:\n    grade = len\nexcept E:\n    pass", "class grade: 1"]
)
def test_grade_may_be_bound_in_any_way(store: RewardStore, code: str) -> None:
    assert store.create("any", Draft("python", code)).latest == 1


def test_names_are_unique_and_can_be_changed(store: RewardStore) -> None:
    first, second = store.create("one", Draft("python", CODE)), store.create("two", Draft("python", CODE))
    with pytest.raises(Conflict, match="'two' is taken"):
        store.rename(first.id, "two")
    assert store.rename(second.id, "three").name == "three"
    assert [reward.name for reward in store.list()] == ["three", "one"]
    assert [reward.name for reward in store.list(after=second.id)] == ["one"]
    assert [reward.name for reward in store.list(search="ON")] == ["one"]


def test_unknown_ids_and_versions_are_named(store: RewardStore) -> None:
    made = store.create("one", Draft("python", CODE))
    with pytest.raises(NotFound, match="no reward 'rw_x'"):
        store.get("rw_x")
    with pytest.raises(NotFound, match="no version 7; the newest is 1"):
        store.version(made.id, 7)
    with pytest.raises(NotFound, match="no reward 'rw_x'"):
        store.add_version("rw_x", Draft("python", CODE))
    with pytest.raises(NotFound, match="no reward 'rw_x'"):
        store.versions("rw_x")


def test_a_reward_of_an_unfinished_job_is_not_deleted(store: RewardStore, database: Database) -> None:
    made = store.create("one", Draft("python", CODE))
    source = f"{store.version(made.id).path}:grade"
    config = json.dumps({"rewards": [{"name": "one", "source": source}]})
    stored_tasks.add_job(database, "ftjob-1", config=config)
    with pytest.raises(Conflict, match="ftjob-1"):
        store.delete(made.id)
    stored_tasks.become(database, "ftjob-1", status="succeeded")
    assert store.delete(made.id).id == made.id
    with pytest.raises(NotFound):
        store.get(made.id)
    assert Path(source.removesuffix(":grade")).exists()  # the finished run may be resumed
