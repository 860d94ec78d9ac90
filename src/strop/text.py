"""Texts of answers: where a stop string ends them, and turns of which only the text is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from strop.types import Message, StopReason, Turn


def cut_at_stop(text: str, stop: Sequence[str]) -> str:
    """The text before the first stop string. Scored and shown; token ids keep what was sampled."""
    ends = [position for string in stop if (position := text.find(string)) >= 0]
    return text[: min(ends)] if ends else text


def text_turn(message: Message, stop_reason: StopReason, length: int, seconds: float, stop: Sequence[str]) -> Turn:
    """A turn of which only the text is known, cut at the first stop string."""
    return Turn(replace(message, content=cut_at_stop(message.content, stop)), stop_reason, length, seconds=seconds)
