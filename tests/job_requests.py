"""Helpers: files and jobs created through OpenAI's client, and jobs brought into a state by hand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from openai import OpenAI

import stored_tasks
from run_folders import new_run
from strop.jobs.job import Job
from strop.jobs.task import TaskStatus
from strop.services.container import Services
from strop.store.checkpoints import CheckpointStore
from strop.store.rundir import RunDir, RunState

GRADER = {
    "type": "string_check",
    "name": "exact",
    "input": "{{sample.output_text}}",
    "reference": "{{item.answer}}",
    "operation": "eq",
}


def upload(client: OpenAI, rows: int = 8, first: int = 0) -> str:
    """Id of a file of rows."""
    lines = [
        json.dumps({"messages": [{"role": "user", "content": f"What is {number} + 0?"}], "answer": str(number)})
        for number in range(first, first + rows)
    ]
    return client.files.create(file=("rows.jsonl", "\n".join(lines).encode()), purpose="fine-tune").id


def method(grader: Any = GRADER, **fields: Any) -> dict[str, Any]:
    """`method` of a request."""
    return {"type": "reinforcement", "reinforcement": {"grader": grader, **fields}}


def create(client: OpenAI, model: Path | str, **fields: Any) -> Any:
    """A job of OpenAI's client."""
    values = {"model": str(model), "method": method(), **fields}
    if "training_file" not in values:
        values["training_file"] = upload(client)
    return client.fine_tuning.jobs.create(**values)


def fake_model(folder: Path) -> Path:
    """A folder that passes for a model as long as nobody loads it."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "chat_template.jinja").write_text("{% if enable_thinking %}{% endif %}")
    return folder


def train(services: Services, job_id: str, steps: Sequence[int], total: int = 10) -> RunDir:
    """Let a job have done some steps, with a checkpoint after each, as its process would leave them."""
    job = services.jobs.get(job_id)
    path = services.folder.found(job.folder)
    run = RunDir(path) if path.exists() else new_run(path)
    for step in steps:
        times = {"time/sample": 2.0, "time/train": 1.0}
        run.append_metrics(step, {"reward": step / 10, "loss": 0.5, "response_length": 4.0, **times})
        CheckpointStore(run.checkpoints, run.checkpoint_status_file, keep=9).save(step, {}, _adapter)
    run.set_status(RunState.RUNNING, step=steps[-1], total_steps=total)
    become(services, job_id, TaskStatus.RUNNING, run_id=services.ingester.import_run(path))
    return run


def _adapter(folder: Path) -> None:
    (folder / "adapter_config.json").write_text("{}")


def become(services: Services, job_id: str, status: TaskStatus, **values: Any) -> Job:
    """Bring a job into a status that a runner would."""
    stored_tasks.become(services.database, job_id, status=status, **values)
    return services.jobs.get(job_id)
