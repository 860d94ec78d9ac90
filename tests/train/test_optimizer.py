"""AdamW over fp32 masters, and the bf16 copy that the model computes with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from models import tiny_lora_policy, tiny_policy
from strop.policy.model import Policy
from strop.train.optimizer import MasterAdamW, round_stochastically


def full_policy(folder: Path, kind: str = "llama") -> Policy:
    policy = tiny_policy(kind, folder)
    policy.model.requires_grad_(True)
    return policy


@pytest.fixture
def policy(tmp_path: Path) -> Policy:
    return full_policy(tmp_path)


def optimizer(policy: Policy, dtype: torch.dtype = torch.bfloat16, **settings: Any) -> MasterAdamW:
    return MasterAdamW(policy, dtype, **{"weight_decay": 0.0, "seed": 17, **settings})


def add_gradients(policy: Policy, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for weight in policy.trainable():
        grad = torch.randn(weight.shape, generator=generator).to(weight.dtype)
        weight.grad = grad if weight.grad is None else weight.grad + grad


def noise(count: int, seed: int = 0) -> Tensor:
    return torch.randint(0, 2**16, (count,), dtype=torch.int32, generator=torch.Generator().manual_seed(seed))


def rounded(values: Tensor, seed: int = 0) -> Tensor:
    target = torch.zeros(values.shape, dtype=torch.bfloat16)
    round_stochastically(values, target, noise(values.numel(), seed))
    return target


def step_between(values: Tensor) -> Tensor:
    """Distance between the bf16 numbers around fp32 values: 2**-7 of their power of two."""
    return torch.exp2(torch.floor(torch.log2(values.abs())) - 7)


@pytest.mark.parametrize("value", [1.0 + 1e-3, -(1.0 + 1e-3), 0.7, -3.3e-5, 1e20, 255.9])
def test_rounding_is_right_on_average(value: float) -> None:
    count = 200_000
    found = rounded(torch.full((count,), value)).double()
    low, high = found.min(), found.max()
    spread = float(high - low)
    assert 0 < spread <= float(step_between(torch.tensor(value))) * 1.001
    # Of a two-point distribution; five standard errors of the mean.
    assert float(found.mean()) == pytest.approx(value, abs=5 * 0.5 * spread / count**0.5)


def test_numbers_that_bf16_has_stay_as_they_are() -> None:
    values = torch.tensor([0.0, -0.0, 1.0, -1.0, 2**-126, -(2.0**127), 0.15625, 3.0], dtype=torch.bfloat16)
    for seed in range(50):
        assert torch.equal(rounded(values.float(), seed), values)


@given(value=st.floats(min_value=2.0**-100, max_value=2.0**100, width=32), seed=st.integers(0, 2**31))
def test_rounding_takes_one_of_the_two_neighbours(value: float, seed: int) -> None:
    for signed in (value, -value):
        tensor = torch.tensor([signed])
        found = rounded(tensor, seed).float()
        assert abs(float(found - tensor)) < float(step_between(tensor))


def test_rounding_copies_into_other_types() -> None:
    target = torch.zeros(3)
    round_stochastically(torch.tensor([1.0, 2.5, -0.1]), target, noise(3))
    assert target.tolist() == torch.tensor([1.0, 2.5, -0.1]).tolist()


def test_rounding_covers_tensors_longer_than_the_noise() -> None:
    values = torch.linspace(1, 2, 1000).view(10, 100)
    target = torch.zeros(10, 100, dtype=torch.bfloat16)
    round_stochastically(values, target, noise(64))
    assert float((target.float() - values).abs().max()) < 2**-7


def test_the_copy_starts_as_the_nearest_bf16_numbers(policy: Policy) -> None:
    before = [weight.detach().clone() for weight in policy.trainable()]
    masters = optimizer(policy)
    assert masters.has_copy
    for weight, start, master in zip(policy.trainable(), before, masters.weights().values(), strict=True):
        assert weight.dtype == torch.bfloat16
        assert torch.equal(weight, start.bfloat16())
        assert torch.equal(master, start)


def test_in_fp32_there_is_no_copy(policy: Policy) -> None:
    masters = optimizer(policy, torch.float32)
    assert not masters.has_copy
    for weight, master in zip(policy.trainable(), masters.weights().values(), strict=True):
        assert weight.data_ptr() == master.data_ptr()


def test_an_adapter_is_trained_in_fp32_over_a_bf16_base(tmp_path: Path) -> None:
    policy = tiny_lora_policy("llama", tmp_path, torch.bfloat16)
    masters = optimizer(policy)
    assert not masters.has_copy
    assert {weight.dtype for weight in masters.weights().values()} == {torch.float32}


def test_small_updates_move_the_copy_on_average(tmp_path: Path) -> None:
    # 1e-5 is a hundredth of the distance between bf16 numbers around 0.25: rounding to nearest
    # would leave every single weight where it is.
    policy = full_policy(tmp_path)
    with torch.no_grad():
        for weight in policy.trainable():
            weight.fill_(0.25)
    masters = optimizer(policy)
    rate = 1e-5
    for weight in policy.trainable():
        weight.grad = -torch.ones_like(weight)
    masters.collect()
    masters.step(rate, max_norm=1e9)
    assert {float(master.bfloat16().max()) for master in masters.weights().values()} == {0.25}
    copies = torch.cat([weight.detach().float().flatten() for weight in policy.trainable()])
    moved = (copies > 0.25).double().mean()
    assert float(moved) == pytest.approx(rate / (0.25 * 2**-7), rel=0.2)
    assert float(copies.double().mean() - 0.25) == pytest.approx(rate, rel=0.2)


def test_many_small_updates_add_up_in_the_copy(tmp_path: Path) -> None:
    policy = full_policy(tmp_path)
    masters = optimizer(policy)
    start = masters.weights()["model.embed_tokens.weight"].clone()
    for _ in range(50):
        for weight in policy.trainable():
            weight.grad = -torch.ones_like(weight)
        masters.collect()
        masters.step(1e-5, max_norm=1e9)
    copy = policy.base.get_input_embeddings().weight.detach().float()
    assert float((copy - start).mean()) == pytest.approx(50e-5, rel=0.05)


def test_the_copy_is_the_same_for_the_same_seed_and_another_for_another(tmp_path: Path) -> None:
    copies = []
    for name, seed in (("a", 17), ("b", 17), ("c", 18)):
        policy = full_policy(tmp_path / name)
        masters = optimizer(policy, seed=seed)
        add_gradients(policy, 1)
        masters.collect()
        masters.step(1e-3, 1.0)
        copies.append(torch.cat([weight.detach().flatten() for weight in policy.trainable()]))
    assert torch.equal(copies[0], copies[1])
    assert not torch.equal(copies[0], copies[2])


def test_gradients_of_several_micro_batches_add_up_in_fp32(policy: Policy) -> None:
    # In bf16, 256 + 1 is 256.
    masters = optimizer(policy)
    for value in (256.0, 1.0, 1.0):
        for weight in policy.trainable():
            weight.grad = torch.full_like(weight, value)
        masters.collect()
    assert all(weight.grad is None for weight in policy.trainable())
    count = sum(weight.numel() for weight in policy.trainable())
    assert masters.step(0.0, 1.0) == pytest.approx(258.0 * count**0.5, rel=1e-5)


def test_an_update_is_that_of_adamw_in_fp32(policy: Policy, tmp_path: Path) -> None:
    twin = full_policy(tmp_path / "twin")
    # Norms and biases do not decay.
    decay = {True: 0.1, False: 0.0}
    groups = [
        {"params": [w for w in twin.trainable() if (w.ndim > 1) is matrix], "weight_decay": decay[matrix]}
        for matrix in decay
    ]
    assert all(group["params"] for group in groups)
    expected = torch.optim.AdamW(groups, lr=1e-3)
    masters = optimizer(policy, weight_decay=0.1)
    for seed in range(3):
        add_gradients(policy, seed)
        for weight, other in zip(policy.trainable(), twin.trainable(), strict=True):
            assert weight.grad is not None
            other.grad = weight.grad.float()
        masters.collect()
        norm = masters.step(1e-3, 0.5)
        assert norm == pytest.approx(float(torch.nn.utils.clip_grad_norm_(twin.trainable(), 0.5)))
        expected.step()
    for master, other in zip(masters.weights().values(), twin.trainable(), strict=True):
        torch.testing.assert_close(master, other.detach(), rtol=1e-6, atol=1e-7)


def test_the_learning_rate_is_that_of_each_call(policy: Policy) -> None:
    masters = optimizer(policy, torch.float32)
    for rate in (1e-3, 1e-4):
        before = masters.weights()["model.norm.weight"].clone()
        for weight in policy.trainable():
            weight.grad = torch.ones_like(weight)
        masters.step(rate, 1e9)
        moved = before - masters.weights()["model.norm.weight"]
        torch.testing.assert_close(moved, torch.full_like(moved, rate), rtol=1e-2, atol=0.0)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_gradient_that_is_not_finite_changes_nothing(policy: Policy, dtype: torch.dtype, bad: float) -> None:
    masters = optimizer(policy, dtype)
    add_gradients(policy, 1)
    masters.collect()
    masters.step(1e-3, 1.0)
    kept = [weight.detach().clone() for weight in policy.trainable()]
    state = copied(masters.state_dict())
    add_gradients(policy, 2)
    first = policy.trainable()[0]
    assert first.grad is not None
    first.grad.view(-1)[3] = bad
    masters.collect()
    assert not torch.isfinite(torch.tensor(masters.step(1e-3, 1.0)))
    assert all(torch.equal(weight, old) for weight, old in zip(policy.trainable(), kept, strict=True))
    assert same(masters.state_dict(), state)
    # Nothing is left over for the next step.
    add_gradients(policy, 3)
    masters.collect()
    assert masters.step(1e-3, 1.0) == pytest.approx(sum(w.numel() for w in policy.trainable()) ** 0.5, rel=0.05)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_gradient_of_zero_changes_nothing(policy: Policy, dtype: torch.dtype) -> None:
    masters = optimizer(policy, dtype, weight_decay=0.1)
    add_gradients(policy, 1)
    masters.collect()
    masters.step(1e-3, 1.0)
    kept = [weight.detach().clone() for weight in policy.trainable()]
    state = copied(masters.state_dict())
    for weight in policy.trainable():
        weight.grad = torch.zeros_like(weight)
    masters.collect()
    assert masters.step(1e-3, 1.0) == 0
    assert all(torch.equal(weight, old) for weight, old in zip(policy.trainable(), kept, strict=True))
    assert same(masters.state_dict(), state)


def test_the_copy_keeps_its_noise_until_the_last_update_of_a_step(policy: Policy) -> None:
    masters = optimizer(policy)
    for seed, last in ((1, True), (2, False), (3, True)):
        before = torch.cat([weight.detach().flatten() for weight in policy.trainable()])
        add_gradients(policy, seed)
        masters.collect()
        masters.step(1e-12, 1.0, last)
        after = torch.cat([weight.detach().flatten() for weight in policy.trainable()])
        seen = before.abs() > 1e-3  # such a weight moved by less than fp32 can tell
        assert torch.equal(before[seen], after[seen]) is not last


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_state_that_was_saved_and_loaded_goes_on_to_the_bit(tmp_path: Path, dtype: torch.dtype) -> None:
    policy = full_policy(tmp_path / "first")
    masters = optimizer(policy, dtype)
    for seed in (1, 2):
        add_gradients(policy, seed)
        masters.collect()
        masters.step(1e-3, 1.0)
    torch.save(masters.state_dict(), tmp_path / "state.pt")
    twin = full_policy(tmp_path / "second")
    with torch.no_grad():
        for weight, saved in zip(twin.trainable(), masters.weights().values(), strict=True):
            weight.copy_(saved)
    resumed = optimizer(twin, dtype)
    resumed.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    assert equal_weights(policy, twin)
    for seed in (3, 4):
        for each, part in ((policy, masters), (twin, resumed)):
            add_gradients(each, seed)
            part.collect()
            part.step(1e-3, 1.0)
        assert equal_weights(policy, twin)
    assert same(masters.state_dict(), resumed.state_dict())


def test_loading_the_state_of_no_updates_leaves_the_copy_as_it_started(tmp_path: Path) -> None:
    policy = full_policy(tmp_path)
    masters = optimizer(policy)
    before = [weight.detach().clone() for weight in policy.trainable()]
    masters.load_state_dict(copied(masters.state_dict()))
    assert all(torch.equal(weight, old) for weight, old in zip(policy.trainable(), before, strict=True))


def test_weights_have_the_names_of_the_model(policy: Policy) -> None:
    masters = optimizer(policy)
    assert list(masters.weights()) == [name for name, _ in policy.model.named_parameters()]


def test_tied_embeddings_stay_tied(policy: Policy) -> None:
    masters = optimizer(policy)
    add_gradients(policy, 1)
    masters.collect()
    masters.step(1e-3, 1.0)
    assert policy.head.data_ptr() == policy.base.get_input_embeddings().weight.data_ptr()


def equal_weights(policy: Policy, other: Policy) -> bool:
    return all(torch.equal(a, b) for a, b in zip(policy.trainable(), other.trainable(), strict=True))


def copied(value: Any) -> Any:
    """Nested dicts and lists with tensors, copied."""
    if isinstance(value, dict):
        return {key: copied(part) for key, part in value.items()}
    if isinstance(value, list):
        return [copied(part) for part in value]
    return value.clone() if isinstance(value, Tensor) else value


def same(value: Any, other: Any) -> bool:
    if isinstance(value, dict):
        return value.keys() == other.keys() and all(same(value[key], other[key]) for key in value)
    if isinstance(value, list):
        return len(value) == len(other) and all(map(same, value, other))
    return torch.equal(value, other) if isinstance(value, Tensor) else bool(value == other)
