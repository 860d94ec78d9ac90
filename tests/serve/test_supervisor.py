"""The keeper of the model process: started when it is needed, and again when it dies."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from answers import chat_body, texts_of
from strop.errors import ModelError, Unavailable
from strop.serve.client import CHAT
from strop.serve.supervisor import EngineProcess

FAKE = (sys.executable, str(Path(__file__).parents[1] / "fake_engine.py"))


@asynccontextmanager
async def kept(folder: Path, worker: Sequence[str] = FAKE) -> AsyncIterator[EngineProcess]:
    engine = EngineProcess(folder / "engine.sock", folder / "engine.log", worker=worker)
    await engine.start()
    try:
        yield engine
    finally:
        await engine.close()


def run(folder: Path, check: Callable[[EngineProcess], Awaitable[None]], worker: Sequence[str] = FAKE) -> None:
    async def main() -> None:
        async with asyncio.timeout(60), kept(folder, worker) as engine:
            await check(engine)

    asyncio.run(main())


async def begun(engine: EngineProcess, model: str) -> AsyncGenerator[Any]:
    """The chunks of an answer that never ends, its first word read."""
    chunks = engine.stream(CHAT, chat_body(model, "one wait"))
    words = [(await anext(chunks))["choices"][0]["delta"]["content"] for _ in range(2)]
    assert words == ["", "one "]
    return chunks


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_nothing_is_started_before_a_model_is_wanted(tmp_path: Path) -> None:
    async def check(engine: EngineProcess) -> None:
        states = [engine.health.state]
        assert await engine.state() is None
        await engine.unload("a")
        assert engine.health.pid is None
        await engine.load("a", "somewhere")
        assert [*states, engine.health.state] == ["idle", "running"]
        state = await engine.state()
        assert state and [model.name for model in state.models] == ["a"]
        assert texts_of(await engine.complete(CHAT, chat_body("a", "one two"))) == ["one two "]

    run(tmp_path, check)
    assert "loading somewhere as a" in (tmp_path / "engine.log").read_text()
    assert (tmp_path / "engine.log").stat().st_mode & 0o777 == 0o600


def test_closing_ends_the_process(tmp_path: Path) -> None:
    pids = []

    async def check(engine: EngineProcess) -> None:
        await engine.load("a", "x")
        pids.append(engine.health.pid)

    run(tmp_path, check)
    assert pids[0] and not is_alive(pids[0])


def test_a_killed_process_comes_back_with_what_it_had(tmp_path: Path) -> None:
    async def check(engine: EngineProcess) -> None:
        await engine.load("a", "first")
        await engine.load("b", "second")
        await engine.load("c", "third")
        await engine.unload("c")
        chunks = await begun(engine, "a")
        before = engine.health.pid
        assert before
        os.kill(before, signal.SIGKILL)
        with pytest.raises(Unavailable, match="the model process has ended; try again"):
            await anext(chunks)
        # Who asks now waits until the model is there again.
        assert texts_of(await engine.complete(CHAT, chat_body("b", "two"))) == ["two "]
        assert (engine.health.state, engine.health.restarts) == ("running", 1)
        assert engine.health.pid != before
        assert engine.health.reason == "killed by SIGKILL"
        state = await engine.state()
        assert state and {model.name: model.source for model in state.models} == {"a": "first", "b": "second"}

    run(tmp_path, check)


def test_a_model_that_kills_the_process_is_not_loaded_again_and_the_others_are(tmp_path: Path) -> None:
    async def check(engine: EngineProcess) -> None:
        await engine.load("good", "x")
        with pytest.raises(Unavailable, match=r"has ended.*\(while it loaded bad\)"):
            await engine.load("bad", "deadly")
        assert texts_of(await engine.complete(CHAT, chat_body("good", "hi"))) == ["hi "]
        state = await engine.state()
        assert state and [model.name for model in state.models] == ["good"]
        assert engine.health.reason == "exit status 9"

    run(tmp_path, check)


def test_an_error_of_the_model_comes_through_and_the_process_stays(tmp_path: Path) -> None:
    async def check(engine: EngineProcess) -> None:
        with pytest.raises(ModelError, match="bad: no model there"):
            await engine.load("bad", "missing")
        assert engine.health.restarts == 0

    run(tmp_path, check)


def test_a_process_that_always_fails_is_given_up_for_now_naming_its_log(tmp_path: Path) -> None:
    async def check(engine: EngineProcess) -> None:
        with pytest.raises(Unavailable, match=r"keeps failing: exit status 3; see .*engine\.log"):
            await engine.load("a", "x")
        assert engine.health.state == "restarting"

    run(tmp_path, check, (sys.executable, "-c", "import sys; print('no such option'); sys.exit(3)"))
    assert "no such option" in (tmp_path / "engine.log").read_text()


def test_a_worker_that_cannot_be_started_is_named(tmp_path: Path) -> None:
    async def check(engine: EngineProcess) -> None:
        with pytest.raises(Unavailable, match="it cannot be started"):
            await engine.load("a", "x")

    run(tmp_path, check, ("/no/such/program",))


def test_many_requests_run_beside_each_other_and_one_that_is_closed_ends_alone(tmp_path: Path) -> None:
    async def check(engine: EngineProcess) -> None:
        await engine.load("a", "x")
        endless = [await begun(engine, "a") for _ in range(3)]
        state = await engine.state()
        assert state and state.models[0].in_flight == 3
        await endless[0].aclose()
        answers = await asyncio.gather(*(engine.complete(CHAT, chat_body("a", f"hi {n}", n=2)) for n in range(150)))
        assert [texts_of(answer) for answer in answers] == [[f"hi {n} ", f"hi {n} "] for n in range(150)]
        while (state := await engine.state()) and state.models[0].in_flight != 2:
            await asyncio.sleep(0.01)
        for chunks in endless[1:]:
            await chunks.aclose()

    run(tmp_path, check)
