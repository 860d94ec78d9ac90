"""The in-process sampler: continuous batching over one KV slab.

Knows token ids only. Prompts are prefilled once for all their completions; then every step
decodes one token for each sequence in flight. A sequence that ends leaves the batch at
once, and waiting ones take its place. `Engine` is the synchronous core; `LocalSampler`
lets many coroutines share it.

Each sequence draws from uniforms of its own, fixed by the seed of its request, so that what
it draws does not depend on its neighbours or on the order in which they finish.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from strop.errors import ModelError
from strop.policy.attention import DecodeLayout, KvSlab, PrefillLayout
from strop.policy.model import Policy
from strop.seeds import derive_seed
from strop.types import Completion, SamplingParams, StopReason

# Rows of the slab are allocated for prompts and this many tokens more, then doubled.
_HEADROOM = 64


@dataclass
class Request:
    """`count` completions wanted for one prompt; `completions` fills up as they end."""

    prompt_ids: tuple[int, ...]
    params: SamplingParams
    completions: list[Completion | None]
    ids: list[list[int]]
    """What was drawn so far for each completion."""

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
    logprobs: list[float] = field(default_factory=list)
    entropies: list[float] = field(default_factory=list)

    @property
    def ids(self) -> list[int]:
        """Ids drawn so far."""
        return self.request.ids[self.index]

    @property
    def cached(self) -> int:
        """Tokens whose keys and values the slab holds: all but the newest."""
        return len(self.request.prompt_ids) + len(self.ids) - 1


class Engine:
    """Decodes all submitted requests, one token for each sequence in flight a step."""

    def __init__(self, policy: Policy, max_concurrent: int) -> None:
        self._policy = policy
        self._eos_ids = policy.eos_ids
        self._slab = KvSlab(max_concurrent)
        self._free = max_concurrent
        self._waiting: deque[_Sequence] = deque()
        self._live: list[_Sequence] = []

    @property
    def busy(self) -> bool:
        """Whether any sequence waits or is in flight."""
        return bool(self._waiting or self._live)

    def submit(self, prompt_ids: Sequence[int], count: int, params: SamplingParams) -> Request:
        """Queue a request. ModelError when prompt and completion exceed the model's positions."""
        limit = self._policy.max_length
        if limit is not None and len(prompt_ids) + params.max_tokens > limit:
            raise ModelError(
                f"{self._policy.name} has {limit} positions, but the prompt has {len(prompt_ids)} tokens and "
                f"{params.max_tokens} may follow; lower sampling.max_completion_tokens or max_prompt_tokens"
            )
        request = Request(tuple(prompt_ids), params, [None] * count, [[] for _ in range(count)])
        self._waiting.extend(_Sequence(request, index) for index in range(count))
        return request

    @torch.inference_mode()
    def step(self) -> list[Request]:
        """Take in what fits, decode one token for each sequence, and return the finished requests."""
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

    def _admit(self) -> list[_Sequence]:
        count = min(len(self._waiting), self._free - len(self._live))
        admitted = [self._waiting.popleft() for _ in range(count)]
        for sequence in admitted:
            sequence.uniforms = _uniforms(sequence.request.params, sequence.index)
        self._live += admitted
        return admitted

    def _prefill(self, admitted: list[_Sequence]) -> Tensor:
        """Run each prompt once; logits `[n, V]` for the first token of every admitted sequence."""
        rows: dict[int, list[int]] = {}
        for row, sequence in enumerate(admitted, start=len(self._live) - len(admitted)):
            rows.setdefault(id(sequence.request), []).append(row)
        requests = list({id(sequence.request): sequence.request for sequence in admitted}.values())
        self._slab.reserve(max(len(r.prompt_ids) + min(r.params.max_tokens, _HEADROOM) for r in requests))
        lengths = [len(request.prompt_ids) for request in requests]
        ids = torch.tensor([[i for request in requests for i in request.prompt_ids]], device=self._policy.device)
        layout = PrefillLayout(lengths, list(rows.values()), self._slab, self._policy.device)
        hidden = self._policy.hidden(ids, layout)[0]
        ends = torch.tensor(lengths, device=hidden.device).cumsum(0) - 1
        copies = torch.tensor([len(group) for group in rows.values()], device=hidden.device)
        return self._policy.logits(hidden[ends]).repeat_interleave(copies, dim=0)

    def _decode(self) -> Tensor:
        """Run the newest token of every live sequence; logits `[n, V]` for the next."""
        lengths = [sequence.cached for sequence in self._live]
        self._slab.reserve(max(lengths) + 1)
        ids = torch.tensor([[sequence.ids[-1]] for sequence in self._live], device=self._policy.device)
        hidden = self._policy.hidden(ids, DecodeLayout(lengths, self._slab, self._policy.device))
        return self._policy.logits(hidden[:, 0])

    def _draw(self, sequences: list[_Sequence], logits: Tensor) -> None:
        """Append one token to each sequence."""
        params = [sequence.request.params for sequence in sequences]
        ids, logprobs, entropies = draw(
            logits,
            torch.tensor([p.temperature for p in params], device=logits.device),
            torch.tensor([p.top_p for p in params], device=logits.device),
            torch.tensor([sequence.uniforms[len(sequence.ids)] for sequence in sequences], device=logits.device),
        )
        for sequence, token, logprob, entropy in zip(
            sequences, ids.tolist(), logprobs.tolist(), entropies.tolist(), strict=True
        ):
            sequence.ids.append(token)
            sequence.logprobs.append(logprob)
            sequence.entropies.append(entropy)

    def _retire(self) -> list[Request]:
        """Take ended sequences out of the batch; the last row moves into each gap."""
        finished = []
        for row in reversed(range(len(self._live))):
            sequence = self._live[row]
            reason = self._stop_reason(sequence)
            if reason is None:
                continue
            last = self._live.pop()
            if last is not sequence:
                self._slab.move(len(self._live), row, last.cached)
                self._live[row] = last
            if self._complete(sequence, reason).done:
                finished.append(sequence.request)
        return finished

    def _complete(self, sequence: _Sequence, reason: StopReason) -> Request:
        sequence.request.completions[sequence.index] = Completion(
            tuple(sequence.ids), tuple(sequence.logprobs), tuple(sequence.entropies), reason
        )
        return sequence.request

    def _stop_reason(self, sequence: _Sequence) -> StopReason | None:
        params = sequence.request.params
        if sequence.ids[-1] in self._eos_ids:
            return StopReason.STOP
        if params.stop and ends_with_stop(sequence.ids, params.stop, self._policy.decode):
            return StopReason.STOP
        return StopReason.LENGTH if len(sequence.ids) >= params.max_tokens else None


