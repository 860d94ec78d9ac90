"""What the files of weights in a folder are, as far as it shows without loading them. Knows no torch."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from strop.policy.installed import installed_folder


def whole_folder(name: str) -> Path | None:
    """Folder of a model by name, hub id or path, if nothing of it has to be fetched; an adapter with its base."""
    folder = installed_folder(name)
    if folder is None or not _is_whole(folder):
        return None
    base = base_of(folder)
    base_folder = folder if base is None else installed_folder(base)
    return folder if base_folder and _is_whole(base_folder) else None


def base_of(folder: Path) -> str | None:
    """Name of the model that the adapter in a folder belongs to; None for full weights."""
    try:
        config = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    name = config.get("base_model_name_or_path") if isinstance(config, dict) else None
    return str(name) if name else None


def weight_count(folder: Path) -> int:
    """How many numbers the weights of a folder are, by the headers of its files."""
    return sum(math.prod(entry["shape"]) for file in folder.glob("*.safetensors") for entry in _tensors(file))


def _is_whole(folder: Path) -> bool:
    """Whether no file of weights is missing: a download may have been cut off."""
    try:
        indexes = [json.loads(index.read_text(encoding="utf-8")) for index in folder.glob("*.safetensors.index.json")]
        named = {name for index in indexes for name in index["weight_map"].values()}
    except (OSError, ValueError, LookupError, AttributeError, TypeError):
        return False
    return all((folder / name).is_file() for name in named) and any(folder.glob("*.safetensors"))


def _tensors(file: Path) -> Iterator[dict[str, Any]]:
    """What the header of a safetensors file says of each tensor; nothing where it is damaged."""
    try:
        with open(file, "rb") as content:
            (length,) = struct.unpack("<Q", content.read(8))
            header = json.loads(content.read(min(length, 100 * 2**20)))
        yield from (entry for name, entry in header.items() if name != "__metadata__")
    except (OSError, ValueError, struct.error, AttributeError):
        return
