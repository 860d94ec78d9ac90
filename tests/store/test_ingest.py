"""Run folders become rows: only what is new, nothing twice, whatever happened to the files."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from databases import PostgresServer
from run_folders import new_run, play, record, rollout_line, view
from strop.errors import ConfigError, NotFound, RunError
from strop.store import queries
from strop.store.db import Database, open_database
from strop.store.files import write_json
from strop.store.ingest import Ingester
from strop.store.rundir import RunDir, RunState
from strop.store.tables import rollouts


@pytest.fixture
def ingester(database: Database, tmp_path: Path) -> Ingester:
    return Ingester(database, tmp_path)


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return new_run(tmp_path / "runs" / "one")


def fresh_view(run: RunDir, folder: Path) -> dict[str, Any]:
    """What a database that was never used before says of a run."""
    place = folder / "fresh"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    database = open_database(None, place)
    name = Ingester(database, folder).import_run(run.path)
    found = view(database, name)
    database.close()
    return found


def message(database: Database, name: str) -> str | None:
    with database.read() as connection:
        found: str | None = queries.run(connection, name)["message"]
        return found


def steps(database: Database, name: str) -> list[int]:
    with database.read() as connection:
        return [step["step"] for step in queries.steps_page(connection, name)]


# Taking in


def test_importing_twice_gives_the_same_run_once(database: Database, ingester: Ingester, run: RunDir) -> None:
    play(run, 0, 5)
    name = ingester.import_run(run.path)
    before = view(database, name)
    assert ingester.import_run(run.path) == name
    assert view(database, name) == before
    assert len(before["rollouts"]) == 6 * 16


def test_nothing_new_is_no_change(ingester: Ingester, run: RunDir) -> None:
    play(run, 0, 3)
    name = ingester.import_run(run.path)
    assert not ingester.refresh(name)
    assert ingester.refresh_all() == []


def test_a_server_that_starts_again_finds_nothing_new(
    database: Database, ingester: Ingester, run: RunDir, tmp_path: Path
) -> None:
    play(run, 0, 3)
    name = ingester.import_run(run.path)
    assert not Ingester(database, tmp_path).refresh(name)


def test_steps_come_in_as_they_are_recorded(database: Database, ingester: Ingester, run: RunDir) -> None:
    name = ingester.import_run(run.path)
    for step in range(1, 8):
        play(run, step, step)
        assert ingester.refresh(name)
        assert steps(database, name) == list(range(1, step + 1))
    assert view(database, name) == fresh_view(run, run.path.parent.parent)


def test_only_runs_that_moved_are_named(ingester: Ingester, tmp_path: Path) -> None:
    paths = [tmp_path / "runs" / name for name in ("a", "b", "c")]
    names = [ingester.import_run(new_run(path).path) for path in paths]
    play(RunDir(paths[1]), 1, 1)
    assert ingester.refresh_all() == [names[1]]
    assert ingester.refresh_all() == []


def test_a_folder_that_is_no_run_is_refused(ingester: Ingester, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="not a run folder"):
        ingester.import_run(tmp_path)


def test_a_run_with_a_broken_configuration_is_refused(database: Database, ingester: Ingester, run: RunDir) -> None:
    run.config_file.write_text("name = [")
    with pytest.raises(ConfigError, match="not valid TOML"):
        ingester.import_run(run.path)
    with database.read() as connection:
        assert queries.runs(connection) == []


def test_paths_in_the_data_folder_are_relative_so_that_it_may_move(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    run = new_run(old / "runs" / "one")
    database = open_database(None, old)
    name = Ingester(database, old).import_run(run.path)
    database.close()
    old.rename(new)
    database = open_database(None, new)
    ingester = Ingester(database, new)
    play(RunDir(new / "runs" / "one"), 1, 2)
    assert ingester.folder(name) == new / "runs" / "one"
    assert ingester.refresh_all() == [name]
    database.close()


def test_a_new_database_discovers_the_runs_of_the_data_folder(ingester: Ingester, tmp_path: Path) -> None:
    paths = [new_run(tmp_path / "runs" / name).path for name in ("a", "b")]
    (tmp_path / "runs" / "c").mkdir()
    (tmp_path / "runs" / "c" / "config.toml").write_text("nonsense")
    found = ingester.discover()
    assert found == [ingester.import_run(path) for path in paths]
    assert ingester.discover() == []


def test_a_run_that_was_forgotten_is_not_discovered(ingester: Ingester, tmp_path: Path) -> None:
    _, second = (ingester.import_run(new_run(tmp_path / "runs" / name).path) for name in ("a", "b"))
    ingester.forget(second)
    assert ingester.discover() == []


def test_a_run_that_is_forgotten_is_gone_and_its_files_stay(
    database: Database, ingester: Ingester, run: RunDir
) -> None:
    play(run, 1, 3)
    name = ingester.import_run(run.path)
    ingester.forget(name)
    with pytest.raises(NotFound, match=name):
        ingester.refresh(name)
    with database.read() as connection:
        assert connection.scalar(sa.select(sa.func.count()).select_from(rollouts)) == 0
    assert run.rollout_file(3).exists()
    assert ingester.import_run(run.path) == name
    assert steps(database, name) == [1, 2, 3]


def test_threads_that_refresh_at_once_record_nothing_twice(
    database: Database, ingester: Ingester, run: RunDir, tmp_path: Path
) -> None:
    name = ingester.import_run(run.path)
    play(run, 0, 30)
    threads = [threading.Thread(target=ingester.refresh, args=(name,)) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert view(database, name) == fresh_view(run, tmp_path)


# A database made anew


def test_a_database_made_anew_says_the_same(
    database: Database, ingester: Ingester, run: RunDir, tmp_path: Path
) -> None:
    name = ingester.import_run(run.path)
    for first in range(0, 20, 5):
        play(run, first, first + 4)
        ingester.refresh(name)
    run.forget_after(12)
    play(run, 13, 16, seed=2)
    ingester.refresh(name)
    run.set_status(RunState.SUCCEEDED, step=16)
    ingester.refresh(name)
    assert view(database, name) == fresh_view(run, tmp_path)


def test_both_databases_say_the_same(postgres: PostgresServer, run: RunDir, tmp_path: Path) -> None:
    play(run, 0, 8)
    database = open_database(postgres.create(), tmp_path)
    assert view(database, Ingester(database, tmp_path).import_run(run.path)) == fresh_view(run, tmp_path)
    database.close()


# Lines that are being written, and those that were rewritten


def test_a_torn_line_waits_until_it_is_whole(database: Database, ingester: Ingester, run: RunDir) -> None:
    play(run, 1, 2)
    name = ingester.import_run(run.path)
    run.write_rollouts(3, [rollout_line(3)])
    with open(run.metrics_file, "a") as file:
        file.write('{"step":3,"rew')
        file.flush()
        ingester.refresh(name)
        assert steps(database, name) == [1, 2]
        file.write('ard":0.75}\n')
    assert ingester.refresh(name)
    assert steps(database, name) == [1, 2, 3]
    with database.read() as connection:
        assert queries.latest_metrics(connection, name)["reward"] == 0.75


def test_rollouts_without_a_line_do_not_count(database: Database, ingester: Ingester, run: RunDir) -> None:
    play(run, 1, 1)
    run.write_rollouts(2, [rollout_line(2)])
    name = ingester.import_run(run.path)
    with database.read() as connection:
        assert {found["step"] for found in queries.rollouts_page(connection, name)} == {1}


@pytest.mark.parametrize("seen", [True, False])
def test_steps_that_are_done_again_replace_the_old_ones(
    seen: bool, database: Database, ingester: Ingester, run: RunDir, tmp_path: Path
) -> None:
    play(run, 0, 9)
    name = ingester.import_run(run.path)
    run.forget_after(4)
    if seen:  # the shorter file, before anything is added
        assert ingester.refresh(name)
        assert steps(database, name) == [0, 1, 2, 3, 4]
        assert view(database, name) == fresh_view(run, tmp_path)
    play(run, 5, 12, seed=2)
    assert ingester.refresh(name)
    assert view(database, name) == fresh_view(run, tmp_path)


def test_rollouts_of_steps_that_stay_keep_their_ids(database: Database, ingester: Ingester, run: RunDir) -> None:
    play(run, 0, 9)
    name = ingester.import_run(run.path)

    def ids() -> list[str]:
        with database.read() as connection:
            return [found["id"] for found in queries.rollouts_page(connection, name, limit=1000)]

    before = ids()
    run.forget_after(4)
    play(run, 5, 6, seed=2)
    ingester.refresh(name)
    assert ids()[: 5 * 16] == before[: 5 * 16]
    assert not set(ids()[5 * 16 :]) & set(before)


def test_a_run_started_over_forgets_everything(database: Database, ingester: Ingester, run: RunDir) -> None:
    play(run, 0, 5)
    name = ingester.import_run(run.path)
    run.forget_after(-1)
    ingester.refresh(name)
    with database.read() as connection:
        found = queries.run(connection, name)
        assert (found["rollouts"], found["prompts"], found["reward"]) == (0, 0, None)
        assert queries.metric_names(connection, name) == []


def test_a_step_done_again_with_the_same_metrics_is_taken_anew(
    database: Database, ingester: Ingester, run: RunDir
) -> None:
    record(run, 1, [rollout_line(1, answer="before")])
    name = ingester.import_run(run.path)
    run.forget_after(0)
    record(run, 1, [rollout_line(1, answer="afterwards")])
    assert ingester.refresh(name)
    with database.read() as connection:
        (found,) = queries.rollouts_page(connection, name)
        assert found["answer"] == "afterwards"
        assert queries.whole_rollout(connection, run.path.parent.parent, found["id"])["row"] == "row-1"


def test_a_file_rewritten_in_place_is_noticed_by_its_last_line(
    database: Database, ingester: Ingester, run: RunDir, tmp_path: Path
) -> None:
    play(run, 1, 4)
    name = ingester.import_run(run.path)
    inode = run.metrics_file.stat().st_ino
    text = run.metrics_file.read_text().replace('"loss":0.', '"loss":1.')
    with open(run.metrics_file, "r+") as file:
        file.write(text)
    play(run, 5, 5)
    assert run.metrics_file.stat().st_ino == inode
    assert ingester.refresh(name)
    assert view(database, name) == fresh_view(run, tmp_path)


# State


def test_a_run_that_no_process_trains_is_interrupted(database: Database, ingester: Ingester, run: RunDir) -> None:
    with run.lock():
        play(run, 1, 2)
        name = ingester.import_run(run.path)
        with database.read() as connection:
            assert queries.run(connection, name)["state"] == "running"
    assert ingester.refresh(name)
    with database.read() as connection:
        assert queries.run(connection, name)["state"] == "interrupted"


def test_the_status_of_a_run_is_taken_over(database: Database, ingester: Ingester, run: RunDir) -> None:
    name = ingester.import_run(run.path)
    run.set_status(RunState.PAUSED, step=3, total_steps=9, phase="waiting", message="paused; go on with: strop resume")
    write_json(run.facts_file, {"strop": "1.2.3"})
    assert ingester.refresh(name)
    with database.read() as connection:
        found = queries.run(connection, name)
    assert (found["state"], found["step"], found["total_steps"], found["phase"]) == ("paused", 3, 9, "waiting")
    assert found["message"] == "paused; go on with: strop resume"
    assert found["facts"] == {"strop": "1.2.3"}
    assert found["config"]["name"] == found["name"] == "case"


def test_checkpoints_come_and_go(database: Database, ingester: Ingester, run: RunDir) -> None:
    name = ingester.import_run(run.path)

    def write(*saved: int, best: int) -> None:
        entry = {"state": "complete", "size": 10, "validation_reward": 0.5, "created_at": "2026-01-02T03:04:05+00:00"}
        entries = [{"step": step, "path": f"checkpoints/step-{step:06d}", **entry} for step in saved]
        write_json(run.checkpoint_status_file, {"latest": saved[-1], "best": best, "checkpoints": entries})
        assert ingester.refresh(name)

    def found() -> list[dict[str, Any]]:
        with database.read() as connection:
            return queries.checkpoints(connection, name)

    write(10, 20, best=20)
    before = found()
    assert [(entry["step"], entry["latest"], entry["best"]) for entry in before] == [
        (10, False, False),
        (20, True, True),
    ]
    assert before[1]["created_at"] == 1767323045.0
    write(20, 30, best=20)
    assert [(entry["step"], entry["latest"], entry["best"]) for entry in found()] == [
        (20, False, True),
        (30, True, False),
    ]
    assert found()[0]["id"] == before[1]["id"]
    with database.read() as connection:
        assert queries.checkpoint(connection, before[1]["id"])["path"] == "checkpoints/step-000020"
        with pytest.raises(NotFound, match=before[0]["id"]):
            queries.checkpoint(connection, before[0]["id"])


# Damage


def test_a_folder_that_vanishes_is_said_and_may_come_back(
    database: Database, ingester: Ingester, run: RunDir, tmp_path: Path
) -> None:
    play(run, 1, 3)
    name = ingester.import_run(run.path)
    before = view(database, name)
    run.path.rename(tmp_path / "elsewhere")
    assert ingester.refresh_all() == [name]
    assert ingester.refresh_all() == []
    assert "is gone; bring the folder back" in str(message(database, name))
    assert steps(database, name) == [1, 2, 3]
    (tmp_path / "elsewhere").rename(run.path)
    assert ingester.refresh_all() == [name]
    assert view(database, name) == before


def damage_rollouts(run: RunDir) -> None:
    lines = run.rollout_file(2).read_bytes().splitlines(keepends=True)
    lines[1] = lines[1][: len(lines[1]) // 2] + b"\n"
    lines[3] = b"\xff\xfe\n"
    run.rollout_file(2).write_bytes(b"".join(lines))


def test_damaged_rollouts_are_left_out_and_named(database: Database, ingester: Ingester, run: RunDir) -> None:
    play(run, 1, 3)
    damage_rollouts(run)
    name = ingester.import_run(run.path)
    found = str(message(database, name))
    assert found.startswith("rollouts/000002.jsonl: line 2 is damaged: ")
    assert found.endswith("(and 1 more)")
    with database.read() as connection:
        counts = {step["step"]: step["samples"] for step in queries.steps_page(connection, name)}
    assert counts == {1: 16, 2: 14, 3: 16}
    play(run, 4, 4)
    assert ingester.refresh(name)
    assert message(database, name) == found


def test_damage_that_is_mended_is_not_named_any_more(
    database: Database, ingester: Ingester, run: RunDir, tmp_path: Path
) -> None:
    play(run, 1, 3)
    damage_rollouts(run)
    name = ingester.import_run(run.path)
    run.forget_after(1)
    play(run, 2, 3)
    assert ingester.refresh(name)
    assert message(database, name) is None
    assert view(database, name) == fresh_view(run, tmp_path)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"step": 9}, "it belongs to step 9"),
        ({"sample": -1}, "Expected `int` >= 0"),
        ({"sample": 2**40}, "Expected `int` <"),
        ({"reward": "high"}, "Expected `float | null`, got `str`"),
        ({"row": "a\0b"}, "the name of its row has a NUL"),
        ({"sample": 1}, "sample 1 of row row-1 is there twice"),
    ],
)
def test_a_rollout_that_makes_no_sense_is_left_out(
    change: dict[str, Any], reason: str, database: Database, ingester: Ingester, run: RunDir
) -> None:
    record(run, 1, [rollout_line(1, sample=1), {**rollout_line(1), **change}, rollout_line(1, sample=2)])
    name = ingester.import_run(run.path)
    assert reason in str(message(database, name))
    with database.read() as connection:
        assert [found["sample"] for found in queries.rollouts_page(connection, name)] == [1, 2]


@pytest.mark.parametrize(
    "line", ['{"step":2,"reward"', '{"step":2,"reward":"x"}', '{"reward":1}', '{"step":1}', '{"step":2.5}', "[]", ""]
)
def test_a_damaged_line_of_metrics_is_left_out_and_named(
    line: str, database: Database, ingester: Ingester, run: RunDir
) -> None:
    play(run, 1, 1)
    with open(run.metrics_file, "a") as file:
        file.write(line + "\n")
    name = ingester.import_run(run.path)
    assert steps(database, name) == [1]
    play(run, 3, 3)
    ingester.refresh(name)
    assert steps(database, name) == [1, 3]
    assert str(message(database, name)).startswith("metrics.jsonl: a line behind step 1 is damaged: ")


def truncated(file: Path) -> None:
    file.write_text('{"state": "runn')


def foreign(file: Path) -> None:
    file.write_text('{"state": "flying", "checkpoints": 3}')


@pytest.mark.parametrize("damage", [truncated, foreign])
@pytest.mark.parametrize("name", ["status.json", "checkpoint_status.json"])
def test_a_damaged_file_is_named_and_the_rest_taken_in(
    name: str, damage: Callable[[Path], None], database: Database, ingester: Ingester, run: RunDir
) -> None:
    run_id = ingester.import_run(run.path)
    play(run, 1, 2)
    damage(run.path / name)
    assert ingester.refresh(run_id)
    assert f"{name}: damaged" in str(message(database, run_id))
    assert steps(database, run_id) == [1, 2]


def test_a_configuration_that_breaks_later_is_named(database: Database, ingester: Ingester, run: RunDir) -> None:
    name = ingester.import_run(run.path)
    run.config_file.write_text("name = [")
    assert ingester.refresh(name)
    assert "config.toml: not valid TOML" in str(message(database, name))
    with database.read() as connection:
        assert queries.run(connection, name)["name"] == "case"


def test_characters_that_a_database_refuses_are_replaced(database: Database, ingester: Ingester, run: RunDir) -> None:
    odd = rollout_line(1, answer="a\0b", question="c\0d", components={"form\0": 1.0}, cause=None)
    record(run, 1, [odd])
    name = ingester.import_run(run.path)
    with database.read() as connection:
        (found,) = queries.rollouts_page(connection, name)
        (prompt,) = queries.prompts_page(connection, name)
    assert found["answer"] == "a\ufffdb"
    assert found["components"] == prompt["components"] == {"form\ufffd": 1.0}
    assert prompt["preview"] == "c\ufffdd"


def test_a_step_without_rollouts_is_a_step(database: Database, ingester: Ingester, run: RunDir) -> None:
    record(run, 0, metrics={"validation/reward": 0.25})
    name = ingester.import_run(run.path)
    with database.read() as connection:
        (step,) = queries.steps_page(connection, name)
        assert (step["samples"], step["reward"], step["damage"]) == (0, None, None)
        assert queries.run(connection, name)["validation_reward"] == 0.25


def test_a_rollout_whose_file_is_gone_says_so(
    database: Database, ingester: Ingester, run: RunDir, tmp_path: Path
) -> None:
    record(run, 1, [rollout_line(1)])
    name = ingester.import_run(run.path)
    with database.read() as connection:
        (found,) = queries.rollouts_page(connection, name)
        os.truncate(run.rollout_file(1), 10)
        with pytest.raises(RunError, match="cannot be read"):
            queries.whole_rollout(connection, tmp_path, found["id"])
        run.rollout_file(1).unlink()
        with pytest.raises(RunError, match=r"000001\.jsonl is gone"):
            queries.whole_rollout(connection, tmp_path, found["id"])


def test_another_rollout_at_the_same_place_is_not_shown(
    database: Database, ingester: Ingester, run: RunDir, tmp_path: Path
) -> None:
    record(run, 1, [rollout_line(1, "row-1")])
    name = ingester.import_run(run.path)
    run.write_rollouts(1, [rollout_line(1, "row-2")])
    with database.read() as connection:
        (found,) = queries.rollouts_page(connection, name)
        with pytest.raises(RunError, match="was rewritten"):
            queries.whole_rollout(connection, tmp_path, found["id"])


def test_the_whole_rollout_is_what_the_trainer_wrote(
    database: Database, ingester: Ingester, run: RunDir, tmp_path: Path
) -> None:
    lines = [rollout_line(1, sample=sample, answer=f"Grüße {sample} 👋") for sample in range(3)]
    record(run, 1, lines)
    name = ingester.import_run(run.path)
    with database.read() as connection:
        for found, line in zip(queries.rollouts_page(connection, name), lines, strict=True):
            whole = queries.whole_rollout(connection, tmp_path, found["id"])
            assert whole == {"id": found["id"], "run_id": name, **json.loads(json.dumps(line))}