class LocalSampler:
    """A `Sampler` over an engine in this process."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._futures: dict[int, asyncio.Future[list[Completion]]] = {}
        self._driver: asyncio.Task[None] | None = None

    async def sample(self, prompt_ids: Sequence[int], count: int, params: SamplingParams) -> list[Completion]:
        """`count` completions of one prompt, decoded together with all other calls in flight."""
        if count == 0:
            return []
        request = self._engine.submit(prompt_ids, count, params)
        future: asyncio.Future[list[Completion]] = asyncio.get_running_loop().create_future()
        self._futures[id(request)] = future
        if self._driver is None or self._driver.done():
            self._driver = asyncio.create_task(self._drive())
        return await future

    async def _drive(self) -> None:
        """Step until nothing is left. Between steps other coroutines run: rewards of finished
        groups are scored meanwhile, and every prompt that is ready joins the next prefill."""
        try:
            while self._engine.busy:
                await asyncio.sleep(0)
                for request in self._engine.step():
                    self._settle(self._futures.pop(id(request)), request)
            self._engine.release()  # the memory is for training now
        except Exception as error:
            self._engine.abort()
            for future in self._futures.values():
                if not future.done():
                    future.set_exception(error)
            self._futures.clear()

    @staticmethod
    def _settle(future: asyncio.Future[list[Completion]], request: Request) -> None:
        if not future.done():  # its caller may have been cancelled
            future.set_result([completion for completion in request.completions if completion is not None])


def draw(logits: Tensor, temperature_N: Tensor, top_p_N: Tensor, uniform_N: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Draw one token a row by inverting the cumulative distribution at one uniform.

    Returns ids, their log-probabilities and the entropies (nats), each `[N]`, of the softmax at
    the row's temperature. Temperature 0 takes the likeliest token, and reports temperature 1.
    `top_p` narrows what is drawn, not what is reported.
    """
    greedy = temperature_N == 0
    scores = logits.to(torch.float32, copy=True).div_(torch.where(greedy, 1.0, temperature_N)[:, None])
    weights = torch.softmax(scores, dim=-1)
    top, top_id = scores.max(dim=-1)
    # log Z without another pass: the likeliest token has log p = score - log Z.
    log_total = top - weights.gather(1, top_id[:, None])[:, 0].log()
    entropy = log_total - torch.linalg.vecdot(weights, scores)
    if bool((top_p_N < 1).any()):
        weights = _nucleus(weights, top_p_N)
    ids = torch.where(greedy, top_id, invert_cdf(weights, uniform_N))
    logprobs = scores.gather(1, ids[:, None])[:, 0] - log_total
    if not bool(torch.isfinite(logprobs).all()):
        raise ModelError("the model's logits are not finite: its weights are damaged, or its type overflows")
    return ids, logprobs, entropy


