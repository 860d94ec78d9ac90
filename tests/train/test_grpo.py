"""One optimizer step through the learner, on tiny models with real weights."""

from __future__ import annotations

import asyncio
import gc
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from train_cases import config, sample, sample_of, segment

from models import save_tiny_model
from strop.config import CLIP_BOUNDS, Loss, RunConfig
from strop.policy import attention
from strop.policy.attention import PackedLayout
from strop.policy.engine import Engine
from strop.policy.logprobs import token_logprobs
from strop.policy.model import Policy, load_policy
from strop.policy.prepare import FrozenReference, Reference, prepare
from strop.policy.sampler import LocalSampler
from strop.train.batch import Sample, pack
from strop.train.grpo import GrpoLearner
from strop.train.learner import Update
from strop.train.loss import LossInputs, LossSettings, StepTotals, policy_loss
from strop.train.optimizer import MasterAdamW
from strop.types import SamplingParams

ALL: tuple[Loss, ...] = tuple(CLIP_BOUNDS)
KINDS = ("llama", "qwen3", "qwen3_moe", "gemma3")

# Two groups with equal completions in one of them, tool tokens, and different lengths.
TOOL_MASK = (True, False, False, True, True)
SAMPLES = [
    sample_of(
        (10, 11, 12),
        (
            segment((20, 21, 22, 23, 24), TOOL_MASK),
            segment((30,)),
            segment((20, 25)),
            segment((30,)),
        ),
        (1.2, -0.4, -0.5, -0.3),
    ),
    sample((13,), [[40, 41, 42, 43, 44, 45], [50, 51], [52], [53, 54, 55]], [-1.0, 0.25, 0.5, 0.25]),
]


class KeptGradients:
    """In place of the optimizer: keeps the gradients and leaves the weights alone."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.grads: dict[str, Tensor] = {}

    def collect(self) -> None: ...

    def discard(self) -> None:
        self._policy.model.zero_grad()

    updates = 0

    def settle(self) -> None: ...

    def step(self, learning_rate: float, max_norm: float, last: bool = True) -> float:
        parameters = self._policy.model.named_parameters()
        self.grads = {name: weight.grad.clone() for name, weight in parameters if weight.grad is not None}
        self.discard()
        return float(torch.stack([grad.norm() for grad in self.grads.values()]).norm())


@pytest.fixture(params=["lora", "full"])
def method(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def fp32(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a CPU that multiplies no bf16."""
    use(monkeypatch, torch.float32)


