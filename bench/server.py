"""How fast the server takes in run folders, and how fast it answers once they are many.

    python bench/server.py
    python bench/server.py --rollouts 100000
    python bench/server.py --database-url postgresql://user@host/empty_database

Fifty runs with a million rollouts of 24 to 200 tokens are made on disk; one of them has 10,000
steps. They are imported, then each kind of request is timed on its own, in random order over
runs and prompts: first the queries alone, then over HTTP from a server in a process of its own.
The database has to be empty.
"""

from __future__ import annotations

import argparse
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import httpx
import psutil
from sqlalchemy import Connection

from strop.store import queries
from strop.store.db import open_database
from strop.store.ingest import Ingester
from strop.store.queries import PromptFilter, RolloutFilter
from synthetic_runs import METRICS, ROWS, RUNS, build

TRIES = 200
INGEST_TARGET = 20_000
MiB = 2**20

Rows = Mapping[str, Sequence[str]]
"""Prompts of each run, the one of 10,000 steps first."""


@dataclass(frozen=True)
class Request:
    """A kind of request."""

    name: str
    ask: Callable[[], object]
    target_ms: float | None = 50

    def measure(self) -> str:
        """A line of the table: median and 95th percentile, and whether the latter meets the target."""
        seconds = []
        for _ in range(TRIES if self.target_ms else TRIES // 20):
            start = time.perf_counter()
            self.ask()
            seconds.append(time.perf_counter() - start)
        cuts = statistics.quantiles(seconds, n=20)
        p50, p95 = cuts[9] * 1000, cuts[18] * 1000
        target = f"{self.target_ms:6.0f}  {verdict(p95 < self.target_ms)}" if self.target_ms else ""
        return f"{self.name:<44} {p50:8.1f} {p95:8.1f} {target}"


def verdict(met: bool) -> str:
    return "met" if met else "MISSED"


def ingest(folder: Path, url: str | None, paths: Sequence[Path]) -> Rows:
    database = open_database(url, folder)
    ingester, process = Ingester(database, folder), psutil.Process()
    names: list[str] = []
    start, busy = time.perf_counter(), time.process_time()
    for path in paths:
        names.append(ingester.import_run(path))
        if len(names) in (1, RUNS // 2, RUNS):
            print(f"{len(names):3} runs taken in, {process.memory_info().rss / MiB:6.0f} MiB resident", flush=True)
    seconds, busy = time.perf_counter() - start, time.process_time() - busy
    with database.read() as connection:
        taken = sum(queries.count_rollouts(connection, name) for name in names)
        rows = {name: [row["row"] for row in queries.prompts_page(connection, name, limit=ROWS)] for name in names}
    rate = taken / seconds
    met = verdict(rate >= INGEST_TARGET)
    print(f"{taken:,} rollouts in {seconds:.1f} s, {busy:.1f} s of them on a core")
    print(f"{rate:,.0f} rollouts a second, target {INGEST_TARGET:,}  {met}")
    start = time.perf_counter()
    ingester.refresh_all()
    print(f"looking for news of {RUNS} runs without any: {(time.perf_counter() - start) * 1000:.1f} ms")
    if database.dialect == "sqlite":
        print(f"database of {(folder / 'strop.db').stat().st_size / MiB:,.0f} MiB")
    database.close()
    return rows


def direct(folder: Path, url: str | None, rows: Rows, chance: random.Random) -> None:
    """Time the queries themselves."""
    database = open_database(url, folder)

    def read(query: Callable[[Connection], object]) -> object:
        with database.read() as connection:
            return query(connection)

    table(
        [Request(name, partial(read, query), target) for name, query, target in _queries(rows, chance)],
        psutil.Process(),
    )
    database.close()


def _queries(rows: Rows, chance: random.Random) -> Iterator[tuple[str, Callable[[Connection], object], float | None]]:
    long, *short = rows
    page, prompts, series = queries.rollouts_page, queries.prompts_page, queries.series
    anchors: dict[str, list[str]] = {}

    def run() -> str:
        return chance.choice(short)

    def heat_map(connection: Connection) -> object:
        return queries.heat_map(connection, name := run(), chance.choice(rows[name]))

    def known(connection: Connection, name: str) -> str:
        if name not in anchors:
            anchors[name] = [found["id"] for found in page(connection, name, sort="-step", limit=1000)]
        return chance.choice(anchors[name])

    def deep(connection: Connection) -> object:
        return page(connection, name := run(), after=known(connection, name))

    def search(connection: Connection) -> object:
        return prompts(connection, run(), PromptFilter(search=f"QUESTION {chance.randrange(9)}"))

    failed, over, form = RolloutFilter(failed=True), RolloutFilter(min_reward=1.5), RolloutFilter(component="form")
    found, vain = RolloutFilter(search="So That"), RolloutFilter(search="o%t")
    yield "heat map of a prompt", heat_map, 50
    yield "heat map of a prompt, 10,000 steps", lambda c: queries.heat_map(c, long, chance.choice(rows[long])), 50
    yield "rollout page, first", lambda c: page(c, run()), 50
    yield "rollout page, deep", deep, 50
    yield "rollout page of a step", lambda c: page(c, run(), RolloutFilter(step=chance.randrange(1, 60))), 50
    yield "rollout page, best first", lambda c: page(c, run(), sort="-reward"), 50
    yield "rollout page, reward over 1.5", lambda c: page(c, run(), over), 50
    yield "rollout page, failed ones", lambda c: page(c, run(), failed), 50
    yield "rollout page, longest first", lambda c: page(c, run(), sort="-length"), 50
    yield "rollout page, best component first", lambda c: page(c, run(), form, sort="-reward"), 50
    yield "rollout page, search", lambda c: page(c, run(), found), 50
    yield "rollout page, search without matches", lambda c: page(c, run(), vain), 50
    yield "the same in the run of 10,000 steps", lambda c: page(c, long, vain), None
    yield "prompt page, best first", lambda c: prompts(c, run(), sort="-reward"), 50
    yield "prompt page, search", search, 50
    yield "one rollout", lambda c: queries.rollout(c, known(c, run())), 50
    yield f"metrics of 10,000 steps, {len(METRICS) + 9} curves", lambda c: series(c, long, smoothing=0.9), 100
    yield "metrics of 10,000 steps, 8 curves", lambda c: series(c, long, METRICS[:8], smoothing=0.9), 100
    yield "a run of 10,000 steps", lambda c: queries.run(c, long), 100
    yield "list of runs", queries.runs, 50


def over_http(folder: Path, url: str | None, rows: Rows, chance: random.Random) -> None:
    """Time the same kinds of requests as a client sees them."""
    long, *short = rows

    def run() -> str:
        return f"/v1/strop/runs/{chance.choice(short)}"

    def heat_map(name: str) -> str:
        return f"/v1/strop/runs/{name}/prompts/{chance.choice(rows[name])}/heatmap"

    with serving(folder, url) as (http, server):

        def get(path: Callable[[], str]) -> None:
            http.get(path()).raise_for_status()

        kinds: list[tuple[str, Callable[[], str], float]] = [
            ("heat map of a prompt", lambda: heat_map(chance.choice(short)), 50),
            ("heat map of a prompt, 10,000 steps", lambda: heat_map(long), 50),
            ("rollout page, first", lambda: f"{run()}/rollouts", 50),
            ("rollout page, best first", lambda: f"{run()}/rollouts?sort=-reward", 50),
            ("rollout page, longest first", lambda: f"{run()}/rollouts?sort=-length", 50),
            ("rollout page, search without matches", lambda: f"{run()}/rollouts?search=o%25t", 50),
            ("prompt page, best first", lambda: f"{run()}/prompts?sort=-reward", 50),
            (f"metrics of 10,000 steps, {len(METRICS) + 9} curves", lambda: _metrics(long), 100),
            ("metrics of 10,000 steps, 8 curves", lambda: _metrics(long, *METRICS[:8]), 100),
            ("a run of 10,000 steps", lambda: f"/v1/strop/runs/{long}", 100),
            ("list of runs", lambda: "/v1/strop/runs", 50),
        ]
        table([Request(name, partial(get, path), target) for name, path, target in kinds], server)


def _metrics(run: str, *names: str) -> str:
    wanted = "".join(f"&name={name}" for name in names)
    return f"/v1/strop/runs/{run}/metrics?smoothing=0.9{wanted}"


@contextmanager
def serving(folder: Path, url: str | None) -> Iterator[tuple[httpx.Client, psutil.Process]]:
    command = [sys.executable, "-m", "strop", "serve", "--data-dir", str(folder), "--port", "0"]
    command += ["--database-url", url] if url else []
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert server.stdout is not None
        address = server.stdout.readline().split()[-1]
        with httpx.Client(base_url=address, timeout=60) as http:
            yield http, psutil.Process(server.pid)
    finally:
        server.terminate()
        server.wait()


def table(requests: Sequence[Request], process: psutil.Process) -> None:
    before = process.memory_info().rss
    print(f"\n{'':<44} {'p50 ms':>8} {'p95 ms':>8} target")
    for request in requests:
        print(request.measure(), flush=True)
    after = process.memory_info().rss
    print(f"resident before the requests {before / MiB:.0f} MiB, after them {after / MiB:.0f} MiB")


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument("--rollouts", type=int, default=1_000_000)
    options.add_argument("--database-url", help="PostgreSQL; SQLite by default")
    options.add_argument("--seed", type=int, default=17)
    options.add_argument("--folder", type=Path, help="where run folders are made, or were made before")
    asked = options.parse_args()
    chance = random.Random(asked.seed)
    with tempfile.TemporaryDirectory(prefix="strop-bench-") as temporary:
        made, data, url = asked.folder or Path(temporary) / "made", Path(temporary) / "data", asked.database_url
        data.mkdir()
        start = time.perf_counter()
        paths = sorted(made.glob("run-*")) or build(made, asked.rollouts, chance)
        size = sum(file.stat().st_size for file in made.rglob("*") if file.is_file())
        print(f"{len(paths)} run folders, {size / MiB:,.0f} MiB, in {time.perf_counter() - start:.0f} s", flush=True)
        rows = ingest(data, url, paths)
        direct(data, url, rows, chance)
        over_http(data, url, rows, chance)


if __name__ == "__main__":
    main()
