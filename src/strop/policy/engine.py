"""Continuous batching over one KV slab, one synchronous step at a time.

Knows token ids only. Prompts are prefilled once for all their completions; then every step
decodes one token for each sequence in flight. A sequence that ends leaves the batch at
once, and waiting ones take its place. `policy.engine_thread` steps engines for coroutines.
How a token is drawn is in `policy.draw`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from strop.errors import ModelError
from strop.policy.attention import DecodeLayout, KvSlab, PrefillLayout
from strop.policy.draw import Alternatives, NotFinite, draw, likeliest, numbers, uniforms
from strop.policy.model import Policy
from strop.types import Completion, SamplingParams, StopReason

# Rows of the slab are allocated for prompts and this many tokens more, then grow.
_HEADROOM = 64


@dataclass(eq=False)
class Request:
    """`count` completions wanted for one prompt; `completions` fills up as they end."""

    prompt_ids: tuple[int, ...]
    params: SamplingParams
    completions: list[Completion | None]
    ids: list[list[int]]
    """Ids drawn so far for each completion."""
    logprobs: list[list[float]]
    alternatives: list[list[Alternatives]]
    """For each drawn id, where `params.top_logprobs` asks for them."""

    @property
    def done(self) -> bool:
        """Whether every completion has ended."""
        return all(completion is not None for completion in self.completions)


@dataclass
class _Sequence:
    """One completion in flight."""

    request: Request
    index: int
    uniforms: list[float] = field(default_factory=list)
    """One draw for each token to come; made when the sequence leaves the queue."""
    entropies: list[float] = field(default_factory=list)

    @property
    def ids(self) -> list[int]:
        """Ids drawn so far."""
        return self.request.ids[self.index]

    @property
    def length(self) -> int:
        """Tokens of the prompt and drawn so far."""
        return len(self.request.prompt_ids) + len(self.ids)

    @property
    def cached(self) -> int:
        """Tokens whose keys and values the slab holds: all but the newest."""
        return self.length - 1

    @property
    def expected(self) -> int:
        """Tokens that the slab should have room for when this sequence enters it."""
        return self.length + min(self.request.params.max_tokens - len(self.ids), _HEADROOM)


@dataclass(frozen=True)
class Limits:
    """Limits of one engine; by default those of the machine."""

    prompt_tokens: int | None = None
    """Prompts that are prefilled together; a longer one goes alone."""
    cells: Callable[[], int] | None = None
    """Tokens that the slab may have room for now, over all of its rows."""


class Engine:
    """Decodes all submitted requests, one token for each sequence in flight a step."""

    def __init__(self, policy: Policy, max_concurrent: int, limits: Limits = Limits()) -> None:
        self._policy = policy
        self._eos_ids = policy.eos_ids
        self._slab = KvSlab(max_concurrent)
        self._free = max_concurrent
        self._limits = limits
        self._waiting: deque[_Sequence] = deque()
        self._live: list[_Sequence] = []
        self._blamed: list[_Sequence] = []

    @property
    def busy(self) -> bool:
        """Whether any sequence waits or is in flight."""
        return bool(self._waiting or self._live)

    @property
    def in_flight(self) -> int:
        """Sequences that are decoded."""
        return len(self._live)

    @property
    def queued(self) -> int:
        """Sequences that wait for a place."""
        return len(self._waiting)

    @property
    def cache_bytes(self) -> int:
        """Keys and values of what is in flight, and room for more."""
        return self._slab.memory_bytes

    def submit(self, prompt_ids: Sequence[int], count: int, params: SamplingParams) -> Request:
        """Queue a request. ModelError when prompt and completion exceed the model's positions."""
        limit = self._policy.max_length
        if limit is not None and len(prompt_ids) + params.max_tokens > limit:
            raise ModelError(
                f"{self._policy.name} has {limit} positions, but the prompt has {len(prompt_ids)} tokens and "
                f"{params.max_tokens} may follow; lower sampling.max_completion_tokens or max_prompt_tokens"
            )
        each = range(count)
        request = Request(
            tuple(prompt_ids), params, [None] * count, [[] for _ in each], [[] for _ in each], [[] for _ in each]
        )
        self._waiting.extend(_Sequence(request, index) for index in range(count))
        return request

    @torch.inference_mode()
    def cancel(self, request: Request) -> None:
        """Forget a request between two steps; its rows are free at once."""
        self._waiting = deque(sequence for sequence in self._waiting if sequence.request is not request)
        for row in reversed(range(len(self._live))):
            if self._live[row].request is request:
                self._remove(row)

    @torch.inference_mode()
    def step(self) -> list[Request]:
        """Take in what fits, decode one token for each sequence, and return the finished requests.

        After an error, `shed` or `abort` makes the engine fit for another step.
        """
        admitted = self._admit()
        if admitted:
            self._draw(admitted, self._prefill(admitted))
        finished = self._retire()
        if self._live:
            self._draw(self._live, self._decode())
            finished += self._retire()
        return finished

    def release(self) -> None:
        """Free the slab; the next request makes a new one."""
        self._slab.clear()

    def abort(self) -> None:
        """Forget every request, after an error in the middle of a step."""
        self._waiting.clear()
        self._live.clear()
        self.release()

    def shed(self, error: Exception) -> list[Request]:
        """After an error in the middle of a step, give up the requests that it is down to, and return
        them: those of rows that are not numbers, else the one that takes the most memory. The
        others go on: what they have drawn stays, and is prefilled with their prompts.
        """
        blamed = self._blamed if isinstance(error, NotFinite) else [self._largest()]
        self._waiting.extendleft(reversed(self._live))
        self._live.clear()
        self.release()  # it may be half grown, or hold NaN
        requests = list({id(sequence.request): sequence.request for sequence in blamed}.values())
        for request in requests:
            self.cancel(request)
        return requests

    def _largest(self) -> _Sequence:
        """The longest sequence, of those that just came in where there are any."""
        fresh = [sequence for sequence in self._live if not sequence.ids]
        return max(fresh or self._live or self._waiting, key=lambda sequence: sequence.length)

    def _admit(self) -> list[_Sequence]:
        if not self._live and self._limits.cells:
            self.release()  # a slab for the longest so far would leave room for few
        admitted: list[_Sequence] = []
        tokens, width = 0, self._slab.capacity
        while self._waiting and len(self._live) < self._free:
            sequence = self._waiting[0]
            with_last = admitted and admitted[-1].request is sequence.request and not sequence.ids
            tokens += 0 if with_last else sequence.length
            width = max(width, sequence.expected)
            if (admitted and self._too_long(tokens)) or (self._live and self._too_large(len(self._live) + 1, width)):
                break
            sequence.uniforms = sequence.uniforms or uniforms(sequence.request.params, sequence.index)
            admitted.append(self._waiting.popleft())
            self._live.append(sequence)
        return admitted

    def _too_long(self, tokens: int) -> bool:
        return self._limits.prompt_tokens is not None and tokens > self._limits.prompt_tokens

    def _too_large(self, rows: int, width: int) -> bool:
        return self._limits.cells is not None and rows * width > self._limits.cells()

    def _prefill(self, admitted: list[_Sequence]) -> Tensor:
        """Run each prompt once; logits `[n, V]` for the next token of every admitted sequence.

        A sequence that was in flight before goes on after what it has drawn.
        """
        self._slab.reserve(max(sequence.expected for sequence in admitted), rows=len(self._live))
        groups = _by_text(admitted)
        lengths = [len(text) for text, _ in groups]
        first, device = len(self._live) - len(admitted), self._policy.device
        rows = [[first + member for member in members] for _, members in groups]
        ids = torch.tensor([[i for text, _ in groups for i in text]], device=device)
        hidden = self._policy.hidden(ids, PrefillLayout(lengths, rows, self._slab, device))[0]
        ends = torch.tensor(lengths, device=device).cumsum(0) - 1
        owners = {member: group for group, (_, members) in enumerate(groups) for member in members}
        copies = torch.tensor([owners[member] for member in range(len(admitted))], device=device)
        return self._policy.logits(hidden[ends])[copies]

    def _decode(self) -> Tensor:
        """Run the newest token of every live sequence; logits `[n, V]` for the next."""
        self._make_room()
        lengths = [sequence.cached for sequence in self._live]
        ids = torch.tensor([[sequence.ids[-1]] for sequence in self._live], device=self._policy.device)
        hidden = self._policy.hidden(ids, DecodeLayout(lengths, self._slab, self._policy.device))
        return self._policy.logits(hidden[:, 0])

    def _make_room(self) -> None:
        """Let the slab grow; where it may not, the last sequences go back to the queue."""
        longest = max(sequence.length for sequence in self._live)
        while longest > self._slab.capacity and len(self._live) > 1 and self._too_large(len(self._live), longest):
            self._waiting.appendleft(self._live.pop())
            longest = max(sequence.length for sequence in self._live)
        self._slab.reserve(longest, rows=len(self._live))

    def _draw(self, sequences: list[_Sequence], logits: Tensor) -> None:
        """Append one token to each sequence."""
        params = [sequence.request.params for sequence in sequences]
        temperatures = numbers([p.temperature for p in params], logits.device)
        chances = [sequence.uniforms[len(sequence.ids)] for sequence in sequences]
        try:
            ids, logprobs, entropies = draw(
                logits,
                temperatures,
                numbers([p.top_p for p in params], logits.device),
                numbers(chances, logits.device),
            )
        except NotFinite as error:
            self._blamed = [sequences[row] for row in error.rows]
            raise
        self._note_alternatives(sequences, logits, temperatures)
        for sequence, token, logprob, entropy in zip(
            sequences, ids.tolist(), logprobs.tolist(), entropies.tolist(), strict=True
        ):
            sequence.ids.append(token)
            sequence.request.logprobs[sequence.index].append(logprob)
            sequence.entropies.append(entropy)

    def _note_alternatives(self, sequences: list[_Sequence], logits: Tensor, temperature_N: Tensor) -> None:
        rows = [row for row, sequence in enumerate(sequences) if sequence.request.params.top_logprobs]
        if not rows:
            return
        counts = [sequences[row].request.params.top_logprobs for row in rows]
        found = likeliest(logits[rows], temperature_N[rows], max(counts))
        for row, count, alternatives in zip(rows, counts, found, strict=True):
            sequences[row].request.alternatives[sequences[row].index].append(alternatives[:count])

    def _retire(self) -> list[Request]:
        """Take ended sequences out of the batch."""
        finished = []
        for row in reversed(range(len(self._live))):
            sequence = self._live[row]
            reason = self._stop_reason(sequence)
            if reason is None:
                continue
            self._remove(row)
            if self._complete(sequence, reason).done:
                finished.append(sequence.request)
        return finished

    def _remove(self, row: int) -> None:
        """Take a sequence out of the batch; the last row moves into the gap."""
        last = self._live.pop()
        if row < len(self._live):
            self._slab.move(len(self._live), row, last.cached)
            self._live[row] = last

    def _complete(self, sequence: _Sequence, reason: StopReason) -> Request:
        request = sequence.request
        request.completions[sequence.index] = Completion(
            tuple(sequence.ids), tuple(request.logprobs[sequence.index]), tuple(sequence.entropies), reason
        )
        return request

    def _stop_reason(self, sequence: _Sequence) -> StopReason | None:
        params = sequence.request.params
        if sequence.ids[-1] in self._eos_ids:
            return StopReason.STOP
        if params.stop and ends_with_stop(sequence.ids, params.stop, self._policy.decode):
            return StopReason.STOP
        return StopReason.LENGTH if len(sequence.ids) >= params.max_tokens else None


def _by_text(sequences: Sequence[_Sequence]) -> list[tuple[tuple[int, ...], list[int]]]:
    """Each text to prefill, and which sequences it is for: a prompt that is new serves all of its group."""
    groups: dict[tuple[int, int | None], tuple[tuple[int, ...], list[int]]] = {}
    for member, sequence in enumerate(sequences):
        key = id(sequence.request), sequence.index if sequence.ids else None
        text = (*sequence.request.prompt_ids, *sequence.ids)
        groups.setdefault(key, (text, []))[1].append(member)
    return list(groups.values())


def ends_with_stop(ids: Sequence[int], stop: Sequence[str], decode: Callable[[Sequence[int]], str]) -> bool:
    """Whether the newest token completed one of the stop strings.

    Only the tail is decoded: a token has at least one byte, so as many tokens as the longest
    stop string has bytes cover it, and a few more make up for a character that is cut.
    """
    tail = max(len(text.encode()) for text in stop) + 4
    text = decode(ids[-tail:])
    return any(string in text for string in stop)
