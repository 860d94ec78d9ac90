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
from strop.types import Group, Segment


@dataclass(frozen=True)
class Sample:
    """Completions of one prompt, each with its advantage."""

    prompt_ids: tuple[int, ...]
    segments: tuple[Segment, ...]
    """All with this prompt; a rollout has one or more."""
    advantages_G: tuple[float, ...]
    rollouts_G: tuple[int, ...]
    """Number, within the step, of the rollout that each segment belongs to."""
    lengths_G: tuple[int, ...]
    """Sampled tokens of that whole rollout, all its segments together."""

    @property
    def tokens(self) -> int:
        """Tokens that go through the model, at most."""
        return len(self.prompt_ids) + sum(len(segment.token_ids_T) for segment in self.segments)


def samples_of(groups: Sequence[Group], advantages: Sequence[Sequence[float]]) -> list[Sample]:
    """What to train on: the segments of all scored groups, gathered by their prompts.

    Advantages belong to rollouts: every segment of one carries the same.
    """
    samples = []
    number = 0
    for group, advantages_G in zip(groups, advantages, strict=True):
        if group.failure is not None:
            continue
        gathered: dict[tuple[int, ...], list[tuple[Segment, float, int, int]]] = {}
        for rollout, advantage in zip(group.rollouts, advantages_G, strict=True):
            for segment in rollout.segments:
                entry = (segment, advantage, number, rollout.length)
                gathered.setdefault(segment.prompt_ids_T, []).append(entry)
            number += 1
        for prompt_ids, entries in gathered.items():
            segments, values, numbers, lengths = zip(*entries, strict=True)
            samples.append(Sample(prompt_ids, segments, values, numbers, lengths))
    return samples


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
    lengths_C: Tensor
    """Sampled tokens of the whole rollout that each completion belongs to."""

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
    for end, segment in enumerate(sample.segments):
        length = len(segment.token_ids_T)
        if end > start and used + length > budget:
            yield _part(sample, start, end)
            start, used = end, len(sample.prompt_ids)
        used += length
    yield _part(sample, start, len(sample.segments))


def _part(sample: Sample, start: int, end: int) -> Sample:
    return Sample(
        sample.prompt_ids,
        sample.segments[start:end],
        sample.advantages_G[start:end],
        sample.rollouts_G[start:end],
        sample.lengths_G[start:end],
    )


def pack(samples: Sequence[Sample], device: torch.device) -> MicroBatch:
    """Lay the samples out for one forward pass.

    Equal completions of a prompt go through the model once: their log-probabilities are the
    same, and their gradients add up. The last token of a completion predicts nothing and is
    left out of the forward; the first is predicted by the last token of the prompt.
    """
    distinct, rows = _distinct(samples)
    prompt_lengths = [len(sample.prompt_ids) for sample in samples]
    segments = [segment for sample in samples for segment in sample.segments]
    longest = max(len(segment.token_ids_T) for segment in segments)
    prompt_ends = torch.tensor(prompt_lengths).cumsum(0) - 1
    sources, targets, places = [], [], []
    start = sum(prompt_lengths)
    for row, (owner, segment) in enumerate(distinct):
        sampled = torch.tensor(segment.sampled_mask_T).nonzero()[:, 0]
        sources.append(torch.where(sampled == 0, prompt_ends[owner], start + sampled - 1))
        targets.append(torch.tensor(segment.token_ids_T)[sampled])
        places.append(row * longest + sampled)
        start += len(segment.token_ids_T) - 1
    inputs = [segment.token_ids_T[:-1] for _, segment in distinct]
    ids = [i for sample in samples for i in sample.prompt_ids] + [i for completion in inputs for i in completion]
    owners = [owner for owner, _ in distinct]
    lengths = [length for sample in samples for length in sample.lengths_G]
    advantages = [advantage for sample in samples for advantage in sample.advantages_G]
    return MicroBatch(
        ids_T=torch.tensor(ids, device=device),
        layout=PackedLayout(prompt_lengths, [len(completion) for completion in inputs], owners, device),
        sources_S=torch.cat(sources).to(device),
        targets_S=torch.cat(targets).to(device),
        places_S=torch.cat(places).to(device),
        rows_C=torch.tensor(rows, device=device),
        mask_CL=_padded_rows([segment.sampled_mask_T for segment in segments], longest, torch.bool).to(device),
        sampler_logprobs_CL=_padded_rows([segment.logprobs_T for segment in segments], longest).to(device),
        advantages_C=torch.tensor(advantages, dtype=torch.float32, device=device),
        lengths_C=torch.tensor(lengths, device=device),
    )


def _distinct(samples: Sequence[Sample]) -> tuple[list[tuple[int, Segment]], list[int]]:
    """The distinct completions with the number of their prompt, and which one each segment is."""
    places: dict[tuple[object, ...], int] = {}
    distinct: list[tuple[int, Segment]] = []
    rows: list[int] = []
    for owner, sample in enumerate(samples):
        for segment in sample.segments:
            key = owner, segment.token_ids_T, segment.sampled_mask_T
            if key not in places:
                places[key] = len(distinct)
                distinct.append((owner, segment))
            rows.append(places[key])
    return distinct, rows


def _padded_rows(rows: Sequence[Sequence[float]], width: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Rows of different length as `[len(rows), width]`, zero on the right."""
    padded = torch.zeros(len(rows), width, dtype=dtype)
    for index, row in enumerate(rows):
        padded[index, : len(row)] = torch.tensor(row, dtype=dtype)
    return padded
