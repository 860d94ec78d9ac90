"""The real model process: `python -m strop.worker serve SOCKET`, asked over its socket."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from answers import ask, collect
from models import TinyModels, save_tiny_adapter
from strop.errors import InvalidRequest, NotFound, ServerError, Unavailable
from strop.serve.client import EngineClient
from strop.serve.engine import EngineSettings
from strop.serve.listener import serve_engine
from strop.serve.supervisor import EngineProcess
from strop.serve.wire import ChatRequest, Delta, Frame

WAIT_S = 60


def start(path: Path, *options: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "strop.worker", "serve", str(path), "--device", "cpu", *options]
    return subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"})


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory, tiny: TinyModels) -> Iterator[Path]:
    """The socket of a process with `base` and `adapter` loaded, two places each, and a queue of four."""
    folder = tmp_path_factory.mktemp("engine")
    adapter = save_tiny_adapter(tiny.folder("llama"), folder / "adapter", seed=1)
    path = folder / "engine.sock"
    process = start(path, "--max-concurrent", "2", "--max-queue", "4")

    async def load(client: EngineClient) -> None:
        await client.load("base", str(tiny.folder("llama")))
        await client.load("adapter", str(adapter))

    try:
        run(path, load)
        yield path
    finally:
        process.terminate()
        assert process.wait(WAIT_S) == 0


def run(path: Path, check: Callable[[EngineClient], Awaitable[None]]) -> None:
    async def main() -> None:
        client = EngineClient(path)
        async with asyncio.timeout(WAIT_S):
            await answering(client)
            await check(client)
        await client.close()

    asyncio.run(main())


async def answering(client: EngineClient) -> None:
    while True:
        try:
            await client.state()
            return
        except Unavailable:
            await asyncio.sleep(0.05)


async def idle(client: EngineClient) -> None:
    """Wait until nothing is in flight."""
    while any(model.in_flight or model.queued for model in (await client.state()).models):
        await asyncio.sleep(0.01)


def test_streams_of_two_models_share_a_connection(engine: Path) -> None:
    async def check(client: EngineClient) -> None:
        requests = [ask(model, n=2, seed=seed, logprobs=True) for model in ("base", "adapter") for seed in (1, 2)]
        found = await asyncio.gather(*(collect(client.generate(request)) for request in requests))
        again = [await collect(client.generate(request)) for request in requests]
        assert [answers.done for answers in found] == [answers.done for answers in again]
        assert len({str(answers.texts) for answers in found}) == 4

    run(engine, check)


def test_an_iterator_that_is_closed_cancels_its_request(engine: Path) -> None:
    async def check(client: EngineClient) -> None:
        events = client.generate(ask("base", n=2, max_tokens=400))
        assert isinstance(await anext(events), Delta)
        await events.aclose()
        await idle(client)
        await collect(client.generate(ask("base", n=2)))

    run(engine, check)


def test_a_client_that_is_gone_leaves_its_places_to_others(engine: Path) -> None:
    async def check(client: EngineClient) -> None:
        other = EngineClient(engine)
        tasks = [asyncio.create_task(collect(other.generate(ask("base", n=3, max_tokens=400)))) for _ in range(2)]
        while (await client.state()).models[0].queued < 4:
            await asyncio.sleep(0.01)
        with pytest.raises(Unavailable, match="base: the queue is full"):
            await collect(client.generate(ask("base")))
        await other.close()
        for task in tasks:
            with pytest.raises(Unavailable, match="the model process has ended"):
                await task
        await idle(client)
        await collect(client.generate(ask("base", n=2)))

    run(engine, check)


@pytest.mark.parametrize("junk", [b"GET / HTTP/1.1\r\n\r\n", struct.pack(">I", 9) + b'[1,"Nope",', b"\x00"])
def test_junk_on_the_socket_disturbs_nobody(engine: Path, junk: bytes) -> None:
    async def check(client: EngineClient) -> None:
        with socket.socket(socket.AF_UNIX) as stranger:
            stranger.connect(str(engine))
            stranger.sendall(junk)
            stranger.shutdown(socket.SHUT_WR)
            await asyncio.to_thread(stranger.recv, 1)
        await collect(client.generate(ask("base")))

    run(engine, check)


def test_an_answer_where_a_call_belongs_is_refused(engine: Path) -> None:
    async def check(client: EngineClient) -> None:
        with socket.socket(socket.AF_UNIX) as stranger:
            stranger.connect(str(engine))
            stranger.sendall(Frame(5, Delta(0, "x")).encode())
            assert b"Delta is no call" in await asyncio.to_thread(stranger.recv, 1000)

    run(engine, check)


def test_faults_come_with_their_kind(engine: Path) -> None:
    async def check(client: EngineClient) -> None:
        with pytest.raises(NotFound, match="other is not loaded"):
            await collect(client.generate(ask("other")))

    run(engine, check)


def test_the_socket_is_for_its_user_only(engine: Path) -> None:
    assert engine.stat().st_mode & 0o777 == 0o600


def test_a_killed_process_is_replaced_and_its_models_answer_as_before(tmp_path: Path, tiny: TinyModels) -> None:
    async def main() -> None:
        engine = EngineProcess(tmp_path / "engine.sock", tmp_path / "log", ["--device", "cpu"])
        await engine.start()
        try:
            await engine.load("base", str(tiny.folder("llama")))
            before = await collect(engine.generate(ask("base")))
            events = engine.generate(ask("base", max_tokens=400))
            await anext(events)
            pid = engine.health.pid
            assert pid
            os.kill(pid, signal.SIGKILL)
            with pytest.raises(Unavailable):
                await collect(events)
            assert (await collect(engine.generate(ask("base")))).texts == before.texts
        finally:
            await engine.close()

    asyncio.run(main())


_SERVER = """
import asyncio, sys
from pathlib import Path
from strop.serve.supervisor import EngineProcess

async def main():
    engine = EngineProcess(Path(sys.argv[1]), Path(sys.argv[2]), ["--device", "cpu"])
    await engine.start()
    await engine.load("base", sys.argv[3])
    print(engine.health.pid, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


def test_the_process_does_not_outlive_a_server_that_is_killed(tmp_path: Path, tiny: TinyModels) -> None:
    arguments = [tmp_path / "engine.sock", tmp_path / "log", tiny.folder("llama")]
    server = subprocess.Popen([sys.executable, "-c", _SERVER, *map(str, arguments)], stdout=subprocess.PIPE)
    assert server.stdout is not None
    pid = int(server.stdout.readline())
    server.kill()
    server.communicate()
    deadline = time.monotonic() + WAIT_S
    while Path(f"/proc/{pid}/stat").exists() and " Z " not in Path(f"/proc/{pid}/stat").read_text():
        assert time.monotonic() < deadline, "the model process goes on without its server"
        time.sleep(0.05)


def test_a_socket_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    with pytest.raises(ServerError, match=r"engine\.sock: no socket can be made there: No such file"):
        serve_engine(tmp_path / "missing" / "engine.sock", EngineSettings(device="cpu"), None)


def test_unsendable_text_is_refused_here_and_the_connection_stays(engine: Path) -> None:
    async def check(client: EngineClient) -> None:
        bad = ChatRequest("1", "base", ({"role": "user", "content": "\ud800"},))
        with pytest.raises(InvalidRequest, match="cannot be sent"):
            await collect(client.generate(bad))
        await collect(client.generate(ask("base")))

    run(engine, check)
