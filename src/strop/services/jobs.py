"""Jobs: created, found, and asked to pause, go on or end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from strop.data.samples.sample_sets import Split, find_sample
from strop.jobs.job import Job
from strop.rewards.presets.index import find_preset
from strop.services.container import Services
from strop.services.job_creation import create_job
from strop.services.job_request import JobRequest
from strop.services.threads import in_thread
from strop.store import queries
from strop.types import Json

MANY = 1000
EXAMPLE = "json-extraction"
# As in examples/json-extraction/config.toml: three minutes on two cores.
_SETTINGS = {
    "sampling": {"max_prompt_tokens": 128, "max_completion_tokens": 32},
    "train": {"method": "lora", "max_steps": 24, "eval_every": 8, "save_every": 8},
    "eval": {"samples": 4, "temperature": 1.0},
}


@in_thread
def list_all(services: Services) -> list[Job]:
    """The newest jobs, as many as a form can offer."""
    return services.jobs.list(limit=MANY)


@in_thread
def get(services: Services, job_id: str) -> Job:
    """One job. NotFound for an unknown one."""
    return services.jobs.get(job_id)


@in_thread
def create(services: Services, request: Mapping[str, Json]) -> Job:
    """Create a job from the body of a request. Raises as `JobRequest` and the queue do."""
    return create_job(JobRequest.model_validate(request), services, None, repeated=False)


@in_thread
def create_example(services: Services) -> Job:
    """Create the job that an empty server offers, with its files: extracting JSON. Raises as `create` does."""
    sample = find_sample(EXAMPLE)
    splits: tuple[Split, ...] = ("train", "validation")
    training, validation = (
        services.files.add(f"{EXAMPLE}-{split}.jsonl", "fine-tune", sample.lines(split)).id for split in splits
    )
    return create.blocking(
        services,
        {
            "model": "smollm2-135m",
            "training_file": training,
            "validation_file": validation,
            "seed": 17,
            "strop": {
                "name": EXAMPLE,
                "rewards": [{"name": "extraction", "python": find_preset(sample.preset).source}],
                **_SETTINGS,
            },
        },
    )


@in_thread
def ask(services: Services, job_id: str, wanted: Literal["pause", "cancel"]) -> Job:
    """Ask a job to pause or to end. Conflict where it cannot."""
    return services.jobs.request(job_id, wanted)


@in_thread
def resume(services: Services, job_id: str) -> Job:
    """Let a job that is paused or failed go on. Conflict for any other."""
    return services.jobs.resume(job_id)


@in_thread
def of_checkpoint(services: Services, checkpoint_id: str) -> Job | None:
    """The job that a checkpoint came from; None for an imported run. NotFound for an unknown checkpoint."""
    with services.database.read() as connection:
        run_id = queries.checkpoint(connection, checkpoint_id)["run_id"]
    return services.jobs.by_run(run_id)
