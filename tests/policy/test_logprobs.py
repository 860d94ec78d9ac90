"""Log-probabilities in chunks, against log_softmax over all logits at once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from models import TinyModels, packed_logprobs, plain_logprobs, random_ids, sample
from strop.policy.logprobs import score_sequence, token_logprobs

# 64 MiB of fp32 logits a chunk: with this vocabulary 160 positions, so 400 make three chunks.
LARGE = 104_857


def case(
    count: int, vocabulary: int, width: int = 8, dtype: torch.dtype = torch.float32
) -> tuple[Tensor, Tensor, Tensor]:
    """Hidden states, head and targets; the last target is the last word, the first is word 0."""
    generator = torch.Generator().manual_seed(1)
    hidden = torch.randn(count, width, generator=generator).to(dtype)
    head = torch.randn(vocabulary, width, generator=generator).to(dtype)
    targets = torch.randint(vocabulary, (count,), generator=generator)
    targets[0], targets[-1] = 0, vocabulary - 1
    return hidden, head, targets


def plain(hidden: Tensor, head: Tensor, targets: Tensor, temperature: float) -> Tensor:
    """log softmax(h Wᵀ / T) at the targets."""
    return torch.log_softmax(hidden @ head.T / temperature, dim=-1).gather(1, targets[:, None])[:, 0]


def gradients(run: Any, hidden: Tensor, head: Tensor, targets: Tensor, temperature: float, wanted: str) -> list[Tensor]:
    """Gradients of hidden states, head or both for a fixed slope over the targets."""
    hidden = hidden.clone().requires_grad_("hidden" in wanted)
    head = head.clone().requires_grad_("head" in wanted)
    slope = torch.randn(len(targets), generator=torch.Generator().manual_seed(2))
    run(hidden, head, targets, temperature).backward(slope)
    found = [tensor.grad for tensor in (hidden, head) if tensor.requires_grad]
    assert all(gradient is not None for gradient in found)
    return [gradient for gradient in found if gradient is not None]


@settings(deadline=None, max_examples=30)
@given(count=st.integers(1, 40), vocabulary=st.integers(1, 300), temperature=st.floats(0.1, 3.0))
def test_values_are_those_of_log_softmax(count: int, vocabulary: int, temperature: float) -> None:
    hidden, head, targets = case(count, vocabulary)
    found = token_logprobs(hidden, head, targets, temperature)
    torch.testing.assert_close(found, plain(hidden, head, targets, temperature), atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("temperature", [1.0, 0.6, 1.7])
@pytest.mark.parametrize("wanted", ["hidden", "head", "hidden and head"])
def test_gradients_are_those_of_autograd(wanted: str, temperature: float) -> None:
    arguments = (*case(23, 97), temperature)
    found = gradients(token_logprobs, *arguments, wanted)
    for ours, expected in zip(found, gradients(plain, *arguments, wanted), strict=True):
        torch.testing.assert_close(ours, expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("wanted", ["hidden", "hidden and head"])
@pytest.mark.parametrize("count", [159, 400])
def test_a_large_vocabulary_is_done_in_chunks(count: int, wanted: str) -> None:
    arguments = (*case(count, LARGE, width=4), 0.8)
    torch.testing.assert_close(token_logprobs(*arguments), plain(*arguments), atol=1e-4, rtol=1e-5)
    found = gradients(token_logprobs, *arguments, wanted)
    for ours, expected in zip(found, gradients(plain, *arguments, wanted), strict=True):
        torch.testing.assert_close(ours, expected, atol=2e-5, rtol=1e-3)


def test_probabilities_over_the_budget_are_computed_again() -> None:
    count = 512 * 2**20 // (4 * LARGE) + 1  # one position more than is kept
    arguments = (*case(count, LARGE, width=2), 1.0)
    hidden, head, targets, temperature = arguments
    output = token_logprobs(hidden, head.clone().requires_grad_(), targets, temperature)
    assert output.grad_fn.kept is None  # type: ignore[union-attr]
    del output
    found = gradients(token_logprobs, *arguments, "hidden and head")
    # In blocks, since all logits at once would need gigabytes.
    expected_hidden, expected_head = [], torch.zeros_like(head)
    slope = torch.randn(count, generator=torch.Generator().manual_seed(2))
    for start in range(0, count, 320):
        rows = slice(start, start + 320)
        states, matrix = hidden[rows].clone().requires_grad_(), head.clone().requires_grad_()
        plain(states, matrix, targets[rows], temperature).backward(slope[rows])
        assert states.grad is not None and matrix.grad is not None
        expected_hidden.append(states.grad)
        expected_head += matrix.grad
    torch.testing.assert_close(found[0], torch.cat(expected_hidden), atol=2e-5, rtol=1e-3)
    torch.testing.assert_close(found[1], expected_head, atol=2e-4, rtol=1e-3)


def test_probabilities_within_the_budget_are_kept() -> None:
    hidden, head, targets = case(5, 50)
    output = token_logprobs(hidden, head.requires_grad_(), targets, 1.0)
    (kept,) = output.grad_fn.kept  # type: ignore[union-attr]
    torch.testing.assert_close(kept, torch.softmax(hidden @ head.detach().T, dim=-1))


@pytest.mark.parametrize("wanted", ["hidden", "hidden and head"])
def test_bf16_states_and_head_give_fp32_values_without_rounding_the_logits(wanted: str) -> None:
    hidden, head, targets = case(64, 500, width=64, dtype=torch.bfloat16)
    exact = hidden.double(), head.double(), targets, 0.9
    found = token_logprobs(hidden, head, targets, 0.9)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), plain(*exact), atol=1e-4, rtol=1e-5)
    ours = gradients(token_logprobs, hidden, head, targets, 0.9, wanted)
    for gradient, expected in zip(ours, gradients(plain, *exact, wanted), strict=True):
        assert gradient.dtype == torch.bfloat16
        assert float((gradient.double() - expected).norm() / expected.norm()) < 0.02


def test_inputs_are_left_as_they_are() -> None:
    hidden, head, targets = case(9, 40)
    before = hidden.clone(), head.clone(), targets.clone()
    gradients(token_logprobs, hidden, head, targets, 0.5, "hidden and head")
    assert all(torch.equal(now, was) for now, was in zip((hidden, head, targets), before, strict=True))


def test_very_large_logits_stay_finite() -> None:
    hidden, head, targets = case(6, 30)
    found = token_logprobs(hidden * 1e4, head, targets, 0.01)
    assert torch.isfinite(found).all()
    (gradient,) = gradients(token_logprobs, hidden * 1e4, head, targets, 0.01, "hidden")
    assert torch.isfinite(gradient).all()


def test_no_tokens_give_no_logprobs() -> None:
    hidden, head, _ = case(3, 20)
    targets = torch.empty(0, dtype=torch.long)
    for wanted in ("hidden", "hidden and head"):
        assert token_logprobs(hidden[:0], head, targets, 1.0).shape == (0,)
        assert not any(gradient.any() for gradient in gradients(token_logprobs, hidden[:0], head, targets, 1.0, wanted))


def test_the_first_token_is_scored_by_the_end_of_the_prompt(tiny: TinyModels) -> None:
    prompt, completion = random_ids(5, 3), random_ids(1, 4)
    found = score_sequence(tiny.policy("llama"), prompt, completion, 1.0)
    assert found.shape == (1,)
    torch.testing.assert_close(found, plain_logprobs(tiny.plain("llama"), prompt, completion), atol=2e-5, rtol=0)


def test_tokens_of_tools_are_seen_but_not_scored(tiny: TinyModels) -> None:
    prompt, completion = random_ids(5, 5), random_ids(8, 6)
    sampled = (True, True, False, False, False, True, True, False)
    group = sample(prompt, [completion])
    group = replace(group, segments=(replace(group.segments[0], sampled_mask_T=sampled),))
    found = packed_logprobs(tiny.policy("llama"), [group])[0]
    wanted = plain_logprobs(tiny.plain("llama"), prompt, completion)
    torch.testing.assert_close(found, torch.where(torch.tensor(sampled), wanted, 0.0), atol=2e-5, rtol=0)
