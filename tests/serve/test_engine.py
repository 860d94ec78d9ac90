"""The models of a process: what they answer, what they share, and how they fail."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import shutil
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer

from answers import Answers, ask, collect
from models import TinyModels, save_tiny_adapter, save_tiny_model, save_tokenizer
from strop.errors import Conflict, ContextOverflow, ModelError, NotFound, StropError, Unavailable
from strop.policy.chat import ChatTemplate
from strop.policy.engine import Engine
from strop.policy.model import fast_dtype, load_policy
from strop.policy.sampler import LocalSampler
from strop.serve.engine import EngineSettings, ModelHost
from strop.serve.generate import Conversation, Delta, Done, Finished, GenerateRequest, Started
from strop.text import cut_at_stop
from strop.types import Message, SamplingParams

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def base(tiny: TinyModels) -> Path:
    return tiny.folder("llama")


@pytest.fixture(scope="module")
def adapters(base: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("adapters")
    return [save_tiny_adapter(base, folder / str(seed), seed) for seed in (1, 2)]


@asynccontextmanager
async def hosting(**settings: Any) -> AsyncIterator[ModelHost]:
    """A host on the CPU; an error that it cannot go on after fails the test."""
    failures: list[Exception] = []
    host = ModelHost(EngineSettings(device="cpu", **settings), failures.append, print)
    try:
        yield host
    finally:
        host.close()
        assert failures == []


def run(check: Callable[[ModelHost], Awaitable[None]], **settings: Any) -> None:
    async def main() -> None:
        async with hosting(**settings) as host:
            await check(host)

    asyncio.run(main())


def locally(folder: Path, text: str, count: int, params: SamplingParams) -> list[tuple[str, int]]:
    """Texts and token counts of strop's sampler in training."""
    policy = load_policy(str(folder), "local", CPU, fast_dtype(CPU))
    chat = ChatTemplate(policy.tokenizer, "local", {})
    prompt = chat.encode(chat.render([Message("user", text)], (), "test"))
    completions = asyncio.run(LocalSampler(Engine(policy, 16)).sample(prompt, count, params))
    return [(cut_at_stop(chat.text(c.token_ids_T), params.stop), len(c.token_ids_T)) for c in completions]


def texts_of(answers: Answers, count: int) -> list[tuple[str, int]]:
    return [(answers.texts.get(index, ""), answers.finished[index].completion_tokens) for index in range(count)]


# Answers


def test_adapters_and_base_answer_as_training_samples(base: Path, adapters: list[Path]) -> None:
    async def check(host: ModelHost) -> None:
        for name, folder in models.items():
            await host.load(name, str(folder))
        for name in models:
            answers = await collect(host.generate(ask(name, n=3, max_tokens=30, stop=("e",))))
            assert texts_of(answers, 3) == expected[name]

    models = {"base": base, "first": adapters[0], "second": adapters[1]}
    params = SamplingParams(1.0, 30, stop=("e",), seed=7)
    expected = {name: locally(folder, "the sea", 3, params) for name, folder in models.items()}
    assert len({str(texts) for texts in expected.values()}) == 3
    run(check)


def test_many_requests_of_several_models_are_answered_at_once(base: Path, adapters: list[Path]) -> None:
    async def check(host: ModelHost) -> None:
        for name, folder in (("base", base), ("first", adapters[0]), ("second", adapters[1])):
            await host.load(name, str(folder))
        requests = [ask(name, n=2, seed=seed) for seed in range(4) for name in ("base", "first", "second")]
        found = await asyncio.gather(*(collect(host.generate(request)) for request in requests))
        for answers in found:
            assert answers.finished.keys() == {0, 1}
            assert answers.done and answers.done.prompt_tokens > 0
        assert all(model.in_flight == model.queued == 0 for model in host.state().models)

    run(check, max_concurrent=3)


def test_pieces_come_while_the_rest_is_still_drawn(base: Path) -> None:
    async def check(host: ModelHost) -> None:
        await host.load("base", str(base))
        events = [event async for event in host.generate(ask("base", max_tokens=40))]
        assert sum(isinstance(event, Delta) for event in events) > 5
        assert isinstance(events[0], Started)
        assert isinstance(events[-2], Finished) and isinstance(events[-1], Done)

    run(check)


