"""The models of a process: loaded and unloaded by name, all of them answering at once.

One thread decodes for all models and another one loads; the event loop turns ids into text. An
error fails the request that caused it. An error that no request caused ends the process, and
its supervisor starts it again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from strop.errors import Conflict, NotFound, Unavailable
from strop.policy.chat import ChatTemplate
from strop.policy.engine import Engine, Limits
from strop.policy.engine_thread import EngineThread, Progress, Ticket
from strop.policy.fetch import Say
from strop.policy.model import pick_device
from strop.policy.tool_calls import ToolCallFormat
from strop.serve.called import CallText
from strop.serve.generate import Conversation, Event, GenerateRequest
from strop.serve.generation import Generation, sampling_params
from strop.serve.model_cache import Model, ModelCache
from strop.serve.prompts import prompt_ids
from strop.serve.state import EngineState, ModelState
from strop.serve.vocabulary import Vocabulary

# Prompts that are prefilled together: what is in flight waits for that long.
_PREFILL_TOKENS = 2048

# Of the memory that is free; the rest is for what a step needs beside keys and values.
_CACHE_SHARE = 0.8

# Grace period for clients of an unloaded model.
_PATIENCE_S = 2.0


@dataclass(frozen=True)
class EngineSettings:
    """Settings of a model process."""

    max_concurrent: int = 16
    """Completions of one model that are decoded at the same time."""
    max_queue: int = 256
    """Completions of one model that may wait; more are refused."""
    memory_bytes: int | None = None
    """For weights, keys and values; by default most of what the device has."""
    device: str = "auto"


class _Served:
    """A loaded model, its engine, and how much is asked of it."""

    def __init__(self, name: str, source: str, model: Model, engine: Engine) -> None:
        self.name, self.source, self.model, self.engine = name, source, model, engine
        self.vocabulary = Vocabulary(model.policy.tokenizer)
        self.unfinished = 0
        self._calls: ToolCallFormat | None = None

    def generation(self, request: GenerateRequest, prompt_ids: tuple[int, ...]) -> Generation:
        """The events of a request, tool calls read where the request offers tools."""
        tools = request.prompt.tools if isinstance(request.prompt, Conversation) else ()
        policy = self.model.policy
        if not tools:
            return Generation(request, prompt_ids, policy.decode, self.vocabulary)
        calls = self._calls = self._calls or ChatTemplate(policy.tokenizer, self.name, {}).tool_calls
        special = self.vocabulary.special
        return Generation(
            request,
            prompt_ids,
            lambda ids: str(policy.tokenizer.decode(ids, skip_special_tokens=False)),
            self.vocabulary,
            lambda: CallText(calls, tools, special),
        )

    def state(self) -> ModelState:
        return ModelState(
            name=self.name,
            source=self.source,
            base=self.model.base,
            memory_bytes=self.model.memory_bytes,
            cache_bytes=self.engine.cache_bytes,
            in_flight=self.engine.in_flight,
            queued=max(self.unfinished - self.engine.in_flight, 0),
            max_length=self.model.policy.max_length,
        )


class ModelHost:
    """All models of a process. For its event loop."""

    def __init__(self, settings: EngineSettings, on_failure: Callable[[Exception], None], say: Say) -> None:
        """`on_failure` is called, in another thread, with an error that this process cannot go on after;
        `say` with news of what takes long."""
        self._settings = settings
        self._cache = ModelCache(pick_device(settings.device), settings.memory_bytes, say)
        self._thread = EngineThread(on_failure)
        self._loader = ThreadPoolExecutor(1, thread_name_prefix="loader")
        self._served: dict[str, _Served] = {}
        self._changing = asyncio.Lock()

    async def load(self, name: str, source: str) -> ModelState:
        """Load a model under a name. Raises Conflict if the name has another source."""
        served = self._served.get(name)
        if served is None:
            place = await asyncio.to_thread(self._cache.fetch, source)  # which may take as long as the network does
            served = await self._loaded(name, source, *place)
        if served.source != source:
            raise Conflict(f"{name} is loaded from {served.source}; unload it first")
        return served.state()

    async def unload(self, name: str) -> None:
        """Fail the requests of a model and free its memory."""
        async with self._changing:
            served = self._served.pop(name, None)
            if served is None:
                return
            await asyncio.wrap_future(
                self._thread.retire(served.engine, Unavailable(f"{name} was unloaded while it answered"))
            )
            await self._left_alone(served)
            model = served.model
            del served
            await asyncio.get_running_loop().run_in_executor(self._loader, self._cache.drop, model)

    def state(self) -> EngineState:
        """The loaded models and their load."""
        models = tuple(served.state() for served in self._served.values())
        memory = self._cache.memory_bytes + sum(model.cache_bytes for model in models)
        return EngineState(models, memory, self._cache.memory_limit, str(self._cache.device))

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[Event]:
        """Answer a request. Closing the iterator frees its rows before the next step.

        Raises NotFound, InvalidRequest, Unavailable for a full queue, and what the model fails with.
        """
        served = self._find(request.model)
        ids = await asyncio.to_thread(prompt_ids, request, served.model.policy.tokenizer)
        params = sampling_params(request, len(ids), served.model.policy.max_length, self._room(served.model))
        if self._find(request.model) is not served:  # meanwhile
            raise Unavailable(f"{request.model} was unloaded")
        self._check_queue(served, request.n)
        loop, news = asyncio.get_running_loop(), asyncio.Queue[Progress]()

        def report(progress: Progress) -> None:
            with suppress(RuntimeError):  # the loop has been closed
                loop.call_soon_threadsafe(news.put_nowait, progress)

        generation = served.generation(request, ids)
        ticket = Ticket(served.engine, ids, request.n, params, report)
        self._thread.submit([ticket])
        served.unfinished += (left := request.n)
        try:
            while left:
                progress = await news.get()
                for event in generation.events(progress):
                    yield event
                served.unfinished -= left - generation.unfinished
                left = generation.unfinished
        finally:
            served.unfinished -= left
            if left:
                self._thread.cancel(ticket)

    def close(self) -> None:
        """End the threads."""
        self._thread.close()
        self._loader.shutdown(wait=False, cancel_futures=True)

    async def _left_alone(self, served: _Served) -> None:
        """Wait until all callers were notified: they hold references to the model until then."""
        end = time.monotonic() + _PATIENCE_S
        while served.unfinished and time.monotonic() < end:
            await asyncio.sleep(0.01)

    def _find(self, name: str) -> _Served:
        served = self._served.get(name)
        if served is None:
            raise NotFound(f"{name} is not loaded", param="model")
        return served

    def _check_queue(self, served: _Served, count: int) -> None:
        limit = self._settings.max_concurrent + self._settings.max_queue
        if served.unfinished + count > limit:
            raise Unavailable(
                f"{served.name}: the queue is full: {served.unfinished} completions are asked for, {limit} may be; "
                "try again in a moment",
                retry_after=5,
            )

    async def _loaded(self, name: str, source: str, folder: Path, base: Path | None) -> _Served:
        async with self._changing:  # one after the other: they share bases, and memory
            if name not in self._served:
                loop = asyncio.get_running_loop()
                self._served[name] = await loop.run_in_executor(self._loader, self._load, name, source, folder, base)
            return self._served[name]

    def _load(self, name: str, source: str, folder: Path, base: Path | None) -> _Served:
        model = self._cache.load(name, folder, base)
        engine = Engine(
            model.policy, self._settings.max_concurrent, Limits(_PREFILL_TOKENS, lambda: self._cells(model, engine))
        )
        return _Served(name, source, model, engine)

    def _room(self, model: Model) -> int:
        """Maximum number of tokens in keys and values."""
        free = self._cache.memory_limit - self._cache.memory_bytes
        return max(int(free * _CACHE_SHARE) // model.token_bytes, 0)

    def _cells(self, model: Model, engine: Engine) -> int:
        """Tokens that keys and values may take now, beside those of the other models."""
        others = [served.engine for served in list(self._served.values()) if served.engine is not engine]
        return self._room(model) - sum(other.cache_bytes for other in others) // model.token_bytes
