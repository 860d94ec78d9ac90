"""The in-process sampler: what is drawn, when it ends, and that it agrees with the trainer."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers import AutoTokenizer, GenerationConfig

from models import (
    END,
    PAD,
    SUPPORTED,
    TinyModels,
    packed_logprobs,
    plain_logprobs,
    plain_model,
    random_ids,
    sample,
    stir_adapters,
    tiny_lora_policy,
    tiny_policy,
)
from strop.errors import ModelError
from strop.policy.attention import Layout
from strop.policy.draw import draw, invert_cdf
from strop.policy.engine import Engine, Request, ends_with_stop
from strop.policy.fetch import resolve
from strop.policy.model import Policy, load_policy
from strop.policy.sampler import LocalSampler
from strop.types import Completion, SamplingParams, StopReason

CPU = torch.device("cpu")
JUST_BELOW_ONE = float(np.nextafter(np.float32(1), np.float32(0)))


def params(**settings: Any) -> SamplingParams:
    return SamplingParams(**{"temperature": 1.0, "max_tokens": 12, "seed": 5, **settings})


def run(engine: Engine) -> list[Request]:
    """Step until every submitted request is done; the requests in the order of finishing."""
    finished = []
    while engine.busy:
        finished += engine.step()
    return finished


def completions(request: Request) -> list[Completion]:
    done = [completion for completion in request.completions if completion is not None]
    assert len(done) == len(request.completions)
    return done


def complete(
    policy: Policy, prompt: Sequence[int], count: int = 1, max_concurrent: int = 8, **settings: Any
) -> list[Completion]:
    """Completions of one request in an engine of its own."""
    engine = Engine(policy, max_concurrent)
    request = engine.submit(prompt, count, params(**settings))
    run(engine)
    return completions(request)


def ending_early(policy: Policy, ids: Sequence[int] = tuple(range(4, 34))) -> Policy:
    """A policy for which many tokens end a turn, so that sequences end at different times."""
    policy.base.generation_config = GenerationConfig(eos_token_id=list(ids))
    return policy


# Agreement with transformers and with the trainer


@pytest.mark.parametrize("kind", SUPPORTED)
def test_greedy_completions_are_those_of_generate(tiny: TinyModels, kind: str) -> None:
    engine = Engine(tiny.policy(kind), 4)
    prompts = [random_ids(length, seed) for seed, length in enumerate((9, 1, 23, 9, 4))]
    requests = [engine.submit(prompt, 1, params(temperature=0.0, max_tokens=40)) for prompt in prompts]
    run(engine)
    for prompt, request in zip(prompts, requests, strict=True):
        ids = torch.tensor([prompt])
        expected = tiny.plain(kind).generate(
            input_ids=ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=40
        )
        assert list(completions(request)[0].token_ids_T) == expected[0, len(prompt) :].tolist()


def test_greedy_completions_of_the_default_model_are_those_of_generate() -> None:
    folder = resolve("smollm2-135m")
    policy = load_policy(folder, "smollm2-135m", CPU, torch.float32)
    plain = plain_model(Path(folder))
    engine = Engine(policy, 4)
    texts = ("<|im_start|>user\nWhat is 2 + 34?<|im_end|>\n<|im_start|>assistant\n", "The sky is")
    prompts = [policy.tokenizer(text)["input_ids"] for text in texts]
    requests = [engine.submit(prompt, 1, params(temperature=0.0, max_tokens=16)) for prompt in prompts]
    run(engine)
    for prompt, request in zip(prompts, requests, strict=True):
        ids = torch.tensor([prompt])
        expected = plain.generate(
            input_ids=ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=16
        )
        (completion,) = completions(request)
        assert list(completion.token_ids_T) == expected[0, len(prompt) :].tolist()
        wanted = plain_logprobs(plain, prompt, completion.token_ids_T)
        torch.testing.assert_close(torch.tensor(completion.logprobs_T), wanted, atol=1e-4, rtol=0)


def gaps(policy: Policy, temperature: float, max_concurrent: int) -> Tensor:
    """|sampler - trainer| for every token of a batch with prompts and completions of many lengths.

    Completions of up to 100 tokens outgrow the slab that 64 were foreseen for; sequences queue
    and end at different times.
    """
    engine = Engine(policy, max_concurrent)
    prompts = [random_ids(length, 10 + length) for length in (3, 30, 1, 12)]
    limits = (100, 20, 7, 100)
    requests = [
        engine.submit(prompt, 4, params(temperature=temperature, max_tokens=limit, seed=limit))
        for prompt, limit in zip(prompts, limits, strict=True)
    ]
    run(engine)
    lengths = {len(c.token_ids_T) for request in requests for c in completions(request)}
    assert len(lengths) > 4 and max(lengths) > 64
    groups = [sample(r.prompt_ids, [c.token_ids_T for c in completions(r)]) for r in requests]
    with torch.no_grad():
        trainer = packed_logprobs(policy, groups, temperature)
    sampled = [torch.tensor(c.logprobs_T) for request in requests for c in completions(request)]
    return torch.cat([(row[: len(own)] - own).abs() for row, own in zip(trainer, sampled, strict=True)])


@pytest.mark.parametrize("max_concurrent", [64, 5])
@pytest.mark.parametrize("kind", SUPPORTED)
def test_sampler_and_trainer_have_the_same_logprobs(tmp_path: Path, kind: str, max_concurrent: int) -> None:
    policy = ending_early(tiny_policy(kind, tmp_path), range(4, 9))
    assert float(gaps(policy, 0.8, max_concurrent).max()) < 2e-5


@pytest.mark.parametrize("kind", SUPPORTED)
def test_they_agree_with_adapters_too_and_after_the_adapters_change(tmp_path: Path, kind: str) -> None:
    policy = ending_early(tiny_lora_policy(kind, tmp_path), range(4, 9))
    assert float(gaps(policy, 1.2, 6).max()) < 2e-5
    stir_adapters(policy, seed=8)
    assert float(gaps(policy, 1.2, 6).max()) < 2e-5


@pytest.mark.parametrize("kind", ["llama", "qwen2", "gemma3"])
def test_they_are_close_in_bf16(tmp_path: Path, kind: str) -> None:
    found = gaps(ending_early(tiny_lora_policy(kind, tmp_path, torch.bfloat16), range(4, 9)), 1.0, 6)
    assert float(found.mean()) < 0.03
    assert float(found.max()) < 0.5


@pytest.mark.parametrize("temperature", [0.7, 1.0, 1.6])
def test_entropies_are_those_of_the_distribution_drawn_from(tiny: TinyModels, temperature: float) -> None:
    prompt = random_ids(6, 1)
    (completion,) = complete(tiny.policy("llama"), prompt, temperature=temperature)
    ids = torch.tensor([[*prompt, *completion.token_ids_T]])
    with torch.no_grad():
        logits = tiny.plain("llama")(input_ids=ids).logits[0, len(prompt) - 1 : -1]
    expected = torch.distributions.Categorical(logits=logits / temperature).entropy()
    torch.testing.assert_close(torch.tensor(completion.entropies_T), expected, atol=1e-4, rtol=0)


# What is drawn


def chi_square(counts: Tensor, probabilities: Tensor) -> float:
    """Pearson's statistic; bins that expect fewer than five are put together."""
    expected = probabilities.double() * counts.sum()
    rare = expected < 5
    observed = torch.cat([counts[~rare].double(), counts[rare].sum()[None].double()])
    wanted = torch.cat([expected[~rare], expected[rare].sum()[None]])
    kept = wanted > 0
    return float(((observed[kept] - wanted[kept]) ** 2 / wanted[kept]).sum())


