"""Run folders as the trainer leaves them, made by hand, and everything that a database says of a run."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from strop.config import RunConfig, parse_config
from strop.store import queries
from strop.store.db import Database
from strop.store.rundir import RunDir, RunState
from strop.types import Json


def run_config(name: str = "case") -> RunConfig:
    """The configuration of a run that needs nothing else."""
    reward = {"name": "score", "source": "reward.py:score"}
    return parse_config({"name": name, "model": "tiny", "data": {"train": "rows.jsonl"}, "rewards": [reward]})


def rollout_line(
    step: int,
    row: str = "row-1",
    sample: int = 0,
    *,
    reward: float | None = 0.5,
    answer: str = "an answer",
    question: str = "a question",
    cause: str | None = None,
    stop_reason: str = "stop",
    components: dict[str, float] | None = None,
    tokens: int = 4,
) -> dict[str, Json]:
    """One rollout as a rollouts file has it; without a reward where it failed."""
    value = None if cause else reward
    return {
        "step": step,
        "row": row,
        "line": int(row.rpartition("-")[2]),
        "sample": sample,
        "reward": value,
        "components": components if components is not None else {} if value is None else {"score": value},
        "weights": {"score": 1.0},
        "advantage": None if value is None else value - 0.5,
        "stop_reason": stop_reason,
        "failure": {"cause": cause, "message": f"{cause} happened", "detail": ""} if cause else None,
        "prompt": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": question}],
        "turns": [turn(answer, tokens, stop_reason)],
        "length": tokens,
        "entropy": 0.5,
        "logs": "",
        "timing": {"sample": 0.25},
    }


def turn(answer: str, tokens: int = 4, stop_reason: str = "stop") -> dict[str, Json]:
    """One assistant turn of a rollout line, the first of its segment."""
    return {
        "message": {"role": "assistant", "content": answer},
        "observations": [],
        "stop_reason": stop_reason,
        "length": tokens,
        "entropy": 0.5,
        "version": 0,
        "seconds": 0.25,
        "input_ids": [1, 2, 3],
        "token_ids": list(range(10, 10 + tokens)),
        "logprobs": [-0.123456] * tokens,
        "new_segment": False,
    }


def old_line(line: dict[str, Json]) -> dict[str, Json]:
    """A line of one turn as older versions wrote it: one flat sequence."""
    (only,) = line["turns"]
    flat = {
        "messages": [only["message"]],
        "prompt_ids": only["input_ids"],
        "token_ids": only["token_ids"],
        "sampled_mask": [1] * len(only["token_ids"]),
        "sampler_logprobs": only["logprobs"],
    }
    return {key: value for key, value in line.items() if key not in ("turns", "length")} | flat


def new_run(path: Path, name: str = "case") -> RunDir:
    """An empty run, as `strop train` makes it."""
    return RunDir.create(path, run_config(name))


def record(
    run: RunDir, step: int, rollouts: Sequence[dict[str, Json]] = (), metrics: dict[str, float] | None = None
) -> None:
    """One step, in the order in which the trainer writes."""
    if rollouts:
        run.write_rollouts(step, rollouts)
    run.append_metrics(step, metrics if metrics is not None else {"reward": 0.5, "loss": 0.1})
    run.set_status(RunState.RUNNING, step=step)


def played_step(
    seed: int, step: int, rows: int = 4, samples: int = 4
) -> tuple[list[dict[str, Json]], dict[str, float]]:
    """Rollouts and metrics of a step that look real; the same seed and step give the same."""
    chance = random.Random(f"{seed}-{step}")
    drawn = sorted(chance.sample(range(1, 3 * rows + 1), rows))
    lines = [
        rollout_line(
            step,
            f"row-{row}",
            sample,
            reward=round(chance.random(), 3),
            answer=" ".join(chance.choices(["red", "green", "blue", "Straße", "ÄPFEL", "50%", "a_b"], k=6)),
            question=f"Question {row}?",
            cause=chance.choice([None] * 9 + ["timeout"]),
            stop_reason=chance.choice(["stop", "length"]),
        )
        for row in drawn
        for sample in range(samples)
    ]
    metrics = {"reward": chance.random(), "loss": chance.random(), "time/train": chance.random()}
    if step % 3 == 0:
        metrics["validation/reward"] = chance.random()
    if step % 5 == 4:
        metrics["failures/timeout"] = 1.0
    return lines, metrics


def play(run: RunDir, first: int, last: int, seed: int = 1) -> None:
    """Record steps from `first` to `last`."""
    for step in range(first, last + 1):
        lines, metrics = played_step(seed, step)
        record(run, step, lines, metrics)


def view(database: Database, run_id: str) -> dict[str, Any]:
    """All that the database says of a run, but for numbers that it gave out itself."""
    with database.read() as connection:
        prompts = queries.prompts_page(connection, run_id, limit=10_000)
        return {
            "run": queries.run(connection, run_id),
            "names": queries.metric_names(connection, run_id),
            "series": queries.series(connection, run_id, smoothing=0.9),
            "steps": queries.steps_page(connection, run_id, limit=10_000),
            "prompts": prompts,
            "rollouts": _without_ids(queries.rollouts_page(connection, run_id, limit=100_000)),
            "best": _without_ids(queries.rollouts_page(connection, run_id, sort="-reward", limit=100_000)),
            "found": _without_ids(
                queries.rollouts_page(connection, run_id, queries.RolloutFilter(search="STRASSE"), limit=100_000)
            ),
            "maps": {
                prompt["row"]: _without_ids(queries.heat_map(connection, run_id, prompt["row"])) for prompt in prompts
            },
            "checkpoints": queries.checkpoints(connection, run_id),
        }


def _without_ids(items: list[dict[str, Json]]) -> list[dict[str, Json]]:
    return [{key: value for key, value in item.items() if key != "id"} for item in items]
