"""One request at work: how to sample for it, and the events that answer it."""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable, Iterator, Sequence

import torch

from strop.errors import ContextOverflow, InvalidRequest, Unavailable
from strop.policy.engine_thread import Drawn, Progress
from strop.serve.bodies import MAX_COUNT, MAX_TOP_LOGPROBS
from strop.serve.called import CallText
from strop.serve.generate import Conversation, Delta, Done, Event, Finished, FinishReason, GenerateRequest, Started
from strop.serve.transcript import Transcript
from strop.serve.vocabulary import Vocabulary
from strop.types import SamplingParams, StopReason, ToolCall

Decode = Callable[[Sequence[int]], str]
"""The text of ids, U+FFFD for bytes that are no character."""

# Where neither the request nor the model names a limit.
_DEFAULT_TOKENS = 4096
_MAX_TEMPERATURE = 2.0


def sampling_params(request: GenerateRequest, prompt_tokens: int, positions: int | None, room: int) -> SamplingParams:
    """Sampling settings of a request.

    `positions` is how long prompt and completion may be together, `room` how many tokens of
    keys and values memory has place for. Raises ContextOverflow for a prompt
    that leaves too little room, InvalidRequest for values out of bounds.
    """
    for param, allowed, rule in _rules(request):
        if not allowed:
            raise InvalidRequest(f"{param}: {getattr(request, param)}; {rule}", param=param)
    field = "messages have" if isinstance(request.prompt, Conversation) else "prompt has"
    for limit, what in ((positions, "positions"), (room, "tokens of memory")):
        if limit is not None and prompt_tokens + (request.max_tokens or 1) > limit:
            asked = f"{request.max_tokens} may follow" if request.max_tokens else "at least one must follow"
            raise ContextOverflow(
                f"{request.model} has {limit} {what}, but the {field} {prompt_tokens} tokens and {asked}; "
                "shorten the prompt, or ask for fewer tokens",
                param=field.split()[0],
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


def _rules(request: GenerateRequest) -> Sequence[tuple[str, bool, str]]:
    """Limits that hold for every model."""
    return (
        ("n", 1 <= request.n <= MAX_COUNT, f"from 1 to {MAX_COUNT} completions"),
        ("max_tokens", request.max_tokens is None or request.max_tokens >= 1, "at least 1"),
        ("temperature", 0 <= request.temperature <= _MAX_TEMPERATURE, f"from 0 to {_MAX_TEMPERATURE:g}"),
        ("top_p", 0 < request.top_p <= 1, "above 0, at most 1"),
        ("stop", all(request.stop), "an empty string would end every completion at once"),
        ("top_logprobs", 0 <= request.top_logprobs <= MAX_TOP_LOGPROBS, f"from 0 to {MAX_TOP_LOGPROBS}"),
    )


class Generation:
    """Turns drawn tokens into events."""

    def __init__(
        self,
        request: GenerateRequest,
        prompt_ids: tuple[int, ...],
        decode: Decode,
        vocabulary: Vocabulary,
        new_calls: Callable[[], CallText] | None = None,
    ) -> None:
        """With `new_calls`, `decode` keeps special tokens and tool calls are taken out of the text."""
        self._prompt_ids = prompt_ids
        self._completions = [
            _Completing(request, decode, vocabulary, new_calls() if new_calls else None) for _ in range(request.n)
        ]
        self._started = False

    @property
    def unfinished(self) -> int:
        """Completions that have not ended."""
        return sum(not completing.ended for completing in self._completions)

    def events(self, progress: Progress) -> Iterator[Event]:
        """The events of a step; `Done` with the last completion. Raises the error of the request."""
        if progress.error is not None:
            raise _for_clients(progress.error)
        if not self._started:
            self._started = True
            yield Started(self._prompt_ids)
        for drawn in progress.drawn:
            self._completions[drawn.index].add(drawn)
        for index in sorted({drawn.index for drawn in progress.drawn}):
            yield from self._completions[index].delta(index)
        for index, reason in progress.ended:
            yield from self._completions[index].end(index, reason)
        if not self.unfinished:
            yield Done(len(self._prompt_ids), sum(completing.count for completing in self._completions))


class _Completing:
    """One completion while it grows."""

    def __init__(
        self, request: GenerateRequest, decode: Decode, vocabulary: Vocabulary, calls: CallText | None
    ) -> None:
        self._request = request
        self._vocabulary = vocabulary
        self._calls = calls
        self._transcript = Transcript(decode, request.stop)
        self._unsent: deque[Drawn] = deque()
        self._told = 0
        self.count = 0
        """Tokens drawn so far."""
        self.ended = False

    def add(self, drawn: Drawn) -> None:
        self.count += 1
        self._transcript.add(drawn.id)
        self._unsent.append(drawn)

    def delta(self, index: int) -> Iterator[Delta]:
        """The part of the completion that can be sent now."""
        piece = self._transcript.piece()
        text = piece.text if self._calls is None else self._calls.add(piece.text)
        yield from self._delta(index, text, piece.tokens)

    def end(self, index: int, stop_reason: StopReason) -> Iterator[Event]:
        """What is left to send, and how the completion ended."""
        piece = self._transcript.rest()
        reason: FinishReason = "length" if stop_reason is StopReason.LENGTH else "stop"
        text, content = piece.text, None
        calls: tuple[ToolCall, ...] = ()
        if self._calls is not None:
            begun = self._calls.add(piece.text)
            rest, content, calls = self._calls.end()
            text = begun + rest
        yield from self._delta(index, text, piece.tokens)
        self.ended = True
        yield Finished(index, "tool_calls" if calls else reason, self.count, calls, content if calls else None)

    def _delta(self, index: int, text: str, tokens_out: int) -> Iterator[Delta]:
        # Exact ids do not wait for their text: some tokens have none.
        count = len(self._unsent) if self._request.token_ids else tokens_out
        drawn = [self._unsent.popleft() for _ in range(count)]
        ids = tuple(token.id for token in drawn) if self._request.token_ids else ()
        shown = drawn if self._request.logprobs else []
        tokens = tuple(self._vocabulary.token(token.id, token.logprob, token.alternatives) for token in shown)
        if text or tokens or ids:
            told, self._told = self._told, self.count
            yield Delta(index, text, tokens, ids, self.count - told)


def _for_clients(error: Exception) -> Exception:
    """The error as a client gets to see it."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError) or "DefaultCPUAllocator" in str(error):
        return Unavailable("memory does not suffice for this request now; ask for fewer tokens, or try again later")
    if isinstance(error, torch.AcceleratorError):
        return Unavailable(f"the model process failed: {error}")
    return error