def draws(logits: Tensor, count: int, temperature: float, top_p: float = 1.0) -> Tensor:
    """Ids of `count` draws from one distribution."""
    uniforms = torch.rand(count, generator=torch.Generator().manual_seed(3))
    ids, _, _ = draw(logits.repeat(count, 1), torch.full((count,), temperature), torch.full((count,), top_p), uniforms)
    return ids


@pytest.mark.parametrize("temperature", [0.7, 1.0, 1.3])
def test_draws_follow_the_softmax_at_the_temperature(temperature: float) -> None:
    logits = torch.randn(64, generator=torch.Generator().manual_seed(4)) * 2
    counts = torch.bincount(draws(logits, 40_000, temperature), minlength=64)
    # 63 degrees of freedom: beyond 120 once in a hundred thousand.
    assert chi_square(counts, torch.softmax(logits / temperature, dim=0)) < 120
    assert chi_square(counts, torch.softmax(logits / (temperature * 1.15), dim=0)) > 200


@pytest.mark.parametrize("temperature", [0.7, 1.3])
def test_first_tokens_of_many_completions_follow_the_models_distribution(tiny: TinyModels, temperature: float) -> None:
    prompt = random_ids(8, 2)
    done = complete(tiny.policy("qwen2"), prompt, 4000, 500, temperature=temperature, max_tokens=1)
    counts = torch.bincount(torch.tensor([completion.token_ids_T[0] for completion in done]), minlength=288)
    with torch.no_grad():
        logits = tiny.plain("qwen2")(input_ids=torch.tensor([prompt])).logits[0, -1]
    # At most 288 degrees of freedom: beyond 400 once in a hundred thousand.
    assert chi_square(counts, torch.softmax(logits / temperature, dim=0)) < 400


