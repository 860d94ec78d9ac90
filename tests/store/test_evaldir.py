"""The folder of an evaluation: rows that are done stay done, whatever happens to the process."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from train_cases import failed_group, group

from strop.errors import RunError
from strop.store.evaldir import EvaluationDir
from strop.store.rollout_lines import group_lines
from strop.store.rundir import RunState

ROWS = ("row-1", "row-2", "row-3")


@pytest.fixture
def folder(tmp_path: Path) -> EvaluationDir:
    return EvaluationDir.create(tmp_path / "eval", {"data": "rows.jsonl"})


def lines(folder: EvaluationDir) -> list[bytes]:
    return folder.rollouts_file.read_bytes().splitlines()


def test_a_new_folder_has_its_task_and_nothing_else(folder: EvaluationDir) -> None:
    assert EvaluationDir.open(folder.path).spec() == {"data": "rows.jsonl"}
    assert (folder.status(), folder.metrics()) == ({}, None)
    assert folder.keep_complete(ROWS, 2) == {}


def test_a_folder_without_a_task_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"no spec\.json"):
        EvaluationDir.open(tmp_path)


def test_rows_with_all_their_answers_are_kept(folder: EvaluationDir) -> None:
    for number in (2, 1):
        folder.append(group_lines(group(0.0, 1.0, number=number)))
    before = folder.rollouts_file.stat().st_ino
    kept = folder.keep_complete(ROWS, 2)
    assert {row: [line["sample"] for line in found] for row, found in kept.items()} == {
        "row-2": [0, 1],
        "row-1": [0, 1],
    }
    assert folder.rollouts_file.stat().st_ino == before  # nothing to drop: the file is left alone


def test_rows_with_a_failure_or_too_few_answers_are_done_again(folder: EvaluationDir) -> None:
    folder.append(group_lines(failed_group(number=1)))
    folder.append(group_lines(group(1.0, number=2)))
    folder.append(group_lines(group(1.0, 0.0, number=3)))
    assert list(folder.keep_complete(ROWS, 2)) == ["row-3"]
    assert len(lines(folder)) == 2


def test_rows_of_other_data_and_repeated_ones_are_dropped(folder: EvaluationDir) -> None:
    for number in (1, 9, 1):
        folder.append(group_lines(group(1.0, number=number)))
        folder.append(group_lines(group(1.0, number=number + 1)))
    assert list(folder.keep_complete(ROWS, 1)) == ["row-1", "row-2"]
    assert len(lines(folder)) == 2


@settings(deadline=None, max_examples=30)
@given(cut=st.integers(1, 2_000))
def test_wherever_a_write_was_cut_off_only_that_row_is_lost(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    folder = EvaluationDir.create(tmp_path_factory.mktemp("cut") / "eval", {})
    folder.append(group_lines(group(0.0, 1.0, number=1)))
    whole = folder.rollouts_file.stat().st_size
    folder.append(group_lines(group(0.0, 1.0, number=2)))
    content = folder.rollouts_file.read_bytes()
    folder.rollouts_file.write_bytes(content[: min(whole + cut, len(content) - 1)])
    assert list(folder.keep_complete(ROWS, 2)) == ["row-1"]
    folder.append(group_lines(group(0.5, 0.5, number=2)))
    assert list(folder.keep_complete(ROWS, 2)) == ["row-1", "row-2"]


def test_the_status_keeps_its_fields_but_for_the_message(folder: EvaluationDir) -> None:
    folder.set_status(RunState.RUNNING, rows_done=3, message="loading")
    folder.set_status(RunState.SUCCEEDED)
    status = folder.status()
    assert (status["state"], status["rows_done"], "message" in status) == ("succeeded", 3, False)


def test_two_processes_cannot_be_at_one_evaluation(folder: EvaluationDir) -> None:
    with folder.lock(), pytest.raises(RunError, match="is being evaluated by process"), folder.lock():
        pass
