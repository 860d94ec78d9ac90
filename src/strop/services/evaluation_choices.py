"""What a form for a new evaluation offers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from strop.errors import NotFound
from strop.services import datasets, jobs
from strop.services.container import Services
from strop.services.datasets import MANY
from strop.services.threads import in_thread
from strop.store.rewards import RewardStore


@dataclass(frozen=True)
class EvaluationChoices:
    """Rows, rewards and jobs that an evaluation may name."""

    rows: Mapping[str, str]
    """Data sets, and files of jobs that no data set holds: what to show, by id."""
    rows_of_file: Mapping[str, str]
    """The id among `rows` that stands for a file."""
    rewards: Sequence[str]
    jobs: Mapping[str, str]
    """Names by id."""
    job: str | None
    """The job that the checkpoint came from: its rewards are the ones to use."""


@in_thread
def choices(services: Services, checkpoint: str) -> EvaluationChoices:
    """What can be chosen for a checkpoint, or for none where that is empty."""
    known = datasets.list_all.blocking(services)
    held = {dataset.file_id: dataset.id for dataset in known}
    files = [file for file in services.files.list(purpose="fine-tune") if file.rows and file.id not in held]
    rows = {dataset.id: f"{dataset.name} ({dataset.rows or 0:,} rows)" for dataset in known}
    return EvaluationChoices(
        rows={**rows, **{file.id: f"{file.filename} ({file.rows:,} rows)" for file in files}},
        rows_of_file={**held, **{file.id: file.id for file in files}},
        rewards=[reward.name for reward in RewardStore(services.database, services.folder).list(limit=MANY)],
        jobs={job.id: job.name for job in jobs.list_all.blocking(services)},
        job=_job_of(services, checkpoint) if checkpoint else None,
    )


def _job_of(services: Services, checkpoint: str) -> str | None:
    try:
        job = jobs.of_checkpoint.blocking(services, checkpoint)
    except NotFound:
        return None
    return job.id if job else None
