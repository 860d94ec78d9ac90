"""From files to a fine-tuned model that answers: a real server, the real model, and OpenAI's client
with nothing changed but its address. Over SQLite and over PostgreSQL."""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI

from server_process import ServerProcess, serving

MODEL = "smollm2-135m"
DEADLINE_S = 600
STEPS = 6
"""Of the job that is paused in between."""

# A longer answer is a better one: something that any model can be graded by.
PYTHON_GRADER = {
    "type": "python",
    "name": "length",
    "source": "def grade(sample, item):\n    return min(len(sample['output_text']), 40) / 40\n",
}
MULTI_GRADER = {
    "type": "multi",
    "graders": {
        "like": {
            "type": "text_similarity",
            "name": "like",
            "input": "{{ sample.output_text }}",
            "reference": "{{ item.answer }}",
            "evaluation_metric": "fuzzy_match",
        },
        "number": {
            "type": "string_check",
            "name": "number",
            "input": "{{ sample.output_text }}",
            "reference": "{{ item.answer }}",
            "operation": "like",
        },
    },
    "calculate_output": "0.5 * like + 0.5 * number",
}
SMALL = {
    "sampling": {"max_prompt_tokens": 64, "max_completion_tokens": 8},
    "train": {"samples_per_prompt": 4},
    "lora": {"r": 4},
}


@pytest.fixture
def server(database_url: str, tmp_path: Path) -> Iterator[ServerProcess]:
    arguments = ("--database-url", database_url) if database_url.startswith("postgresql") else ()
    with serving(tmp_path / "data", *arguments) as server:
        yield server


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_openais_client_trains_a_model_and_asks_it(server: ServerProcess) -> None:
    with OpenAI(base_url=f"{server.url}/v1", api_key="none", timeout=120) as client:
        training, validation = upload(client, 0, 16), upload(client, 50, 4)
        first = create(client, training, PYTHON_GRADER, suffix="longer", strop={"train": {"max_steps": STEPS}})
        second = create(
            client, training, MULTI_GRADER, validation=validation, suffix="sums", strop={"train": {"max_steps": 2}}
        )
        assert (first.status, second.model) == ("validating_files", MODEL)
        steps = pause_after_the_first_step(client, first.id)
        until(client, second.id, "running", "succeeded")
        saved = client.fine_tuning.jobs.checkpoints.list(first.id)
        assert [entry.step_number for entry in saved.data] == [steps]
        assert client.fine_tuning.jobs.resume(first.id).status == "queued"
        until(client, second.id, "succeeded")
        look_at_a_finished_job(client, until(client, first.id, "succeeded"), steps=STEPS)
        look_at_its_events(server, first.id)
        look_at_a_validated_job(client, second.id)
        ask(client, client.fine_tuning.jobs.retrieve(first.id))
        refuse(client, training)


def upload(client: OpenAI, first: int, count: int) -> str:
    rows = [
        {"messages": [{"role": "user", "content": f"What is {number} + 1?"}], "answer": str(number + 1)}
        for number in range(first, first + count)
    ]
    content = "\n".join(map(json.dumps, rows)).encode()
    file = client.files.create(file=("rows.jsonl", content), purpose="fine-tune")
    assert client.files.wait_for_processing(file.id).status == "processed"
    assert client.files.content(file.id).read() == content
    return file.id


def create(client: OpenAI, training: str, grader: Any, suffix: str, strop: Any, validation: str | None = None) -> Any:
    tables = {name: {**SMALL.get(name, {}), **strop.get(name, {})} for name in SMALL}
    return client.fine_tuning.jobs.create(
        model=MODEL,
        training_file=training,
        validation_file=validation,
        suffix=suffix,
        seed=7,
        metadata={"grader": grader["type"]},
        method={
            "type": "reinforcement",
            "reinforcement": {"grader": grader, "hyperparameters": {"batch_size": 2, "n_epochs": 1}},
        },
        extra_body={"strop": tables},
    )


