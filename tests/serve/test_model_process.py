"""The real model process: `python -m strop.worker.serving SOCKET`, asked over HTTP through its socket."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from answers import chat_body, texts_of
from models import TinyModels, save_tiny_adapter
from strop.errors import ContextOverflow, InvalidRequest, NotFound, ServerError, Unavailable
from strop.serve.client import CHAT, TEXT, EngineClient
from strop.serve.engine import EngineSettings
from strop.serve.run import serve_models
from strop.serve.supervisor import EngineProcess

WAIT_S = 60


def start(path: Path, *options: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "strop.worker.serving", str(path), "--device", "cpu", *options]
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


def post(path: Path, url: str, **body: Any) -> httpx2.Response:
    """A request as any HTTP client makes it."""
    with httpx2.Client(transport=httpx2.HTTPTransport(uds=str(path)), base_url="http://models") as http:
        return http.post(url, json=body, timeout=WAIT_S)


# Answers


def test_requests_to_two_models_run_beside_each_other(engine: Path) -> None:
    async def check(client: EngineClient) -> None:
        bodies = [chat_body(model, n=2, seed=seed) for model in ("base", "adapter") for seed in (1, 2)]
        found = await asyncio.gather(*(client.complete(CHAT, body) for body in bodies))
        again = [await client.complete(CHAT, body) for body in bodies]
        assert [answer["usage"] for answer in found] == [answer["usage"] for answer in again]
        assert len({str(texts_of(answer)) for answer in found}) == 4

    run(engine, check)


def test_a_stream_adds_up_to_the_whole_answer(engine: Path) -> None:
    async def check(client: EngineClient) -> None:
        body = chat_body("base", n=2, logprobs=True, top_logprobs=2, return_token_ids=True)
        whole = await client.complete(CHAT, body)
        stream = client.stream(CHAT, {**body, "stream_options": {"include_usage": True}})
        *chunks, last = [chunk async for chunk in stream]
        for choice in whole["choices"]:
            mine = [one for chunk in chunks for one in chunk["choices"] if one["index"] == choice["index"]]
            assert "".join(one["delta"].get("content", "") for one in mine) == choice["message"]["content"]
            assert [i for one in mine for i in one.get("token_ids", ())] == choice["token_ids"]
            shown = [token for one in mine if one["logprobs"] for token in one["logprobs"]["content"]]
            assert shown == choice["logprobs"]["content"]
            assert [one["finish_reason"] for one in mine if one["finish_reason"]] == [choice["finish_reason"]]
        assert chunks[0]["prompt_token_ids"] == whole["prompt_token_ids"]
        assert (last["choices"], last["usage"]) == ([], whole["usage"])
        assert all(chunk["usage"] is None for chunk in chunks)

    run(engine, check)


def test_exact_ids_come_with_a_log_probability_each(engine: Path) -> None:
    answer = post(engine, CHAT, **chat_body("base", n=3, logprobs=True, return_token_ids=True)).json()
    assert len(answer["prompt_token_ids"]) == answer["usage"]["prompt_tokens"]
    for choice in answer["choices"]:
        assert len(choice["token_ids"]) == len(choice["logprobs"]["content"]) > 0
    assert sum(len(choice["token_ids"]) for choice in answer["choices"]) == answer["usage"]["completion_tokens"]


def test_a_text_completion_of_the_prompts_ids_is_that_of_the_chat(engine: Path) -> None:
    chat = post(engine, CHAT, **chat_body("base", logprobs=True, return_token_ids=True)).json()
    settings = {"model": "base", "max_tokens": 16, "seed": 7, "logprobs": 1, "return_token_ids": True}
    text = post(engine, TEXT, prompt=chat["prompt_token_ids"], **settings).json()
    (said,), (choice,) = chat["choices"], text["choices"]
    assert text["object"] == "text_completion"
    assert (choice["text"], choice["token_ids"]) == (said["message"]["content"], said["token_ids"])
    assert choice["prompt_token_ids"] == chat["prompt_token_ids"]
    assert choice["logprobs"]["token_logprobs"] == [token["logprob"] for token in said["logprobs"]["content"]]
    assert len(choice["logprobs"]["top_logprobs"]) == len(choice["token_ids"])


def test_a_text_completion_streams_too(engine: Path) -> None:
    async def check(client: EngineClient) -> None:
        body = {"model": "base", "prompt": "the sea", "seed": 3, "n": 2}
        whole = await client.complete(TEXT, body)
        chunks = [chunk async for chunk in client.stream(TEXT, body)]
        for choice in whole["choices"]:
            mine = [one for chunk in chunks for one in chunk["choices"] if one["index"] == choice["index"]]
            assert "".join(one["text"] for one in mine) == choice["text"]
            assert mine[-1]["finish_reason"] == choice["finish_reason"]

    run(engine, check)


# Cancelling


def test_an_iterator_that_is_closed_cancels_its_request(engine: Path) -> None:
    async def check(client: EngineClient) -> None:
        chunks = client.stream(CHAT, chat_body("base", n=2, max_tokens=400))
        await anext(chunks)
        await chunks.aclose()
        await idle(client)
        await client.complete(CHAT, chat_body("base", n=2))

    run(engine, check)


def test_a_client_that_does_not_wait_for_the_whole_answer_cancels_it(engine: Path) -> None:
    async def check(client: EngineClient) -> None:
        task = asyncio.create_task(client.complete(CHAT, chat_body("base", n=2, max_tokens=490)))
        while not (await client.state()).models[0].in_flight:
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        begun = time.monotonic()
        await idle(client)
        cancelled = time.monotonic() - begun
        begun = time.monotonic()
        await client.complete(CHAT, chat_body("base", n=2, max_tokens=490))
        assert cancelled < (time.monotonic() - begun) / 2  # it was not decoded to its end

    run(engine, check)


def test_a_client_that_is_gone_leaves_its_places_to_others(engine: Path) -> None:
    async def check(client: EngineClient) -> None:
        bodies = [chat_body("base", n=3, max_tokens=400)] * 2
        tasks = [asyncio.create_task(client.complete(CHAT, body)) for body in bodies]
        while (await client.state()).models[0].queued < 4:
            await asyncio.sleep(0.01)
        with pytest.raises(Unavailable, match="base: the queue is full") as caught:
            await client.complete(CHAT, chat_body("base"))
        assert caught.value.retry_after == 5
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await idle(client)
        await client.complete(CHAT, chat_body("base", n=2))

    run(engine, check)


# Errors


@pytest.mark.parametrize(
    "junk", [b"\x00", b"POST /v1/chat/completions HTTP/1.1\r\ncontent-length: 9\r\n\r\n{", b"?\r\n\r\n"]
)
def test_junk_on_the_socket_disturbs_nobody(engine: Path, junk: bytes) -> None:
    async def check(client: EngineClient) -> None:
        with socket.socket(socket.AF_UNIX) as stranger:
            stranger.connect(str(engine))
            stranger.sendall(junk)
            stranger.shutdown(socket.SHUT_WR)
            await asyncio.to_thread(stranger.recv, 1)
        await client.complete(CHAT, chat_body("base"))

    run(engine, check)


@pytest.mark.parametrize("stream", [False, True])
def test_errors_before_the_first_token_have_a_status_and_openais_form(engine: Path, stream: bool) -> None:
    response = post(engine, CHAT, **chat_body("other", stream=stream))
    assert response.status_code == 404
    error = response.json()["error"]
    assert error == {"message": "other is not loaded", "type": "not_found_error", "param": "model", "code": "not_found"}
    refused = post(engine, CHAT, **chat_body("base", stream=stream, max_tokens=5000))
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "messages")


@pytest.mark.parametrize(
    ("url", "body", "param"),
    [
        (CHAT, chat_body("base", top_k=3), "top_k"),
        (CHAT, chat_body("base", n=0), "n"),
        (CHAT, {**chat_body("base"), "messages": [{"role": "robot"}]}, "messages[0].role"),
        (TEXT, {"model": "base", "prompt": "x", "echo": True}, "echo"),
        (TEXT, {"model": "base", "prompt": [7, "x"]}, None),
        (TEXT, {"model": "base", "prompt": [100_000]}, "prompt"),
        ("/v1/strop/load", {"name": "x"}, "source"),
    ],
)
def test_bodies_that_are_wrong_are_refused_with_the_field(
    engine: Path, url: str, body: dict[str, Any], param: str | None
) -> None:
    response = post(engine, url, **body)
    assert response.status_code == 400
    found = response.json()["error"]["param"]
    assert found == param if param else found.startswith("prompt")


def test_errors_are_raised_as_their_own_class(engine: Path) -> None:
    async def check(client: EngineClient) -> None:
        with pytest.raises(NotFound, match="other is not loaded"):
            await client.complete(CHAT, chat_body("other"))
        with pytest.raises(NotFound, match="other is not loaded"):
            await anext(client.stream(CHAT, chat_body("other")))
        with pytest.raises(ContextOverflow, match="base has 512 positions"):
            await client.complete(CHAT, chat_body("base", max_tokens=5000))

    run(engine, check)


def test_text_that_cannot_be_sent_is_refused(engine: Path) -> None:
    async def check(client: EngineClient) -> None:
        with pytest.raises(InvalidRequest, match="cannot be sent"):
            await client.complete(CHAT, chat_body("base", "\ud800"))
        await client.complete(CHAT, chat_body("base"))

    run(engine, check)


# Models


def test_models_are_listed_as_vllm_lists_them(engine: Path) -> None:
    with httpx2.Client(transport=httpx2.HTTPTransport(uds=str(engine)), base_url="http://models") as http:
        assert http.get("/health").status_code == 200
        base, adapter = http.get("/v1/models").json()["data"]
    assert (base["id"], base["object"], base["parent"], base["max_model_len"]) == ("base", "model", None, 512)
    assert (adapter["id"], adapter["parent"]) == ("adapter", os.path.realpath(base["root"]))


def test_adapters_are_loaded_replaced_and_unloaded_by_vllms_names(
    engine: Path, tmp_path: Path, tiny: TinyModels
) -> None:
    first, second = (str(save_tiny_adapter(tiny.folder("llama"), tmp_path / str(seed), seed=seed)) for seed in (5, 6))
    load, unload = "/v1/load_lora_adapter", "/v1/unload_lora_adapter"
    assert post(engine, load, lora_name="tuned", lora_path=first).status_code == 200
    before = post(engine, CHAT, **chat_body("tuned")).json()
    assert post(engine, load, lora_name="tuned", lora_path=second).status_code == 409
    assert post(engine, load, lora_name="tuned", lora_path=second, load_inplace=True).status_code == 200
    assert texts_of(post(engine, CHAT, **chat_body("tuned")).json()) != texts_of(before)
    assert post(engine, unload, lora_name="tuned").status_code == 200
    assert post(engine, unload, lora_name="tuned").status_code == 404
    assert post(engine, load, lora_name="full", lora_path=str(tiny.folder("llama"))).status_code == 400


def test_the_socket_is_for_its_user_only(engine: Path) -> None:
    assert engine.stat().st_mode & 0o777 == 0o600


# Lives


def test_a_killed_process_is_replaced_and_its_models_answer_as_before(tmp_path: Path, tiny: TinyModels) -> None:
    async def main() -> None:
        engine = EngineProcess(tmp_path / "engine.sock", tmp_path / "log", ["--device", "cpu"])
        await engine.start()
        try:
            await engine.load("base", str(tiny.folder("llama")))
            before = await engine.complete(CHAT, chat_body("base"))
            chunks = engine.stream(CHAT, chat_body("base", max_tokens=400))
            await anext(chunks)
            pid = engine.health.pid
            assert pid
            os.kill(pid, signal.SIGKILL)
            with pytest.raises(Unavailable):
                [chunk async for chunk in chunks]
            assert texts_of(await engine.complete(CHAT, chat_body("base"))) == texts_of(before)
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


def test_a_socket_that_a_killed_process_left_is_replaced_also_at_the_end_of_a_long_path(
    tmp_path: Path, tiny: TinyModels
) -> None:
    path = tmp_path / ("long" * 40) / "engine.sock"
    path.parent.mkdir()

    async def check(client: EngineClient) -> None:
        assert (await client.state()).models == ()

    for _ in range(2):
        process = start(path)
        try:
            run(path, check)
        finally:
            process.kill()
            process.wait(WAIT_S)
        assert path.is_socket()


def test_a_socket_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    with pytest.raises(ServerError, match=r"engine\.sock: no socket can be made there: No such file"):
        serve_models(tmp_path / "missing" / "engine.sock", EngineSettings(device="cpu"), None)
