"""The optimizer step: scored groups in, better weights and their metrics out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from strop.config import RunConfig
from strop.policy.logprobs import token_logprobs
from strop.policy.model import Policy, fast_dtype
from strop.policy.prepare import Reference
from strop.train.batch import MicroBatch, Sample, pack, split
from strop.train.loss import LossInputs, LossSettings, StepTotals, policy_loss
from strop.train.optimizer import MasterAdamW


@dataclass(frozen=True)
class Update:
    """What an optimizer step did."""

    metrics: dict[str, float]
    skipped: str | None = None
    """Why the weights were left alone, or None."""
    diverged: bool = False
    """Whether a loss or gradient was not finite."""


@dataclass
class _Sums:
    """Totals over the micro-batches of one pass."""

    loss: float = 0.0
    kl: float = 0.0
    clipped: int = 0
    gap: float = 0.0
    tokens: int = 0


class Learner:
    """Holds the policy's optimizer and applies one step of GRPO at a time."""

    def __init__(self, policy: Policy, reference: Reference | None, config: RunConfig) -> None:
        self._policy = policy
        self._reference = reference
        self._config = config
        low, high = config.clip_bounds
        self._loss = LossSettings(config.train.loss, low, high, config.train.kl_coefficient)
        self.optimizer = MasterAdamW(policy, fast_dtype(policy.device), config.train.weight_decay, config.seed)

    def update(self, samples: Sequence[Sample], learning_rate: float) -> Update:
        """Train on the samples. A sample without advantages costs no forward unless KL counts.

        Its tokens stay in the denominator, so that leaving it out changes nothing but time.
        """
        totals = StepTotals(
            tokens=sum(sum(segment.sampled_mask_T) for sample in samples for segment in sample.segments),
            sequences=len({number for sample in samples for number in sample.rollouts_G}),
            max_tokens=self._config.sampling.max_completion_tokens,
        )
        useful = [sample for sample in samples if self._reference is not None or any(sample.advantages_G)]
        if not useful:
            return Update({}, skipped="no group had rewards that differ, so there is nothing to learn from")
        batches = [pack(part, self._policy.device) for part in split(useful, self._config.train.micro_batch_tokens)]
        old: list[Tensor] = []
        references = [self._reference_logprobs(batch) for batch in batches]
        metrics: dict[str, float] = {}
        for iteration in range(self._config.train.iterations):
            sums = self._accumulate(batches, references, old, totals)
            if not math.isfinite(sums.loss):
                self.optimizer.discard()
                return Update(metrics, skipped=f"the loss is {sums.loss}", diverged=True)
            norm = self.optimizer.step(learning_rate, self._config.train.max_grad_norm)
            if not math.isfinite(norm):
                return Update(metrics, skipped=f"the gradient norm is {norm}", diverged=True)
            metrics = self._metrics(sums, norm, first=metrics if iteration else None)
        return Update(metrics)

    def _accumulate(
        self, batches: list[MicroBatch], references: list[Tensor | None], old: list[Tensor], totals: StepTotals
    ) -> _Sums:
        """Forward and backward over all micro-batches. The first pass fills `old`: before the
        first update the policy is the one that started the step, so nothing is computed twice."""
        sums = _Sums()
        for index, (batch, reference) in enumerate(zip(batches, references, strict=True)):
            logprobs = self._logprobs(self._policy, batch)
            if index == len(old):
                old.append(logprobs.detach())
            inputs = LossInputs(logprobs, old[index], reference, batch.mask_CL, batch.advantages_C)
            outputs = policy_loss(inputs, self._loss, totals)
            if torch.isfinite(outputs.loss):
                outputs.loss.backward()
                self.optimizer.collect()
            sums.loss += float(outputs.loss.detach())
            sums.kl += outputs.kl_sum
            sums.clipped += outputs.clipped_tokens
            sums.gap += float(((logprobs.detach() - batch.sampler_logprobs_CL).abs() * batch.mask_CL).sum())
            sums.tokens += int(batch.mask_CL.sum())
        return sums

    def _logprobs(self, policy: Policy, batch: MicroBatch) -> Tensor:
        """Log-probabilities `[C, L]` of the sampled tokens at the sampling temperature."""
        hidden = policy.hidden(batch.ids_T[None], batch.layout)[0]
        # index_select, since the backward of plain indexing adds rows up one by one.
        sources = hidden.index_select(0, batch.sources_S)
        temperature = self._config.sampling.temperature
        return batch.padded(token_logprobs(sources, policy.head, batch.targets_S, temperature))

    @torch.no_grad()
    def _reference_logprobs(self, batch: MicroBatch) -> Tensor | None:
        if self._reference is None:
            return None
        with self._reference.scoring() as policy:
            return self._logprobs(policy, batch)

    def _metrics(self, sums: _Sums, norm: float, first: dict[str, float] | None) -> dict[str, float]:
        """Metrics of a pass. The gap to the sampler is that of the first: later ones have moved on."""
        tokens = max(sums.tokens, 1)
        metrics = {
            "loss": sums.loss,
            "grad_norm": norm,
            "clip_ratio": sums.clipped / tokens,
            "sampler_trainer_gap": first["sampler_trainer_gap"] if first else sums.gap / tokens,
        }
        if self._reference is not None:
            metrics["kl_loss"] = sums.kl / tokens
        return metrics
