"""Loss and gradients equal those of TRL's GRPOTrainer on the same weights and tensors.

TRL runs unpatched: its own `_compute_loss` on left-padded prompts, one micro-batch after the
other, scaled as its training loop scales them. Strop packs each prompt once and divides by
totals of the whole step. In fp32 both must arrive at the same numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from torch import Tensor
from train_cases import sample_of, segment
from transformers import AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

from models import plain_model, save_tiny_model, tiny_policy
from strop.config import Loss, SamplerCorrection
from strop.policy.logprobs import token_logprobs
from strop.policy.model import Policy
from strop.train.batch import MicroBatch, Sample, pack
from strop.train.loss import LossInputs, LossSettings, StepTotals, policy_loss

TEMPERATURE = 0.7
MAX_TOKENS = 9
PAD = 0

# Bounds that clip on both sides in the data below. TRL's bound for CISPO is on the ratio itself.
BOUNDS: dict[Loss, tuple[float, float]] = {
    "dapo": (0.2, 0.28),
    "grpo": (0.2, 0.2),
    "dr_grpo": (0.15, 0.3),
    "bnpo": (0.2, 0.2),
    "cispo": (1.0, 0.25),
    "gspo": (0.05, 0.08),
}


@dataclass(frozen=True)
class Completion:
    """One row of a TRL batch."""

    prompt: tuple[int, ...]
    ids: tuple[int, ...]
    sampled: tuple[bool, ...]
    advantage: float
    old: Tensor
    reference: Tensor
    sampler: Tensor


@cache
def completions() -> tuple[Completion, ...]:
    """Two groups of four: prompts of different length, tool tokens, equal completions, one of
    the longest and one of the shortest possible length."""
    generator = torch.Generator().manual_seed(5)
    rows: list[Completion] = []
    for prompt_length, lengths in ((6, (9, 1, 5, 5)), (3, (4, 7, 2, 8))):
        prompt = draw(prompt_length, generator)
        for index, length in enumerate(lengths):
            ids = rows[-1].ids if index == 3 and length == len(rows[-1].ids) else draw(length, generator)
            # Tools put two ids in between, behind the first sampled one.
            sampled = tuple(length < 7 or place not in (1, 2) for place in range(length))
            advantage = float(torch.randn((), generator=generator))
            rows.append(Completion(prompt, ids, sampled, advantage, *[torch.empty(0)] * 3))
    return tuple(rows)


def draw(length: int, generator: torch.Generator) -> tuple[int, ...]:
    return tuple(torch.randint(4, 288, (length,), generator=generator).tolist())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model("qwen3", tmp_path_factory.mktemp("model"))


@pytest.fixture
def policy(folder: Path) -> Policy:
    policy = tiny_policy("qwen3", folder)
    policy.model.requires_grad_(True)
    return policy


@pytest.fixture
def rows(policy: Policy) -> list[Completion]:
    """The completions with log-probabilities of an older policy, a reference and a sampler, all made
    by moving the present ones: each token by itself, and each completion as a whole."""
    generator = torch.Generator().manual_seed(8)
    rows: list[Completion] = []
    for completion in completions():
        batch = pack([as_sample([completion])], policy.device)
        now = logprobs(policy, batch).detach()[0]
        old = now + 0.4 * torch.randn(now.shape, generator=generator) + 0.2 * torch.randn((), generator=generator)
        reference = now + 0.3 * torch.randn(now.shape, generator=generator)
        sampler = old - 0.5 * torch.randn(now.shape, generator=generator)
        rows.append(replace(completion, old=old, reference=reference, sampler=sampler))
    return rows


def as_sample(rows: Sequence[Completion]) -> Sample:
    segments = [segment(row.ids, row.sampled, prompt=rows[0].prompt) for row in rows]
    return sample_of(rows[0].prompt, segments, [row.advantage for row in rows])


def as_samples(rows: Sequence[Completion]) -> list[Sample]:
    prompts = dict.fromkeys(row.prompt for row in rows)
    return [as_sample([row for row in rows if row.prompt == prompt]) for prompt in prompts]


def logprobs(policy: Policy, batch: MicroBatch) -> Tensor:
    hidden = policy.hidden(batch.ids_T[None], batch.layout)[0]
    return batch.padded(token_logprobs(hidden[batch.sources_S], policy.head, batch.targets_S, TEMPERATURE))


def padded(rows: Sequence[Sequence[float] | Tensor], left: bool = False) -> Tensor:
    tensors = [torch.as_tensor(row) for row in rows]
    side = "left" if left else "right"
    return torch.nn.utils.rnn.pad_sequence(tensors, batch_first=True, padding_value=PAD, padding_side=side)


@dataclass(frozen=True)
class Result:
    loss: float
    grads: dict[str, Tensor]
    clipped: float
    """Tokens whose gradient the clip cut off."""


def by_strop(policy: Policy, rows: Sequence[Completion], settings: LossSettings, splits: int) -> Result:
    totals = StepTotals(sum(sum(row.sampled) for row in rows), len(rows), MAX_TOKENS)
    loss, clipped = 0.0, 0
    for part in parts(rows, splits):
        batch = pack(as_samples(part), policy.device)
        reference = padded([row.reference for row in part]) if settings.kl_coefficient else None
        old = padded([row.old for row in part])
        sampler = padded([row.sampler for row in part])
        inputs = LossInputs(logprobs(policy, batch), old, reference, batch.mask_CL, batch.advantages_C, sampler)
        outputs = policy_loss(inputs, settings, totals)
        outputs.loss.backward()
        loss += float(outputs.loss.detach())
        clipped += outputs.clipped_tokens
    grads = {name: weight.grad for name, weight in policy.model.named_parameters() if weight.grad is not None}
    return Result(loss, grads, clipped)


def by_trl(
    folder: Path, output: Path, rows: Sequence[Completion], settings: LossSettings, splits: int
) -> tuple[Result, Any]:
    trainer = trl_trainer(folder, output, settings, len(rows) // splits, splits)
    tokens = torch.tensor(sum(sum(row.sampled) for row in rows))
    loss = clipped = 0.0
    for part in parts(rows, splits):
        micro_loss = trainer._compute_loss(trainer.model, trl_inputs(part, tokens, settings))
        micro_loss.backward()
        loss += float(micro_loss.detach())
        share = trainer._metrics["train"].get("clip_ratio/region_mean", [0.0])[-1]
        clipped += share * sum(sum(row.sampled) for row in part)
    grads = {name: weight.grad for name, weight in trainer.model.named_parameters() if weight.grad is not None}
    return Result(loss, grads, clipped), trainer._metrics["train"]


def parts(rows: Sequence[Completion], splits: int) -> list[Sequence[Completion]]:
    size = len(rows) // splits
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def trl_trainer(folder: Path, output: Path, settings: LossSettings, micro_batch: int, splits: int) -> Any:
    sequence_level = settings.name == "gspo"
    arguments = GRPOConfig(
        output_dir=str(output),
        report_to="none",
        use_cpu=True,
        bf16=False,
        activation_checkpointing=False,
        per_device_train_batch_size=micro_batch,
        gradient_accumulation_steps=splits,
        num_generations=2,
        max_completion_length=MAX_TOKENS,
        temperature=TEMPERATURE,
        beta=settings.kl_coefficient,
        loss_type="grpo" if sequence_level else settings.name,
        importance_sampling_level="sequence" if sequence_level else "token",
        epsilon=settings.clip_low,
        epsilon_high=settings.clip_high + (settings.name == "cispo"),
    )
    trainer = GRPOTrainer(
        model=plain_model(folder),
        reward_funcs=lambda completions, **rest: [0.0] * len(completions),
        args=arguments,
        train_dataset=Dataset.from_list([{"prompt": "question"}]),
        processing_class=AutoTokenizer.from_pretrained(folder),
    )
    # What `Trainer.train` sets before the first step.
    trainer.current_gradient_accumulation_steps = splits
    trainer.model.train()
    # Without vLLM itself, which no loss needs.
    trainer.use_vllm = trainer.vllm_importance_sampling_correction = settings.correction != "none"
    return trainer


def trl_inputs(rows: Sequence[Completion], tokens: Tensor, settings: LossSettings) -> dict[str, Tensor]:
    return {
        "importance_sampling_ratio": trl_ratio(rows, settings),
        "prompt_ids": padded([row.prompt for row in rows], left=True),
        "prompt_mask": padded([[1] * len(row.prompt) for row in rows], left=True),
        "completion_ids": padded([row.ids for row in rows]),
        "completion_mask": padded([[1] * len(row.ids) for row in rows]),
        "tool_mask": padded([[int(sampled) for sampled in row.sampled] for row in rows]),
        "advantages": torch.tensor([row.advantage for row in rows]),
        "old_per_token_logps": padded([row.old for row in rows]),
        "ref_per_token_logps": padded([row.reference for row in rows]),
        "num_items_in_batch": tokens,
    }


def trl_ratio(rows: Sequence[Completion], settings: LossSettings) -> Tensor:
    """The weights as TRL makes them for `token_truncate` and `token_mask`, while it still samples."""
    mask = padded([[int(sampled) for sampled in row.sampled] for row in rows])
    difference = (padded([row.old for row in rows]) - padded([row.sampler for row in rows])) * mask
    ratio = torch.exp(torch.nan_to_num(difference, nan=0.0))
    if settings.correction == "truncate":
        return torch.clamp(ratio, max=settings.correction_bound)
    return ratio.masked_fill(ratio > settings.correction_bound, value=0.0)


# TRL multiplies the KL of each token by the ratio of its sequence under GSPO; strop keeps the
# token's own on purpose, so the two agree without KL only. TRL's BNPO is normalised within a
# micro-batch by definition, strop's over the step, so they agree where there is one.
CASES = [
    (loss, kl, splits)
    for loss in BOUNDS
    for kl in (0.0, 0.001)
    for splits in (1, 2, 4)
    if not (loss == "gspo" and kl) and not (loss == "bnpo" and splits > 1)
]


@pytest.mark.parametrize(("loss", "kl", "splits"), CASES)
def test_loss_and_gradients_equal_those_of_trl(
    loss: Loss, kl: float, splits: int, policy: Policy, rows: list[Completion], folder: Path, tmp_path: Path
) -> None:
    settings = LossSettings(loss, *BOUNDS[loss], kl)
    metrics = compare(policy, rows, folder, tmp_path, settings, splits)
    if loss == "cispo":
        assert max(metrics["cispo_clip_ratio"]) > 0
    else:
        assert max(metrics["clip_ratio/low_mean"]) > 0
        assert max(metrics["clip_ratio/high_mean"]) > 0


@pytest.mark.parametrize("correction", ["truncate", "mask"])
@pytest.mark.parametrize(("loss", "kl"), [("dapo", 0.001), ("grpo", 0.001), ("cispo", 0.001), ("gspo", 0.0)])
def test_the_correction_for_the_sampler_equals_that_of_trl(
    loss: Loss,
    kl: float,
    correction: SamplerCorrection,
    policy: Policy,
    rows: list[Completion],
    folder: Path,
    tmp_path: Path,
) -> None:
    settings = LossSettings(loss, *BOUNDS[loss], kl, correction, correction_bound=1.5)
    beyond = sum(int(((row.old - row.sampler).exp() > 1.5).sum()) for row in rows)
    assert 0 < beyond < sum(len(row.ids) for row in rows) / 2
    compare(policy, rows, folder, tmp_path, settings, splits=2)


def compare(
    policy: Policy, rows: Sequence[Completion], folder: Path, output: Path, settings: LossSettings, splits: int
) -> Any:
    """Assert that loss, gradients and clipped tokens are equal; TRL's metrics."""
    found = by_strop(policy, rows, settings, splits)
    expected, metrics = by_trl(folder, output, rows, settings, splits)
    assert found.loss == pytest.approx(expected.loss, rel=1e-5)
    assert found.grads.keys() == expected.grads.keys()
    for name, grad in expected.grads.items():
        assert grad.norm() > 0
        assert (found.grads[name] - grad).norm() <= 1e-5 * grad.norm(), name
    if settings.name not in ("cispo", "gspo"):
        assert found.clipped == pytest.approx(expected.clipped, abs=1e-3)
    return metrics
