"""Models that are on this machine: where they lie, whether they are whole, what they take.

Knows files only: the server, which has no torch, asks here too.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from huggingface_hub import snapshot_download
from huggingface_hub.errors import LocalEntryNotFoundError

from strop.policy.catalogue import find_entry, local_folder

ADAPTER_CONFIG = "adapter_config.json"


def here(name: str) -> Path | None:
    """The folder of a model by name, hub id or path, if all of it is on this machine."""
    folder = local_folder(name) or _hub_folder(name)
    return folder if folder and _whole(folder) else None


def base_of(folder: Path) -> str | None:
    """Name of the model that the adapter in a folder belongs to; None for full weights."""
    try:
        config = json.loads((folder / ADAPTER_CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    name = config.get("base_model_name_or_path") if isinstance(config, dict) else None
    return str(name) if name else None


def numbers_in(folder: Path) -> int:
    """How many numbers the weights of a folder are, by the headers of its files."""
    return sum(math.prod(entry["shape"]) for file in folder.glob("*.safetensors") for entry in _tensors(file))


def _hub_folder(name: str) -> Path | None:
    """Where the hub's client keeps a model."""
    entry = find_entry(name)
    if entry and entry.wheel:
        return None
    try:
        return Path(snapshot_download(entry.repository if entry else name, local_files_only=True))
    except (OSError, ValueError, LocalEntryNotFoundError):
        return None


def _whole(folder: Path) -> bool:
    """Whether no file of weights is missing: a download may have been cut off."""
    indexes = list(folder.glob("*.safetensors.index.json"))
    try:
        names = {name for index in indexes for name in json.loads(index.read_text())["weight_map"].values()}
    except (OSError, ValueError, LookupError, AttributeError, TypeError):
        return False
    return all((folder / name).is_file() for name in names) and any(folder.glob("*.safetensors"))


def _tensors(file: Path) -> Iterator[dict[str, Any]]:
    """What the header of a safetensors file says of each tensor; nothing where it is damaged."""
    try:
        with open(file, "rb") as content:
            (length,) = struct.unpack("<Q", content.read(8))
            header = json.loads(content.read(min(length, 100 * 2**20)))
        yield from (entry for name, entry in header.items() if name != "__metadata__")
    except (OSError, ValueError, struct.error, AttributeError):
        return
