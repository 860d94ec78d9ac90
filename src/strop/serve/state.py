"""What a model process holds, as it tells over HTTP."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ModelState:
    """A loaded model."""

    name: str
    source: str
    base: str | None
    """Folder of the base whose weights an adapter shares; None for full weights."""
    memory_bytes: int
    """Its own weights: for an adapter, without the base."""
    cache_bytes: int
    """Keys and values of the completions in flight."""
    in_flight: int
    """Completions that are being decoded."""
    queued: int
    """Completions that wait for a place."""
    max_length: int | None
    """Positions: prompt and completion together."""


@dataclass(frozen=True)
class EngineState:
    """Everything that a model process holds."""

    models: tuple[ModelState, ...]
    memory_bytes: int
    """Weights, each counted once, and caches."""
    memory_limit: int
    device: str
