"""How fast the server takes in run folders, and how fast it answers once they are many.

    python bench/server.py
    python bench/server.py --rollouts 100000
    python bench/server.py --database-url postgresql://user@host/empty_database

Fifty runs with a million rollouts of 24 to 200 tokens are made on disk; one of them has 10,000
steps. They are imported, then each kind of request is timed on its own, in random order over
runs and prompts. The database has to be empty.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
from sqlalchemy import Connection

from strop.config import parse_config
from strop.store import queries
from strop.store.db import Database, open_database
from strop.store.files import json_line
from strop.store.ingest import Ingester
from strop.store.queries import PromptFilter, RolloutFilter
from strop.store.rundir import RunDir, RunState

RUNS = 50
LONG_STEPS = 10_000
PROMPTS, SAMPLES, ROWS = 4, 8, 200
"""Prompts a step, rollouts of each, rows of the data."""
TRIES = 200
MiB = 2**20

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


Request = Callable[[Connection], object]


@dataclass(frozen=True)
class Timing:
    """One line of the table."""

    name: str
    seconds: list[float]
    target_ms: float | None = None

    def __str__(self) -> str:
        cuts = statistics.quantiles(self.seconds, n=20)
        p50, p95 = cuts[9] * 1000, cuts[18] * 1000
        target = "" if self.target_ms is None else f"{self.target_ms:6.0f} ms  {verdict(p95 < self.target_ms)}"
        return f"{self.name:<44} {p50:8.1f} {p95:8.1f}   {target}"


def verdict(met: bool) -> str:
    return "met" if met else "MISSED"


# Run folders


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
    ids = chance.choices(range(49_152), k=90)
    return f"{json_line({'prompt': turns, 'prompt_ids': ids})[1:-2]}"


def tail(chance: random.Random) -> str:
    """The part of a rollout line that is the same wherever it stands: what the model said."""
    tokens = chance.randint(24, 200)
    failed = chance.random() < 0.01
    rest = {
        "stop_reason": "length" if tokens == 200 else "stop",
        "failure": {"cause": "timeout", "message": "no answer in 10 s", "detail": ""} if failed else None,
        "messages": [{"role": "assistant", "content": " ".join(chance.choices(WORDS, k=tokens))}],
        "token_ids": chance.choices(range(49_152), k=tokens),
        "sampled_mask": [1] * tokens,
        "sampler_logprobs": [round(-chance.expovariate(1), 6) for _ in range(tokens)],
        "entropy": 1.234567,
        "logs": "",
        "timing": {"sample": 1.2345, "reward": 0.0123},
    }
    return json_line(rest)[1:-1]


# Measuring


def ingest(database: Database, folder: Path, paths: list[Path]) -> list[str]:
    ingester, process = Ingester(database, folder), psutil.Process()
    names: list[str] = []
    start = time.perf_counter()
    for path in paths:
        names.append(ingester.import_run(path))
        if len(names) in (1, RUNS // 2, RUNS):
            print(f"{len(names):3} runs in, {process.memory_info().rss / MiB:6.0f} MiB resident")
    seconds = time.perf_counter() - start
    with database.read() as connection:
        taken = sum(queries.count_rollouts(connection, name) for name in names)
    rate = taken / seconds
    print(f"ingest: {taken:,} rollouts in {seconds:.1f} s = {rate:,.0f} a second (20,000: {verdict(rate >= 20_000)})")
    start = time.perf_counter()
    ingester.refresh_all()
    print(f"a look at {RUNS} runs of which none changed: {(time.perf_counter() - start) * 1000:.1f} ms\n")
    return names


def requests(rows: dict[str, list[str]], chance: random.Random) -> list[tuple[str, Request, float | None]]:
    """Each kind of request, with its target in milliseconds. `rows` has the prompts of each run."""
    long, *short = rows
    page, prompts = queries.rollouts_page, queries.prompts_page

    def run() -> str:
        return chance.choice(short)

    def heat_map(connection: Connection) -> object:
        return queries.heat_map(connection, name := run(), chance.choice(rows[name]))

    def deep_page(connection: Connection) -> object:
        anchor = chance.choice(anchors(connection, name := run()))
        return page(connection, name, after=anchor)

    def anchors(connection: Connection, name: str) -> list[str]:
        if name not in known:
            known[name] = [found["id"] for found in page(connection, name, sort="-step", limit=1000)]
        return known[name]

    known: dict[str, list[str]] = {}
    over, failed = RolloutFilter(min_reward=1.5), RolloutFilter(failed=True)
    form, found, vain = RolloutFilter(component="form"), RolloutFilter(search="So That"), RolloutFilter(search="o%t")
    return [
        ("heat map of a prompt", heat_map, 50),
        (
            "heat map of a prompt, run of 10,000 steps",
            lambda c: queries.heat_map(c, long, chance.choice(rows[long])),
            50,
        ),
        ("rollout page, first", lambda c: page(c, run()), 50),
        ("rollout page, deep", deep_page, 50),
        ("rollout page of a step", lambda c: page(c, run(), RolloutFilter(step=chance.randrange(1, 60))), 50),
        ("rollout page, best first", lambda c: page(c, run(), sort="-reward"), 50),
        ("rollout page, reward over 1.5", lambda c: page(c, run(), over), 50),
        ("rollout page, failed ones", lambda c: page(c, run(), failed), 50),
        ("rollout page, longest first", lambda c: page(c, run(), sort="-length"), 50),
        ("rollout page, best component first", lambda c: page(c, run(), form, sort="-reward"), 50),
        ("rollout page, search", lambda c: page(c, run(), found), 50),
        ("rollout page, search in vain", lambda c: page(c, run(), vain), 50),
        ("the same in the run of 10,000 steps", lambda c: page(c, long, vain), None),
        ("prompt page, best first", lambda c: prompts(c, run(), sort="-reward"), 50),
        (
            "prompt page, search",
            lambda c: prompts(c, run(), PromptFilter(search=f"QUESTION {chance.randrange(9)}")),
            50,
        ),
        ("one rollout", lambda c: queries.rollout(c, chance.choice(anchors(c, run()))), 50),
        ("metrics of 10,000 steps, all curves", lambda c: queries.series(c, long, smoothing=0.9), 100),
        ("metrics of 10,000 steps, eight curves", lambda c: queries.series(c, long, METRICS[:8], smoothing=0.9), 100),
        ("a run of 10,000 steps", lambda c: queries.run(c, long), 100),
        ("list of runs", queries.runs, 50),
    ]


def measure(database: Database, names: list[str], chance: random.Random) -> None:
    with database.read() as connection:
        rows = {
            name: [prompt["row"] for prompt in queries.prompts_page(connection, name, limit=ROWS)] for name in names
        }
    before = psutil.Process().memory_info().rss
    print(f"{'request':<44} {'p50 ms':>8} {'p95 ms':>8}   target")
    for name, request, target in requests(rows, chance):
        seconds = []
        for _ in range(TRIES if target else TRIES // 20):
            start = time.perf_counter()
            with database.read() as connection:
                request(connection)
            seconds.append(time.perf_counter() - start)
        print(Timing(name, seconds, target), flush=True)
    after = psutil.Process().memory_info().rss
    print(f"\nresident before the requests {before / MiB:.0f} MiB, after them {after / MiB:.0f} MiB")


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument("--rollouts", type=int, default=1_000_000)
    options.add_argument("--database-url", help="PostgreSQL; SQLite by default")
    options.add_argument("--seed", type=int, default=17)
    options.add_argument("--folder", type=Path, help="where run folders are made, or were made before")
    asked = options.parse_args()
    chance = random.Random(asked.seed)
    with tempfile.TemporaryDirectory(prefix="strop-bench-") as temporary:
        folder = asked.folder or Path(temporary) / "runs"
        start = time.perf_counter()
        paths = sorted(folder.glob("run-*")) or build(folder, asked.rollouts, chance)
        size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        print(
            f"{len(paths)} run folders, {size / MiB:,.0f} MiB, made in {time.perf_counter() - start:.0f} s", flush=True
        )
        database = open_database(asked.database_url, Path(temporary))
        try:
            names = ingest(database, Path(temporary), paths)
            if database.dialect == "sqlite":
                print(f"database of {(Path(temporary) / 'strop.db').stat().st_size / MiB:,.0f} MiB")
            measure(database, names, chance)
        finally:
            database.close()


if __name__ == "__main__":
    main()
