"""One chat request at work: what is drawn for it, and the events that its client gets."""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable, Iterator, Sequence

import torch

from strop.errors import InvalidRequest, Unavailable
from strop.policy.engine_thread import Drawn, Progress
from strop.serve.transcript import Piece, Transcript
from strop.serve.vocabulary import Vocabulary
from strop.serve.wire import MAX_COUNT, MAX_TOP_LOGPROBS, ChatRequest, Delta, Done, Event, Finished
from strop.types import SamplingParams, StopReason

# Where neither the request nor the model names a limit.
_DEFAULT_TOKENS = 4096
_MAX_TEMPERATURE = 2.0


def sampling_params(request: ChatRequest, prompt_tokens: int, positions: int | None, room: int) -> SamplingParams:
    """How to draw what is asked for.

    `positions` is how long prompt and completion may be together, `room` how many tokens of
    keys and values memory has place for. Raises InvalidRequest, naming the numbers.
    """
    for param, allowed, rule in _rules(request):
        if not allowed:
            raise InvalidRequest(f"{param}: {getattr(request, param)}; {rule}", param=param)
    for limit, what in ((positions, "positions"), (room, "tokens of memory")):
        if limit is not None and prompt_tokens + (request.max_tokens or 1) > limit:
            asked = f"{request.max_tokens} may follow" if request.max_tokens else "at least one must follow"
            raise InvalidRequest(
                f"{request.model} has {limit} {what}, but the messages have {prompt_tokens} tokens and {asked}; "
                "send fewer or shorter messages, or ask for fewer tokens",
                param="messages",
            )
    left = [limit - prompt_tokens for limit in (positions or prompt_tokens + _DEFAULT_TOKENS, room)]
    return SamplingParams(
        temperature=request.temperature,
        max_tokens=request.max_tokens or min(left),
        top_p=request.top_p,
        stop=request.stop,
        seed=secrets.randbits(62) if request.seed is None else request.seed,
        top_logprobs=request.top_logprobs if request.logprobs else 0,
    )


def _rules(request: ChatRequest) -> Sequence[tuple[str, bool, str]]:
    """What is wrong with a value, whatever the model."""
    return (
        ("n", 1 <= request.n <= MAX_COUNT, f"from 1 to {MAX_COUNT} completions"),
        ("max_tokens", request.max_tokens is None or request.max_tokens >= 1, "at least 1"),
        ("temperature", 0 <= request.temperature <= _MAX_TEMPERATURE, f"from 0 to {_MAX_TEMPERATURE:g}"),
        ("top_p", 0 < request.top_p <= 1, "above 0, at most 1"),
        ("stop", all(request.stop), "an empty string would end every completion at once"),
        ("top_logprobs", 0 <= request.top_logprobs <= MAX_TOP_LOGPROBS, f"from 0 to {MAX_TOP_LOGPROBS}"),
    )


class Generation:
    """Turns what the sampler draws into events."""

    def __init__(
        self,
        request: ChatRequest,
        prompt_tokens: int,
        decode: Callable[[Sequence[int]], str],
        vocabulary: Vocabulary,
    ) -> None:
        self._request = request
        self._prompt_tokens = prompt_tokens
        self._vocabulary = vocabulary
        self._transcripts = [Transcript(decode, request.stop) for _ in range(request.n)]
        self._unsent: list[deque[Drawn]] = [deque() for _ in range(request.n)]
        self._counts = [0] * request.n
        self.unfinished = request.n
        """Completions that have not ended."""

    def events(self, progress: Progress) -> Iterator[Event]:
        """What the client gets to see of a step; `Done` with the last completion. Raises its error."""
        if progress.error is not None:
            raise _for_clients(progress.error)
        for drawn in progress.drawn:
            self._counts[drawn.index] += 1
            self._transcripts[drawn.index].add(drawn.id)
            self._unsent[drawn.index].append(drawn)
        for index in sorted({drawn.index for drawn in progress.drawn}):
            yield from self._delta(index, self._transcripts[index].piece())
        for index, reason in progress.ended:
            yield from self._delta(index, self._transcripts[index].rest())
            yield Finished(index, "length" if reason is StopReason.LENGTH else "stop", self._counts[index])
            self.unfinished -= 1
        if not self.unfinished:
            yield Done(self._prompt_tokens, sum(self._counts))

    def _delta(self, index: int, piece: Piece) -> Iterator[Delta]:
        drawn = [self._unsent[index].popleft() for _ in range(piece.tokens)]
        shown = drawn if self._request.logprobs else []
        tokens = tuple(self._vocabulary.token(token.id, token.logprob, token.alternatives) for token in shown)
        if piece.text or tokens:
            yield Delta(index, piece.text, tokens)


def _for_clients(error: Exception) -> Exception:
    """The error as a client gets to see it."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError) or "DefaultCPUAllocator" in str(error):
        return Unavailable("memory does not suffice for this request now; ask for fewer tokens, or try again later")
    if isinstance(error, torch.AcceleratorError):
        return Unavailable(f"the model process failed: {error}")
    return error
