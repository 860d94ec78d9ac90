"""Read-only queries: functions that take a database connection."""

from __future__ import annotations

from strop.store.queries.curves import latest_metrics, metric_names, reference_metrics, series
from strop.store.queries.overview import all_checkpoints, checkpoint, checkpoints, run, runs, steps_page
from strop.store.queries.prompts import PromptFilter, count_prompts, prompt_previews, prompts_page
from strop.store.queries.rollouts import (
    RolloutFilter,
    count_rollouts,
    heat_map,
    rollout,
    rollouts_page,
    whole_rollout,
)

__all__ = [
    "PromptFilter",
    "RolloutFilter",
    "all_checkpoints",
    "checkpoint",
    "checkpoints",
    "count_prompts",
    "count_rollouts",
    "heat_map",
    "latest_metrics",
    "metric_names",
    "prompt_previews",
    "prompts_page",
    "reference_metrics",
    "rollout",
    "rollouts_page",
    "run",
    "runs",
    "series",
    "steps_page",
    "whole_rollout",
]
