"""Helpers: reward functions written to disk, and calls to them in real processes."""

from __future__ import annotations

import asyncio
import os
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from strop.config import RewardConfig
from strop.rewards.pool import RewardPool
from strop.rewards.reward_function import Outcome

SAMPLE = {"trajectories": [{"response": "42", "tool_calls": [], "tool_results": []}], "output_text": "42"}
ITEM = {"prompt": "6 * 7?", "metadata": {"answer": "42", "tags": [{"name": "easy"}]}}


def reward(folder: Path, code: str, **settings: Any) -> RewardConfig:
    """Configuration of a reward whose file holds `code`."""
    path = folder / "reward.py"
    path.write_text(textwrap.dedent(code), encoding="utf-8")
    return RewardConfig.model_validate({"name": "score", "source": f"{path}:grade"} | settings)


def returning(folder: Path, body: str, **settings: Any) -> RewardConfig:
    """Configuration of a reward whose `grade` has this body."""
    return reward(folder, "def grade(sample, item):\n" + textwrap.indent(textwrap.dedent(body), "    "), **settings)


def outcome(config: RewardConfig, seed: int = 1) -> Outcome:
    """Result of one call in a pool of its own."""
    return outcomes(config, [seed])[0]


def outcomes(config: RewardConfig, seeds: list[int]) -> list[Outcome]:
    """Results of one call after another in one pool."""

    async def main() -> list[Outcome]:
        pool = RewardPool(config)
        await pool.start()
        try:
            return [await pool.call(SAMPLE, ITEM, seed) for seed in seeds]
        finally:
            await pool.close()

    return asyncio.run(main())


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def children() -> set[int]:
    """Processes that this one has started and that are left, zombies included."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text(encoding="utf-8").rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
        if parent == os.getpid():
            found.add(int(stat.parent.name))
    return found


def wait_for(condition: Callable[[], bool], seconds: float = 5.0) -> bool:
    """Whether a condition comes true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True
