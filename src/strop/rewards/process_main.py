"""The child of a reward pool: loads one user file and answers calls to its function.

It needs nothing but the standard library and starts in well under 100 ms. Its arguments
are the number of an inherited socket and the limit on memory in bytes. On the socket:

    in   {"path", "function", "source"}     once
    out  {"ready": true} or {"failure": {"cause", "message", "detail"}}
    in   {"id", "seed", "sample", "item"}   for each call
    out  {"id", "value"} or {"id", "failure"}

Standard output and error belong to the user's code. The parent reads both from a pipe, so
what was printed before a crash or a hang is not lost, nor is what C code and programs print.
"""

from __future__ import annotations

import ctypes
import faulthandler
import inspect
import linecache
import logging
import os
import resource
import signal
import sys
import traceback
import types
from collections.abc import Callable
from typing import Any

from strop.rewards.frames import OUT_OF_MEMORY, Channel
from strop.rewards.verdict import Refused, cut, failure, judge

FILE_BYTES = 64 * 2**20
OPEN_FILES = 256
LOG_RECORDS = 200
LOG_RECORD_CHARS = 2_000

PR_SET_PDEATHSIG = 1
PR_SET_NO_NEW_PRIVS = 38


class LogLines(logging.Handler):
    """Writes log records to standard error as `LEVEL:name:message`, limited in number and length."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self._count += 1
        if self._count <= LOG_RECORDS:
            line = f"{record.levelname}:{record.name}:{_text(record)}"
            print(cut(line, LOG_RECORD_CHARS), file=sys.__stderr__)

    def finish_call(self) -> None:
        """Say how many records were left out, and count anew."""
        if self._count > LOG_RECORDS:
            print(f"[{self._count - LOG_RECORDS} more log records cut]", file=sys.__stderr__)
        self._count = 0


def _text(record: logging.LogRecord) -> str:
    try:
        text = record.getMessage()
    except Exception as error:  # A wrong format string must not cost the score.
        text = f"{record.msg} [{error}]"
    if record.exc_info:
        text += "\n" + "".join(traceback.format_exception(*record.exc_info)).rstrip()
    return text


def confine(memory_bytes: int) -> None:
    """Limit this process and all that it starts. Comes before any of the user's code."""
    limits = {resource.RLIMIT_CORE: 0, resource.RLIMIT_FSIZE: FILE_BYTES, resource.RLIMIT_NOFILE: OPEN_FILES}
    if sys.platform == "linux":
        limits[resource.RLIMIT_AS] = memory_bytes
        prctl = ctypes.CDLL(None, use_errno=True).prctl
        # The kernel ends this process when the thread that started it is gone, kill -9 included.
        for option, value in ((PR_SET_PDEATHSIG, int(signal.SIGKILL)), (PR_SET_NO_NEW_PRIVS, 1)):
            if prctl(option, value, 0, 0, 0) != 0:
                raise OSError(ctypes.get_errno(), f"prctl({option}) failed")
    for name, wanted in limits.items():
        hard = resource.getrlimit(name)[1]
        value = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(name, (value, value))


def load(path: str, function: str, source: str) -> Callable[[Any, Any], Any]:
    """Run the user's file as a module and return its function.

    The text comes with the frame and not from the disk: a process that starts later in the
    run scores with the same code even if the file was edited since. Raises Refused, or
    whatever the file raises.
    """
    linecache.cache[path] = (len(source), None, source.splitlines(keepends=True), path)
    sys.path.insert(0, os.path.dirname(path))
    name = os.path.splitext(os.path.basename(path))[0]
    module = types.ModuleType(name if name not in sys.modules else f"{name}_reward")
    module.__file__ = path
    sys.modules[module.__name__] = module
    exec(compile(source, path, "exec", dont_inherit=True), module.__dict__)
    found: Callable[[Any, Any], Any] | None = getattr(module, function, None)
    if not callable(found):
        offered = [key for key, value in vars(module).items() if inspect.isfunction(value)]
        raise Refused("load", f"{path} has no function {function!r}; it has {', '.join(offered) or 'none'}")
    _check_signature(path, function, found)
    return found


def _check_signature(path: str, name: str, function: Callable[..., Any]) -> None:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return  # Some callables, mostly written in C, have none to look at.
    try:
        signature.bind(None, None)
    except TypeError:
        line = getattr(getattr(function, "__code__", None), "co_firstlineno", "?")
        place = f"{name}{signature} at {path}:{line}"
        raise Refused("load", f"{place} cannot be called with two arguments; write {name}(sample, item)") from None


def serve(channel: Channel, logs: LogLines) -> None:
    """Load the file that the first frame names, then answer calls until the parent hangs up."""
    hello = channel.receive()
    path = hello["path"]
    try:
        function = load(path, hello["function"], hello["source"])
    except BaseException as error:  # also sys.exit() at import
        return channel.send(failure("load", error, path))
    channel.send({"ready": True})
    while True:
        call = channel.receive()
        verdict = judge(function, call, path)
        logs.finish_call()
        try:
            channel.send({"id": call["id"], **verdict})
        except ValueError as error:
            channel.send({"id": call["id"], **failure("size", Refused("size", f"returned too much: {error}"), path)})


def main() -> None:
    """Entry point of the child."""
    fd, memory_bytes = map(int, sys.argv[1:])
    confine(memory_bytes)
    faulthandler.enable()
    for stream in (sys.stdout, sys.stderr):
        # Text of a model may hold lone surrogates; printing it must not raise.
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    logs = LogLines()
    logging.basicConfig(level=logging.INFO, handlers=[logs])
    try:
        serve(Channel(fd), logs)
    except MemoryError:
        os._exit(OUT_OF_MEMORY)