@pytest.fixture
def bf16(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine that does."""
    use(monkeypatch, torch.bfloat16)


def use(monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype) -> None:
    for module in ("strop.train.grpo", "strop.policy.prepare"):
        monkeypatch.setattr(f"{module}.fast_dtype", lambda device: dtype)


def prepared(folder: Path, kind: str = "llama", **train: Any) -> tuple[Policy, Reference | None, RunConfig]:
    """Policy, reference and configuration as a run gets them; the model is saved into `folder`."""
    save_tiny_model(kind, folder)
    sampling = {"temperature": train.pop("temperature", 1.0), "max_completion_tokens": 8}
    settings = config(sampling, **train)
    settings = settings.model_copy(update={"model": str(folder), "device": "cpu"})
    policy, reference = prepare(settings, None, lambda line: None)
    return policy, reference, settings


def stir(policy: Policy) -> None:
    """Move a fresh adapter away from the reference."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, weight in policy.model.named_parameters():
            if "lora_B" in name:
                weight.copy_(0.1 * torch.randn(weight.shape, generator=generator))
    policy.refresh()


def learner(folder: Path, kind: str = "llama", **train: Any) -> tuple[GrpoLearner, Policy]:
    policy, reference, settings = prepared(folder, kind, **train)
    return GrpoLearner(policy, reference, settings), policy


def gradients(folder: Path, samples: Sequence[Sample], kind: str = "llama", **train: Any) -> dict[str, Tensor]:
    policy, reference, settings = prepared(folder, kind, **train)
    stir(policy)
    made = GrpoLearner(policy, reference, settings)
    kept = KeptGradients(policy)
    made.optimizer = kept  # type: ignore[assignment]
    assert made.update(samples, 1e-3).skipped is None
    return kept.grads


def assert_close(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, grad in expected.items():
        assert (found[name] - grad).norm() <= 1e-5 * grad.norm(), name


def weights(made: GrpoLearner) -> dict[str, Tensor]:
    return {name: weight.clone() for name, weight in made.optimizer.weights().items()}


def identical(found: dict[str, Tensor], expected: dict[str, Tensor]) -> bool:
    return found.keys() == expected.keys() and all(torch.equal(found[name], expected[name]) for name in expected)


def drawn(policy: Policy, temperature: float, advantages: Sequence[float]) -> Sample:
    """Completions that the policy itself draws."""
    prompt = (10, 11, 12)
    params = SamplingParams(temperature, max_tokens=8, seed=5)
    sampler = LocalSampler(Engine(policy, max_concurrent=4))
    completions = asyncio.run(sampler.sample(prompt, len(advantages), params))
    segments = [segment(done.token_ids_T, logprobs=done.logprobs_T) for done in completions]
    return sample_of(prompt, segments, advantages)


# The first step


@pytest.mark.usefixtures("fp32")
def test_the_first_step_has_ratio_one_and_no_kl_in_fp32(method: str, tmp_path: Path) -> None:
    # With bounds of zero width, any ratio but exactly 1 would be clipped somewhere.
    made, _ = learner(tmp_path, method=method, clip_low=0.0, clip_high=0.0, kl_coefficient=0.001)
    metrics = made.update(SAMPLES, 0.0).metrics
    assert metrics["clip_ratio"] == 0.0
    assert metrics["kl_loss"] == pytest.approx(0.0, abs=1e-9)


@pytest.mark.usefixtures("bf16")
def test_the_first_step_has_ratio_one_and_no_kl_in_bf16(method: str, tmp_path: Path) -> None:
    made, _ = learner(tmp_path, method=method, clip_low=0.0, clip_high=0.0, kl_coefficient=0.001)
    metrics = made.update(SAMPLES, 0.0).metrics
    assert metrics["clip_ratio"] == 0.0
    assert metrics["kl_loss"] == pytest.approx(0.0, abs=1e-4)


@pytest.mark.usefixtures("fp32")
def test_the_loss_of_the_first_step_is_the_mean_advantage_of_the_tokens(method: str, tmp_path: Path) -> None:
    made, _ = learner(tmp_path, method=method, kl_coefficient=0.0)
    sampled = [
        (sum(each.sampled_mask_T), advantage)
        for group in SAMPLES
        for each, advantage in zip(group.segments, group.advantages_G, strict=True)
    ]
    tokens = sum(length for length, _ in sampled)
    expected = -sum(length * advantage for length, advantage in sampled) / tokens
    assert made.update(SAMPLES, 1e-3).metrics["loss"] == pytest.approx(expected, rel=1e-5)


@pytest.mark.usefixtures("fp32")
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_sampler_and_trainer_agree_before_and_after_updates(method: str, temperature: float, tmp_path: Path) -> None:
    made, policy = learner(tmp_path, method=method, temperature=temperature)
    for _ in range(3):
        batch = drawn(policy, temperature, (1.0, -1.0, 0.5, -0.5))
        assert made.update([batch], 1e-2).metrics["sampler_trainer_gap"] < 1e-4


@pytest.mark.usefixtures("bf16")
def test_sampler_and_trainer_agree_in_bf16(method: str, tmp_path: Path) -> None:
    made, policy = learner(tmp_path, method=method)
    for _ in range(3):
        batch = drawn(policy, 1.0, (1.0, -1.0, 0.5, -0.5))
        assert made.update([batch], 1e-2).metrics["sampler_trainer_gap"] < 0.1


@pytest.mark.usefixtures("fp32")
def test_the_gap_to_the_sampler_counts_sampled_tokens_only(tmp_path: Path) -> None:
    made, policy = learner(tmp_path, method="full")
    ids, mask = (20, 21, 22, 23), (True, False, True, True)
    with torch.no_grad():
        batch = pack([sample_of((10,), (segment(ids, mask),), (1.0,))], policy.device)
        hidden = policy.hidden(batch.ids_T[None], batch.layout)[0]
        exact = batch.padded(token_logprobs(hidden[batch.sources_S], policy.head, batch.targets_S, 1.0))[0]
    shifted = (exact + torch.tensor([0.3, 0.0, 0.0, -0.3])).tolist()
    update = made.update([sample_of((10,), (segment(ids, mask, logprobs=shifted),), (1.0,))], 0.0)
    assert update.metrics["sampler_trainer_gap"] == pytest.approx(0.2, rel=1e-3)


# How a step is split


@pytest.mark.usefixtures("fp32")
@pytest.mark.parametrize("loss", ALL)
def test_gradients_do_not_depend_on_how_the_step_is_split(loss: Loss, method: str, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"loss": loss, "method": method, "kl_coefficient": 0.05}
    whole = gradients(tmp_path, SAMPLES, micro_batch_tokens=10_000, **settings)
    for budget in (14, 8, 1):
        assert_close(gradients(tmp_path, SAMPLES, micro_batch_tokens=budget, **settings), whole)


@pytest.mark.usefixtures("bf16")
def test_in_bf16_the_split_changes_no_more_than_rounding(tmp_path: Path) -> None:
    made = []
    for budget in (10_000, 1):
        each, _ = learner(tmp_path, method="full", kl_coefficient=0.05, micro_batch_tokens=budget)
        made.append(each.update(SAMPLES, 1e-3).metrics)
    assert made[0]["loss"] == pytest.approx(made[1]["loss"], rel=0.02)
    assert made[0]["grad_norm"] == pytest.approx(made[1]["grad_norm"], rel=0.05)


@pytest.mark.usefixtures("fp32")
def test_metrics_do_not_depend_on_how_the_step_is_split(method: str, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"method": method, "kl_coefficient": 0.05, "iterations": 2, "clip_low": 0.0}
    found = []
    for budget in (10_000, 1):
        made, _ = learner(tmp_path, micro_batch_tokens=budget, **settings)
        found.append(made.update(SAMPLES, 1e-3).metrics)
    assert found[0] == pytest.approx(found[1], rel=1e-3, abs=1e-6)


@pytest.mark.usefixtures("fp32")
@pytest.mark.parametrize("kind", KINDS)
def test_recomputing_activations_changes_no_gradient(kind: str, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"method": "full", "kl_coefficient": 0.0}
    plain = gradients(tmp_path, SAMPLES, kind, gradient_checkpointing=False, **settings)
    assert_close(gradients(tmp_path, SAMPLES, kind, gradient_checkpointing=True, **settings), plain)


@pytest.mark.usefixtures("fp32")
@pytest.mark.parametrize("loss", ALL)
def test_equal_completions_have_the_gradient_of_separate_ones(loss: Loss, tmp_path: Path) -> None:
    together = [sample((10, 11), [[20, 21, 22], [30, 31], [20, 21, 22]], [1.0, -1.5, 0.5])]
    # In samples of their own the equal ones go through the model one by one.
    apart = [sample((10, 11), [[20, 21, 22], [30, 31]], [1.0, -1.5]), sample((10, 11), [[20, 21, 22]], [0.5])]
    settings: dict[str, Any] = {"loss": loss, "method": "full", "kl_coefficient": 0.05}
    assert_close(gradients(tmp_path, together, **settings), gradients(tmp_path, apart, **settings))


@pytest.mark.usefixtures("fp32")
@pytest.mark.parametrize("loss", ALL)
def test_a_token_that_was_not_sampled_has_no_gradient(loss: Loss, method: str, tmp_path: Path) -> None:
    # Behind the last sampled token it is no context either, so any other id does as well.
    mask = (True, True, False)
    found = [
        gradients(
            tmp_path,
            [sample_of((10, 11), (segment((20, 21, last), mask), segment((30, 31))), (1.0, -1.0))],
            loss=loss,
            method=method,
            kl_coefficient=0.05,
        )
        for last in (22, 200)
    ]
    assert identical(found[0], found[1])


# Groups without a difference in rewards


@pytest.mark.usefixtures("fp32")
@pytest.mark.parametrize("loss", ALL)
def test_leaving_out_a_group_of_equal_rewards_changes_nothing_but_time(loss: Loss, method: str, tmp_path: Path) -> None:
    useful = sample((10, 11), [[20, 21, 22], [30]], [1.0, -1.0])
    left_out = sample((12,), [[40, 41], [42, 43, 44]], [0.0, 0.0])
    # So small that it vanishes in fp32, but not zero: this one goes through the model.
    taken_in = sample((12,), [[40, 41], [42, 43, 44]], [1e-60, 1e-60])
    made = []
    for other in (left_out, taken_in):
        each, _ = learner(tmp_path, method=method, loss=loss, kl_coefficient=0.0, micro_batch_tokens=8)
        made.append((each.update([useful, other], 1e-3).metrics["loss"], weights(each)))
    assert made[0][0] == made[1][0]
    assert identical(made[0][1], made[1][1])


@pytest.mark.usefixtures("fp32")
def test_a_group_of_equal_rewards_counts_in_the_denominator(tmp_path: Path) -> None:
    useful = sample((10, 11), [[20, 21], [30, 31]], [1.0, -1.0])
    equal = sample((12,), [[40, 41], [42, 43]], [0.0, 0.0])
    settings: dict[str, Any] = {"method": "full", "kl_coefficient": 0.0}
    alone = gradients(tmp_path, [useful], **settings)
    beside = gradients(tmp_path, [useful, equal], **settings)
    assert_close({name: 2 * grad for name, grad in beside.items()}, alone)


@pytest.mark.usefixtures("fp32")
@pytest.mark.parametrize(("kl", "counts"), [(0.1, True), (0.0, False)])
def test_with_kl_a_group_of_equal_rewards_is_trained_on_beside_others(kl: float, counts: bool, tmp_path: Path) -> None:
    useful = sample((10, 11), [[20, 21], [30, 31]], [1.0, -1.0])
    equal = [sample((12,), [[40, last], [42, 43]], [0.0, 0.0]) for last in (41, 91)]
    first, second = (gradients(tmp_path, [useful, each], method="lora", kl_coefficient=kl) for each in equal)
    assert identical(first, second) is not counts


@pytest.mark.parametrize("kl", [0.0, 0.001])
@pytest.mark.parametrize("samples", [[], [sample((12,), [[40, 41], [42, 43]], [0.0, 0.0])]])
def test_a_step_with_nothing_to_learn_from_is_skipped_and_says_so(
    samples: list[Sample], kl: float, method: str, tmp_path: Path
) -> None:
    made, _ = learner(tmp_path, method=method, kl_coefficient=kl)
    before = weights(made)
    update = made.update(samples, 1e-3)
    assert update == Update({}, skipped="no group had rewards that differ, so there is nothing to learn from")
    assert identical(weights(made), before)


@pytest.mark.usefixtures("bf16")
def test_steps_without_signal_leave_the_weights_that_compute_alone(method: str, tmp_path: Path) -> None:
    made, policy = learner(tmp_path, method=method, kl_coefficient=0.001)
    made.update(SAMPLES, 1e-3)
    before = [weight.detach().clone() for weight in policy.model.parameters()]
    for _ in range(3):
        made.update([sample((12,), [[40, 41], [42, 43]], [0.0, 0.0])], 1e-3)
    assert all(torch.equal(weight, old) for weight, old in zip(policy.model.parameters(), before, strict=True))


# Numbers that are not finite


@pytest.mark.parametrize("advantage", [math.nan, math.inf])
@pytest.mark.parametrize("budget", [10_000, 1])
def test_a_loss_that_is_not_finite_leaves_everything_alone(
    advantage: float, budget: int, method: str, tmp_path: Path
) -> None:
    bad = sample((10, 11), [[20, 21, 22], [30]], [advantage, -1.0])
    made, _ = learner(tmp_path / "a", method=method, micro_batch_tokens=budget)
    twin, _ = learner(tmp_path / "b", method=method, micro_batch_tokens=budget)
    before = weights(made)
    update = made.update([*SAMPLES, bad], 1e-3)
    assert update.diverged
    assert update.skipped is not None
    assert update.skipped.startswith("the loss is ")
    assert identical(weights(made), before)
    # No gradient or moment is left over either: the next step is as if this had not been.
    made.update(SAMPLES, 1e-3)
    twin.update(SAMPLES, 1e-3)
    assert identical(weights(made), weights(twin))


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_gradient_that_is_not_finite_leaves_everything_alone(value: float, method: str, tmp_path: Path) -> None:
    made, policy = learner(tmp_path / "a", method=method)
    twin, _ = learner(tmp_path / "b", method=method)
    before = weights(made)
    hook = policy.trainable()[-1].register_hook(lambda grad: grad + value)
    update = made.update(SAMPLES, 1e-3)
    assert update.diverged
    assert update.skipped is not None
    assert update.skipped.startswith("the gradient norm is ")
    assert identical(weights(made), before)
    hook.remove()
    made.update(SAMPLES, 1e-3)
    twin.update(SAMPLES, 1e-3)
    assert identical(weights(made), weights(twin))


# Several iterations


@pytest.mark.usefixtures("fp32")
@pytest.mark.parametrize("loss", ["dapo", "gspo", "cispo"])
def test_later_iterations_measure_the_ratio_to_the_start_of_the_step(loss: Loss, tmp_path: Path) -> None:
    """Against the same steps written out, with torch's own optimizer."""
    rate, kl = 2e-3, 0.05
    made, _ = learner(tmp_path, method="full", loss=loss, iterations=3, kl_coefficient=kl)
    twin = load_policy(str(tmp_path), "twin", torch.device("cpu"), torch.float32)
    twin.model.requires_grad_(True)
    adamw = torch.optim.AdamW(twin.trainable(), lr=rate, weight_decay=0.0)
    batch = pack(SAMPLES, twin.device)
    totals = StepTotals(int(batch.mask_CL.sum()), len(batch.rows_C), 8)
    settings = LossSettings(loss, *CLIP_BOUNDS[loss], kl)
    start: Tensor | None = None
    clipped = 0
    for _ in range(3):
        hidden = twin.hidden(batch.ids_T[None], batch.layout)[0]
        now = batch.padded(token_logprobs(hidden[batch.sources_S], twin.head, batch.targets_S, 1.0))
        start = now.detach() if start is None else start
        outputs = policy_loss(LossInputs(now, start, start, batch.mask_CL, batch.advantages_C, start), settings, totals)
        adamw.zero_grad()
        outputs.loss.backward()
        torch.nn.utils.clip_grad_norm_(twin.trainable(), 1.0)
        adamw.step()
        twin.refresh()
        clipped = outputs.clipped_tokens
    metrics = made.update(SAMPLES, rate).metrics
    assert metrics["loss"] == pytest.approx(outputs.loss.item(), rel=1e-3)
    assert metrics["kl_loss"] == pytest.approx(outputs.kl_sum / totals.tokens, rel=1e-3)
    assert metrics["kl_loss"] > 1e-4
    assert metrics["clip_ratio"] == pytest.approx(clipped / totals.tokens)
    assert clipped > 0 or loss == "cispo"
    for (name, weight), other in zip(made.optimizer.weights().items(), twin.trainable(), strict=True):
        # Adam makes a full step of any gradient, so where one is all but zero its sign is chance.
        assert (weight - other).abs().median() < 1e-2 * rate, name


@pytest.mark.usefixtures("fp32")
def test_each_iteration_is_an_update_and_the_gap_is_that_of_the_first(tmp_path: Path) -> None:
    once, policy = learner(tmp_path / "a", method="full", iterations=1)
    batch = drawn(policy, 1.0, (1.0, -1.0, 0.5, -0.5))
    often, _ = learner(tmp_path / "b", method="full", iterations=4)
    first = once.update([batch], 1e-2)
    last = often.update([batch], 1e-2)
    assert often.optimizer.state_dict()["updates"] == 4
    assert last.metrics["sampler_trainer_gap"] == first.metrics["sampler_trainer_gap"] < 1e-4
    assert last.metrics["kl_loss"] > first.metrics["kl_loss"]


@pytest.mark.usefixtures("bf16")
@pytest.mark.parametrize("loss", ["gspo", "dapo"])
def test_the_ratio_between_passes_does_not_measure_the_rounding(loss: Loss, tmp_path: Path) -> None:
    # With bounds of zero width, any ratio but exactly 1 would be clipped somewhere.
    settings: dict[str, Any] = {"loss": loss, "clip_low": 0.0, "clip_high": 0.0, "kl_coefficient": 0.0}
    made, _ = learner(tmp_path, method="full", iterations=3, **settings)
    for _ in range(2):  # the noise of the copy is drawn at the end of the first step
        assert made.update(SAMPLES, 1e-12).metrics["clip_ratio"] == 0.0


def breaks_in_pass(number: int, policy: Policy) -> Any:
    """Make the gradient of a pass over a step of one micro-batch not finite."""
    calls = 0

    def spoil(grad: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return grad * math.nan if calls == number else grad

    return policy.trainable()[-1].register_hook(spoil)


def test_a_later_pass_that_diverges_says_that_the_weights_have_changed(method: str, tmp_path: Path) -> None:
    made, policy = learner(tmp_path / "a", method=method, iterations=3, kl_coefficient=0.0)
    once, _ = learner(tmp_path / "b", method=method, iterations=1, kl_coefficient=0.0)
    hook = breaks_in_pass(2, policy)
    update = made.update(SAMPLES, 1e-3)
    hook.remove()
    expected = once.update(SAMPLES, 1e-3)
    assert update.cut_short == "the gradient norm is nan in pass 2 of 3"
    assert (update.diverged, update.skipped, update.metrics) == (True, None, expected.metrics)
    assert identical(weights(made), weights(once))
    # What computes is the same too, noise of the rounding included.
    assert (
        made.update(SAMPLES, 1e-3).metrics["sampler_trainer_gap"]
        == (once.update(SAMPLES, 1e-3).metrics["sampler_trainer_gap"])
    )


# Another sampler


@pytest.mark.usefixtures("fp32")
def test_the_correction_for_the_sampler_has_metrics_where_it_is_on(tmp_path: Path) -> None:
    ids = (20, 21, 22, 23)
    made, policy = learner(tmp_path, method="full", kl_coefficient=0.0, sampler_correction="truncate", iterations=2)
    with torch.no_grad():
        batch = pack([sample_of((10,), [segment(ids)], [1.0])], policy.device)
        hidden = policy.hidden(batch.ids_T[None], batch.layout)[0]
        exact = batch.padded(token_logprobs(hidden[batch.sources_S], policy.head, batch.targets_S, 1.0))[0]
    drawn = (exact - torch.tensor([4.0, 1.0, 0.5, 1.5]).log()).tolist()
    update = made.update([sample_of((10,), [segment(ids, logprobs=drawn)], [1.0])], 1e-3)
    assert update.metrics["sampler_correction_share"] == pytest.approx(1 / 4)
    assert update.metrics["sampler_correction_weight"] == pytest.approx((2 + 1 + 0.5 + 1.5) / 4, rel=1e-4)
    off, _ = learner(tmp_path, method="full", kl_coefficient=0.0)
    assert not [name for name in off.update(SAMPLES, 1e-3).metrics if "correction" in name]


# Saving, restoring, publishing


def test_the_version_counts_the_updates_that_changed_the_weights(method: str, tmp_path: Path) -> None:
    made, policy = learner(tmp_path, method=method, iterations=2)
    assert (made.publish(), policy.version) == (0, 0)
    made.update(SAMPLES, 1e-3)
    assert policy.version == 0
    assert (made.publish(), policy.version) == (1, 1)
    made.update([sample((10, 11), [[20], [30]], [math.nan, -1.0])], 1e-3)
    made.update([], 1e-3)
    assert made.publish() == 1
    made.update(SAMPLES, 1e-3)
    assert made.publish() == 2


def test_a_learner_that_was_restored_goes_on_with_its_version(method: str, tmp_path: Path) -> None:
    made, _ = learner(tmp_path / "model", method=method)
    for _ in range(3):
        made.update(SAMPLES, 1e-3)
    (tmp_path / "saved").mkdir()
    made.save(tmp_path / "saved")
    settings = config(method=method).model_copy(update={"model": str(tmp_path / "model"), "device": "cpu"})
    policy, reference = prepare(settings, tmp_path / "saved", lambda line: None)
    again = GrpoLearner(policy, reference, settings)
    again.restore(tmp_path / "saved")
    assert again.publish() == made.publish() == 3


def test_a_checkpoint_from_before_learners_had_a_file_is_restored(method: str, tmp_path: Path) -> None:
    made, _ = learner(tmp_path, method=method)
    made.update(SAMPLES, 1e-3)
    state = {"order": {}, "optimizer": made.optimizer.state_dict(), "rng": torch.get_rng_state()}
    torch.save(state, tmp_path / "trainer_state.pt")
    again, _ = learner(tmp_path, method=method)
    again.restore(tmp_path)
    assert again.optimizer.updates == 1
    assert again.publish() == 1


# What is trained


@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_in_bf16_computes_what_the_model_loaded_in_bf16_does(kind: str, tmp_path: Path) -> None:
    policy, reference, _ = prepared(tmp_path, kind, method="full", kl_coefficient=0.001)
    assert reference is not None
    MasterAdamW(policy, torch.bfloat16, 0.0, seed=1)
    loaded = load_policy(str(tmp_path), "loaded", torch.device("cpu"), torch.bfloat16)
    batch = pack(long_samples(), policy.device)
    hidden = loaded.hidden(batch.ids_T[None], batch.layout)
    assert torch.equal(policy.hidden(batch.ids_T[None], batch.layout), hidden)
    expected = dict(load_policy(str(tmp_path), "exact", torch.device("cpu"), torch.float32).base.named_buffers())
    assert any("inv_freq" in name for name in expected)
    frozen = FrozenReference(loaded, torch.bfloat16)
    with frozen.scoring() as scoring:
        for model in (policy.base, scoring.base):
            found = dict(model.named_buffers())
            assert found.keys() == expected.keys()
            for name, buffer in found.items():
                assert torch.equal(buffer.float(), expected[name].to(buffer.dtype).float()), name
            assert all(buffer.dtype == torch.float32 for name, buffer in found.items() if "inv_freq" in name)


@pytest.mark.usefixtures("fp32")
@pytest.mark.parametrize("kl", [0.0, 0.05])
def test_memory_for_masks_does_not_grow_with_the_number_of_micro_batches(
    kl: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    peaks = []
    for count in (2, 8):
        made, policy = learner(tmp_path, method="full", kl_coefficient=kl, micro_batch_tokens=1, iterations=2)
        peak = 0

        def measured(ids: Tensor, layout: PackedLayout, policy: Policy = policy) -> Tensor:
            nonlocal peak
            hidden = policy._body.hidden(ids, layout)
            peak = max(peak, mask_bytes())
            return hidden

        with monkeypatch.context() as patch:
            patch.setattr(policy, "hidden", measured)
            made.update([sample((10 + index,), [[20, 21, 22]], [1.0]) for index in range(count)], 1e-3)
        peaks.append(peak)
        assert mask_bytes() == 0
    assert peaks[0] == peaks[1] > 0


def mask_bytes() -> int:
    """Memory of all masks that exist."""
    masks = [each for each in gc.get_objects() if type(each) is attention._Mask]
    return sum(tensor.nbytes for mask in masks for tensor in mask._cache.values())


@pytest.mark.usefixtures("fp32")
@pytest.mark.parametrize("kind", KINDS)
def test_full_training_gives_every_weight_a_gradient(kind: str, tmp_path: Path) -> None:
    policy, _, _ = prepared(tmp_path, kind, method="full", kl_coefficient=0.0)
    names = [name for name, _ in policy.model.named_parameters()]
    found = gradients(tmp_path, long_samples(), kind, method="full", kl_coefficient=0.0)
    assert list(found) == names
    assert [name for name, grad in found.items() if not float(grad.norm()) > 0] == []
    tied = policy.head is policy.base.get_input_embeddings().weight
    assert ("lm_head.weight" in names) == (not tied)


@pytest.mark.usefixtures("fp32")
@pytest.mark.parametrize("kind", KINDS)
def test_an_adapter_gets_a_gradient_in_b_first_and_then_in_a(kind: str, tmp_path: Path) -> None:
    policy, reference, settings = prepared(tmp_path, kind, method="lora", kl_coefficient=0.0)
    made = GrpoLearner(policy, reference, settings)
    kept = KeptGradients(policy)
    optimizer, made.optimizer = made.optimizer, kept  # type: ignore[assignment]
    made.update(long_samples(), 1e-3)
    moving = {name for name, grad in kept.grads.items() if float(grad.norm()) > 0}
    assert moving == {name for name in kept.grads if "lora_B" in name}
    made.optimizer = optimizer
    made.update(long_samples(), 1e-3)
    made.optimizer = kept  # type: ignore[assignment]
    made.update(long_samples(), 1e-3)
    trainable = {name for name, weight in policy.model.named_parameters() if weight.requires_grad}
    assert kept.grads.keys() == trainable
    assert [name for name, grad in kept.grads.items() if not float(grad.norm()) > 0] == []


def long_samples() -> list[Sample]:
    """Enough different tokens that every expert and every row of a norm has work."""
    generator = torch.Generator().manual_seed(9)

    def ids(count: int) -> list[int]:
        return [int(i) for i in torch.randint(4, 288, (count,), generator=generator)]

    return [sample(ids(6), [ids(8) for _ in range(4)], [1.0, -1.0, 0.5, -0.5]) for _ in range(2)]


def test_lora_leaves_the_base_alone(tmp_path: Path) -> None:
    made, policy = learner(tmp_path, method="lora")
    base = {name: weight.clone() for name, weight in policy.model.named_parameters() if not weight.requires_grad}
    for _ in range(2):
        made.update(SAMPLES, 1e-2)
    after = {name: weight for name, weight in policy.model.named_parameters() if not weight.requires_grad}
    assert identical(after, base)


def test_the_reference_stays_where_it_started(method: str, tmp_path: Path) -> None:
    policy, reference, settings = prepared(tmp_path, method=method, kl_coefficient=0.001)
    assert reference is not None
    made = GrpoLearner(policy, reference, settings)
    batch = pack(SAMPLES, policy.device)

    def scores() -> Tensor:
        assert reference is not None
        with torch.no_grad(), reference.scoring() as scoring:
            return scoring.hidden(batch.ids_T[None], batch.layout).float()

    before = scores()
    for _ in range(2):
        made.update(SAMPLES, 1e-2)
    assert torch.equal(scores(), before)


def test_an_update_raises_the_probability_of_what_was_better(method: str, tmp_path: Path) -> None:
    made, policy = learner(tmp_path, method=method, kl_coefficient=0.0)
    good, bad = [20, 21, 22], [30, 31, 32]
    batch = pack([sample((10, 11), [good, bad], [1.0, -1.0])], policy.device)

    def difference() -> float:
        with torch.no_grad():
            hidden = policy.hidden(batch.ids_T[None], batch.layout)[0]
            scores = batch.padded(token_logprobs(hidden[batch.sources_S], policy.head, batch.targets_S, 1.0))
        return float(scores[0].sum() - scores[1].sum())

    before = difference()
    for _ in range(3):
        made.update([sample((10, 11), [good, bad], [1.0, -1.0])], 1e-3)
    assert difference() > before + 0.1


def test_gradients_are_scaled_down_to_the_configured_norm(tmp_path: Path) -> None:
    # Adam forgets the size of a gradient, its first moment does not.
    made, _ = learner(tmp_path, method="full", kl_coefficient=0.0, max_grad_norm=1e-3)
    norm = made.update(SAMPLES, 1e-3).metrics["grad_norm"]
    assert norm > 1e-2
    moments = [state["exp_avg"] for state in made.optimizer.state_dict()["adamw"]["state"].values()]
    total = math.sqrt(sum(float(moment.norm()) ** 2 for moment in moments))
    assert total == pytest.approx(0.1 * 1e-3, rel=1e-3)
