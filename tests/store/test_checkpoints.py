"""Checkpoints are complete or not there, whatever happens while they are written or lie about."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from strop.errors import CheckpointError
from strop.store.checkpoints import MANIFEST, CheckpointStore, name_of, read_checkpoint, verify

SAVER = """
import os, sys
from pathlib import Path
from strop.store.checkpoints import CheckpointStore
run = Path(sys.argv[1])
store = CheckpointStore(run / "checkpoints", run / "checkpoint_status.json", keep=2)
found = store.newest_valid(lambda line: print("damaged:", line, flush=True))
step = found.step if found else 0
store.sweep(step)
print("started", flush=True)
while True:
    step += 1
    def write(folder):
        for name in ("weights", "optimizer"):
            (folder / name).write_bytes(bytes([step % 256]) * 2_000_000)
    store.save(step, {}, write)
    print(step, flush=True)
"""


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    return make_store(tmp_path)


def make_store(run: Path, keep: int = 3) -> CheckpointStore:
    return CheckpointStore(run / "checkpoints", run / "checkpoint_status.json", keep)


def filled(text: str = "weights") -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / "weights.bin").write_text(text)
        (folder / "state.bin").write_text("state")

    return write


def save(store: CheckpointStore, step: int, reward: float | None = None) -> None:
    store.save(step, {"validation_reward": reward, "format": "HuggingFace", "created_at": "now"}, filled(f"w{step}"))


def steps(store: CheckpointStore) -> list[int]:
    return [checkpoint.step for checkpoint in store.list()]


def status(run: Path) -> dict[str, Any]:
    found = json.loads((run / "checkpoint_status.json").read_text())
    assert isinstance(found, dict)
    return found


def newest(store: CheckpointStore) -> tuple[int | None, list[str]]:
    told: list[str] = []
    found = store.newest_valid(told.append)
    return found.step if found else None, told


# Saving


def test_a_checkpoint_holds_what_was_written_and_a_manifest_with_its_hashes(
    store: CheckpointStore, tmp_path: Path
) -> None:
    saved = store.save(120, {"model": "tiny"}, filled())
    assert saved.path == tmp_path / "checkpoints" / "step-000120"
    assert saved.facts["model"] == "tiny"
    assert set(saved.files) == {"weights.bin", "state.bin"}
    assert saved.size == len("weights") + len("state")
    manifest = json.loads((saved.path / MANIFEST).read_text())
    assert manifest["step"] == 120
    # echo -n weights | sha256sum
    assert manifest["files"]["weights.bin"] == {
        "size": 7,
        "sha256": "9a129038d9a00aed0cf6a7ea059ca50a813449061ab87848cf1a13eafdf33b2c",
    }
    verify(saved)


def test_a_write_that_fails_leaves_no_checkpoint_and_the_older_ones(store: CheckpointStore, tmp_path: Path) -> None:
    save(store, 1)

    def fail(folder: Path) -> None:
        (folder / "weights.bin").write_text("half")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        store.save(2, {}, fail)
    assert newest(store) == (1, [])
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-000001"]
    save(store, 2)
    assert newest(store) == (2, [])


def test_saving_a_step_again_replaces_its_checkpoint(store: CheckpointStore, tmp_path: Path) -> None:
    store.save(1, {}, filled("first"))
    store.save(1, {}, filled("second"))
    assert (tmp_path / "checkpoints" / "step-000001" / "weights.bin").read_text() == "second"
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-000001"]


# What is kept


def test_the_newest_and_the_best_are_kept(tmp_path: Path) -> None:
    store = make_store(tmp_path, keep=2)
    for step, reward in enumerate((0.1, 0.9, 0.3, 0.2, 0.4), start=1):
        save(store, step, reward)
    assert steps(store) == [2, 4, 5]


def test_without_validation_the_newest_are_kept(tmp_path: Path) -> None:
    store = make_store(tmp_path, keep=2)
    for step in range(1, 6):
        save(store, step)
    assert steps(store) == [4, 5]
    assert store.best() is None


def test_of_equal_rewards_the_newer_is_the_best(tmp_path: Path) -> None:
    store = make_store(tmp_path, keep=1)
    for step, reward in enumerate((0.5, 0.5, 0.4), start=1):
        save(store, step, reward)
    best = store.best()
    assert best is not None
    assert best.step == 2
    assert steps(store) == [2, 3]


def test_a_reward_of_zero_or_below_is_a_measurement(store: CheckpointStore) -> None:
    save(store, 1, -1.0)
    save(store, 2, 0.0)
    save(store, 3)
    best = store.best()
    assert best is not None
    assert best.step == 2


def test_a_single_kept_checkpoint_is_never_without_a_complete_one(tmp_path: Path) -> None:
    store = make_store(tmp_path, keep=1)
    save(store, 1)
    seen: list[tuple[int | None, list[str]]] = []

    def write(folder: Path) -> None:
        filled()(folder)
        seen.append(newest(store))

    store.save(2, {}, write)
    assert seen == [(1, [])]
    assert steps(store) == [2]


# The status file


def test_the_status_file_names_latest_best_and_all(store: CheckpointStore, tmp_path: Path) -> None:
    save(store, 2, 0.75)
    save(store, 4, 0.5)
    assert status(tmp_path) == {
        "latest": 4,
        "best": 2,
        "checkpoints": [
            {
                "step": step,
                "path": f"checkpoints/step-00000{step}",
                "state": "complete",
                "format": "HuggingFace",
                "files": 2,
                "size": 7,
                "validation_reward": reward,
                "created_at": "now",
            }
            for step, reward in ((2, 0.75), (4, 0.5))
        ],
    }


def test_the_status_file_of_no_checkpoints_is_empty(store: CheckpointStore, tmp_path: Path) -> None:
    store.sweep(0)
    assert status(tmp_path) == {"latest": None, "best": None, "checkpoints": []}


# Damage


def truncate(folder: Path) -> None:
    file = folder / "weights.bin"
    file.write_bytes(file.read_bytes()[:-1])


def flip_a_bit(folder: Path) -> None:
    file = folder / "weights.bin"
    content = bytearray(file.read_bytes())
    content[1] ^= 1
    file.write_bytes(content)


def empty(folder: Path) -> None:
    (folder / "state.bin").write_bytes(b"")


def remove(folder: Path) -> None:
    (folder / "weights.bin").unlink()


def remove_manifest(folder: Path) -> None:
    (folder / MANIFEST).unlink()


def truncate_manifest(folder: Path) -> None:
    (folder / MANIFEST).write_text((folder / MANIFEST).read_text()[:20])


def empty_manifest(folder: Path) -> None:
    (folder / MANIFEST).write_text("")


def foreign_manifest(folder: Path) -> None:
    (folder / MANIFEST).write_text('["not", "ours"]')


def replace_by_folder(folder: Path) -> None:
    (folder / "weights.bin").unlink()
    (folder / "weights.bin").mkdir()


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (truncate, "weights.bin: damaged, 1 bytes instead of 2"),
        (flip_a_bit, "weights.bin: damaged, its content does not match"),
        (empty, "state.bin: damaged, 0 bytes instead of 5"),
        (remove, "weights.bin: missing"),
        (replace_by_folder, "weights.bin: missing"),
        (remove_manifest, "step-000003: no readable manifest.json"),
        (truncate_manifest, "step-000003: no readable manifest.json"),
        (empty_manifest, "step-000003: no readable manifest.json"),
        (foreign_manifest, "step-000003: no readable manifest.json"),
    ],
)
def test_a_damaged_checkpoint_is_named_and_the_one_before_it_taken(
    damage: Callable[[Path], None], named: str, store: CheckpointStore, tmp_path: Path
) -> None:
    for step in (1, 2, 3):
        save(store, step)
    damage(tmp_path / "checkpoints" / "step-000003")
    found, told = newest(store)
    assert found == 2
    assert len(told) == 1
    assert named in told[0]
    assert "step-000003" in told[0]
    assert told[0].endswith("; using the previous checkpoint instead")


def test_several_damaged_checkpoints_are_all_named(store: CheckpointStore, tmp_path: Path) -> None:
    for step in (1, 2, 3):
        save(store, step)
    truncate(tmp_path / "checkpoints" / "step-000003")
    remove_manifest(tmp_path / "checkpoints" / "step-000002")
    found, told = newest(store)
    assert found == 1
    assert ["step-000003" in told[0], "step-000002" in told[1]] == [True, True]


def test_before_the_first_checkpoint_there_is_none(store: CheckpointStore) -> None:
    assert newest(store) == (None, [])


def test_a_run_whose_checkpoints_are_all_damaged_does_not_start_over(store: CheckpointStore, tmp_path: Path) -> None:
    save(store, 1)
    truncate(tmp_path / "checkpoints" / "step-000001")
    with pytest.raises(CheckpointError, match="all 1 checkpoints are damaged"):
        newest(store)


def test_what_is_not_in_the_manifest_does_no_harm(store: CheckpointStore) -> None:
    save(store, 1)
    (found,) = store.list()
    (found.path / "notes.txt").write_text("mine")
    assert newest(store) == (1, [])


def test_a_folder_without_manifest_is_not_listed(store: CheckpointStore, tmp_path: Path) -> None:
    save(store, 1)
    (tmp_path / "checkpoints" / "step-000002").mkdir()
    assert steps(store) == [1]
    with pytest.raises(CheckpointError, match=r"no readable manifest\.json"):
        read_checkpoint(tmp_path / "checkpoints" / "step-000002")


def test_steps_of_seven_digits_come_after_those_of_six(store: CheckpointStore) -> None:
    assert name_of(1_000_000) == "step-1000000"
    save(store, 999_999)
    save(store, 1_000_000)
    assert newest(store) == (1_000_000, [])


# Sweeping


def test_sweeping_drops_half_written_folders_and_later_checkpoints(store: CheckpointStore, tmp_path: Path) -> None:
    for step in (1, 2, 3):
        save(store, step, step / 10)
    for name in (".tmp-step-000004", ".tmp-old-step-000002"):
        (tmp_path / "checkpoints" / name).mkdir()
        (tmp_path / "checkpoints" / name / "weights.bin").write_text("half")
    store.sweep(after=2)
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["step-000001", "step-000002"]
    assert (status(tmp_path)["latest"], status(tmp_path)["best"]) == (2, 2)


def test_a_best_checkpoint_that_is_damaged_is_the_best_no_more_once_swept(
    store: CheckpointStore, tmp_path: Path
) -> None:
    save(store, 1, 0.2)
    save(store, 2, 0.9)
    truncate(tmp_path / "checkpoints" / "step-000002")
    store.sweep(after=newest(store)[0] or 0)
    best = store.best()
    assert best is not None
    assert best.step == 1


# Kills


def test_a_saver_killed_at_any_moment_leaves_complete_checkpoints_only(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    chance = random.Random(17)
    acknowledged = 0
    halfway = 0
    for _ in range(20):
        saver = subprocess.Popen([sys.executable, "-c", SAVER, tmp_path], stdout=subprocess.PIPE, text=True)
        assert saver.stdout is not None
        assert saver.stdout.readline() == "started\n"
        time.sleep(chance.uniform(0, 0.12))
        saver.send_signal(signal.SIGKILL)
        said = saver.communicate()[0].split()
        acknowledged = int(said[-1]) if said else acknowledged
        halfway += any((tmp_path / "checkpoints").glob(".tmp-*"))
        store = make_store(tmp_path, keep=2)
        for path in (tmp_path / "checkpoints").glob("step-*"):
            checkpoint = read_checkpoint(path)
            verify(checkpoint)
            assert (path / "weights").read_bytes() == bytes([checkpoint.step % 256]) * 2_000_000
        step, told = newest(store)
        assert told == []
        # What was said to be saved is there, or the save after it.
        assert step in (acknowledged, acknowledged + 1) if acknowledged else step in (None, 1)
        acknowledged = step or 0
    assert halfway > 0
    assert acknowledged > 10
    store.sweep(acknowledged)
    assert not list((tmp_path / "checkpoints").glob(".tmp-*"))
    assert status(tmp_path)["latest"] == acknowledged
