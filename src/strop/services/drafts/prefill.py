"""Drafts that begin with something filled in."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from strop.errors import NotFound
from strop.services import datasets, rewards
from strop.services.container import Services
from strop.services.drafts.draft import JobDraft, RewardPart, draft_of_job
from strop.services.reward_names import reward_name
from strop.services.threads import in_thread


@in_thread
def prefilled(services: Services, values: Mapping[str, str]) -> JobDraft:
    """A draft of what is named: `clone` a job, start from a `checkpoint`, take a `dataset` or a `reward`.

    NotFound for a job or a reward that is gone.
    """
    if clone := values.get("clone"):
        return draft_of_job(services.jobs.get(clone), partial(_dataset_id, services), values.get("checkpoint"))
    draft = JobDraft.fresh().model_copy(update={"train": values.get("dataset", "")})
    if model_name := values.get("checkpoint"):
        draft = draft.model_copy(update={"model": model_name})
    if reward_id := values.get("reward"):
        found = rewards.get.blocking(services, reward_id)
        part = RewardPart(name=reward_name(found.name), kind="stored", reward=found.id, version=found.latest)
        draft = draft.model_copy(update={"rewards": (part,)})
    return draft


def _dataset_id(services: Services, file_id: str) -> str:
    try:
        return datasets.of_file.blocking(services, file_id).id
    except NotFound:  # deleted since: the step says that rows are to be chosen
        return ""
