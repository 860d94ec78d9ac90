"""Helpers: jobs made by hand."""

from __future__ import annotations

from typing import Any

from strop.config import RunConfig, parse_config
from strop.jobs.job import NewJob


def config(**train: Any) -> RunConfig:
    """A configuration around these settings of `[train]`."""
    return parse_config(
        {
            "name": "case",
            "model": "tiny",
            "device": "cpu",
            "data": {"train": "files/file-1"},
            "rewards": [{"name": "score", "source": "rewards/rw_1/1/reward.py:score"}],
            "train": train,
        }
    )


def new_job(name: str = "case", model: str = "smollm2-135m", **request: Any) -> NewJob:
    """What a client asks for."""
    return NewJob(name=name, model=model, config=config(), request=request, training_file="file-1")
