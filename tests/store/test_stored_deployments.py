"""Deployments in the database, of both kinds."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor

import pytest

from strop.errors import Conflict, NotFound
from strop.store.db import Database
from strop.store.deployments import DeploymentStore


@pytest.fixture
def store(database: Database) -> DeploymentStore:
    times = itertools.count(1000)
    return DeploymentStore(database, lambda: float(next(times)))


def test_a_deployment_is_found_by_name_and_by_id(store: DeploymentStore) -> None:
    made = store.create("tiny", "smollm2-135m", "/models/smollm2", {"idle_minutes": 5})
    assert store.get("tiny") == store.get(made.id) == made
    assert (made.wanted, made.requests, made.last_used_at, made.settings) == (False, 0, None, {"idle_minutes": 5})
    assert made.id.startswith("dep_")


def test_the_name_counts_before_the_id(store: DeploymentStore) -> None:
    first = store.create("one", "x", "x", {})
    second = store.create(first.id, "x", "x", {})  # whoever calls it so
    assert store.get(first.id).id == second.id


@pytest.mark.parametrize("key", ["nothing", "dep_000000000000000000000000", "a\0b", "\ud800", ""])
def test_an_unknown_one_is_not_found(store: DeploymentStore, key: str) -> None:
    assert store.find(key) is None
    with pytest.raises(NotFound, match="no deployment"):
        store.get(key)


def test_a_name_is_given_once(store: DeploymentStore) -> None:
    store.create("tiny", "x", "x", {})
    with pytest.raises(Conflict, match="'tiny' is taken"):
        store.create("tiny", "y", "y", {})
    assert len(store.list(None, 10)) == 1


def test_lists_go_from_the_newest_on(store: DeploymentStore) -> None:
    made = [store.create(name, "x", "x", {}) for name in "abc"]
    page = store.list(None, 2)
    assert [row.name for row in page] == ["c", "b"]
    assert [row.name for row in store.list(page[-1].id, 2)] == ["a"]
    store.delete(made[1].id)
    assert [row.name for row in store.list(None, 10)] == ["c", "a"]
    with pytest.raises(NotFound):
        store.list("dep_1", 2)


def test_those_that_are_wanted_come_the_last_used_first(store: DeploymentStore) -> None:
    a, b, c = (store.create(name, "x", "x", {}) for name in "abc")
    for row in (a, b, c):
        store.want(row.id, True)
    store.count(b.id, 1, 1)
    store.count(a.id, 1, 1)
    store.want(c.id, False)
    assert [row.name for row in store.wanted()] == ["a", "b"]


def test_no_use_is_lost_when_many_count_at_once(store: DeploymentStore) -> None:
    made = store.create("tiny", "x", "x", {})
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: store.count(made.id, n, 2 * n), range(20)))
    found = store.get("tiny")
    assert (found.requests, found.prompt_tokens, found.completion_tokens) == (20, 190, 380)
    assert found.last_used_at is not None


def test_what_one_stands_for_may_change(store: DeploymentStore) -> None:
    made = store.create("ft:x", "ftckpt_1", "runs/a", {})
    assert store.place(made.id, "ftckpt_2", "runs/b").path == "runs/b"
    store.delete(made.id)
    with pytest.raises(NotFound):
        store.place(made.id, "ftckpt_3", "runs/c")
