"""Events in OpenAI's shapes."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from job_cases import new_job

from strop.jobs.job import Job, JobQueue
from strop.jobs.kind import Settled
from strop.jobs.reports import checkpoint_event, ending_events, step_event
from strop.jobs.task import TaskStatus
from strop.store.db import open_database

METRICS = {
    "step": 3,
    "reward": 0.25,
    "reward/format": 0.5,
    "response_length": 12.5,
    "rollouts_errored": 4.0,
    "failures/exception": 3.0,
    "failures/timeout": 1.0,
    "time/sample": 1.5,
    "time/train": 2.0,
}
VALIDATION = {"validation/reward": 0.5, "validation/reward/format": 0.75, "time/validation": 0.5}


@pytest.fixture
def job(tmp_path: Any) -> Any:
    database = open_database(None, tmp_path)
    grader = {"type": "multi", "name": "both"}
    yield JobQueue(database).create(new_job(method={"reinforcement": {"grader": grader}}))
    database.close()


def test_a_step_is_reported_as_openai_does(job: Job) -> None:
    event = step_event(job, {**METRICS, **VALIDATION}, 9)
    assert event.message == "Step 3/9 , train mean reward=0.25, full validation mean reward=0.50"
    assert (event.type, event.once) == ("metrics", "step:3")
    data = json.loads(json.dumps(event.data))
    assert (data["step"], data["total_steps"]) == (3, 9)
    assert (data["train_mean_reward"], data["full_valid_mean_reward"]) == (0.25, 0.5)
    assert data["mean_unresponsive_rewards"] == 4 / 32
    assert data["completion_tokens_mean"] == 12.5
    assert data["scores"]["graders"] == [
        {"name": "format", "type": "multi", "train_reward_mean": 0.5, "valid_reward_mean": 0.75}
    ]
    (errors,) = data["errors"]["graders"]
    assert (errors["name"], errors["type"]) == ("score", "multi")
    assert errors["train_python_grader_runtime_error_count"] == 3.0
    assert errors["train_other_error_mean"] == 1 / 32
    assert data["timing"]["step"] == {"sampling": 1.5, "training": 2.0, "eval": 0.5, "full_iteration": 4.0}


def test_the_parts_of_a_multi_grader_have_their_own_names_and_types(job: Job) -> None:
    grader = {"type": "multi", "graders": {"near": {"type": "text_similarity"}, "judge": {"type": "score_model"}}}
    request = {"method": {"reinforcement": {"grader": grader}}}
    metrics = {"step": 1, "reward": 0.5, "reward/score": 0.5, "reward/score/near": 0.25, "reward/score/judge": 0.75}
    failures = {"rollouts_errored": 3.0, "failures/judge": 2.0, "failures/variable": 1.0}
    event = step_event(dataclasses.replace(job, request=request), {**metrics, **failures}, 9)
    assert event.data is not None
    found = [(entry["name"], entry["type"], entry["train_reward_mean"]) for entry in event.data["scores"]["graders"]]
    assert found == [("score", "multi", 0.5), ("near", "text_similarity", 0.25), ("judge", "score_model", 0.75)]
    (errors,) = event.data["errors"]["graders"]
    assert errors["train_model_grader_server_error_count"] == 2.0
    assert errors["train_invalid_variable_error_mean"] == 1 / 32


def test_what_was_not_measured_is_null(job: Job) -> None:
    event = step_event(job, {"step": 0, **VALIDATION}, None)
    assert event.message == "Step 0/? , full validation mean reward=0.50"
    assert event.data is not None
    assert event.data["train_mean_reward"] is None
    assert event.data["completion_tokens_mean"] is None
    assert event.data["errors"]["graders"] == []


def test_without_a_grader_in_the_request_the_type_is_python(job: Job) -> None:
    event = step_event(dataclasses.replace(job, request={}), METRICS, 9)
    assert event.data is not None
    assert event.data["scores"]["graders"][0]["type"] == "python"
    assert event.data["errors"]["graders"][0]["train_python_grader_server_error_count"] == 1.0


def test_a_checkpoint_is_reported_by_its_name(job: Job) -> None:
    event = checkpoint_event(job, {"step": 4, "validation_reward": 0.5, "size": 10})
    assert event.message == f"Checkpoint created at step 4 with Snapshot ID: {job.model_name}:ckpt-step-4"
    assert event.once == "checkpoint:4"


def test_the_last_events_of_a_job_that_succeeded(job: Job) -> None:
    told = ending_events(job, Settled(TaskStatus.SUCCEEDED))
    assert [event.message for event in told] == [
        f"New fine-tuned model created: {job.model_name}",
        "The job has successfully completed",
    ]


@pytest.mark.parametrize(
    ("outcome", "level", "message"),
    [
        (Settled(TaskStatus.PAUSED, "on request"), "info", "Job paused: on request"),
        (Settled(TaskStatus.PAUSED, "disk", "disk_full"), "warn", "Job paused: disk"),
        (Settled(TaskStatus.FAILED, "data", "invalid_data"), "error", "Job failed: data"),
        (Settled(TaskStatus.CANCELLED), "info", "Job cancelled"),
    ],
)
def test_other_endings_say_why(outcome: Settled, level: str, message: str, job: Job) -> None:
    (event,) = ending_events(job, outcome)
    assert (event.level, event.message) == (level, message)
