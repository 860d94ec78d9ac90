"""Packing and splitting: every completion exactly once, each prompt in front of its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from train_cases import failed_group, rollout, row, sample, sample_of, segment

from fake_completers import turn
from models import tiny_policy
from strop.policy.logprobs import score_sequence, token_logprobs
from strop.policy.model import Policy
from strop.train.batch import MicroBatch, Sample, pack, samples_of, split
from strop.types import Group

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Policy:
    return tiny_policy("llama", tmp_path_factory.mktemp("model"))


def logprobs(policy: Policy, batch: MicroBatch) -> Tensor:
    hidden = policy.hidden(batch.ids_T[None], batch.layout)[0]
    return batch.padded(token_logprobs(hidden[batch.sources_S], policy.head, batch.targets_S, 0.8))


def completions(batches: Sequence[Sequence[Sample]]) -> list[tuple[tuple[int, ...], tuple[int, ...], float]]:
    return [
        (part.prompt_ids, segment.token_ids_T, advantage)
        for batch in batches
        for part in batch
        for segment, advantage in zip(part.segments, part.advantages_G, strict=True)
    ]


samples = st.lists(
    st.builds(
        lambda prompt, lengths: sample(
            [7] * prompt, [[number + 9] * length for number, length in enumerate(lengths)], range(len(lengths))
        ),
        st.integers(1, 20),
        st.lists(st.integers(1, 20), min_size=1, max_size=8),
    ),
    min_size=1,
    max_size=5,
)


@given(samples=samples, budget=st.integers(1, 200))
def test_a_split_keeps_every_completion_with_its_prompt_and_advantage(samples: list[Sample], budget: int) -> None:
    assert completions(list(split(samples, budget))) == completions([samples])


@given(samples=samples, budget=st.integers(1, 200))
def test_a_part_is_over_budget_only_where_a_single_completion_is(samples: list[Sample], budget: int) -> None:
    for batch in split(samples, budget):
        single = len(batch) == 1 and len(batch[0].segments) == 1
        assert single or sum(part.tokens for part in batch) <= budget


def test_a_budget_for_everything_gives_one_forward() -> None:
    groups = [sample([1, 2], [[5], [6, 7]], [1.0, -1.0]), sample([3], [[8, 9]], [0.5])]
    assert list(split(groups, sum(group.tokens for group in groups))) == [groups]


def test_a_group_over_the_budget_is_split_and_its_prompt_repeated() -> None:
    group = sample([1, 2, 3], [[5, 5], [6, 6], [7, 7]], [1.0, 2.0, 3.0])
    first, second = split([group], 7)
    assert [(part.prompt_ids, part.advantages_G, part.rollouts_G) for part in first] == [
        ((1, 2, 3), (1.0, 2.0), group.rollouts_G[:2])
    ]
    assert [(part.prompt_ids, part.segments[0].token_ids_T) for part in second] == [((1, 2, 3), (7, 7))]


def test_a_packed_row_holds_prompts_first_and_no_last_tokens() -> None:
    batch = pack([sample([1, 2], [[5], [6, 7]], [1.0, -1.0]), sample([3], [[8, 9, 4]], [0.5])], CPU)
    assert batch.ids_T.tolist() == [1, 2, 3, 6, 8, 9]
    assert batch.layout.positions.tolist() == [[0, 1, 0, 2, 1, 2]]
    # Where each sampled token is predicted: the first by the end of its prompt.
    assert batch.sources_S.tolist() == [1, 1, 3, 2, 4, 5]
    assert batch.targets_S.tolist() == [5, 6, 7, 8, 9, 4]
    assert batch.mask_CL.tolist() == [[True, False, False], [True, True, False], [True, True, True]]
    assert batch.advantages_C.tolist() == [1.0, -1.0, 0.5]


def test_packed_log_probabilities_are_those_of_each_sequence_alone(policy: Policy) -> None:
    groups = [
        sample([10, 11, 12], [[20, 21, 22, 23], [30], [20, 22]], [1.0, 0.0, -1.0]),
        sample([13], [[20, 21], [40, 41, 42, 43, 44]], [1.0, -1.0]),
    ]
    with torch.no_grad():
        found = logprobs(policy, pack(groups, CPU))
    rows = iter(found)
    for group in groups:
        for each in group.segments:
            row = next(rows)
            alone = score_sequence(policy, group.prompt_ids, each.token_ids_T, 0.8)
            torch.testing.assert_close(row[: len(alone)], alone, rtol=1e-5, atol=1e-5)
            assert bool((row[len(alone) :] == 0).all())


def test_tokens_that_were_not_sampled_are_read_and_not_scored(policy: Policy) -> None:
    ids, mask = (20, 21, 22, 23, 24), (True, False, False, True, True)
    batch = pack([sample_of((10, 11), (segment(ids, mask),), (1.0,))], CPU)
    assert batch.mask_CL.tolist() == [list(mask)]
    assert batch.targets_S.tolist() == [20, 23, 24]
    with torch.no_grad():
        (found,) = logprobs(policy, batch)
    alone = score_sequence(policy, (10, 11), ids, 0.8)
    torch.testing.assert_close(found, torch.where(torch.tensor(mask), alone, 0.0), rtol=1e-5, atol=1e-5)


def test_a_completion_may_end_with_tokens_that_were_not_sampled(policy: Policy) -> None:
    ids, mask = (20, 21, 22), (True, True, False)
    batch = pack([sample_of((10, 11), (segment(ids, mask), segment((25,))), (1.0, 1.0))], CPU)
    with torch.no_grad():
        found = logprobs(policy, batch)
    torch.testing.assert_close(found[0, :2], score_sequence(policy, (10, 11), ids[:2], 0.8), rtol=1e-5, atol=1e-5)
    assert batch.mask_CL.tolist() == [[True, True, False], [True, False, False]]


def test_equal_completions_of_a_prompt_go_through_the_model_once(policy: Policy) -> None:
    batch = pack([sample([10, 11], [[20, 21, 22], [30], [20, 21, 22]], [1.0, 2.0, 3.0])], CPU)
    assert batch.ids_T.tolist() == [10, 11, 20, 21]
    assert batch.rows_C.tolist() == [0, 1, 0]
    with torch.no_grad():
        found = logprobs(policy, batch)
    assert torch.equal(found[0], found[2])
    assert batch.advantages_C.tolist() == [1.0, 2.0, 3.0]


def test_equal_ids_under_different_prompts_or_masks_are_kept_apart() -> None:
    differently_masked = sample_of((10,), (segment((20, 21)), segment((20, 21), (True, False))), (1.0, 1.0))
    batch = pack([differently_masked, sample([11], [[20, 21]], [1.0])], CPU)
    assert batch.rows_C.tolist() == [0, 1, 2]


def test_sampler_log_probabilities_stay_with_their_completions() -> None:
    segments = (segment((20, 21), logprobs=(-0.5, -0.25)), segment((30,), logprobs=(-2.0,)))
    batch = pack([sample_of((10,), segments, (1.0, -1.0))], CPU)
    assert batch.sampler_logprobs_CL.tolist() == [[-0.5, -0.25], [-2.0, 0.0]]


def test_padding_keeps_the_gradient_and_adds_up_that_of_equal_completions() -> None:
    batch = pack([sample([10], [[20, 21], [20, 21], [30]], [1.0, 1.0, 1.0])], CPU)
    values = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    padded = batch.padded(values)
    assert padded.tolist() == [[1.0, 2.0], [1.0, 2.0], [3.0, 0.0]]
    (padded * torch.tensor([[1.0, 10.0], [100.0, 1000.0], [5.0, 7.0]])).sum().backward()
    assert values.grad is not None
    assert values.grad.tolist() == [101.0, 1010.0, 5.0]


def test_segments_are_gathered_by_their_prompts_with_their_rollouts_advantage() -> None:
    forked = dataclasses.replace(
        rollout([]), turns=(turn("a", (7, 8), (1, 2, 3)), turn("b", (9,), (1, 5), new_segment=True))
    )
    groups = [
        Group(row(1), (rollout([20, 21], reward=1.0), forked)),
        failed_group(number=2),
        Group(row(3), (rollout([30], reward=0.0),)),
    ]
    first, second, third = samples_of(groups, [[0.5, -0.5], [], [0.25]])
    assert [(s.prompt_ids, [segment.token_ids_T for segment in s.segments]) for s in (first, second, third)] == [
        ((1, 2, 3), [(20, 21), (7, 8)]),
        ((1, 5), [(9,)]),
        ((1, 2, 3), [(30,)]),
    ]
    assert [s.advantages_G for s in (first, second, third)] == [(0.5, -0.5), (-0.5,), (0.25,)]
    assert [s.rollouts_G for s in (first, second, third)] == [(0, 1), (1,), (2,)]
    assert [s.lengths_G for s in (first, second, third)] == [(2, 3), (3,), (1,)]
