"""Chat with a loaded model in a terminal, with streamed completions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from strop.policy.chat import ChatTemplate
from strop.policy.completer import LocalCompleter
from strop.policy.engine import Engine
from strop.policy.engine_thread import Progress
from strop.policy.fetch import Say
from strop.policy.sampler import LocalSampler
from strop.rollout import Player, run_episodes
from strop.types import Completion, Context, Message, Rollout, Row, SamplingParams, Turn
from strop.worker.models import load_model

MAX_TURNS = 10_000
"""Turn limit; in practice the user ends the conversation."""


class Talk:
    """Chats with a model: an environment whose observations are the user's messages."""

    def __init__(
        self, model: str, system: str | None, params: SamplingParams, say: Say, show: Callable[[str], None]
    ) -> None:
        """`show` gets each piece of an answer, and "\\n" at its end."""
        policy, self.found = load_model(model, "auto", say)
        chat = ChatTemplate(policy.tokenizer, policy.name, {})
        sampler = _StreamingSampler(Engine(policy, max_concurrent=1), chat.text, show)
        self._completer = LocalCompleter(policy, chat, sampler)
        self._system = (Message("system", system),) if system else ()
        self._params = params

    async def converse(self, first: str, questions: Iterator[str]) -> Rollout:
        """One conversation, from its first message to the end of `questions`."""
        row = Row("chat", 0, (*self._system, Message("user", first)), (), None, {})
        player = Player(self._completer, _Person(questions), MAX_TURNS, ends_at_length=False)
        return (await run_episodes(row, 1, self._params, player))[0]


class _Person:
    """An `Environment` and its one `Episode`: the next question of an iterator."""

    opening: Context

    def __init__(self, questions: Iterator[str]) -> None:
        self._questions = questions

    async def start(self, row: Row, seed: int) -> _Person:
        self.opening = Context(row.messages, where="conversation")
        return self

    async def step(self, turn: Turn) -> tuple[Message, ...] | None:
        text = next(self._questions, None)
        return None if text is None else (Message("user", text),)

    async def close(self) -> None:
        """The iterator is the caller's."""


class _StreamingSampler:
    """A `Sampler` of one completion at a time that displays its text as it is sampled."""

    def __init__(self, engine: Engine, text: Callable[[Sequence[int]], str], show: Callable[[str], None]) -> None:
        self._sampler = LocalSampler(engine, self._grow)
        self._text = text
        self._show = show
        self._ids: list[int] = []
        self._shown = ""

    async def sample(self, prompt_ids: Sequence[int], count: int, params: SamplingParams) -> list[Completion]:
        self._ids, self._shown = [], ""
        completions = await self._sampler.sample(prompt_ids, count, params)
        self._show("\n")
        return completions

    def _grow(self, progress: Progress) -> None:
        self._ids += [drawn.id for drawn in progress.drawn]
        text = self._text(self._ids)
        if progress.done or not text.endswith("\ufffd"):  # else a character that is not complete yet
            self._show(text[len(self._shown) :])
            self._shown = text