def test_a_request_with_tools_is_answered_with_the_same_tokens_and_without_special_ones(
    base: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "tools"
    shutil.copytree(base, folder)
    save_tokenizer(folder, "{{ tools | tojson }}{% for m in messages %}{{ m.content }}{% endfor %}")
    tool = {"type": "function", "function": {"name": "look", "parameters": {}}}

    async def check(host: ModelHost) -> None:
        await host.load("tools", str(folder))
        prompt = Conversation((Message("user", "the sea"),), (tool,))
        asked = GenerateRequest("tools", prompt, n=3, max_tokens=30, seed=7, token_ids=True)
        called = await collect(host.generate(asked))
        plain = await collect(host.generate(dataclasses.replace(asked, prompt=called.prompt_ids)))
        assert called.ids == plain.ids
        assert called.texts == plain.texts

    run(check)


def test_log_probabilities_come_with_their_text(base: Path) -> None:
    async def check(host: ModelHost) -> None:
        await host.load("base", str(base))
        answers = await collect(host.generate(ask("base", logprobs=True, top_logprobs=3, max_tokens=40)))
        tokens = answers.tokens[0]
        shown = [token for token in tokens if token.id > 3]  # special tokens have no text
        assert b"".join(bytes(token.bytes) for token in shown).decode(errors="replace") == answers.texts[0]
        assert all(len(token.top) == 3 and token.logprob <= token.top[0].logprob for token in tokens)
        plain = await collect(host.generate(ask("base", top_logprobs=3, max_tokens=40)))
        assert plain.texts == answers.texts and plain.tokens == {0: []}

    run(check)


def test_a_seed_fixes_the_answer_and_no_seed_does_not(base: Path) -> None:
    async def check(host: ModelHost) -> None:
        await host.load("base", str(base))
        seeded = [(await collect(host.generate(ask("base", seed=1)))).texts for _ in range(2)]
        free = [(await collect(host.generate(ask("base", seed=None)))).texts for _ in range(2)]
        assert seeded[0] == seeded[1]
        assert free[0] != free[1]

    run(check)


def test_without_a_limit_an_answer_may_fill_the_models_positions(tmp_path: Path) -> None:
    folder = save_tiny_model("llama", tmp_path, max_position_embeddings=48)

    async def check(host: ModelHost) -> None:
        await host.load("short", str(folder))
        found = [await collect(host.generate(ask("short", max_tokens=None, seed=seed))) for seed in range(4)]
        lengths = [answers.done.prompt_tokens + answers.done.completion_tokens for answers in found if answers.done]
        assert max(lengths) == 48

    run(check)


# Refusals


@pytest.mark.parametrize(
    ("settings", "param", "says"),
    [
        ({"max_tokens": 500}, "messages", r"base has 512 positions, but the messages have \d+ tokens and 500 may"),
        ({"text": "x" * 600, "max_tokens": None}, "messages", "at least one must follow"),
        ({"n": 0}, "n", "from 1 to 128"),
        ({"n": 129}, "n", "from 1 to 128"),
        ({"max_tokens": 0}, "max_tokens", "at least 1"),
        ({"temperature": 2.5}, "temperature", "from 0 to 2"),
        ({"temperature": float("nan")}, "temperature", "from 0 to 2"),
        ({"top_p": 0.0}, "top_p", "above 0"),
        ({"stop": ("a", "")}, "stop", "empty string"),
        ({"top_logprobs": 21, "logprobs": True}, "top_logprobs", "from 0 to 20"),
    ],
)
def test_what_cannot_be_answered_is_refused_naming_the_numbers(
    base: Path, settings: dict[str, Any], param: str, says: str
) -> None:
    async def check(host: ModelHost) -> None:
        await host.load("base", str(base))
        with pytest.raises(StropError, match=says) as caught:
            await collect(host.generate(ask("base", **settings)))
        assert caught.value.param == param

    run(check)


def test_a_request_that_memory_can_never_hold_is_refused(base: Path) -> None:
    sizes = []

    async def measure(host: ModelHost) -> None:
        sizes.append((await host.load("base", str(base))).memory_bytes)

    async def check(host: ModelHost) -> None:
        await host.load("base", str(base))
        with pytest.raises(ContextOverflow, match=r"base has \d+ tokens of memory, but the messages have"):
            await collect(host.generate(ask("base", max_tokens=400)))
        await collect(host.generate(ask("base", max_tokens=10)))
        found = [await collect(host.generate(ask("base", max_tokens=None, seed=seed))) for seed in range(3)]
        assert all(answers.done and answers.done.completion_tokens < 400 for answers in found)

    run(measure)
    run(check, memory_bytes=sizes[0] + 2**16)


def test_a_model_that_is_not_loaded_is_not_found() -> None:
    async def check(host: ModelHost) -> None:
        with pytest.raises(NotFound, match="base is not loaded"):
            await collect(host.generate(ask("base")))

    run(check)


def test_what_is_over_the_queue_is_refused_and_what_waits_is_answered(base: Path) -> None:
    async def check(host: ModelHost) -> None:
        await host.load("base", str(base))
        running = [asyncio.create_task(collect(host.generate(ask("base", max_tokens=60)))) for _ in range(3)]
        while sum(model.in_flight + model.queued for model in host.state().models) < 3:
            await asyncio.sleep(0)
        with pytest.raises(Unavailable, match="the queue is full: 3 completions are asked for, 3 may be"):
            await collect(host.generate(ask("base")))
        await asyncio.gather(*running)
        await collect(host.generate(ask("base")))

    run(check, max_concurrent=1, max_queue=2)


# Cancelling


def test_closing_the_iterator_frees_the_rows(base: Path) -> None:
    async def check(host: ModelHost) -> None:
        await host.load("base", str(base))
        endless = host.generate(ask("base", n=2, max_tokens=400))
        await anext(endless)
        await endless.aclose()
        (model,) = host.state().models
        assert model.queued == 0
        await asyncio.wait_for(collect(host.generate(ask("base", n=2))), 30)
        while host.state().models[0].in_flight:
            await asyncio.sleep(0)

    run(check, max_concurrent=2, max_queue=0)


# Faults


def test_a_fault_of_one_request_leaves_the_others_alone(tiny: TinyModels, tmp_path: Path) -> None:
    folder = tmp_path / "damaged"
    shutil.copytree(tiny.folder("qwen2"), folder)
    (bad,) = AutoTokenizer.from_pretrained(folder)("Q", add_special_tokens=False)["input_ids"]
    weights = load_file(folder / "model.safetensors")
    weights["model.embed_tokens.weight"][bad] = float("nan")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})

    async def check(host: ModelHost) -> None:
        await host.load("damaged", str(folder))
        good = asyncio.create_task(collect(host.generate(ask("damaged", max_tokens=8))))
        with pytest.raises(ModelError, match="logits are not finite"):
            await collect(host.generate(ask("damaged", "Question")))
        await good
        await collect(host.generate(ask("damaged", max_tokens=8)))

    run(check)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda folder: None, "no model there"),
        (lambda folder: (folder / "config.json").write_text("{}"), "cannot be loaded"),
        (lambda folder: (folder / "adapter_config.json").write_text('{"base_model_name_or_path": "/nowhere"}'), "."),
    ],
)
def test_a_model_that_cannot_be_loaded_leaves_the_others_alone(
    base: Path, tmp_path: Path, make: Callable[[Path], Any], says: str
) -> None:
    make(tmp_path)

    async def check(host: ModelHost) -> None:
        await host.load("base", str(base))
        before = host.state().memory_bytes
        with pytest.raises(StropError, match=says):
            await host.load("broken", str(tmp_path))
        assert host.state().memory_bytes == before
        await collect(host.generate(ask("base")))

    run(check)


