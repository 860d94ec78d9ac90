"""Fine-tuning jobs through OpenAI's client: shapes, lists, events, checkpoints, repeated requests."""

from __future__ import annotations

import csv
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI
from openai.types.fine_tuning import FineTuningJob, FineTuningJobEvent
from openai.types.fine_tuning.jobs import FineTuningJobCheckpoint

from job_requests import GRADER, become, create, fake_model, method, train, upload
from served import connected, services
from strop.jobs.task import NewEvent, TaskStatus
from strop.services.container import Services


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Services, OpenAI, Path]]:
    folder = tmp_path_factory.mktemp("jobs")
    with services(folder / "data") as given, connected(given) as client:
        yield given, client, fake_model(folder / "tiny")


@pytest.fixture
def given(shared: tuple[Services, OpenAI, Path]) -> Services:
    return shared[0]


@pytest.fixture
def client(shared: tuple[Services, OpenAI, Path]) -> OpenAI:
    return shared[1]


@pytest.fixture
def model(shared: tuple[Services, OpenAI, Path]) -> Path:
    return shared[2]


def declared(kind: type[Any], value: Any) -> None:
    """Every field that the client's type declares is there, and of its type."""
    kind.model_validate(value.model_dump(warnings=False))
    assert set(kind.model_fields) - value.model_fields_set == set()


def refused(client: OpenAI, folder: Path, **fields: Any) -> openai.BadRequestError:
    with pytest.raises(openai.BadRequestError) as caught:
        create(client, **{"model": folder, **fields})
    return caught.value


# Creating


def test_a_new_job_has_the_shape_that_the_client_declares(client: OpenAI, model: Path) -> None:
    training, validation = upload(client), upload(client, first=100)
    job = create(
        client,
        model,
        training_file=training,
        validation_file=validation,
        suffix="sums",
        seed=3,
        metadata={"team": "a"},
        method=method(hyperparameters={"batch_size": 2, "n_epochs": 2, "reasoning_effort": "low"}),
    )
    declared(FineTuningJob, job)
    assert job.id.startswith("ftjob-")
    assert (job.model, job.seed, job.status, job.metadata) == (str(model), 3, "validating_files", {"team": "a"})
    assert (job.training_file, job.validation_file) == (training, validation)
    assert (job.error, job.fine_tuned_model, job.finished_at, job.trained_tokens) == (None, None, None, None)
    assert (job.result_files, job.estimated_finish, job.integrations) == ([], None, [])
    assert job.method.reinforcement.grader.to_dict() == GRADER
    assert job.method.reinforcement.response_format is None
    used = job.hyperparameters
    assert (used.batch_size, used.n_epochs, used.learning_rate_multiplier) == (2, 2, 1.0)
    assert (used.eval_interval, used.compute_multiplier, used.reasoning_effort) == (1, 1.0, "low")
    # What OpenAI has no field for.
    assert (job.name, job.user_provided_suffix) == ("sums", "sums")
    assert (job.queue_position, job.progress, job.run_id, job.reason) == (None, None, None, None)


def test_the_configuration_names_files_inside_the_data_folder(client: OpenAI, given: Services, model: Path) -> None:
    made = create(client, model, extra_body={"strop": {"sampling": {"max_completion_tokens": 32}}})
    job = given.jobs.get(made.id)
    assert job.config.sampling.max_completion_tokens == 32
    assert job.config.data.train == f"files/{job.training_file}"
    (reward,) = job.config.rewards
    file = given.folder.found(reward.source)
    assert json.loads(file.read_text()) == GRADER
    assert file.stat().st_mode & 0o777 == 0o600


def test_without_a_seed_one_is_drawn(client: OpenAI, model: Path) -> None:
    assert create(client, model).seed != create(client, model).seed


def test_what_a_client_should_know_is_an_event(client: OpenAI, model: Path) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "a", "schema": {}}}
    job = create(client, model, method=method(response_format=form))
    assert job.method.reinforcement.response_format == form
    events = client.fine_tuning.jobs.list_events(job.id).data
    assert [(event.level, event.message[:31]) for event in events] == [
        ("warn", "response_format is not enforced"),
        ("info", "Created fine-tuning job"),
    ]


