"""Lists of runs at their largest: stamps and small curves of all of them."""

from __future__ import annotations

from strop.store.db import Database
from strop.store.queries.live import sparklines, stamps
from strop.store.tables import runs, steps

RUNS, STEPS = 1000, 40
"""As many runs as a page of a list may have."""


def _fill(database: Database) -> list[str]:
    names = [f"run_{number}" for number in range(RUNS)]
    shared = {"created_at": 0.0, "name": "n", "model": "m", "config": "{}", "state": "succeeded", "updated_at": 0.0}
    counts = {"digest": 1, "offset": 0, "bytes": 1, "prompts": 1, "samples": 1, "failed": 0, "truncated": 0}
    with database.write() as connection:
        rows = [{"seq": place, "id": name, "path": name, **shared} for place, name in enumerate(names, 1)]
        connection.execute(runs.insert(), rows)
        made = [
            {"run": run, "step": step, "reward": step / STEPS, "metrics": b"", **counts}
            for run in range(1, RUNS)  # the last has no steps yet
            for step in range(1, STEPS + 1)
        ]
        connection.execute(steps.insert(), made)
    return names


def test_a_full_page_of_runs_has_its_stamps_and_its_curves(database: Database) -> None:
    names = _fill(database)
    with database.read() as connection:
        curves = sparklines(connection, names, 32)
        found = stamps(connection, names)
    assert set(found) == set(names) == set(curves)
    assert curves[names[0]][-1] == 1.0
    rewards = [reward for reward in curves[names[0]] if reward is not None]
    assert rewards == sorted(rewards)
    assert len(rewards) == 32
    assert curves[names[-1]] == []


def test_a_stamp_changes_with_the_newest_step(database: Database) -> None:
    names = _fill(database)
    with database.read() as connection:
        before = stamps(connection, names[:2])
    with database.write() as connection:
        connection.execute(steps.update().where(steps.c.run == 1, steps.c.step == STEPS).values(digest=2))
    with database.read() as connection:
        after = stamps(connection, names[:2])
    assert before[names[0]] != after[names[0]]
    assert before[names[1]] == after[names[1]]
