"""Concurrent chat streams against the same ones one after another, through the socket and through HTTP.

    python bench/streams.py [--streams 16] [--tokens 64] [--rounds 3]

Real model, real model process, real server. Each figure is the median over the rounds, in which
both sides take turns; tokens are those that were drawn. `first` is the time to the first piece.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from openai import AsyncOpenAI

from strop.errors import Unavailable
from strop.serve.client import CHAT
from strop.serve.supervisor import EngineProcess

MODEL = "smollm2-135m"
TOPICS = ("the sea", "a lighthouse", "two brothers", "an old clock", "the last train", "a garden", "snow", "a map")


@dataclass(frozen=True)
class Stream:
    """What one stream brought."""

    tokens: int
    first_s: float


Ask = Callable[[str, int, int], Awaitable[Stream]]
"""Takes a prompt, a limit on tokens and a seed."""


@dataclass(frozen=True)
class Side:
    """One way of asking for all streams."""

    tokens_per_second: float
    first_s: float


async def together(ask: Ask, streams: int, tokens: int, seed: int) -> Side:
    started = time.perf_counter()
    found = await asyncio.gather(*(ask(prompt(n), tokens, seed + n) for n in range(streams)))
    return side(found, time.perf_counter() - started)


async def in_turn(ask: Ask, streams: int, tokens: int, seed: int) -> Side:
    started = time.perf_counter()
    found = [await ask(prompt(n), tokens, seed + n) for n in range(streams)]
    return side(found, time.perf_counter() - started)


def side(streams: list[Stream], seconds: float) -> Side:
    return Side(sum(stream.tokens for stream in streams) / seconds, median(stream.first_s for stream in streams))


def prompt(number: int) -> str:
    return f"Write a long story, number {number}, about {TOPICS[number % len(TOPICS)]}."


def over_socket(engine: EngineProcess) -> Ask:
    async def ask(text: str, tokens: int, seed: int) -> Stream:
        body = {
            "model": MODEL,
            "messages": [{"role": "user", "content": text}],
            "max_tokens": tokens,
            "seed": seed,
            "stream_options": {"include_usage": True},
        }
        started, first, count = time.perf_counter(), 0.0, 0
        async for chunk in engine.stream(CHAT, body):
            if chunk["choices"] and chunk["choices"][0]["delta"].get("content") and not first:
                first = time.perf_counter() - started
            if chunk["usage"]:
                count = chunk["usage"]["completion_tokens"]
        return Stream(count, first)

    return ask


def over_http(client: AsyncOpenAI) -> Ask:
    async def ask(text: str, tokens: int, seed: int) -> Stream:
        started, first, count = time.perf_counter(), 0.0, 0
        async for chunk in await client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": text}],
            max_completion_tokens=tokens,
            seed=seed,
            stream=True,
            stream_options={"include_usage": True},
        ):
            if chunk.choices and chunk.choices[0].delta.content and not first:
                first = time.perf_counter() - started
            if chunk.usage:
                count = chunk.usage.completion_tokens
        return Stream(count, first)

    return ask


async def compare(name: str, ask: Ask, streams: int, tokens: int, rounds: int) -> None:
    await together(ask, streams, 4, 0)  # to warm up
    pairs = []
    for number in range(rounds):
        seed = 1000 * number
        pairs.append((await together(ask, streams, tokens, seed), await in_turn(ask, streams, tokens, seed)))
    both = [median(one.tokens_per_second for one in column) for column in zip(*pairs, strict=True)]
    first = [median(one.first_s for one in column) for column in zip(*pairs, strict=True)]
    ratio = median(one.tokens_per_second / other.tokens_per_second for one, other in pairs)
    print(
        f"{name:7} {streams} streams of {tokens} tokens: together {both[0]:6.1f} tok/s (first {first[0]:.2f} s), "
        f"one after another {both[1]:6.1f} tok/s (first {first[1]:.2f} s), ratio {ratio:.2f}",
        flush=True,
    )


async def socket_side(folder: Path, streams: int, tokens: int, rounds: int) -> None:
    engine = EngineProcess(folder / "engine.sock", folder / "engine.log")
    await engine.start()
    try:
        await engine.load(MODEL, MODEL)
        await compare("socket", over_socket(engine), streams, tokens, rounds)
    finally:
        await engine.close()


async def http_side(folder: Path, streams: int, tokens: int, rounds: int) -> None:
    command = [sys.executable, "-m", "strop", "serve", "--port", "0", "--data-dir", str(folder)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert server.stdout is not None
        url = server.stdout.readline().split()[-1]  # strop is running at URL
        async with AsyncOpenAI(base_url=f"{url}/v1", api_key="none", timeout=600) as client:
            await compare("HTTP", over_http(client), streams, tokens, rounds)
    finally:
        server.terminate()
        server.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    settings = arguments.streams, arguments.tokens, arguments.rounds
    print(f"{MODEL} on {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory(prefix="strop-bench-") as folder:
        try:
            asyncio.run(socket_side(Path(folder), *settings))
            asyncio.run(http_side(Path(folder) / "data", *settings))
        except Unavailable as error:
            sys.exit(error.message)


if __name__ == "__main__":
    main()