@pytest.mark.parametrize(
    ("fields", "param", "message"),
    [
        ({"model": "o4-mini"}, "model", "GET /v1/models lists"),
        ({"model": "ft:tiny:strop::01234567"}, "model", "no job of this server"),
        ({"training_file": "file-none"}, "training_file", "no file 'file-none'"),
        ({"validation_file": "file-none"}, "validation_file", "no file 'file-none'"),
        ({"method": {"type": "supervised"}}, "method.type", "trains by reinforcement"),
        ({"method": method(hyperparameters={"batchsize": 2})}, None, "did you mean 'batch_size'?"),
        ({"method": method({**GRADER, "operation": "equals"})}, None, "eq, ne, like, ilike"),
        ({"extra_body": {"strop": {"train": {"method": "lore"}}}}, "strop.train.method", "'lora' or 'full'"),
        ({"extra_body": {"strop": {"rewards": [{"name": "a", "reward": "b"}]}}}, "strop.rewards", "no reward 'b'"),
    ],
)
def test_a_bad_request_names_its_field(
    client: OpenAI, model: Path, fields: dict[str, Any], param: str | None, message: str
) -> None:
    error = refused(client, model, **fields)
    assert message in error.message
    assert param is None or error.param == param


def test_a_grader_that_is_nested_without_end_is_refused(client: OpenAI, model: Path) -> None:
    body = {"model": str(model), "training_file": upload(client), "method": method("here")}
    nested = '{"type": "multi", "calculate_output": "a", "graders": {"a": ' * 400 + "1" + "}}" * 400
    content = json.dumps(body).replace('"here"', nested)
    headers = {"content-type": "application/json"}
    response = httpx.post(f"{client.base_url}fine_tuning/jobs", content=content, headers=headers)
    assert response.status_code == 400
    assert "nested too deep" in response.json()["error"]["message"]


def test_a_file_for_something_else_cannot_be_trained_on(client: OpenAI, model: Path) -> None:
    file = client.files.create(file=("notes.txt", b"hello"), purpose="user_data")
    assert "was uploaded for 'user_data'" in refused(client, model, training_file=file.id).message


# Repeated requests


def post(client: OpenAI, body: dict[str, Any], retries: int) -> dict[str, Any]:
    headers = {"x-stainless-retry-count": str(retries)}
    response = httpx.post(f"{client.base_url}fine_tuning/jobs", json=body, headers=headers)
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


def test_a_repeated_request_gives_the_job_that_it_made_the_first_time(client: OpenAI, model: Path) -> None:
    body = {"model": str(model), "training_file": upload(client), "method": method()}
    first = post(client, body, 0)
    assert post(client, body, 1)["id"] == first["id"]
    assert post(client, body, 2)["id"] == first["id"]
    # A person who sends the same twice wants two.
    assert post(client, body, 0)["id"] != first["id"]
    assert post(client, {**body, "suffix": "other"}, 1)["id"] != first["id"]


def test_the_same_request_of_long_ago_is_another_one(client: OpenAI, given: Services, model: Path) -> None:
    body = {"model": str(model), "training_file": upload(client), "method": method()}
    first = post(client, body, 0)
    become(given, first["id"], TaskStatus.QUEUED, created_at=1_000.0)
    assert post(client, body, 1)["id"] != first["id"]


# Finding


def test_jobs_are_listed_page_by_page_and_by_metadata(tmp_path: Path) -> None:
    model = fake_model(tmp_path / "tiny")
    with services(tmp_path / "data") as given, connected(given) as client:
        file = upload(client)
        tags: list[dict[str, str] | None] = [{"n": str(number % 2), "": "x"} for number in range(5)]
        made = [create(client, model, training_file=file, metadata=tag).id for tag in [*tags, None]]
        assert [job.id for job in client.fine_tuning.jobs.list(limit=2)] == made[::-1]
        page = client.fine_tuning.jobs.list(limit=4)
        assert (len(page.data), page.has_more) == (4, True)
        odd = client.fine_tuning.jobs.list(metadata={"n": "1"}, limit=1)
        assert [job.id for job in odd] == [made[3], made[1]]
        assert len(list(client.fine_tuning.jobs.list(metadata={"n": "1", "": "y"}))) == 0
        without = client.fine_tuning.jobs.list(extra_query={"metadata": "null"})
        assert [job.id for job in without] == [made[5]]
        with pytest.raises(openai.NotFoundError):
            client.fine_tuning.jobs.list(after="ftjob-none")


