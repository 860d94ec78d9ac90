"""The sampler under many users: cancelling, faults of one request, limits of memory, alternatives."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from models import TinyModels, plain_logprobs, random_ids, tiny_policy
from strop.errors import ModelError
from strop.policy.attention import KvSlab, Layout, PrefillLayout
from strop.policy.engine import Engine, Limits, Request
from strop.policy.model import Policy
from strop.policy.sampler import LocalSampler
from strop.types import Completion, SamplingParams

CPU = torch.device("cpu")


def params(**settings: Any) -> SamplingParams:
    return SamplingParams(**{"temperature": 1.0, "max_tokens": 24, "seed": 5, **settings})


def finish(engine: Engine) -> None:
    while engine.busy:
        engine.step()


def expected(policy: Policy, prompt: list[int], count: int = 2, **settings: Any) -> list[list[int]]:
    engine = Engine(policy, 8)
    request = engine.submit(prompt, count, params(**settings))
    finish(engine)
    return request.ids


# Cancelling


def test_a_cancelled_request_leaves_its_rows_to_those_that_wait(tiny: TinyModels) -> None:
    policy = tiny.policy("llama")
    engine = Engine(policy, 2)
    gone = engine.submit(random_ids(4, 1), 2, params(max_tokens=200))
    waits = engine.submit(random_ids(7, 2), 2, params())
    for _ in range(3):
        engine.step()
    assert (engine.in_flight, engine.queued) == (2, 2)
    engine.cancel(gone)
    assert engine.in_flight == 0
    engine.step()
    assert (engine.in_flight, engine.queued) == (2, 0)
    finish(engine)
    assert waits.ids == expected(policy, random_ids(7, 2))
    assert not gone.done


def test_cancelling_one_of_several_in_flight_changes_nothing_for_the_others(tiny: TinyModels) -> None:
    policy = tiny.policy("qwen3")
    engine = Engine(policy, 8)
    prompts = [random_ids(length, length) for length in (5, 30, 11)]
    requests = [engine.submit(prompt, 2, params()) for prompt in prompts]
    for _ in range(4):
        engine.step()
    engine.cancel(requests[1])
    finish(engine)
    for index in (0, 2):
        assert requests[index].ids == expected(policy, prompts[index])


def test_a_request_that_waits_can_be_cancelled(tiny: TinyModels) -> None:
    engine = Engine(tiny.policy("llama"), 1)
    first, second = (engine.submit(random_ids(4, seed), 1, params()) for seed in (1, 2))
    engine.step()
    engine.cancel(second)
    finish(engine)
    assert first.done and not second.done


def test_a_coroutine_that_gives_up_takes_its_request_out_of_the_engine(tiny: TinyModels) -> None:
    class Noting(Engine):
        cancelled = 0

        def cancel(self, request: Request) -> None:
            self.cancelled += 1
            super().cancel(request)

    engine = Noting(tiny.policy("llama"), 4)
    sampler = LocalSampler(engine)

    async def give_up() -> None:
        task = asyncio.create_task(sampler.sample(random_ids(4, 1), 2, params(max_tokens=400)))
        while not engine.in_flight:
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        while engine.busy:
            await asyncio.sleep(0.001)

    asyncio.run(give_up())
    assert engine.cancelled == 1


# Faults of one request


def drive(engine: Engine) -> Iterator[tuple[list[Request], Exception]]:
    """Step to the end; the requests that each error cost."""
    while engine.busy:
        try:
            engine.step()
        except Exception as error:
            yield engine.shed(error), error


def test_logits_that_are_no_numbers_cost_their_own_request_only(tmp_path: Path) -> None:
    policy = tiny_policy("qwen2", tmp_path)  # whose head is a matrix of its own
    prompts = [random_ids(6, 1), random_ids(9, 2)]
    wanted = [expected(policy, prompt) for prompt in prompts]
    damaged = next(id for id in range(288) if not any(id in ids for ids in [*prompts, *wanted[0], *wanted[1]]))
    policy.base.model.embed_tokens.weight.data[damaged] = float("nan")
    engine = Engine(policy, 8)
    requests = [engine.submit(prompt, 2, params()) for prompt in prompts]
    for _ in range(3):
        engine.step()
    bad = engine.submit([*random_ids(4, 3), damaged], 2, params())
    ((shed, error),) = drive(engine)
    assert shed == [bad]
    assert isinstance(error, ModelError)
    assert [request.ids for request in requests] == wanted


class Cramped(Policy):
    """A policy for which memory runs out with prompts over a length."""

    longest = 40

    def hidden(self, ids: Tensor, layout: Layout) -> Tensor:
        if isinstance(layout, PrefillLayout) and ids.shape[1] > self.longest:
            raise torch.OutOfMemoryError("out of memory")
        return super().hidden(ids, layout)


def cramped(policy: Policy) -> Cramped:
    return Cramped(policy.model, policy.tokenizer, policy.name, policy.source)


def test_when_memory_runs_out_the_longest_request_goes_and_the_others_are_answered(tiny: TinyModels) -> None:
    policy = tiny.policy("llama")
    engine = Engine(cramped(policy), 8)
    prompts = [random_ids(6, 1), random_ids(50, 2), random_ids(9, 3)]
    requests = [engine.submit(prompt, 1, params()) for prompt in prompts]
    costs = [request for shed, _ in drive(engine) for request in shed]
    assert costs == [requests[1]]
    for index in (0, 2):
        assert requests[index].ids == expected(policy, prompts[index], 1)


# Limits of memory


def test_sequences_wait_while_the_slab_may_not_grow_and_none_is_lost(tiny: TinyModels) -> None:
    policy = tiny.policy("llama")
    engine = Engine(policy, 8, Limits(cells=lambda: 300))
    prompts = [random_ids(length, length) for length in (10, 3, 17, 8)]
    requests = [engine.submit(prompt, 2, params(max_tokens=100, seed=length)) for length, prompt in enumerate(prompts)]
    most = sent_back = before = 0
    while engine.busy:
        engine.step()
        most = max(most, engine.in_flight)
        sent_back += engine.queued > before
        before = engine.queued
    assert 1 < most < 8
    assert sent_back > 1  # the first time, that is what was not taken in at all
    for length, (prompt, request) in enumerate(zip(prompts, requests, strict=True)):
        assert request.ids == expected(policy, prompt, max_tokens=100, seed=length)


def test_one_sequence_goes_ahead_however_small_the_limit(tiny: TinyModels) -> None:
    policy = tiny.policy("qwen3")
    engine = Engine(policy, 4, Limits(cells=lambda: 1))
    request = engine.submit(random_ids(9, 1), 3, params(max_tokens=80))
    while engine.busy:
        engine.step()
        assert engine.in_flight <= 1
    assert request.ids == expected(policy, random_ids(9, 1), 3, max_tokens=80)


def test_prompts_over_the_limit_together_are_prefilled_one_after_the_other(tiny: TinyModels) -> None:
    engine = Engine(tiny.policy("llama"), 8, Limits(prompt_tokens=20))
    for seed, length in enumerate((8, 8, 8, 30)):
        engine.submit(random_ids(length, seed), 3, params())
    taken = []
    for _ in range(3):
        engine.step()
        taken.append(engine.in_flight)
    assert taken == [6, 9 - 1, 8]  # two prompts; the third, as far as there are places; the long one waits


def test_a_slab_has_rows_for_those_in_flight_only(tiny: TinyModels) -> None:
    policy = tiny.policy("llama")
    sizes = []
    for count in (1, 16):
        engine = Engine(policy, 64)
        engine.submit(random_ids(4, 1), count, params())
        engine.step()
        sizes.append(engine.cache_bytes)
    assert sizes[1] == 16 * sizes[0] > 0


def test_rows_that_come_later_leave_the_earlier_ones_as_they_are() -> None:
    slab = KvSlab(8)
    slab.reserve(16, rows=2)
    key = torch.ones(2, 2, 4, 3)
    keys, _ = slab.block(0, key, key)
    keys.normal_()
    before = keys.clone()
    slab.reserve(16, rows=3)
    slab.reserve(40, rows=3)
    keys, values = slab.block(0, key, key)
    assert len(keys) == len(values) == 3
    assert torch.equal(keys[:2, :, :16], before)
    assert not keys[2].any() and not keys[:, :, 16:].any()


# Alternatives


def test_alternatives_are_the_likeliest_tokens_where_they_are_asked_for(tiny: TinyModels) -> None:
    policy, prompt = tiny.policy("llama"), random_ids(9, 1)
    engine = Engine(policy, 8)
    asks = engine.submit(prompt, 2, params(temperature=0.7, top_logprobs=5))
    fewer = engine.submit(prompt, 1, params(temperature=0.0, top_logprobs=1))
    none = engine.submit(prompt, 1, params())
    finish(engine)
    for ids, logprobs, alternatives in zip(asks.ids, asks.logprobs, asks.alternatives, strict=True):
        assert len(alternatives) == len(ids)
        for place, (token, logprob, found) in enumerate(zip(ids, logprobs, alternatives, strict=True)):
            assert len(found) == 5
            assert [value for _, value in found] == sorted((value for _, value in found), reverse=True)
            values = [plain_logprobs(tiny.plain("llama"), [*prompt, *ids[:place]], [other], 0.7) for other, _ in found]
            torch.testing.assert_close(
                torch.cat(values), torch.tensor([value for _, value in found]), atol=1e-4, rtol=0
            )
            assert dict(found).get(token, logprob) == pytest.approx(logprob, abs=1e-5)
    assert [[pair[0] for pair in found] for found in fewer.alternatives[0]] == [[token] for token in fewer.ids[0]]
    assert none.alternatives == [[]]


def test_alternatives_change_nothing_of_what_is_drawn(tiny: TinyModels) -> None:
    policy, prompt = tiny.policy("qwen3"), random_ids(9, 1)
    assert expected(policy, prompt, top_logprobs=20) == expected(policy, prompt)


# Other threads


def test_torchs_default_type_changes_nothing_of_what_is_drawn(tiny: TinyModels) -> None:
    # Loading another model in another thread changes it for a while.
    policy, prompt = tiny.policy("llama"), random_ids(9, 1)

    def completion() -> Completion | None:
        engine = Engine(policy, 2)
        request = engine.submit(prompt, 1, params(temperature=0.9, top_p=0.95, max_tokens=60, top_logprobs=2))
        finish(engine)
        return request.completions[0]

    plain = completion()
    torch.set_default_dtype(torch.bfloat16)
    try:
        assert completion() == plain
    finally:
        torch.set_default_dtype(torch.float32)