def test_logprobs_and_entropies_are_those_at_the_rows_own_temperature() -> None:
    logits = torch.randn(3, 40, generator=torch.Generator().manual_seed(5))
    temperatures = torch.tensor([0.5, 0.0, 2.0])
    ids, logprobs, entropies = draw(logits.clone(), temperatures, torch.ones(3), torch.tensor([0.2, 0.9, 0.6]))
    for row, temperature in enumerate((0.5, 1.0, 2.0)):  # greedy rows report temperature 1
        scores = torch.log_softmax(logits[row] / temperature, dim=0)
        torch.testing.assert_close(logprobs[row], scores[ids[row]])
        torch.testing.assert_close(entropies[row], -(scores.exp() * scores).sum())
    assert ids[1] == logits[1].argmax()


def test_temperature_zero_takes_the_likeliest_token_whatever_the_uniform() -> None:
    logits = torch.randn(50, 30, generator=torch.Generator().manual_seed(6))
    uniforms = torch.linspace(0, JUST_BELOW_ONE, 50)
    ids, _, _ = draw(logits.clone(), torch.zeros(50), torch.ones(50), uniforms)
    assert torch.equal(ids, logits.argmax(-1))


@pytest.mark.parametrize(
    ("top_p", "kept"), [(0.5, {7}), (0.51, {7, 2}), (0.79, {7, 2}), (0.81, {7, 2, 0}), (1.0, {7, 2, 0, 5})]
)
def test_the_nucleus_holds_the_token_that_crosses_top_p_and_none_after_it(top_p: float, kept: set[int]) -> None:
    probabilities = torch.full((8,), 0.0)
    probabilities[[7, 2, 0, 5]] = torch.tensor([0.505, 0.295, 0.15, 0.05])
    logits = probabilities.log().clamp(min=-1e4)
    ids = draws(logits, 3000, 1.0, top_p)
    assert set(ids.tolist()) == kept
    wanted = torch.zeros(8)
    wanted[list(kept)] = probabilities[list(kept)]
    assert chi_square(torch.bincount(ids, minlength=8), wanted / wanted.sum()) < 25


def test_logprobs_are_those_of_the_whole_distribution_with_top_p_too() -> None:
    logits = torch.tensor([[2.0, 1.0, 0.0, -1.0]])
    ids, logprobs, entropies = draw(logits.clone(), torch.ones(1), torch.tensor([0.3]), torch.tensor([0.9]))
    assert ids.tolist() == [0]
    torch.testing.assert_close(logprobs[0], torch.log_softmax(logits[0], 0)[0])
    torch.testing.assert_close(entropies[0], torch.distributions.Categorical(logits=logits[0]).entropy())


