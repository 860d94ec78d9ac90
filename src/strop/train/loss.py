"""Policy losses as pure functions: `LossInputs` in, `LossOutputs` out.

A loss is a value for each token and a way to average over the step. The averages divide by
totals of the whole step, so that the sum over micro-batches, and its gradient, does not
depend on how the step is split. Tensors are padded: `[C, L]` completions by tokens, with
`mask` true exactly where the sampler drew the token.

The KL penalty is the k3 estimate (Schulman 2020, "Approximating KL divergence") times the
differentiable ratio of each token, which makes its gradient that of the true divergence
(DeepSeek-V3.2, arXiv:2512.02556). It stays a token's own ratio under GSPO too. The correction
for the sampler weighs the policy loss, not the KL penalty.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from strop.config import Loss, SamplerCorrection


@dataclass(frozen=True)
class LossInputs:
    """Log-probabilities at the sampling temperature, fp32, and what else a loss needs."""

    logprobs_CL: Tensor
    """Under the policy being trained; carries the gradient."""
    old_logprobs_CL: Tensor
    """Under the policy at the start of the step; equal to `logprobs_CL` in the first pass."""
    ref_logprobs_CL: Tensor | None
    """Under the reference; None switches the KL penalty off."""
    mask_CL: Tensor
    """True for sampled tokens, false for padding and for what tools put in between."""
    advantages_C: Tensor
    sampler_logprobs_CL: Tensor
    """Under the sampler that drew the tokens; NaN where it did not tell."""
    lengths_C: Tensor | None = None
    """Sampled tokens of the whole rollout that each completion is a segment of; None where each is all of it."""

    @property
    def rollout_lengths_C(self) -> Tensor:
        """Sampled tokens of each completion's rollout, at least 1."""
        lengths_C = self.mask_CL.sum(-1) if self.lengths_C is None else self.lengths_C
        return lengths_C.clamp(min=1)


@dataclass(frozen=True)
class StepTotals:
    """Denominators, taken over the whole step and not over one micro-batch."""

    tokens: int
    """Sampled tokens of all scored completions."""
    sequences: int
    """Scored rollouts."""
    max_tokens: int
    """Limit on the tokens of a completion."""


@dataclass(frozen=True)
class LossSettings:
    """Which loss, and its constants."""

    name: Loss
    clip_low: float
    """The ratio counts down to 1 - clip_low."""
    clip_high: float
    """The ratio counts up to 1 + clip_high."""
    kl_coefficient: float
    correction: SamplerCorrection = "none"
    """What to do about tokens that the sampler drew from another distribution than the policy's."""
    correction_bound: float = 2.0
    """The largest weight of a token."""


@dataclass(frozen=True)
class LossOutputs:
    """This micro-batch's share of the step."""

    loss: Tensor
    """Scalar with gradient; the step's loss is the sum over its micro-batches."""
    kl_sum: float
    """Sum over tokens of the k3 divergence from the reference, in nats."""
    clipped_tokens: int
    """Tokens whose gradient the clip cut off."""
    corrected_tokens: int = 0
    """Tokens whose weight was truncated or set to zero by the correction for the sampler."""
    weight_sum: float = 0.0
    """Sum over tokens of the weights of that correction."""


def policy_loss(inputs: LossInputs, settings: LossSettings, totals: StepTotals) -> LossOutputs:
    """The loss named in the settings, with the KL penalty added where there is a reference."""
    token_loss, average = LOSSES[settings.name]
    # Padding first becomes zero, and only then goes through exp: infinity times zero is NaN.
    log_ratio = torch.where(inputs.mask_CL, inputs.logprobs_CL - inputs.old_logprobs_CL, 0.0)
    values = token_loss(inputs, log_ratio, settings)
    weights, corrected = _sampler_weights(inputs, settings)
    if weights is not None:
        values = values * weights
    kl_sum = 0.0
    if inputs.ref_logprobs_CL is not None:
        divergence = k3(torch.where(inputs.mask_CL, inputs.ref_logprobs_CL - inputs.logprobs_CL, 0.0))
        kl_sum = float(divergence.detach().sum())
        values = values + settings.kl_coefficient * divergence * log_ratio.exp()
    loss = average(torch.where(inputs.mask_CL, values, 0.0), inputs.rollout_lengths_C, totals)
    weight_sum = 0.0 if weights is None else float((weights * inputs.mask_CL).sum())
    return LossOutputs(loss, kl_sum, _count_clipped(inputs, log_ratio.detach(), settings), corrected, weight_sum)


def k3(log_ratio: Tensor) -> Tensor:
    """exp(x) - x - 1 for x = log(reference / policy): never negative, zero where they agree."""
    return torch.expm1(log_ratio) - log_ratio


def sampler_log_ratio(inputs: LossInputs) -> Tensor:
    """[C, L] log of policy over sampler at the start of the step; zero where it is unknown or masked."""
    known = inputs.mask_CL & ~inputs.sampler_logprobs_CL.isnan()
    return torch.where(known, inputs.old_logprobs_CL - inputs.sampler_logprobs_CL, 0.0)


