"""From scored groups to packed tensors: each prompt once, its completions behind it.

Groups are split into micro-batches by a budget of tokens. A group that does not fit is
split between its completions, its prompt repeated. How the split falls changes memory and
speed, never the gradient: the loss divides by totals of the whole step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from strop.policy.attention import PackedLayout
from strop.types import Rollout


@dataclass(frozen=True)
class Sample:
    """Completions of one prompt, each with its advantage."""

    prompt_ids: tuple[int, ...]
    rollouts: tuple[Rollout, ...]
    advantages_G: tuple[float, ...]

    @property
    def tokens(self) -> int:
        """Tokens that go through the model, at most."""
        return len(self.prompt_ids) + sum(len(rollout.token_ids_T) for rollout in self.rollouts)


@dataclass(frozen=True)
class MicroBatch:
    """One forward pass. `S` counts sampled tokens of distinct completions, `C` all completions,
    `U` the distinct ones, `L` the tokens of the longest."""

    ids_T: Tensor
    layout: PackedLayout
    sources_S: Tensor
    """Position in the flat row whose hidden state predicts the sampled token."""
    targets_S: Tensor
    """The sampled token."""
    places_S: Tensor
    """Where the token stands in a flattened `[U, L]`."""
    rows_C: Tensor
    """Which distinct completion each completion is."""
    mask_CL: Tensor
    """True for sampled tokens."""
    sampler_logprobs_CL: Tensor
    advantages_C: Tensor

    def padded(self, values_S: Tensor) -> Tensor:
        """Values of the sampled tokens as `[C, L]`, zero elsewhere; keeps the gradient."""
        length = self.mask_CL.shape[1]
        distinct = int(self.rows_C.max()) + 1
        flat = values_S.new_zeros(distinct * length).scatter(0, self.places_S, values_S)
        return flat.view(distinct, length)[self.rows_C]


def split(samples: Iterable[Sample], budget: int) -> Iterator[list[Sample]]:
    """Group samples so that each list holds at most `budget` tokens, or a single completion."""
    batch: list[Sample] = []
    room = budget
    for sample in samples:
        for part in _parts(sample, budget):
            if batch and part.tokens > room:
                yield batch
                batch, room = [], budget
            batch.append(part)
            room -= part.tokens
    if batch:
        yield batch


def _parts(sample: Sample, budget: int) -> Iterator[Sample]:
    """The sample whole where it fits, else in runs of completions that do."""
    start, used = 0, len(sample.prompt_ids)
    for end, rollout in enumerate(sample.rollouts):
        length = len(rollout.token_ids_T)
        if end > start and used + length > budget:
            yield _part(sample, start, end)
            start, used = end, len(sample.prompt_ids)
        used += length
    yield _part(sample, start, len(sample.rollouts))


def _part(sample: Sample, start: int, end: int) -> Sample:
    return Sample(sample.prompt_ids, sample.rollouts[start:end], sample.advantages_G[start:end])


def pack(samples: Sequence[Sample], device: torch.device) -> MicroBatch:
    """Lay the samples out for one forward pass.

    Equal completions of a prompt go through the model once: their log-probabilities are the
    same, and their gradients add up. The last token of a completion predicts nothing and is
    left out of the forward; the first is predicted by the last token of the prompt.
    """
    distinct, rows = _distinct(samples)
    prompt_lengths = [len(sample.prompt_ids) for sample in samples]
    rollouts = [rollout for sample in samples for rollout in sample.rollouts]
    longest = max(len(rollout.token_ids_T) for rollout in rollouts)
    prompt_ends = torch.tensor(prompt_lengths).cumsum(0) - 1
    sources, targets, places = [], [], []
    start = sum(prompt_lengths)
    for row, (owner, rollout) in enumerate(distinct):
        sampled = torch.tensor(rollout.sampled_mask_T).nonzero()[:, 0]
        sources.append(torch.where(sampled == 0, prompt_ends[owner], start + sampled - 1))
        targets.append(torch.tensor(rollout.token_ids_T)[sampled])
        places.append(row * longest + sampled)
        start += len(rollout.token_ids_T) - 1
    inputs = [rollout.token_ids_T[:-1] for _, rollout in distinct]
    ids = [i for sample in samples for i in sample.prompt_ids] + [i for completion in inputs for i in completion]
    owners = [owner for owner, _ in distinct]
    advantages = [advantage for sample in samples for advantage in sample.advantages_G]
    return MicroBatch(
        ids_T=torch.tensor(ids, device=device),
        layout=PackedLayout(prompt_lengths, [len(completion) for completion in inputs], owners, device),
        sources_S=torch.cat(sources).to(device),
        targets_S=torch.cat(targets).to(device),
        places_S=torch.cat(places).to(device),
        rows_C=torch.tensor(rows, device=device),
        mask_CL=_padded_rows([rollout.sampled_mask_T for rollout in rollouts], longest, torch.bool).to(device),
        sampler_logprobs_CL=_padded_rows([rollout.sampler_logprobs_T for rollout in rollouts], longest).to(device),
        advantages_C=torch.tensor(advantages, dtype=torch.float32, device=device),
    )


def _distinct(samples: Sequence[Sample]) -> tuple[list[tuple[int, Rollout]], list[int]]:
    """The distinct completions with the number of their prompt, and which one each rollout is."""
    places: dict[tuple[object, ...], int] = {}
    distinct: list[tuple[int, Rollout]] = []
    rows: list[int] = []
    for owner, sample in enumerate(samples):
        for rollout in sample.rollouts:
            key = owner, rollout.token_ids_T, rollout.sampled_mask_T
            if key not in places:
                places[key] = len(distinct)
                distinct.append((owner, rollout))
            rows.append(places[key])
    return distinct, rows


def _padded_rows(rows: Sequence[Sequence[float]], width: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Rows of different length as `[len(rows), width]`, zero on the right."""
    padded = torch.zeros(len(rows), width, dtype=dtype)
    for index, row in enumerate(rows):
        padded[index, : len(row)] = torch.tensor(row, dtype=dtype)
    return padded