# Loading and forgetting


def test_a_base_is_in_memory_once_however_often_it_is_used(base: Path, adapters: list[Path]) -> None:
    async def check(host: ModelHost) -> None:
        alone = await host.load("base", str(base))
        assert host.state().memory_bytes == alone.memory_bytes
        again = await host.load("twin", str(base))
        assert host.state().memory_bytes == alone.memory_bytes == again.memory_bytes
        states = [await host.load(f"adapter-{index}", str(folder)) for index, folder in enumerate(adapters)]
        assert {state.base for state in states} == {str(base.resolve())}
        assert all(state.memory_bytes < alone.memory_bytes for state in states)
        everything = alone.memory_bytes + sum(state.memory_bytes for state in states)
        assert host.state().memory_bytes == everything
        for name in ("base", "twin", "adapter-0"):
            await host.unload(name)
        assert host.state().memory_bytes == alone.memory_bytes + states[1].memory_bytes
        await collect(host.generate(ask("adapter-1")))
        await host.unload("adapter-1")
        assert host.state().memory_bytes == 0

    run(check)


def test_unloading_gives_the_memory_back(base: Path, adapters: list[Path]) -> None:
    async def check(host: ModelHost) -> None:
        await host.load("adapter", str(adapters[0]))
        await collect(host.generate(ask("adapter")))
        layers = [weakref.ref(thing) for thing in gc.get_objects() if issubclass(type(thing), torch.nn.Linear)]
        await host.unload("adapter")
        gc.collect()
        assert sum(layer() is None for layer in layers) > 14  # those of a base, and of its adapter

    run(check)


def test_a_model_that_is_unloaded_fails_what_it_was_answering(base: Path) -> None:
    async def check(host: ModelHost) -> None:
        await host.load("base", str(base))
        events = host.generate(ask("base", n=4, max_tokens=400))
        await anext(events)
        await host.unload("base")
        with pytest.raises(Unavailable, match="base was unloaded while it answered"):
            await collect(events)
        assert host.state().models == ()

    run(check, max_concurrent=2)


def test_loading_what_is_loaded_changes_nothing_and_another_source_is_a_conflict(
    base: Path, adapters: list[Path]
) -> None:
    async def check(host: ModelHost) -> None:
        states = await asyncio.gather(*(host.load("base", str(base)) for _ in range(3)))
        assert states[0] == states[1] == states[2]
        with pytest.raises(Conflict, match=r"base is loaded from .*; unload it first"):
            await host.load("base", str(adapters[0]))
        await host.unload("base")
        await host.unload("base")
        assert (await host.load("base", str(adapters[0]))).base is not None

    run(check)


def test_a_model_that_memory_cannot_hold_is_refused_before_it_is_loaded(base: Path) -> None:
    async def check(host: ModelHost) -> None:
        with pytest.raises(Unavailable, match=r"base needs about 0.0 GiB, 0.0 of 0.0 are free; unload another"):
            await host.load("base", str(base))

    run(check, memory_bytes=2**16)
