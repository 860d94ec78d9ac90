"""GRPO and its relatives: the learner that trains the policy of this process."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from strop.config import RunConfig
from strop.policy.checkpoint import LEARNER_STATE, TRAINER_STATE, load_state, save_state, save_weights
from strop.policy.logprobs import token_logprobs
from strop.policy.model import Policy, fast_dtype
from strop.policy.prepare import Reference
from strop.train.batch import MicroBatch, Sample, pack, split
from strop.train.learner import Update
from strop.train.loss import LossInputs, LossSettings, StepTotals, policy_loss, sampler_log_ratio
from strop.train.optimizer import MasterAdamW


@dataclass
class _Known:
    """What the passes over a micro-batch have in common: log-probabilities that do not change."""

    batch: MicroBatch
    old: Tensor | None = None
    reference: Tensor | None = None


@dataclass
class _Sums:
    """Totals over the micro-batches of one pass."""

    loss: float = 0.0
    kl: float = 0.0
    clipped: int = 0
    gap: float = 0.0
    tokens: int = 0
    corrected: int = 0
    weight: float = 0.0


class GrpoLearner:
    """Trains the policy of this process with GRPO and its relatives. The sampler shares its weights."""

    def __init__(self, policy: Policy, reference: Reference | None, config: RunConfig) -> None:
        self._policy = policy
        self._reference = reference
        self._config = config
        self._version = 0
        low, high = config.clip_bounds
        train = config.train
        self._loss = LossSettings(
            train.loss, low, high, train.kl_coefficient, train.sampler_correction, train.sampler_correction_bound
        )
        self.optimizer = MasterAdamW(policy, fast_dtype(policy.device), train.weight_decay, config.seed)

    def update(self, samples: Sequence[Sample], learning_rate: float) -> Update:
        """Train on the samples. One without advantages costs no forward unless KL counts; a step
        without any is skipped, since KL alone would move the weights by its rounding errors.

        Tokens of samples that are left out stay in the denominator: leaving them out changes
        nothing but time.
        """
        if not any(any(sample.advantages_G) for sample in samples):
            return Update({}, skipped="no group had rewards that differ, so there is nothing to learn from")
        totals = StepTotals(
            tokens=sum(sum(segment.sampled_mask_T) for sample in samples for segment in sample.segments),
            sequences=len({number for sample in samples for number in sample.rollouts_G}),
            max_tokens=self._config.sampling.max_completion_tokens,
        )
        useful = [sample for sample in samples if self._reference is not None or any(sample.advantages_G)]
        parts = split(useful, self._config.train.micro_batch_tokens)
        before = self.optimizer.updates
        update = self._passes([_Known(pack(part, self._policy.device)) for part in parts], totals, learning_rate)
        self._version += self.optimizer.updates > before
        return update

    def save(self, folder: Path) -> None:
        """Write the weights as Hugging Face files, and the state of the optimizer."""
        save_weights(self._policy, folder, self.optimizer.weights())
        save_state(folder / LEARNER_STATE, {"optimizer": self.optimizer.state_dict(), "version": self._version})

    def restore(self, folder: Path) -> None:
        """Put back the state of the optimizer; the policy was loaded from the folder already.

        CheckpointError where the state cannot be read.
        """
        if (folder / LEARNER_STATE).exists():
            state = load_state(folder / LEARNER_STATE)
            self._version = state["version"]
        else:  # a checkpoint from before learners had a file of their own
            state = load_state(folder / TRAINER_STATE)
            self._version = state["optimizer"]["updates"]
        self.optimizer.load_state_dict(state["optimizer"])

    def publish(self) -> int:
        """Mark the policy with the version of its weights, which the sampler sees as they change."""
        self._policy.version = self._version
        return self._version

    def _passes(self, parts: list[_Known], totals: StepTotals, learning_rate: float) -> Update:
        """One optimizer update a pass over the step, until the last one or one that is not finite."""
        metrics: dict[str, float] = {}
        passes = self._config.train.iterations
        for number in range(1, passes + 1):
            sums = self._accumulate(parts, totals)
            fault = None if math.isfinite(sums.loss) else f"the loss is {sums.loss}"
            if fault:
                self.optimizer.discard()
            else:
                norm = self.optimizer.step(learning_rate, self._config.train.max_grad_norm, last=number == passes)
                fault = None if math.isfinite(norm) else f"the gradient norm is {norm}"
            if fault:
                self.optimizer.settle()
                if number == 1:
                    return Update({}, skipped=fault, diverged=True)
                reason = f"{fault} in pass {number} of {passes}"
                return Update(metrics, diverged=True, cut_short=reason)
            metrics = self._metrics(sums, norm)
        return Update(metrics)

    def _accumulate(self, parts: list[_Known], totals: StepTotals) -> _Sums:
        """Forward and backward over all micro-batches, one after the other: what a micro-batch needs
        in memory is free before the next. The first pass is that of the policy which started the
        step, so that its log-probabilities are the old ones, and nothing is computed twice."""
        sums = _Sums()
        for part in parts:
            batch = part.batch
            if part.old is None and self._reference is not None:
                part.reference = self._reference_logprobs(self._reference, batch)
            logprobs = self._logprobs(self._policy, batch)
            part.old = logprobs.detach() if part.old is None else part.old
            inputs = LossInputs(
                logprobs,
                part.old,
                part.reference,
                batch.mask_CL,
                batch.advantages_C,
                batch.sampler_logprobs_CL,
                batch.lengths_C,
            )
            outputs = policy_loss(inputs, self._loss, totals)
            if torch.isfinite(outputs.loss):
                outputs.loss.backward()
                self.optimizer.collect()
            batch.layout.release()
            sums.loss += float(outputs.loss.detach())
            sums.kl += outputs.kl_sum
            sums.clipped += outputs.clipped_tokens
            sums.gap += float(sampler_log_ratio(inputs).abs().sum())
            sums.tokens += int(batch.mask_CL.sum())
            sums.corrected += outputs.corrected_tokens
            sums.weight += outputs.weight_sum
        return sums

    def _logprobs(self, policy: Policy, batch: MicroBatch) -> Tensor:
        """Log-probabilities `[C, L]` of the sampled tokens at the sampling temperature."""
        hidden = policy.hidden(batch.ids_T[None], batch.layout)[0]
        # index_select, since the backward of plain indexing adds rows up one by one.
        sources = hidden.index_select(0, batch.sources_S)
        temperature = self._config.sampling.temperature
        return batch.padded(token_logprobs(sources, policy.head, batch.targets_S, temperature))

    @torch.no_grad()
    def _reference_logprobs(self, reference: Reference, batch: MicroBatch) -> Tensor:
        with reference.scoring() as policy:
            return self._logprobs(policy, batch)

    def _metrics(self, sums: _Sums, norm: float) -> dict[str, float]:
        """Metrics of a pass. The gap to the sampler is that of the weights which started the step."""
        tokens = max(sums.tokens, 1)
        metrics = {
            "loss": sums.loss,
            "grad_norm": norm,
            "clip_ratio": sums.clipped / tokens,
            "sampler_trainer_gap": sums.gap / tokens,
        }
        if self._loss.correction != "none":
            metrics["sampler_correction_share"] = sums.corrected / tokens
            metrics["sampler_correction_weight"] = sums.weight / tokens
        if self._reference is not None:
            metrics["kl_loss"] = sums.kl / tokens
        return metrics
