"""Read the steps of a run folder: lines of metrics.jsonl and the rollouts of each step.

Token ids and log-probabilities are skipped, not decoded. An invalid line is skipped and reported; a last line
without a newline is still being written.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, BinaryIO

import msgspec

from strop.errors import RunError

PREVIEW = 200
"""Number of characters shown in tables and lists."""

_BUFFER = 65536  # a line is a few kilobytes

_Count = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]


@dataclass(frozen=True)
class MetricsLine:
    """One step in metrics.jsonl."""

    step: int
    metrics: dict[str, float]
    offset: int
    """Byte offset of the line."""
    bytes: int
    crc: int
    """CRC-32 of the line."""
    damage: str | None = None
    """Errors in the lines before it."""

    @property
    def end(self) -> int:
        """Byte offset of the next line."""
        return self.offset + self.bytes


class _Function(msgspec.Struct):
    name: str = ""
    arguments: str = ""


class _Call(msgspec.Struct):
    function: _Function


class _Message(msgspec.Struct):
    role: str = ""
    content: str | None = None
    tool_calls: list[_Call] | None = None

    @property
    def text(self) -> str:
        """What is said, calls of tools included."""
        if not self.tool_calls:
            return self.content or ""
        calls = [f"{call.function.name}({call.function.arguments})" for call in self.tool_calls]
        return "\n".join([self.content, *calls] if self.content else calls)


class _Turn(msgspec.Struct):
    message: _Message
    observations: list[_Message] = []


class _Failure(msgspec.Struct):
    cause: str


class RolloutLine(msgspec.Struct):
    """One rollout, without its tokens."""

    step: _Count
    row: str
    line: _Count
    sample: _Count
    stop_reason: str
    turns: list[_Turn] | None = None
    messages: list[_Message] = []
    """Of a line without turns, as older versions wrote it; so is `sampled_mask`."""
    sampled_mask: msgspec.Raw = msgspec.Raw(b"[]")
    length: _Count | None = None
    """Sampled tokens."""
    prompt: msgspec.Raw = msgspec.Raw(b"[]")
    reward: float | None = None
    advantage: float | None = None
    components: dict[str, float] = {}
    failure: _Failure | None = None

    def __post_init__(self) -> None:
        if self.turns is not None:
            self.messages = [message for turn in self.turns for message in (turn.message, *turn.observations)]
        if self.length is None:
            self.length = bytes(self.sampled_mask).count(b"1")

    @property
    def cause(self) -> str | None:
        """Of its failure."""
        return storable(self.failure.cause) if self.failure else None

    @property
    def text(self) -> str:
        """Every message after the prompt."""
        return self.messages[0].text if len(self.messages) == 1 else "\n".join([turn.text for turn in self.messages])

    @property
    def answer(self) -> str:
        """The start of what the model wrote last."""
        last = next((message for message in reversed(self.messages) if message.role == "assistant"), None)
        return storable(last.text[:PREVIEW]) if last else ""


@dataclass(frozen=True)
class PromptText:
    """The prompt of a rollout, for display and search in lists."""

    preview: str
    """The start of its last user turn."""
    search: str
    """The whole conversation, case folded."""


@dataclass(frozen=True)
class Rollouts:
    """Contents of the rollouts file of a step."""

    lines: list[RolloutLine]
    places: list[tuple[int, int]]
    """Offset and length in bytes of each."""
    damage: str | None


_decode_metrics = msgspec.json.Decoder(dict[str, float]).decode
_decode_rollout = msgspec.json.Decoder(RolloutLine).decode
_encode = msgspec.json.Encoder().encode
_decode_messages = msgspec.json.Decoder(list[_Message]).decode
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, ValueError)


def read_metrics(file: BinaryIO, start: int, after: int) -> Iterator[MetricsLine]:
    """Read the lines of metrics.jsonl from byte `start`; their steps are above `after`."""
    file.seek(start)
    offset, damage = start, None
    for raw in file:
        if not raw.endswith(b"\n"):
            return
        place, offset = offset, offset + len(raw)
        try:
            step, metrics = _metrics(raw, after)
        except _UNREADABLE as error:
            damage = damage or f"metrics.jsonl: a line behind step {after} is damaged: {error}"
            continue
        yield MetricsLine(step, metrics, place, len(raw), zlib.crc32(raw), damage)
        after, damage = step, None


def _metrics(raw: bytes, after: int) -> tuple[int, dict[str, float]]:
    metrics = _decode_metrics(raw)
    step = metrics.pop("step", -1.0)
    if not step.is_integer() or not after < step < 2**31 - 1:
        raise ValueError(f"step {step:g} after step {after}")
    return int(step), metrics


def step_digest(line_crc: int, rollouts: Path) -> int:
    """A digest that changes when the line of a step or its rollouts file is rewritten."""
    try:
        stat = rollouts.stat()
    except FileNotFoundError:
        return line_crc
    return zlib.crc32(f"{stat.st_size} {stat.st_mtime_ns}".encode(), line_crc)


def read_rollouts(file: Path, step: int) -> Rollouts:
    """The rollouts of a step; empty if it has no file, as for the validation before training."""
    lines: list[RolloutLine] = []
    places: list[tuple[int, int]] = []
    faults: list[str] = []
    seen: set[tuple[str, int]] = set()
    offset = 0
    try:
        with open(file, "rb", buffering=_BUFFER) as handle:
            for number, raw in enumerate(handle, 1):
                place, offset = offset, offset + len(raw)
                try:
                    lines.append(_rollout(raw, step, seen))
                    places.append((place, len(raw)))
                except _UNREADABLE as error:
                    faults.append(f"line {number} is damaged: {error}")
    except FileNotFoundError:
        pass
    except OSError as error:
        faults.append(f"cannot be read: {error.strerror}")
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    return Rollouts(lines, places, f"rollouts/{file.name}: {faults[0]}{more}" if faults else None)


def _rollout(raw: bytes, step: int, seen: set[tuple[str, int]]) -> RolloutLine:
    line = _decode_rollout(raw)
    name = (line.row, line.sample)
    if line.step != step:
        raise ValueError(f"it belongs to step {line.step}")
    if "\0" in line.row:
        raise ValueError("the name of its row has a NUL")
    if name in seen:
        raise ValueError(f"sample {line.sample} of row {line.row} is there twice")
    seen.add(name)
    return line


def prompt_text(line: RolloutLine) -> PromptText:
    """What lists show of a rollout's prompt."""
    try:
        turns = _decode_messages(line.prompt)
    except _UNREADABLE:
        turns = []
    asked = next((turn.text for turn in reversed(turns) if turn.role == "user"), "")
    return PromptText(storable(asked[:PREVIEW]), folded("\n".join(turn.text for turn in turns)))


def read_rollout(file: Path, offset: int, size: int) -> dict[str, object]:
    """Read one complete rollout at its offset. Raises RunError if it is no longer there."""
    try:
        with open(file, "rb") as handle:
            raw = os.pread(handle.fileno(), size, offset)
        return msgspec.json.decode(raw, type=dict[str, object])
    except FileNotFoundError:
        raise RunError(f"{file} is gone, and the rollout with it; bring the file back from a copy") from None
    except _UNREADABLE as error:
        raise RunError(f"{file}: the rollout at byte {offset} cannot be read: {error}") from None


def components_text(components: Mapping[str, float]) -> str:
    """Components as JSON, in a form that PostgreSQL reads too."""
    return _encode(components).decode().replace(r"\u0000", r"\ufffd")


def folded(text: str) -> str:
    """Normalize a text for case-insensitive search."""
    return storable(text.casefold())


def storable(text: str) -> str:
    """The text without NUL, which PostgreSQL rejects."""
    return text.replace("\0", "\ufffd")
