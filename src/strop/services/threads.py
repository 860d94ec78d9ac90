"""Blocking work for the event loop."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Generic, ParamSpec, TypeVar

from starlette.concurrency import run_in_threadpool

P = ParamSpec("P")
R = TypeVar("R")


class in_thread(Generic[P, R]):
    """Decorate a blocking function: awaited, it runs in one of the event loop's limited threads.

    `blocking` is the function itself, for work that runs in a thread already.
    """

    def __init__(self, function: Callable[P, R]) -> None:
        self.blocking = function
        functools.update_wrapper(self, function)

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run it in a thread. Raises what the function raises."""
        return await run_in_threadpool(self.blocking, *args, **kwargs)
