"""Reading a run folder while it is written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from job_cases import config

from strop.jobs.following import RunFollower
from strop.store.files import write_json
from strop.store.rundir import RunDir


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return RunDir.create(tmp_path / "run", config())


def follower(run: RunDir, last_step: int = -1, checkpoints: Sequence[int] = ()) -> RunFollower:
    return RunFollower(run, last_step, checkpoints)


def told(follower: RunFollower) -> list[int]:
    """Steps that are new, which are told of at once."""
    news = follower.news()
    follower.reported(news)
    return [line["step"] for line in news.steps]


def test_each_step_is_new_once(run: RunDir) -> None:
    reader = follower(run)
    assert told(reader) == []
    run.append_metrics(0, {"reward": 0.0})
    run.append_metrics(1, {"reward": 0.1})
    assert told(reader) == [0, 1]
    run.append_metrics(2, {"reward": 0.2})
    assert told(reader) == [2]
    assert told(reader) == []


def test_what_was_not_told_stays_new(run: RunDir) -> None:
    reader = follower(run)
    run.append_metrics(1, {"reward": 0.1})
    assert [line["step"] for line in reader.news().steps] == [1]
    run.append_metrics(2, {"reward": 0.2})
    assert told(reader) == [1, 2]


def test_half_a_line_is_none(run: RunDir) -> None:
    reader = follower(run)
    with open(run.metrics_file, "a") as file:
        file.write('{"step":1,"rew')
        file.flush()
        assert told(reader) == []
        file.write('ard":0.5}\n')
    assert told(reader) == [1]


def test_steps_done_again_after_a_resume_are_not_new(run: RunDir) -> None:
    reader = follower(run)
    for step in (1, 2, 3):
        run.append_metrics(step, {"reward": step / 10})
    assert told(reader) == [1, 2, 3]
    run.forget_after(1)
    assert told(reader) == []
    for step in (2, 3, 4):
        run.append_metrics(step, {"reward": step / 10})
    assert told(reader) == [4]


def test_known_steps_and_checkpoints_are_not_new(run: RunDir) -> None:
    for step in (1, 2, 3):
        run.append_metrics(step, {"reward": step / 10})
    write_json(run.checkpoint_status_file, {"checkpoints": [{"step": 1}, {"step": 3}]})
    reader = follower(run, last_step=2, checkpoints=[1])
    news = reader.news()
    assert [line["step"] for line in news.steps] == [3]
    assert [entry["step"] for entry in news.checkpoints] == [3]
    reader.reported(news)
    assert not reader.news()


def test_many_steps_come_in_portions(run: RunDir) -> None:
    reader = follower(run)
    for step in range(5):
        run.append_metrics(step, {"reward": 0.0})
    assert [line["step"] for line in reader.news(limit=2).steps] == [0, 1]
    reader.reported(reader.news(limit=2))
    assert [line["step"] for line in reader.news(limit=9).steps] == [2, 3, 4]


def test_a_file_that_took_the_number_of_the_one_it_replaced_is_read_anew(run: RunDir) -> None:
    reader = follower(run)
    run.append_metrics(1, {"reward": 0.1})
    assert told(reader) == [1]
    # In place, longer, and with the place read up to in the middle of a line.
    run.metrics_file.write_text('{"step":1,"reward":0.1,"more":2.5}\n{"step":2,"reward":0.2}\n')
    assert told(reader) == []
    assert told(reader) == [2]
