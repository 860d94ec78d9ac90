"""Worker processes for one reward function: started on demand, limited, replaced when they break."""

from __future__ import annotations

import asyncio
import dataclasses
import importlib.util
import secrets
from collections.abc import Mapping
from pathlib import Path

from strop.config import RewardConfig
from strop.errors import RewardError
from strop.rewards.frames import pack
from strop.rewards.process import Code, Launch, Lost, RewardProcess
from strop.rewards.redact import Redactor
from strop.rewards.reward_function import Outcome
from strop.rewards.sandbox import ProcessGroup, Sandbox, clean_environment, named_variables
from strop.rewards.scratch import ScratchFolder
from strop.types import Failure, Json

RETRIED = frozenset({"exception", "crash"})
"""Causes that may be gone at a second try: an API that was down, the kernel's OOM killer."""


class RewardPool:
    """Answers calls to one function in up to `config.workers` processes.

    It is the function that `config.source` names, unless `code` brings it along as text: that
    runs in the temporary folder.
    """

    def __init__(self, config: RewardConfig, sandbox: Sandbox | None = None, code: Code | None = None) -> None:
        self._config = config
        self._code = code
        self._sandbox = sandbox or ProcessGroup()
        self._slots = asyncio.Semaphore(config.workers)
        self._idle: list[RewardProcess] = []
        self._busy: set[RewardProcess] = set()
        self._launch: Launch | None = None
        self._home: ScratchFolder | None = None
        self._redactor = Redactor({})

    async def start(self) -> None:
        """Start one process, which proves that the function can be loaded.

        The file is read once, here: editing it does not change a run that is under way.
        Raises RewardError with the user's traceback.
        """
        code = self._code or read_code(self._config)
        named = named_variables(self._config.env, self._config.name)
        self._redactor = Redactor(named)
        self._home = ScratchFolder()
        folder = self._home.path if self._code else Path(code.path).parent
        env = clean_environment(named, str(self._home.path))
        self._launch = Launch(code, folder, env, self._config.memory_mb, self._sandbox)
        try:
            self._idle.append(await RewardProcess.start(self._launch))
        except Lost as lost:
            await self.close()
            raise self._load_error(lost.failure) from None
        except BaseException:
            await self.close()
            raise

    async def call(self, sample: Mapping[str, Json], item: Mapping[str, Json], seed: int) -> Outcome:
        """Score one answer. The time limit counts from when a process takes the call."""
        call_id = secrets.token_hex(8)  # The user's code cannot guess it to answer in our place.
        try:
            frame = pack({"id": call_id, "seed": seed, "sample": sample, "item": item})
        except (TypeError, ValueError, RecursionError) as error:
            return Outcome(failure=Failure("size", f"the answer or its row cannot be handed over: {error}"))
        async with self._slots:
            outcome = await self._attempt(call_id, frame)
            if outcome.failure and outcome.failure.cause in RETRIED:
                outcome = _after(outcome, await self._attempt(call_id, frame))
        return self._redactor.outcome(outcome)

    async def close(self) -> None:
        """End all processes, also those in mid-call, and remove their temporary folder."""
        self._launch = None
        for process in self._busy:
            process.kill()
        while self._busy:
            await asyncio.sleep(0.01)
        while self._idle:
            await self._idle.pop().end()
        if self._home:
            self._home.remove()

    async def _attempt(self, call_id: str, frame: bytes) -> Outcome:
        if self._launch is None:
            return Outcome(failure=Failure("start", "the pool is not open"))
        try:
            process = self._idle.pop() if self._idle else await RewardProcess.start(self._launch)
        except Lost as lost:
            return Outcome(failure=lost.failure)
        self._busy.add(process)
        try:
            return await process.ask(call_id, frame, self._config.timeout_s)
        finally:
            if process.usable and self._launch:
                self._idle.append(process)
            else:
                await process.end()
            self._busy.discard(process)

    def _load_error(self, failure: Failure) -> RewardError:
        text = f"reward {self._config.name!r} cannot be loaded: {failure.message}"
        return RewardError(self._redactor.text(f"{text}\n{failure.detail}".rstrip()), param="rewards.source")


def split_source(config: RewardConfig) -> tuple[Path, str]:
    """File and function of a source like `reward.py:grade`. Raises RewardError."""
    path, _, function = config.source.rpartition(":")
    if not path or not function.isidentifier():
        raise RewardError(
            f"reward {config.name!r}: source {config.source!r} is not of the form file.py:function",
            param="rewards.source",
        )
    return Path(path).resolve(), function


def read_code(config: RewardConfig) -> Code:
    """The user's file, in the encoding that it declares. Raises RewardError."""
    path, function = split_source(config)
    try:
        return Code(str(path), function, importlib.util.decode_source(path.read_bytes()))
    except (OSError, SyntaxError, UnicodeDecodeError) as error:
        reason = "file not found" if isinstance(error, FileNotFoundError) else str(error)
        raise RewardError(f"reward {config.name!r}: {path}: {reason}", param="rewards.source") from None


def _after(first: Outcome, second: Outcome) -> Outcome:
    """The second outcome of a call, with a note of why there was a second try."""
    note = f"[first try: {first.failure.message if first.failure else ''}]\n"
    return dataclasses.replace(second, logs=first.logs + note + second.logs, seconds=first.seconds + second.seconds)
