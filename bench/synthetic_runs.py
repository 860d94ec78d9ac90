"""Run folders of realistic size, made quickly."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from strop.config import parse_config
from strop.store.files import json_line
from strop.store.rundir import RunDir, RunState
from strop.types import Json

RUNS = 50
LONG_STEPS = 10_000
PROMPTS, SAMPLES, ROWS = 4, 8, 200
"""Prompts a step, rollouts of each, rows of the data."""

WORDS = [
    *("the", "a", "number", "of", "which", "is", "so", "that", "we", "can", "see", "from", "this", "answer", "if"),
    *("it", "then", "has", "more", "and", "less", "than", "what", "was"),
]
METRICS = [
    *(f"{kind}{part}" for part in ("", "/form", "/fact") for kind in ("reward", "max_reward", "solve_rate")),
    *("reward_group_std", "frac_reward_zero_std", "response_length", "response_length_clip_ratio", "entropy"),
    *("rollouts_errored", "advantages", "loss", "grad_norm", "learning_rate", "clip_ratio", "kl_loss"),
    *("sampler_trainer_gap", "prompts_dropped", "time/sample", "time/reward", "time/train", "tokens_per_second"),
]


def build(folder: Path, rollouts: int, chance: random.Random) -> list[Path]:
    """Fifty run folders; a third of all rollouts belongs to the one with 10,000 steps."""
    tails = [tail(chance) for _ in range(4000)]
    long = min(rollouts * 32 // 100, LONG_STEPS * PROMPTS * SAMPLES)
    short = (rollouts - long) // (RUNS - 1)
    paths = [folder / f"run-{number:02}" for number in range(RUNS)]
    for path in paths:
        count = long if path == paths[0] else short
        steps = max(count // (PROMPTS * SAMPLES), 1)
        build_run(path, steps, LONG_STEPS if path == paths[0] else steps, tails, chance)
    return paths


def build_run(path: Path, with_rollouts: int, steps: int, tails: list[str], chance: random.Random) -> None:
    reward = {"name": "score", "source": "reward.py:score"}
    config = parse_config({"name": path.name, "model": "smollm2-135m", "data": {"train": "rows"}, "rewards": [reward]})
    run = RunDir.create(path, config)
    prompts = [prompt(number, chance) for number in range(ROWS)]
    with open(run.metrics_file, "w", encoding="utf-8") as metrics:
        for step in range(1, steps + 1):
            if step <= with_rollouts:  # not through `write_rollouts`, which waits for the disk
                lines = rollout_lines(step, prompts, tails, chance)
                run.rollout_file(step).write_text("".join(lines), encoding="utf-8")
            values = {name: chance.random() for name in METRICS}
            if step % 50 == 0:
                values |= {f"validation/{name}": chance.random() for name in METRICS[:9]}
            metrics.write(json_line({"step": step, **values}))
    run.set_status(RunState.SUCCEEDED, step=steps, total_steps=steps)


def rollout_lines(step: int, prompts: list[str], tails: list[str], chance: random.Random) -> Iterator[str]:
    for row in chance.sample(range(ROWS), PROMPTS):
        for sample in range(SAMPLES):
            form, fact = chance.random(), chance.randrange(2)
            yield (
                f'{{"step":{step},"row":"{row:012x}","line":{row + 1},"sample":{sample},"reward":{form + fact},'
                f'"components":{{"form":{form},"fact":{fact}}},"weights":{{"form":1.0,"fact":1.0}},'
                f'"advantage":{form - 0.5},{prompts[row]},{chance.choice(tails)}\n'
            )


def prompt(number: int, chance: random.Random) -> str:
    system, user = " ".join(chance.choices(WORDS, k=20)), " ".join(chance.choices(WORDS, k=50))
    turns = [{"role": "system", "content": system}, {"role": "user", "content": f"Question {number}: {user}"}]
    return json_line({"prompt": turns})[1:-2]


def tail(chance: random.Random) -> str:
    """The part of a rollout line that is the same wherever it stands: what the model said."""
    tokens = chance.randint(24, 200)
    failed = chance.random() < 0.01
    rest = {
        "stop_reason": "length" if tokens == 200 else "stop",
        "failure": {"cause": "timeout", "message": "no answer in 10 s", "detail": ""} if failed else None,
        "turns": [turn(tokens, chance)],
        "length": tokens,
        "entropy": 1.234567,
        "logs": "",
        "timing": {"sample": 1.2345, "reward": 0.0123},
    }
    return json_line(rest)[1:-1]


def turn(tokens: int, chance: random.Random) -> dict[str, Json]:
    return {
        "message": {"role": "assistant", "content": " ".join(chance.choices(WORDS, k=tokens))},
        "observations": [],
        "stop_reason": "stop",
        "length": tokens,
        "entropy": 1.234567,
        "version": 0,
        "seconds": 1.2345,
        "input_ids": chance.choices(range(49_152), k=90),
        "token_ids": chance.choices(range(49_152), k=tokens),
        "logprobs": [round(-chance.expovariate(1), 6) for _ in range(tokens)],
        "new_segment": False,
    }
