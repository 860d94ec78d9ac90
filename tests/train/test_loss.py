"""Each loss worked by hand on two completions of three and two tokens."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import get_args

import pytest
import torch
from torch import Tensor

from strop.config import CLIP_BOUNDS, Loss, SamplerCorrection
from strop.train.loss import (
    CORRECTIONS,
    LOSSES,
    LossInputs,
    LossOutputs,
    LossSettings,
    StepTotals,
    k3,
    policy_loss,
    sampler_log_ratio,
)

# The ratio of each token to the old policy, and what the clip to [0.8, 1.28] makes of it:
#   advantage  2:  1.0 -> 1.0    1.5 -> 1.28    0.5 stays, as it already works against the gain
#   advantage -1:  1.25 stays    0.7 -> 0.8
RATIOS = torch.tensor([[1.0, 1.5, 0.5], [1.25, 0.7, 1.0]])
OLD = torch.tensor([[-1.0, -2.0, -3.0], [-1.5, -0.5, 0.0]])
MASK = torch.tensor([[True, True, True], [True, True, False]])
ADVANTAGES = torch.tensor([2.0, -1.0])
TOTALS = StepTotals(tokens=5, sequences=2, max_tokens=10)
ALL: tuple[Loss, ...] = tuple(CLIP_BOUNDS)


def inputs(reference: Tensor | None = None) -> LossInputs:
    logprobs = (OLD + RATIOS.log()).requires_grad_()
    return LossInputs(logprobs, OLD, reference, MASK, ADVANTAGES, OLD)


def settings(loss: Loss, low: float = 0.2, high: float = 0.28, kl: float = 0.0) -> LossSettings:
    return LossSettings(loss, low, high, kl)


def value(loss: Loss, **bounds: float) -> float:
    return policy_loss(inputs(), settings(loss, **bounds), TOTALS).loss.item()


def gradient(case: LossInputs, chosen: LossSettings) -> Tensor:
    (grad,) = torch.autograd.grad(policy_loss(case, chosen, TOTALS).loss, case.logprobs_CL)
    return grad


def test_every_loss_of_the_configuration_exists() -> None:
    assert set(LOSSES) == set(CLIP_BOUNDS)


@pytest.mark.parametrize("loss", ["dapo", "bnpo"])
def test_dapo_and_bnpo_average_over_all_tokens(loss: Loss) -> None:
    assert value(loss) == pytest.approx(-(2 + 2.56 + 1 - 1.25 - 0.8) / 5)


def test_grpo_averages_within_each_completion_first() -> None:
    assert value("grpo") == pytest.approx(-((2 + 2.56 + 1) / 3 - (1.25 + 0.8) / 2) / 2)


def test_dr_grpo_divides_by_the_limit_of_all_completions() -> None:
    assert value("dr_grpo") == pytest.approx(-(2 + 2.56 + 1 - 1.25 - 0.8) / (2 * 10))


def test_cispo_weighs_the_log_probability_by_the_bounded_ratio() -> None:
    first = 2 * (1 * -1 + 1.28 * (-2 + math.log(1.5)) + 0.5 * (-3 + math.log(0.5)))
    second = -1 * (1.25 * (-1.5 + math.log(1.25)) + 0.7 * (-0.5 + math.log(0.7)))
    assert value("cispo", low=1.0) == pytest.approx(-(first + second) / 5)


def test_gspo_takes_the_geometric_mean_of_the_ratios() -> None:
    first = (1.0 * 1.5 * 0.5) ** (1 / 3)  # 0.909, left as it is for a gain
    second = (1.25 * 0.7) ** (1 / 2)  # 0.935, bounded to 0.95 for a loss
    assert second < 0.95
    assert value("gspo", low=0.05, high=0.05) == pytest.approx(-(2 * first - 0.95) / 2)


def test_clipped_tokens_have_no_gradient_and_the_others_that_of_the_ratio() -> None:
    expected = torch.tensor([[2 * 1.0, 0.0, 2 * 0.5], [-1.25, 0.0, 0.0]]) / -5
    torch.testing.assert_close(gradient(inputs(), settings("dapo")), expected)


def test_cispo_keeps_a_gradient_for_every_token() -> None:
    expected = torch.tensor([[2 * 1.0, 2 * 1.28, 2 * 0.5], [-1.25, -0.7, 0.0]]) / -5
    torch.testing.assert_close(gradient(inputs(), settings("cispo", low=1.0)), expected)


def test_gspo_spreads_the_gradient_evenly_over_the_tokens_of_a_completion() -> None:
    # The second completion is clipped; d mean log ratio / d token is 1/3 in the first.
    each = -(2 * 0.75 ** (1 / 3)) / 3 / 2
    expected = torch.tensor([[each, each, each], [0.0, 0.0, 0.0]])
    torch.testing.assert_close(gradient(inputs(), settings("gspo", low=0.05, high=0.05)), expected)


@pytest.mark.parametrize(
    ("loss", "low", "high", "count"),
    [("dapo", 0.2, 0.28, 2), ("dapo", 0.0, 0.0, 2), ("dapo", 0.6, 0.6, 0), ("cispo", 1.0, 0.28, 1)],
)
def test_tokens_beyond_the_bound_that_works_against_them_are_counted(
    loss: Loss, low: float, high: float, count: int
) -> None:
    assert policy_loss(inputs(), settings(loss, low, high), TOTALS).clipped_tokens == count


def test_gspo_counts_all_tokens_of_a_clipped_completion() -> None:
    assert policy_loss(inputs(), settings("gspo", 0.05, 0.05), TOTALS).clipped_tokens == 2


def test_k3_is_worked_out_by_hand() -> None:
    # exp(log 2) - log 2 - 1, exp(0) - 0 - 1, exp(-log 2) + log 2 - 1
    found = k3(torch.tensor([math.log(2), 0.0, -math.log(2)]))
    torch.testing.assert_close(found, torch.tensor([1 - math.log(2), 0.0, math.log(2) - 0.5]))


def test_k3_is_never_negative_and_keeps_small_differences() -> None:
    tiny = torch.tensor([1e-4, -1e-4, 1e-3])
    found = k3(tiny)
    assert bool((found >= 0).all())
    # To second order it is x² / 2, which exp(x) - x - 1 in fp32 would lose.
    torch.testing.assert_close(found, tiny**2 / 2, rtol=1e-2, atol=1e-10)


def test_kl_is_summed_over_sampled_tokens_and_weighted_by_the_ratio_in_the_loss() -> None:
    case = inputs()
    log_two = math.log(2)
    reference = case.logprobs_CL.detach() + torch.tensor([[log_two, 0, -log_two], [log_two, 0, 5.0]])
    outputs = policy_loss(inputs(reference), settings("dapo", kl=0.5), TOTALS)
    up, down = 1 - log_two, log_two - 0.5
    assert outputs.kl_sum == pytest.approx(2 * up + down)
    expected = value("dapo") + 0.5 * (1.0 * up + 0.5 * down + 1.25 * up) / 5
    assert outputs.loss.item() == pytest.approx(expected)


def test_the_gradient_of_the_kl_term_on_policy_is_the_log_ratio_to_the_reference() -> None:
    # d/dlogp [k3(ref - logp) · exp(logp - old)] at logp = old is logp - ref: the gradient of the
    # true divergence, which k3 alone does not have.
    logprobs = OLD.clone().requires_grad_()
    reference = OLD + torch.tensor([[0.3, -0.2, 1.0], [-2.0, 0.7, 0.0]])
    case = LossInputs(logprobs, OLD, reference, MASK, torch.zeros(2), OLD)
    expected = torch.where(MASK, OLD - reference, 0.0) * 0.1 / 5
    torch.testing.assert_close(gradient(case, settings("dapo", kl=0.1)), expected)


def test_gspo_weighs_the_kl_of_a_token_by_the_tokens_own_ratio() -> None:
    log_two = math.log(2)
    reference = inputs().logprobs_CL.detach() + torch.tensor([[log_two, 0, 0], [0, log_two, 0]])
    outputs = policy_loss(inputs(reference), settings("gspo", 0.05, 0.05, kl=1.0), TOTALS)
    up = 1 - log_two
    expected = value("gspo", low=0.05, high=0.05) + (1.0 * up / 3 + 0.7 * up / 2) / 2
    assert outputs.loss.item() == pytest.approx(expected)


@pytest.mark.parametrize("loss", ALL)
@pytest.mark.parametrize("junk", [math.nan, math.inf, -math.inf, 1e38])
def test_what_stands_in_masked_places_reaches_neither_loss_nor_gradient(loss: Loss, junk: float) -> None:
    reference = OLD - 0.1
    clean, dirty = inputs(reference), inputs(reference)
    places = ~MASK
    dirty = replace(
        dirty,
        logprobs_CL=torch.where(places, junk, clean.logprobs_CL.detach()).requires_grad_(),
        old_logprobs_CL=torch.where(places, junk, OLD),
        ref_logprobs_CL=torch.where(places, junk, reference),
    )
    chosen = settings(loss, kl=0.01)
    expected, found = (policy_loss(case, chosen, TOTALS) for case in (clean, dirty))
    assert found.loss.item() == expected.loss.item()
    assert (found.kl_sum, found.clipped_tokens) == (expected.kl_sum, expected.clipped_tokens)
    grad = gradient(dirty, chosen)
    assert torch.equal(grad, gradient(clean, chosen))
    assert bool((grad[places] == 0).all())


@pytest.mark.parametrize("loss", ALL)
def test_the_sum_over_micro_batches_is_the_whole_with_and_without_kl(loss: Loss) -> None:
    for reference in (None, OLD - 0.2):
        chosen = settings(loss, 0.1, 0.1, kl=0.01)
        whole = policy_loss(inputs(reference), chosen, TOTALS)
        halves = [policy_loss(one_row(index, reference), chosen, TOTALS) for index in (0, 1)]
        assert sum_of(halves).item() == pytest.approx(whole.loss.item())
        assert sum(half.kl_sum for half in halves) == pytest.approx(whole.kl_sum)
        assert sum(half.clipped_tokens for half in halves) == whole.clipped_tokens


def one_row(index: int, reference: Tensor | None) -> LossInputs:
    rows = slice(index, index + 1)
    case = inputs()
    return LossInputs(
        case.logprobs_CL[rows],
        OLD[rows],
        None if reference is None else reference[rows],
        MASK[rows],
        ADVANTAGES[rows],
        OLD[rows],
    )


def sum_of(outputs: list[LossOutputs]) -> Tensor:
    return torch.stack([output.loss for output in outputs]).sum()


@pytest.mark.parametrize("loss", ALL)
def test_a_completion_without_sampled_tokens_weighs_nothing(loss: Loss) -> None:
    case = replace(inputs(), mask_CL=torch.tensor([[True, True, True], [False, False, False]]))
    grad = gradient(case, settings(loss))
    assert bool(torch.isfinite(grad).all())
    assert bool((grad[1] == 0).all())


@pytest.mark.parametrize("loss", ALL)
def test_a_step_without_any_sampled_token_has_a_loss_of_zero(loss: Loss) -> None:
    case = replace(inputs(), mask_CL=torch.zeros_like(MASK))
    assert policy_loss(case, settings(loss), StepTotals(0, 0, 10)).loss.item() == 0


@pytest.mark.parametrize("loss", ALL)
def test_on_policy_the_gradient_pushes_by_the_advantage(loss: Loss) -> None:
    low, high = CLIP_BOUNDS[loss]
    logprobs = OLD.clone().requires_grad_()
    grad = gradient(LossInputs(logprobs, OLD, None, MASK, ADVANTAGES, OLD), settings(loss, low, high))
    assert bool((grad[0] < 0).all())
    assert bool((grad[1, :2] > 0).all())
    assert grad[1, 2] == 0


# The ratio of each token under the old policy to the sampler: 4 and 3 are beyond the bound of 2.
SAMPLER_RATIOS = torch.tensor([[4.0, 1.0, 0.5], [3.0, 1.5, 7.0]])


def sampled_elsewhere(reference: Tensor | None = None) -> LossInputs:
    """The case by hand, drawn by a sampler that is not the old policy."""
    return replace(inputs(reference), sampler_logprobs_CL=OLD - SAMPLER_RATIOS.log())


def corrected(correction: SamplerCorrection, loss: Loss = "dapo", kl: float = 0.0) -> LossSettings:
    return LossSettings(loss, 0.2, 0.28, kl, correction, correction_bound=2.0)


def test_every_correction_of_the_configuration_exists() -> None:
    assert {"none", *CORRECTIONS} == set(get_args(SamplerCorrection))


def test_without_a_correction_the_sampler_does_not_matter() -> None:
    plain, elsewhere = (policy_loss(case, corrected("none"), TOTALS) for case in (inputs(), sampled_elsewhere()))
    assert plain.loss.item() == elsewhere.loss.item()
    assert (elsewhere.corrected_tokens, elsewhere.weight_sum) == (0, 0.0)


def test_truncation_weighs_each_token_by_its_ratio_to_the_sampler_up_to_the_bound() -> None:
    outputs = policy_loss(sampled_elsewhere(), corrected("truncate"), TOTALS)
    assert outputs.loss.item() == pytest.approx(-(2 * 2 + 1 * 2.56 + 0.5 * 1 - 2 * 1.25 - 1.5 * 0.8) / 5)
    assert outputs.corrected_tokens == 2
    assert outputs.weight_sum == pytest.approx(2 + 1 + 0.5 + 2 + 1.5)


def test_masking_leaves_out_tokens_beyond_the_bound_but_not_from_the_denominator() -> None:
    outputs = policy_loss(sampled_elsewhere(), corrected("mask"), TOTALS)
    assert outputs.loss.item() == pytest.approx(-(1 * 2.56 + 0.5 * 1 - 1.5 * 0.8) / 5)
    assert outputs.corrected_tokens == 2
    assert outputs.weight_sum == pytest.approx(1 + 0.5 + 1.5)


def test_the_weights_of_the_correction_carry_no_gradient() -> None:
    # On policy d/dlogp of ratio · A · weight is A · weight, whatever the weight depends on.
    logprobs = OLD.clone().requires_grad_()
    sampler = logprobs.detach() - SAMPLER_RATIOS.log()
    case = LossInputs(logprobs, logprobs.detach(), None, MASK, ADVANTAGES, sampler)
    expected = torch.tensor([[2 * 2.0, 2 * 1.0, 2 * 0.5], [-2.0, -1.5, 0.0]]) / -5
    torch.testing.assert_close(gradient(case, corrected("truncate")), expected)


def test_the_correction_leaves_the_kl_penalty_alone() -> None:
    reference = OLD - 0.3
    whole = policy_loss(sampled_elsewhere(reference), corrected("mask", kl=0.5), TOTALS)
    without = policy_loss(sampled_elsewhere(reference), corrected("mask"), TOTALS)
    plain = policy_loss(inputs(reference), corrected("none", kl=0.5), TOTALS)
    bare = policy_loss(inputs(reference), corrected("none"), TOTALS)
    assert (whole.loss - without.loss).item() == pytest.approx((plain.loss - bare.loss).item(), rel=1e-5)


def test_a_token_whose_sampler_log_probability_is_unknown_keeps_a_weight_of_one() -> None:
    unknown = sampled_elsewhere()
    unknown.sampler_logprobs_CL[0, 0] = math.nan
    outputs = policy_loss(unknown, corrected("truncate"), TOTALS)
    assert outputs.loss.item() == pytest.approx(-(1 * 2 + 1 * 2.56 + 0.5 * 1 - 2 * 1.25 - 1.5 * 0.8) / 5)
    assert sampler_log_ratio(unknown)[0, 0] == 0


@pytest.mark.parametrize("loss", ALL)
@pytest.mark.parametrize("junk", [math.nan, math.inf, -math.inf, -1e38])
def test_what_the_sampler_says_of_masked_places_reaches_nothing(loss: Loss, junk: float) -> None:
    clean, dirty = sampled_elsewhere(), sampled_elsewhere()
    dirty = replace(dirty, sampler_logprobs_CL=torch.where(MASK, dirty.sampler_logprobs_CL, junk))
    for correction in CORRECTIONS:
        chosen = corrected(correction, loss)
        expected, found = (policy_loss(case, chosen, TOTALS) for case in (clean, dirty))
        assert found.loss.item() == expected.loss.item()
        assert (found.corrected_tokens, found.weight_sum) == (expected.corrected_tokens, expected.weight_sum)


@pytest.mark.parametrize("loss", ["grpo", "dapo", "dr_grpo"])
def test_the_segments_of_a_rollout_count_as_the_one_sequence_that_they_would_be(loss: Loss) -> None:
    # Four tokens of one rollout, in one row or, where a template rewrote history, in two.
    old = torch.tensor([-1.0, -2.0, -1.5, -0.5])
    now = old + torch.tensor([1.0, 1.1, 0.9, 1.2]).log()
    totals = StepTotals(tokens=4, sequences=1, max_tokens=10)

    def of(rows: int) -> float:
        shape, advantages = (rows, 4 // rows), torch.full((rows,), 2.0)
        case = LossInputs(
            now.view(shape),
            old.view(shape),
            None,
            torch.ones(shape, dtype=torch.bool),
            advantages,
            old.view(shape),
            torch.full((rows,), 4),
        )
        return policy_loss(case, settings(loss), totals).loss.item()

    assert of(2) == pytest.approx(of(1), rel=1e-6)