@pytest.mark.parametrize("call", ["retrieve", "cancel", "pause", "resume", "list_events"])
def test_an_unknown_job_is_not_found(client: OpenAI, call: str) -> None:
    with pytest.raises(openai.NotFoundError, match="ftjob-none"):
        getattr(client.fine_tuning.jobs, call)("ftjob-none")


# Steering


def test_a_job_is_paused_resumed_and_cancelled(client: OpenAI, given: Services, model: Path) -> None:
    jobs = client.fine_tuning.jobs
    job = create(client, model)
    become(given, job.id, TaskStatus.QUEUED)
    assert jobs.retrieve(job.id).queue_position >= 1  # type: ignore[attr-defined]
    assert jobs.pause(job.id).status == "paused"  # type: ignore[comparison-overlap]
    assert jobs.resume(job.id).status == "queued"
    cancelled = jobs.cancel(job.id)
    assert (cancelled.status, cancelled.error) == ("cancelled", None)
    assert cancelled.finished_at is not None
    with pytest.raises(openai.ConflictError) as caught:
        jobs.resume(job.id)
    # Else the client would try twice more.
    assert caught.value.response.headers["x-should-retry"] == "false"


def test_a_running_job_shows_what_was_asked_of_it(client: OpenAI, given: Services, model: Path) -> None:
    job = create(client, model)
    train(given, job.id, [1, 2])
    found: Any = client.fine_tuning.jobs.pause(job.id)
    assert (found.status, found.wanted) == ("running", "pause")


def test_a_failed_job_says_why(client: OpenAI, given: Services, model: Path) -> None:
    job = create(client, model)
    become(given, job.id, TaskStatus.FAILED, reason="no such thing", error_code="invalid_model", error_param="model")
    error = client.fine_tuning.jobs.retrieve(job.id).error
    assert error is not None
    assert (error.code, error.message, error.param) == ("invalid_model", "no such thing", "model")


# Progress, checkpoints, events


def test_a_running_job_shows_how_far_it_is(client: OpenAI, given: Services, model: Path) -> None:
    job = create(client, model)
    train(given, job.id, [1, 2, 4], total=10)
    found: Any = client.fine_tuning.jobs.retrieve(job.id)
    # Six steps of three seconds are left.
    assert found.progress == {"step": 4, "total_steps": 10, "seconds_left": pytest.approx(18)}
    assert found.estimated_finish > found.created_at
    assert (found.trained_tokens, found.fine_tuned_model) == (None, None)


def test_a_finished_job_has_a_model_and_its_tokens(client: OpenAI, given: Services, model: Path) -> None:
    job = create(client, model, suffix="x")
    train(given, job.id, [1, 2], total=2)
    name = given.jobs.get(job.id).model_name
    become(given, job.id, TaskStatus.SUCCEEDED, fine_tuned_model=name, finished_at=2e9)
    found = client.fine_tuning.jobs.retrieve(job.id)
    declared(FineTuningJob, found)
    assert found.fine_tuned_model == name == f"ft:tiny:strop:x:{job.id.removeprefix('ftjob-')[:8]}"
    assert (found.estimated_finish, found.finished_at) == (None, 2_000_000_000)
    assert found.trained_tokens == 0  # this run has metrics, but no rollouts


def test_a_finished_job_leaves_a_file_of_its_metrics(client: OpenAI, given: Services, model: Path) -> None:
    job = create(client, model)
    train(given, job.id, [1, 2], total=2)
    assert client.fine_tuning.jobs.retrieve(job.id).result_files == []
    become(given, job.id, TaskStatus.SUCCEEDED, finished_at=time.time())
    (file,) = client.fine_tuning.jobs.retrieve(job.id).result_files
    assert client.fine_tuning.jobs.retrieve(job.id).result_files == [file]
    assert next(iter(client.files.list(purpose="fine-tune-results"))).id == file
    rows = list(csv.DictReader(client.files.content(file).text.splitlines()))
    assert [row["step"] for row in rows] == ["1", "2"]
    first = rows[0]
    assert (first["train_mean_reward"], first["full_valid_mean_reward"]) == ("0.1", "")
    assert (first["sampling_duration"], first["total_duration"], first["pg_loss_sum"]) == ("2.0", "3.0", "0.5")
    assert first["response_length"] == first["completion_tokens_mean"] == "4.0"


