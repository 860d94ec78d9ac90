"""One call of the user's function, and the rules for what it returns. Runs in the child."""

from __future__ import annotations

import functools
import math
import random
import reprlib
import sys
import traceback
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio

DETAIL_CHARS = 8_000
MESSAGE_CHARS = 500


class Refused(Exception):
    """Something about the user's function that is not accepted; `cause` is short, to count by."""

    def __init__(self, cause: str, message: str) -> None:
        super().__init__(message)
        self.cause = cause


def judge(function: Callable[[Any, Any], Any], call: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Call the function once: `{"value": …}`, or `{"failure": …}` whatever it raises."""
    _seed(call["seed"])
    try:
        value = function(call["sample"], call["item"])
        if isinstance(value, Awaitable):
            value = _event_loop().run(_result_of(value))
        return {"value": checked(value)}
    except MemoryError as error:
        # The frames hold on to what filled the memory; without it there is room to report.
        traceback.clear_frames(error.__traceback__)
        return failure("memory", error, path)
    except BaseException as error:  # sys.exit() in a reward function is a fault, not an exit
        return failure("exception", error, path)


def checked(value: Any) -> float | dict[str, float]:
    """The value as a float, or as floats by component. Raises Refused."""
    if not isinstance(value, Mapping):
        return _number(value, "returned")
    if not value:
        raise Refused("type", "returned an empty dict; it needs at least one component")
    for key in value:
        if not isinstance(key, str) or not key:
            raise Refused("type", f"returned a dict with key {_shown(key)}; component names are non-empty strings")
    return {str(key): _number(part, f"returned, for component {key!r},") for key, part in value.items()}


def failure(cause: str, error: BaseException, path: str) -> dict[str, Any]:
    """What the parent is told about an error: the line in the user's file, and the traceback from there on."""
    if isinstance(error, Refused):
        cause, message, detail = error.cause, str(error), ""
    else:
        message, detail = f"{_first_line(error)}{_location(error, path)}", _traceback(error, path)
    return {"failure": {"cause": cause, "message": cut(message, MESSAGE_CHARS), "detail": detail}}


def cut(text: str, limit: int) -> str:
    """The start of a text, with a note of how much is missing."""
    return text if len(text) <= limit else f"{text[:limit]} [{len(text) - limit} characters cut]"


def _number(value: Any, what: str) -> float:
    if value is None:
        raise Refused("none", f"{what} None; it must return a number on every path")
    is_text = isinstance(value, (str, bytes, bytearray))
    if is_text or not hasattr(type(value), "__float__") or getattr(value, "ndim", 0) != 0:
        raise Refused("type", f"{what} {_shown(value)}; a number is expected")
    try:
        number = float(value)
    except OverflowError:
        raise Refused("nan", f"{what} an integer too large for a float") from None
    except Exception as error:
        raise Refused("type", f"{what} {_shown(value)}, which is not a number: {_first_line(error)}") from None
    if not math.isfinite(number):
        raise Refused("nan", f"{what} {number}; a finite number is expected")
    return number


def _seed(seed: int) -> None:
    """Random numbers depend on the call alone, not on the process or on earlier calls."""
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed % 2**32)


@functools.cache
def _event_loop() -> asyncio.Runner:
    """One loop for all calls, so that clients which a function keeps open stay usable."""
    import asyncio  # Half of the start-up time of a process: only for functions that need it.

    return asyncio.Runner()


async def _result_of(value: Awaitable[Any]) -> Any:
    return await value


def _traceback(error: BaseException, path: str) -> str:
    """From the user's first frame on; the end of it if it is long."""
    first = error.__traceback__
    while first and first.tb_frame.f_code.co_filename != path:
        first = first.tb_next
    text = "".join(traceback.format_exception(error.with_traceback(first)))
    return text if len(text) <= DETAIL_CHARS else f"[{len(text) - DETAIL_CHARS} characters cut]\n{text[-DETAIL_CHARS:]}"


def _location(error: BaseException, path: str) -> str:
    """` at file:line` of the innermost frame in the user's file, or nothing."""
    if isinstance(error, SyntaxError) and error.filename:
        return f" at {error.filename}:{error.lineno}"
    lines = [line for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == path]
    return f" at {path}:{lines[-1]}" if lines else ""


def _first_line(error: BaseException) -> str:
    try:
        text = str(error.msg if isinstance(error, SyntaxError) else error)
    except Exception:
        text = "(no text)"
    line = text.strip().split("\n", 1)[0]
    return f"{type(error).__name__}: {line}" if line else type(error).__name__


def _shown(value: Any) -> str:
    return f"{type(value).__name__} {reprlib.repr(value)}"