def until(client: OpenAI, job_id: str, *statuses: str) -> Any:
    """Wait until the job has one of the statuses; a failure ends the wait."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        job = client.fine_tuning.jobs.retrieve(job_id)
        if job.status in statuses:
            return job
        assert job.status != "failed", job.error
        assert time.monotonic() < deadline, job
        time.sleep(0.2)


def pause_after_the_first_step(client: OpenAI, job_id: str) -> int:
    """The number of steps that were done when the job had stopped."""
    deadline = time.monotonic() + DEADLINE_S
    while not any(event.type == "metrics" for event in client.fine_tuning.jobs.list_events(job_id)):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    client.fine_tuning.jobs.pause(job_id)
    job = until(client, job_id, "paused", "succeeded")
    assert job.status == "paused", "all steps were over before the pause arrived"
    assert job.fine_tuned_model is None
    steps: int = job.progress["step"]
    assert 1 <= steps < STEPS
    return steps


def look_at_a_finished_job(client: OpenAI, job: Any, steps: int) -> None:
    assert job.fine_tuned_model == f"ft:{MODEL}:strop:longer:{job.id.removeprefix('ftjob-')[:8]}"
    assert (job.error, job.progress["step"], job.progress["total_steps"]) == (None, steps, steps)
    # Two prompts, four answers of at most eight tokens, in each step.
    assert 0 < job.trained_tokens <= steps * 2 * 4 * 8
    (results,) = job.result_files
    rows = list(csv.DictReader(client.files.content(results).text.splitlines()))
    assert [int(row["step"]) for row in rows] == list(range(1, steps + 1))
    assert all(0 <= float(row["train_mean_reward"]) <= 1 for row in rows)
    checkpoints = client.fine_tuning.jobs.checkpoints.list(job.id).data
    newest: Any = checkpoints[0]
    assert newest.step_number == steps
    assert newest.metrics.train_mean_reward == pytest.approx(float(rows[-1]["train_mean_reward"]))
    names = {model.id for model in client.models.list()}
    assert {MODEL, job.fine_tuned_model, newest.fine_tuned_model_checkpoint} <= names
    found = client.fine_tuning.jobs.list(metadata={"grader": "python"})
    assert [entry.id for entry in found] == [job.id]


def look_at_its_events(server: ServerProcess, job_id: str) -> None:
    """The whole story, as a stream tells it."""
    response = httpx.get(f"{server.url}/v1/fine_tuning/jobs/{job_id}/events?stream=true", timeout=60)
    *lines, last = [line.removeprefix("data: ") for line in response.text.splitlines() if line.startswith("data: ")]
    assert last == "[DONE]"
    events = [json.loads(line) for line in lines]
    steps = [event["data"]["step"] for event in events if event["type"] == "metrics"]
    assert steps == list(range(1, STEPS + 1))
    messages = "\n".join(event["message"] for event in events)
    told = ("Created fine-tuning job", "Job paused", "Job resumed", "New fine-tuned model created", "successfully")
    places = [messages.index(text) for text in told]
    assert places == sorted(places)


def look_at_a_validated_job(client: OpenAI, job_id: str) -> None:
    checkpoints: Any = client.fine_tuning.jobs.checkpoints.list(job_id).data
    assert all(0 <= entry.metrics.full_valid_mean_reward <= 1 for entry in checkpoints)
    data: Any = next(event.data for event in client.fine_tuning.jobs.list_events(job_id) if event.type == "metrics")
    assert {grader["name"] for grader in data["scores"]["graders"]} >= {"like", "number"}


def ask(client: OpenAI, job: Any) -> None:
    """Whole and streamed, by the name of the model and of a checkpoint."""
    messages: Any = [{"role": "user", "content": "What is 3 + 1?"}]
    fixed: Any = {"messages": messages, "max_completion_tokens": 12, "temperature": 0}
    whole = client.chat.completions.create(model=job.fine_tuned_model, **fixed)
    text = whole.choices[0].message.content
    assert text and whole.usage and whole.usage.completion_tokens <= 12
    stream = client.chat.completions.create(
        model=job.fine_tuned_model, stream=True, stream_options={"include_usage": True}, **fixed
    )
    chunks = list(stream)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == text
    assert chunks[-1].usage == whole.usage
    named = client.chat.completions.create(model=f"{job.fine_tuned_model}:ckpt-step-{STEPS}", **fixed)
    assert named.choices[0].message.content == text
    several = client.chat.completions.create(
        model=MODEL, messages=messages, n=3, seed=5, max_completion_tokens=8, logprobs=True, top_logprobs=2
    )
    for choice in several.choices:
        assert choice.logprobs and choice.logprobs.content
        assert "".join(token.token for token in choice.logprobs.content) == choice.message.content


def refuse(client: OpenAI, training: str) -> None:
    """What is wrong reaches the client as the exceptions that it has for it."""
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="gpt-4o", messages=[{"role": "user", "content": "x"}])
    with pytest.raises(openai.BadRequestError) as caught:
        client.files.create(file=("bad.jsonl", b'{"messages": []}\n'), purpose="fine-tune")
    assert "bad.jsonl:1" in caught.value.message
    client.files.delete(training)
    with pytest.raises(openai.BadRequestError, match="training_file"):
        create(client, training, PYTHON_GRADER, suffix="x", strop={})