def test_a_job_that_failed_and_was_resumed_gets_a_new_file(client: OpenAI, given: Services, model: Path) -> None:
    job = create(client, model)
    train(given, job.id, [1])
    become(given, job.id, TaskStatus.FAILED, finished_at=time.time(), reason="x", error_code="x")
    (first,) = client.fine_tuning.jobs.retrieve(job.id).result_files
    train(given, job.id, [2])
    become(given, job.id, TaskStatus.SUCCEEDED, finished_at=time.time())
    (second,) = client.fine_tuning.jobs.retrieve(job.id).result_files
    assert second != first
    assert len(client.files.content(second).text.splitlines()) == 3


def test_a_job_that_never_began_leaves_no_file(client: OpenAI, model: Path) -> None:
    job = create(client, model)
    assert client.fine_tuning.jobs.cancel(job.id).result_files == []


def test_checkpoints_have_the_metrics_of_their_step(client: OpenAI, given: Services, model: Path) -> None:
    job = create(client, model)
    assert client.fine_tuning.jobs.checkpoints.list(job.id).data == []
    train(given, job.id, [1, 2, 3])
    found = client.fine_tuning.jobs.checkpoints.list(job.id, limit=2)
    assert [entry.step_number for entry in found] == [3, 2, 1]
    first: Any = found.data[0]
    declared(FineTuningJobCheckpoint, first)
    assert first.fine_tuned_model_checkpoint == f"{given.jobs.get(job.id).model_name}:ckpt-step-3"
    assert first.fine_tuning_job_id == job.id
    metrics = first.metrics
    assert (metrics.step, metrics.train_mean_reward, metrics.train_loss) == (3, 0.3, 0.5)
    assert (metrics.completion_tokens_mean, metrics.full_valid_mean_reward) == (4.0, None)
    with pytest.raises(openai.NotFoundError):
        client.fine_tuning.jobs.checkpoints.list(job.id, after="ftckpt_none")


def test_events_are_listed_newest_first(client: OpenAI, given: Services, model: Path) -> None:
    job = create(client, model)
    for number in range(5):
        given.jobs.event(job.id, NewEvent(f"note {number}", type="metrics", data={"step": number}))
    found = client.fine_tuning.jobs.list_events(job.id, limit=2)
    declared(FineTuningJobEvent, found.data[0])
    messages = [event.message for event in found]
    assert messages == [*(f"note {number}" for number in range(4, -1, -1)), "Created fine-tuning job"]
    assert (found.data[0].type, found.data[0].data) == ("metrics", {"step": 4})
    with pytest.raises(openai.NotFoundError):
        client.fine_tuning.jobs.list_events(job.id, after="ftevent-x")


def stream(client: OpenAI, job_id: str, seen: str | None = None, until: int | None = None) -> list[tuple[str, str]]:
    """Ids and messages of a stream, up to its end or `until` so many came."""
    found: list[tuple[str, str]] = []
    headers = {"last-event-id": seen} if seen else {}
    url = f"{client.base_url}fine_tuning/jobs/{job_id}/events?stream=true"
    with httpx.stream("GET", url, headers=headers, timeout=30) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        data = ""
        for line in response.iter_lines():
            if line.startswith("data: "):
                data = line.removeprefix("data: ")
            elif line.startswith("id: "):
                found.append((line.removeprefix("id: "), json.loads(data)["message"]))
            if len(found) == until or data == "[DONE]":
                break
    return found


def test_a_stream_of_events_goes_on_to_the_end_of_the_job(client: OpenAI, given: Services, model: Path) -> None:
    job = create(client, model)
    given.jobs.event(job.id, NewEvent("one"))
    given.jobs.event(job.id, NewEvent("two"))
    first = stream(client, job.id, until=2)
    assert [text for _, text in first] == ["Created fine-tuning job", "one"]
    rest: list[tuple[str, str]] = []
    follower = threading.Thread(target=lambda: rest.extend(stream(client, job.id, seen=first[-1][0])))
    follower.start()
    given.jobs.event(job.id, NewEvent("three"))
    given.jobs.request(job.id, "cancel")
    follower.join(30)
    assert [text for _, text in rest] == ["two", "three", "Job cancelled"]
