"""One process of a reward pool, seen from the parent."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import math
import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from strop.rewards.frames import CAUSES, HEADER, MAX_FRAME, OUT_OF_MEMORY, pack
from strop.rewards.reward_function import Outcome, Value
from strop.rewards.sandbox import Command, Sandbox, end_group, kill_group, runner_argv
from strop.types import Failure, Json

LOAD_TIMEOUT_S = 120.0
"""For the user's file and all that it imports."""
LAST_LOOK_S = 0.05
LAST_WORDS_S = 1.0
HEAD_BYTES = 48 * 1024
TAIL_BYTES = 16 * 1024
READ_BYTES = 64 * 1024


class Lost(Exception):
    """The process is of no more use; `failure` says why."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


@dataclass(frozen=True)
class Code:
    """The user's function and the text that defines it."""

    path: str
    """Name in tracebacks; the folder of a file is searched for modules."""
    function: str
    source: str


@dataclass(frozen=True)
class Launch:
    """What all processes of a pool have in common."""

    code: Code
    folder: Path
    """Working folder."""
    env: Mapping[str, str]
    memory_mb: int
    sandbox: Sandbox


class Output:
    """What a process prints: the start and the end of it, however much it is."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._clear()
        asyncio.get_running_loop().add_reader(fd, self._read)

    def take(self) -> str:
        """All that was printed since the last time, up to this very moment."""
        self._read()
        cut = self._size - len(self._head) - len(self._tail)
        note = f"\n[{cut:,} bytes of output cut]\n".encode() if cut else b""
        text = (self._head + note + self._tail).decode(errors="replace")
        self._clear()
        return text

    def close(self) -> None:
        """Stop listening. A left-over process that still prints gets an error."""
        asyncio.get_running_loop().remove_reader(self._fd)
        os.close(self._fd)

    def _clear(self) -> None:
        self._size, self._head, self._tail = 0, b"", b""

    def _read(self) -> None:
        # Twice what a pipe holds, and no more: a process that never stops printing must not
        # keep the event loop from everything else.
        for _ in range(2):
            try:
                chunk = os.read(self._fd, READ_BYTES)
            except BlockingIOError:
                return
            if not chunk:
                asyncio.get_running_loop().remove_reader(self._fd)
                return
            self._size += len(chunk)
            room = HEAD_BYTES - len(self._head)
            self._head += chunk[:room]
            self._tail = (self._tail + chunk[room:])[-TAIL_BYTES:]


class RewardProcess:
    """A process that has loaded the user's function and answers one call at a time.

    Made by `start`; whoever made it must `end` it. Once a call has left `usable` False,
    ending it is all that is left to do.
    """

    def __init__(self, popen: subprocess.Popen[bytes], channel: socket.socket, output: Output) -> None:
        channel.setblocking(False)
        self.usable = True
        self._popen = popen
        self._channel = channel
        self._output = output

    @classmethod
    async def start(cls, launch: Launch) -> RewardProcess:
        """Start a process and have it load the function. Raises Lost if either fails."""
        # A pair of sockets rather than two pipes: another process of the same user can open
        # a pipe by its name under /proc and forge answers, but not a socket.
        ours, theirs = socket.socketpair()
        read_end, write_end = os.pipe()
        command = Command(runner_argv(theirs.fileno(), launch.memory_mb), launch.env, launch.folder)
        try:
            popen = launch.sandbox.start(command, theirs.fileno(), write_end)
        except OSError as error:
            ours.close()
            os.close(read_end)
            raise Lost(Failure("start", f"no process could be started: {error}")) from error
        finally:
            theirs.close()
            os.close(write_end)
        process = cls(popen, ours, Output(read_end))
        try:
            await process._load(launch)
        except BaseException:
            await process.end()
            raise
        return process

    async def ask(self, call_id: str, frame: bytes, timeout_s: float) -> Outcome:
        """Have one call answered. Whatever goes wrong is in the outcome."""
        started = time.monotonic()
        result = await self._result(call_id, frame, timeout_s)
        seconds = time.monotonic() - started
        logs = self._output.take()
        if not isinstance(result, Failure):
            return Outcome(value=result, logs=logs, seconds=seconds)
        if not self.usable:
            logs, dump = _split_dump(logs)
            result = dataclasses.replace(result, detail=result.detail or dump)
        return Outcome(failure=result, logs=logs, seconds=seconds)

    def kill(self) -> None:
        """Kill the process and its group; a call that is under way ends as a crash."""
        kill_group(self._popen)

    async def end(self) -> None:
        """Kill the process and its group, and free everything. Not while a call is under way."""
        self.usable = False
        self._channel.close()
        self._output.close()
        await end_group(self._popen)

    async def _load(self, launch: Launch) -> None:
        try:
            answer = await self._exchange(pack(vars(launch.code)), LOAD_TIMEOUT_S)
        except Lost as lost:
            detail = "\n".join(_split_dump(self._output.take()))
            raise Lost(dataclasses.replace(lost.failure, detail=detail)) from None
        if answer != {"ready": True}:
            failure = _reported_failure(answer)
            raise Lost(dataclasses.replace(failure, detail=f"{failure.detail}{self._output.take()}"))

    async def _result(self, call_id: str, frame: bytes, timeout_s: float) -> Value | Failure:
        self.usable = False  # until it has answered; a call that is cancelled leaves it so
        try:
            answer = await self._exchange(frame, timeout_s)
            if not isinstance(answer, dict) or answer.get("id") != call_id:
                raise _forged("it is not for this call")
            result = _checked_value(answer["value"]) if "value" in answer else _reported_failure(answer)
        except Lost as lost:
            return lost.failure
        # What filled the memory may still be there, in the globals of the file.
        self.usable = not (isinstance(result, Failure) and result.cause == "memory")
        return result

    async def _exchange(self, frame: bytes, timeout_s: float) -> Json:
        """Send a frame and wait for the answer, until the deadline. Raises Lost."""
        exchange = asyncio.create_task(self._send_and_receive(frame))
        try:
            await asyncio.wait({exchange}, timeout=timeout_s)
            # The event loop itself may have been busy past the deadline: look once more.
            await asyncio.wait({exchange}, timeout=LAST_LOOK_S)
            if exchange.done():
                return exchange.result()
            os.kill(self._popen.pid, signal.SIGABRT)  # Has it print where it hangs.
            await asyncio.wait({exchange}, timeout=LAST_WORDS_S)
            raise Lost(Failure("timeout", f"no answer within {timeout_s:g} s"))
        except (EOFError, ConnectionError):
            raise Lost(_exit_failure(await end_group(self._popen))) from None
        except (ValueError, RecursionError) as error:
            raise _forged(f"it is not JSON: {error}") from None
        finally:
            exchange.cancel()
            await asyncio.gather(exchange, return_exceptions=True)

    async def _send_and_receive(self, frame: bytes) -> Json:
        await asyncio.get_running_loop().sock_sendall(self._channel, frame)
        (length,) = HEADER.unpack(await self._receive(HEADER.size))
        if length > MAX_FRAME:
            raise _forged(f"it claims {length:,} bytes")
        return json.loads(await self._receive(length))

    async def _receive(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            chunk = await asyncio.get_running_loop().sock_recv(self._channel, min(size - len(received), READ_BYTES))
            if not chunk:
                raise EOFError
            received += chunk
        return bytes(received)


def _checked_value(value: Json) -> Value:
    """The process has checked it already; this holds even if the user's code wrote the frame."""
    parts = value.values() if isinstance(value, dict) else [value]
    if not parts or not all(isinstance(part, float) and math.isfinite(part) for part in parts):
        raise _forged("its value is not made of finite numbers")
    checked: Value = value
    return checked


def _reported_failure(answer: Json) -> Failure:
    match answer:
        case {"failure": {"cause": str(cause), "message": str(message), "detail": str(detail)}} if cause in CAUSES:
            return Failure(cause, message, detail)
    raise _forged("it holds neither a value nor a failure")


def _forged(why: str) -> Lost:
    return Lost(Failure("protocol", f"an answer that the reward process itself did not write: {why}"))


def _exit_failure(code: int) -> Failure:
    if code == OUT_OF_MEMORY:
        return Failure("memory", "ran out of memory; raise memory_mb of this reward, or use less")
    if code >= 0:
        return Failure("crash", f"the process exited with code {code}")
    hint = "; perhaps the machine ran out of memory" if code == -signal.SIGKILL else ""
    return Failure("crash", f"the process was ended by {signal.Signals(-code).name}{hint}")


def _split_dump(output: str) -> tuple[str, str]:
    """Separate what a dying process printed from Python's last words: where it was in the user's code."""
    printed, _, dump = output.partition("Fatal Python error: ")
    ours = (f'File "{Path(__file__).parent}', 'File "<string>"', "Extension modules:")
    lines = [line for line in dump.splitlines()[1:] if line.strip() and not line.strip().startswith(ours)]
    return printed, "\n".join(lines)