def test_a_row_without_top_p_draws_the_same_beside_one_with_it() -> None:
    # A long tail, whose running sum passes 1 by rounding before the last tokens.
    logits = torch.randn(1, 50_000, generator=torch.Generator().manual_seed(4)) * 3
    uniforms = torch.tensor([JUST_BELOW_ONE, 0.5])
    alone, _, _ = draw(logits.clone(), torch.ones(1), torch.ones(1), uniforms[:1])
    beside, _, _ = draw(logits.repeat(2, 1), torch.ones(2), torch.tensor([1.0, 0.5]), uniforms)
    assert alone[0] == beside[0]


SIZES = [1, 7, 31, 32, 64, 96, 100, 128, 288, 512, 1000]


@st.composite
def weighted(draw: st.DrawFn) -> tuple[np.ndarray[Any, Any], float]:
    """Small whole weights, many of them zero, whose sums are exact; and a uniform number."""
    size = draw(st.sampled_from(SIZES))
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    weights = generator.integers(0, 5, size) * (generator.random(size) < draw(st.sampled_from([0.02, 0.3, 1.0])))
    weights[draw(st.integers(0, size - 1))] += 1
    edges = st.sampled_from([0.0, JUST_BELOW_ONE, 0.5])
    return weights.astype(np.float32), draw(edges | st.floats(0, JUST_BELOW_ONE, width=32))


@settings(deadline=None, max_examples=300)
@given(case=weighted())
def test_inverting_the_sum_finds_what_searchsorted_finds(case: tuple[np.ndarray[Any, Any], float]) -> None:
    weights, uniform = case
    running = np.cumsum(weights, dtype=np.float32)
    expected = int(np.searchsorted(running, np.float32(uniform) * running[-1], side="right"))
    found = int(invert_cdf(torch.from_numpy(weights)[None], torch.tensor([uniform]))[0])
    assert found == expected
    assert weights[found] > 0