def invert_cdf(weights: Tensor, uniform_N: Tensor) -> Tensor:
    """The first index `[N]` at which the running sum of weights `[N, V]` passes uniform · total.

    Sums of blocks are searched first, then the block: a running sum over a whole vocabulary
    is the slowest part of drawing. An entry of weight zero is never drawn.
    """
    count, size = weights.shape
    width = next(width for width in (256, 128, 64, 32, 1) if size % width == 0)
    blocks = weights.view(count, -1, width)
    running = blocks.sum(-1).cumsum(-1)
    marks = uniform_N[:, None].to(running.dtype) * running[:, -1:]
    block = torch.searchsorted(running, marks, right=True).clamp_(max=running.shape[1] - 1)
    marks -= torch.where(block > 0, running.gather(1, (block - 1).clamp_(min=0)), 0.0)
    inside = blocks.gather(1, block[:, :, None].expand(-1, -1, width))[:, 0].cumsum(-1)
    # Rounding may put the mark at the very end of the block: then its last weight counts.
    last = inside.argmax(-1, keepdim=True)
    found = torch.minimum(torch.searchsorted(inside, marks, right=True), last)
    return (block * width + found)[:, 0]


def _nucleus(probabilities: Tensor, top_p_N: Tensor) -> Tensor:
    """Zero all but the likeliest tokens that together hold `top_p` (Holtzman et al. 2020)."""
    ranked, order = probabilities.sort(dim=-1, descending=True)
    before = ranked.cumsum(-1) - ranked
    # A row that wants all of them loses none to a running sum that rounding took past 1.
    limit = torch.where(top_p_N < 1, top_p_N, torch.inf)[:, None]
    kept = torch.where(before < limit, ranked, 0.0)
    return torch.zeros_like(probabilities).scatter_(1, order, kept)


def ends_with_stop(ids: Sequence[int], stop: Sequence[str], decode: Callable[[Sequence[int]], str]) -> bool:
    """Whether the newest token completed one of the stop strings.

    Only the tail is decoded: a token has at least one byte, so as many tokens as the longest
    stop string has bytes cover it, and a few more make up for a character that is cut.
    """
    tail = max(len(text.encode()) for text in stop) + 4
    text = decode(ids[-tail:])
    return any(string in text for string in stop)


def _uniforms(params: SamplingParams, index: int) -> list[float]:
    generator = torch.Generator().manual_seed(derive_seed(params.seed, index))
    return torch.rand(params.max_tokens, generator=generator).tolist()