def truncated(ratio_CL: Tensor, bound: float) -> Tensor:
    """min(ratio, bound): truncated importance sampling (Yao et al. 2025, "Your efficient RL framework
    secretly brings you off-policy RL training")."""
    return ratio_CL.clamp(max=bound)


def dropped(ratio_CL: Tensor, bound: float) -> Tensor:
    """The ratio up to the bound, zero above it: the token has no part in the policy's gradient."""
    return torch.where(ratio_CL > bound, 0.0, ratio_CL)


CORRECTIONS: Mapping[SamplerCorrection, Callable[[Tensor, float], Tensor]] = {"truncate": truncated, "mask": dropped}


def _sampler_weights(inputs: LossInputs, settings: LossSettings) -> tuple[Tensor | None, int]:
    """The weight `[C, L]` of each token, without gradient, and how many tokens the bound changed."""
    if settings.correction == "none":
        return None, 0
    ratio = sampler_log_ratio(inputs).exp()
    weights = CORRECTIONS[settings.correction](ratio, settings.correction_bound)
    return weights.detach(), int(((ratio > settings.correction_bound) & inputs.mask_CL).sum())


TokenLoss = Callable[[LossInputs, Tensor, LossSettings], Tensor]
Average = Callable[[Tensor, Tensor, StepTotals], Tensor]


def clipped(inputs: LossInputs, log_ratio_CL: Tensor, settings: LossSettings) -> Tensor:
    """-min(ratio · A, clip(ratio) · A) for each token: PPO (Schulman et al. 2017, arXiv:1707.06347)."""
    ratio = log_ratio_CL.exp()
    bounded = ratio.clamp(1 - settings.clip_low, 1 + settings.clip_high)
    advantages = inputs.advantages_C[:, None]
    return -torch.minimum(ratio * advantages, bounded * advantages)


def sequence_clipped(inputs: LossInputs, log_ratio_CL: Tensor, settings: LossSettings) -> Tensor:
    """As `clipped`, with one ratio for the sequence (a segment), the geometric mean of its tokens' ratios:
    GSPO (Zheng et al. 2025, arXiv:2507.18071)."""
    return clipped(inputs, _sequence_mean(log_ratio_CL, inputs.mask_CL), settings)


def weighted(inputs: LossInputs, log_ratio_CL: Tensor, settings: LossSettings) -> Tensor:
    """-stop_gradient(min(ratio, bound)) · A · log p: every token keeps a gradient:
    CISPO (MiniMax 2025, arXiv:2506.13585)."""
    weight = log_ratio_CL.detach().exp().clamp(1 - settings.clip_low, 1 + settings.clip_high)
    return -weight * inputs.advantages_C[:, None] * inputs.logprobs_CL


def by_token(values_CL: Tensor, lengths_C: Tensor, totals: StepTotals) -> Tensor:
    """Every token of the step weighs the same: DAPO (Yu et al. 2025, arXiv:2503.14476)."""
    return values_CL.sum() / max(totals.tokens, 1)


def by_sequence(values_CL: Tensor, lengths_C: Tensor, totals: StepTotals) -> Tensor:
    """Every rollout weighs the same, over all of its segments: GRPO (Shao et al. 2024, arXiv:2402.03300)."""
    return (values_CL.sum(-1) / lengths_C).sum() / max(totals.sequences, 1)


def by_limit(values_CL: Tensor, lengths_C: Tensor, totals: StepTotals) -> Tensor:
    """A constant for all lengths, the limit: Dr. GRPO (Liu et al. 2025, arXiv:2503.20783)."""
    return values_CL.sum() / max(totals.sequences * totals.max_tokens, 1)


# BNPO averages over the tokens of one device's batch; on one device that is all of the step.
LOSSES: Mapping[Loss, tuple[TokenLoss, Average]] = {
    "dapo": (clipped, by_token),
    "grpo": (clipped, by_sequence),
    "dr_grpo": (clipped, by_limit),
    "bnpo": (clipped, by_token),
    "cispo": (weighted, by_token),
    "gspo": (sequence_clipped, by_sequence),
}


def _sequence_mean(values_CL: Tensor, mask_CL: Tensor) -> Tensor:
    """[C, 1] mean over the masked-in tokens of each row, 0 for an empty one."""
    return values_CL.sum(-1, keepdim=True) / mask_CL.sum(-1, keepdim=True).clamp(min=1)


def _count_clipped(inputs: LossInputs, log_ratio_CL: Tensor, settings: LossSettings) -> int:
    """Tokens beyond the bound that works against their advantage."""
    ratio = (_sequence_mean(log_ratio_CL, inputs.mask_CL) if settings.name == "gspo" else log_ratio_CL).exp()
    advantages = inputs.advantages_C[:, None]
    low = (ratio < 1 - settings.clip_low) & (advantages < 0)
    high = (ratio > 1 + settings.clip_high) & (advantages > 0)
    return int(((low | high) & inputs.mask_CL).sum())