@settings(deadline=None, max_examples=200)
@given(
    size=st.sampled_from(SIZES),
    seed=st.integers(0, 2**32 - 1),
    spread=st.sampled_from([0.1, 3.0, 30.0]),
    zeros=st.sampled_from([0.0, 0.5, 0.99]),
)
def test_a_weight_of_zero_is_never_drawn(size: int, seed: int, spread: float, zeros: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    weights = torch.softmax(torch.randn(5, size, generator=generator) * spread, dim=-1)
    weights[torch.rand(5, size, generator=generator) < zeros] = 0.0
    weights[:, int(torch.randint(size, (1,), generator=generator))] = 1e-3
    uniforms = torch.tensor([0.0, JUST_BELOW_ONE, 0.5, 0.999, 0.001])
    found = invert_cdf(weights, uniforms)
    assert (weights.gather(1, found[:, None]) > 0).all()
    running = weights.double().cumsum(-1)
    marks = uniforms.double() * running[:, -1]
    rounding = 1e-5 * running[:, -1]
    after = running.gather(1, found[:, None])[:, 0]
    assert (after >= marks - rounding).all()
    assert (after - weights.double().gather(1, found[:, None])[:, 0] <= marks + rounding).all()


def test_every_row_is_searched_with_its_own_uniform() -> None:
    weights = torch.tensor([[1.0, 1.0, 2.0], [0.0, 3.0, 1.0], [4.0, 0.0, 0.0]])
    assert invert_cdf(weights, torch.tensor([0.3, 0.74, 0.99])).tolist() == [1, 1, 0]


def test_logits_that_are_not_finite_are_refused() -> None:
    for bad in (float("nan"), float("inf")):
        logits = torch.zeros(2, 8)
        logits[1, 3] = bad
        with pytest.raises(ModelError, match="not finite"):
            draw(logits, torch.ones(2), torch.ones(2), torch.full((2,), 0.5))


# Seeds


def test_the_same_seed_draws_the_same_whatever_else_is_in_the_batch(tmp_path: Path) -> None:
    policy = ending_early(tiny_policy("gemma3", tmp_path))
    prompts = [random_ids(length, 20 + length) for length in (4, 17, 1, 9)]
    alone = [complete(policy, prompt, 3, seed=index) for index, prompt in enumerate(prompts)]
    for order in ((0, 1, 2, 3), (3, 1, 0, 2), (2, 3, 1, 0)):
        for max_concurrent in (2, 5, 12):
            engine = Engine(policy, max_concurrent)
            requests = {index: engine.submit(prompts[index], 3, params(seed=index)) for index in order}
            run(engine)
            for index, expected in enumerate(alone):
                found = completions(requests[index])
                assert [c.token_ids_T for c in found] == [c.token_ids_T for c in expected]
                assert [c.stop_reason for c in found] == [c.stop_reason for c in expected]


def test_a_request_that_comes_later_changes_nothing_for_those_in_flight(tiny: TinyModels) -> None:
    policy = tiny.policy("qwen3")
    first, second = random_ids(6, 1), random_ids(40, 2)
    expected = complete(policy, first, 2, max_tokens=30), complete(policy, second, 2, seed=9, max_tokens=30)
    engine = Engine(policy, 4)
    requests = [engine.submit(first, 2, params(max_tokens=30))]
    for _ in range(10):
        engine.step()
    requests.append(engine.submit(second, 2, params(max_tokens=30, seed=9)))
    run(engine)
    for request, wanted in zip(requests, expected, strict=True):
        assert [c.token_ids_T for c in completions(request)] == [c.token_ids_T for c in wanted]


def test_two_requests_for_one_prompt_at_the_same_time_keep_apart(tiny: TinyModels) -> None:
    policy, prompt = tiny.policy("llama"), random_ids(7, 3)
    expected = [complete(policy, prompt, 2, seed=seed) for seed in (1, 2)]
    engine = Engine(policy, 3)
    requests = [engine.submit(prompt, 2, params(seed=seed)) for seed in (1, 2)]
    run(engine)
    assert [[c.token_ids_T for c in completions(r)] for r in requests] == [[c.token_ids_T for c in e] for e in expected]
    assert expected[0][0].token_ids_T != expected[1][0].token_ids_T


def test_completions_of_a_request_and_of_other_seeds_differ(tiny: TinyModels) -> None:
    found = [c.token_ids_T for seed in (1, 2) for c in complete(tiny.policy("llama"), random_ids(7, 3), 4, seed=seed)]
    assert len(set(found)) == 8


# Where completions end


def test_every_end_token_stops_and_stays_the_last_id(tmp_path: Path) -> None:
    ends = set(range(4, 34))
    policy = ending_early(tiny_policy("llama", tmp_path), tuple(ends))
    done = complete(policy, random_ids(5, 1), 200, 50, max_tokens=20)
    stopped = [completion for completion in done if completion.stop_reason is StopReason.STOP]
    assert {completion.token_ids_T[-1] for completion in stopped} > set(list(ends)[:3])
    assert len({completion.token_ids_T[-1] for completion in stopped}) > 15
    for completion in done:
        assert not ends & set(completion.token_ids_T[:-1])
        assert (completion.token_ids_T[-1] in ends) is (completion.stop_reason is StopReason.STOP)
        assert completion.stop_reason is StopReason.STOP or len(completion.token_ids_T) == 20


def test_at_the_limit_nothing_is_added_that_was_not_drawn(tmp_path: Path) -> None:
    policy = ending_early(tiny_policy("llama", tmp_path), (END,))
    prompt = random_ids(5, 2)
    for limit in (1, 2, 70):
        for completion in complete(policy, prompt, 3, max_tokens=limit):
            assert completion.stop_reason is StopReason.LENGTH
            assert len(completion.token_ids_T) == limit
            assert END not in completion.token_ids_T
            assert len(completion.logprobs_T) == len(completion.entropies_T) == limit
    longer = complete(policy, prompt, 3, max_tokens=70)
    shorter = complete(policy, prompt, 3, max_tokens=20)
    assert [c.token_ids_T[:20] for c in longer] == [c.token_ids_T for c in shorter]


def test_an_end_token_at_the_limit_is_a_stop(tmp_path: Path) -> None:
    policy = ending_early(tiny_policy("llama", tmp_path), range(288))
    (completion,) = complete(policy, random_ids(5, 2), max_tokens=1)
    assert completion.stop_reason is StopReason.STOP
    assert len(completion.token_ids_T) == 1


def test_a_stop_string_across_tokens_ends_a_completion_with_what_was_drawn(tiny: TinyModels) -> None:
    policy, prompt = tiny.policy("llama"), random_ids(6, 4)
    (whole,) = complete(policy, prompt, max_tokens=40)
    # The text of three tokens in the middle, less its ends: no single token holds it.
    places = [
        start
        for start in range(10, 30)
        if all(
            len(policy.decode([i])) > 0 and "�" not in policy.decode([i]) for i in whole.token_ids_T[start : start + 3]
        )
    ]
    stop = policy.decode(whole.token_ids_T[places[0] : places[0] + 3])
    assert len(stop) >= 3
    (cut,) = complete(policy, prompt, max_tokens=40, stop=("never said", stop))
    length = len(cut.token_ids_T)
    assert cut.stop_reason is StopReason.STOP
    assert cut.token_ids_T == whole.token_ids_T[:length]
    assert cut.logprobs_T == pytest.approx(whole.logprobs_T[:length], abs=1e-5)
    assert stop in policy.decode(cut.token_ids_T)
    assert stop not in policy.decode(cut.token_ids_T[:-1])


def first_stop(decode: Any, ids: Sequence[int], stop: Sequence[str]) -> int | None:
    """How many ids there are when `ends_with_stop` first says so."""
    return next((n for n in range(1, len(ids) + 1) if ends_with_stop(ids[:n], stop, decode)), None)


stop_texts = st.text("abthe äß→😀\n", min_size=1, max_size=5)


@settings(deadline=None, max_examples=150)
@given(text=st.text("abthe äß→😀\n", max_size=60), stop=st.lists(stop_texts, min_size=1, max_size=3))
def test_stop_strings_are_found_at_the_token_that_completes_them(tiny: TinyModels, text: str, stop: list[str]) -> None:
    policy = tiny.policy("llama")
    ids = policy.tokenizer(text, add_special_tokens=False)["input_ids"] if text else []
    whole = next((n for n in range(1, len(ids) + 1) if any(s in policy.decode(ids[:n]) for s in stop)), None)
    assert first_stop(policy.decode, ids, stop) == whole


def test_special_tokens_in_between_do_not_hide_a_stop_string(tiny: TinyModels) -> None:
    decode = tiny.policy("llama").decode
    ids = [*tiny.policy("llama").tokenizer("xy", add_special_tokens=False)["input_ids"]]
    assert decode(ids) == "xy"
    assert ends_with_stop([ids[0], PAD, PAD, ids[1]], ("xy",), decode)


@pytest.mark.parametrize("stop", ["</answer>", "日本", "\n\nObservation:", " 34", "é→"])
def test_stop_strings_are_found_in_tokens_of_the_default_model(stop: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(resolve("smollm2-135m"))

    def decode(ids: Sequence[int]) -> str:
        return str(tokenizer.decode(ids, skip_special_tokens=True))

    ids = tokenizer("The café in 日 is old." * 5 + f"<answer>x {stop}and more")["input_ids"]
    found = first_stop(decode, ids, [stop])
    assert found is not None
    assert stop in decode(ids[:found])
    assert stop not in decode(ids[: found - 1])


# The engine


def test_finished_requests_are_returned_once_each(tmp_path: Path) -> None:
    engine = Engine(ending_early(tiny_policy("llama", tmp_path)), 3)
    requests = [engine.submit(random_ids(4, seed), 2, params(seed=seed)) for seed in range(5)]
    finished = run(engine)
    assert sorted(map(id, finished)) == sorted(map(id, requests))
    assert all(request.done for request in requests)
    assert not engine.busy


def test_a_request_over_the_models_positions_is_refused_naming_the_settings(tmp_path: Path) -> None:
    policy = tiny_policy("llama", tmp_path, max_position_embeddings=32)
    engine = Engine(policy, 2)
    with pytest.raises(ModelError, match=r"has 32 positions.*max_completion_tokens or max_prompt_tokens"):
        engine.submit(random_ids(21, 1), 1, params(max_tokens=12))
    assert not engine.busy
    (completion,) = complete(policy, random_ids(20, 1), max_tokens=12)
    assert len(completion.token_ids_T) <= 12


def damaged(folder: Path) -> Policy:
    """A policy whose final norm has become NaN."""
    policy = tiny_policy("llama", folder)
    policy.base.model.norm.weight.data.fill_(float("nan"))
    return policy


def test_damaged_weights_are_named_as_such(tmp_path: Path) -> None:
    engine = Engine(damaged(tmp_path), 2)
    engine.submit(random_ids(4, 1), 1, params())
    with pytest.raises(ModelError, match="weights are damaged"):
        run(engine)


def test_an_engine_goes_on_after_an_abort(tiny: TinyModels) -> None:
    policy, prompt = tiny.policy("llama"), random_ids(9, 1)
    expected = complete(policy, prompt, 3)
    engine = Engine(policy, 2)
    engine.submit(random_ids(30, 2), 4, params(max_tokens=50))
    for _ in range(3):
        engine.step()
    engine.abort()
    assert not engine.busy
    request = engine.submit(prompt, 3, params())
    run(engine)
    assert [c.token_ids_T for c in completions(request)] == [c.token_ids_T for c in expected]


def test_nothing_is_left_of_keys_that_were_nan(tmp_path: Path) -> None:
    policy = tiny_policy("llama", tmp_path)
    prompt = random_ids(9, 1)
    expected = complete(policy, prompt)
    engine = Engine(policy, 4)
    norm = policy.base.model.layers[0].input_layernorm.weight
    kept = norm.detach().clone()
    norm.data.fill_(float("nan"))
    engine.submit(random_ids(40, 2), 4, params())
    with pytest.raises(ModelError):
        run(engine)
    engine.abort()
    norm.data.copy_(kept)
    request = engine.submit(prompt, 1, params())
    run(engine)
    assert completions(request)[0].token_ids_T == expected[0].token_ids_T


def test_a_released_engine_starts_anew(tiny: TinyModels) -> None:
    policy, prompt = tiny.policy("gemma3"), random_ids(9, 1)
    engine = Engine(policy, 2)
    found = []
    for _ in range(2):
        request = engine.submit(prompt, 2, params())
        run(engine)
        engine.release()
        found.append([c.token_ids_T for c in completions(request)])
    assert found[0] == found[1]


# Many coroutines


def test_coroutines_share_one_engine_and_each_gets_its_own(tmp_path: Path) -> None:
    policy = ending_early(tiny_policy("qwen3", tmp_path))
    prompts = [random_ids(length, length) for length in (3, 11, 6, 20, 1)]
    expected = [complete(policy, prompt, 2, seed=index) for index, prompt in enumerate(prompts)]
    sampler = LocalSampler(Engine(policy, 3))

    async def all_at_once() -> list[list[Completion]]:
        calls = (sampler.sample(prompt, 2, params(seed=index)) for index, prompt in enumerate(prompts))
        return await asyncio.gather(*calls)

    for _ in range(2):  # a second event loop finds the sampler as good as new
        found = asyncio.run(all_at_once())
        assert [[c.token_ids_T for c in f] for f in found] == [[c.token_ids_T for c in e] for e in expected]


def test_other_coroutines_run_while_tokens_are_drawn(tiny: TinyModels) -> None:
    sampler = LocalSampler(Engine(tiny.policy("llama"), 2))

    async def tick_meanwhile() -> int:
        ticks = 0
        task = asyncio.create_task(sampler.sample(random_ids(4, 1), 1, params(max_tokens=30)))
        while not task.done():
            await asyncio.sleep(0)
            ticks += 1
        return ticks

    assert asyncio.run(tick_meanwhile()) >= 10


def test_an_error_reaches_every_coroutine_and_the_sampler_goes_on(tmp_path: Path) -> None:
    policy = tiny_policy("llama", tmp_path)
    norm = policy.base.model.norm.weight
    kept = norm.detach().clone()
    sampler = LocalSampler(Engine(policy, 2))

    async def fail_then_recover() -> tuple[list[Any], list[Completion]]:
        norm.data.fill_(float("nan"))
        calls = (sampler.sample(random_ids(4, seed), 2, params()) for seed in range(3))
        failed = await asyncio.gather(*calls, return_exceptions=True)
        norm.data.copy_(kept)
        return failed, await sampler.sample(random_ids(4, 9), 2, params())

    failed, recovered = asyncio.run(fail_then_recover())
    assert [isinstance(error, ModelError) for error in failed] == [True] * 3
    assert [c.token_ids_T for c in recovered] == [c.token_ids_T for c in complete(policy, random_ids(4, 9), 2)]


def test_a_request_that_is_refused_does_not_disturb_the_others(tmp_path: Path) -> None:
    policy = tiny_policy("llama", tmp_path, max_position_embeddings=32)
    sampler = LocalSampler(Engine(policy, 2))

    async def one_of_two() -> list[Any]:
        calls = [sampler.sample(prompt, 1, params()) for prompt in (random_ids(4, 1), random_ids(31, 2))]
        return await asyncio.gather(*calls, return_exceptions=True)

    good, refused = asyncio.run(one_of_two())
    assert len(good) == 1
    assert isinstance(refused, ModelError)


def test_a_caller_that_gives_up_does_not_disturb_the_others(tiny: TinyModels) -> None:
    policy = tiny.policy("llama")
    sampler = LocalSampler(Engine(policy, 2))

    async def give_up() -> list[Completion]:
        impatient = asyncio.create_task(sampler.sample(random_ids(4, 1), 2, params(max_tokens=30)))
        patient = asyncio.create_task(sampler.sample(random_ids(5, 2), 2, params(max_tokens=30)))
        for _ in range(5):
            await asyncio.sleep(0)
        impatient.cancel()
        return await patient

    found = asyncio.run(give_up())
    expected = complete(policy, random_ids(5, 2), 2, max_tokens=30)
    assert [c.token_ids_T for c in found] == [c.token_ids_T for c in expected]


class Watched(Policy):
    """Notes how many tokens each forward takes."""

    def watch(self) -> None:
        self.widths: list[int] = []

    def hidden(self, ids: Tensor, layout: Layout) -> Tensor:
        self.widths.append(ids.numel())
        return super().hidden(ids, layout)


def test_calls_of_one_iteration_enter_the_engine_together_at_every_run(tiny: TinyModels) -> None:
    plain = tiny.policy("llama")
    policy = Watched(plain.model, plain.tokenizer, plain.name, plain.source)
    prompts = [random_ids(length, length) for length in (3, 11, 6, 20, 1, 8)]

    async def batches() -> list[int]:
        policy.watch()
        sampler = LocalSampler(Engine(policy, 12))
        await asyncio.gather(*(sampler.sample(prompt, 2, params(max_tokens=6)) for prompt in prompts))
        return policy.widths

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # threads take turns as often as they can
    try:
        found = [asyncio.run(batches()) for _ in range(10)]
    finally:
        sys.setswitchinterval(interval)
    assert found[0][0] == sum(map(len, prompts))
    assert found == [found[0]] * 10


def test_the_event_loop_does_not_wait_for_a_decode_step(tiny: TinyModels) -> None:
    plain, held = tiny.policy("llama"), threading.Event()

    class Slow(Policy):
        def hidden(self, ids: Tensor, layout: Layout) -> Tensor:
            held.wait(30)
            return super().hidden(ids, layout)

    sampler = LocalSampler(Engine(Slow(plain.model, plain.tokenizer, plain.name, plain.source), 2))

    async def go_on_meanwhile() -> list[Completion]:
        task = asyncio.create_task(sampler.sample(random_ids(4, 1), 1, params()))
        await asyncio.sleep(0.05)
        held.set()  # which would never happen if the step blocked the loop
        return await task

    assert len(asyncio.run(go_on_meanwhile())) == 1
