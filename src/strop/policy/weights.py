"""Facts about weight files, without loading them. Does not import torch."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from strop.policy.installed import installed_folder
from strop.policy.memory import Shape, shape_of


def whole_folder(name: str) -> Path | None:
    """Folder of a model by name, Hugging Face id or path, if no download is needed;

    for an adapter, including its base model.
    """
    folder = installed_folder(name)
    if folder is None or not _is_whole(folder):
        return None
    base = base_of(folder)
    base_folder = folder if base is None else installed_folder(base)
    return folder if base_folder and _is_whole(base_folder) else None


def base_of(folder: Path) -> str | None:
    """Name of the base model of the adapter in a folder; None for full weights."""
    try:
        config = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    name = config.get("base_model_name_or_path") if isinstance(config, dict) else None
    return str(name) if name else None


def weight_count(folder: Path) -> int:
    """Number of parameters in a folder, from the headers of its files."""
    return sum(math.prod(entry["shape"]) for file in folder.glob("*.safetensors") for entry in _tensors(file))


def parameters_in(folder: Path) -> int:
    """Number of parameters of the model in a folder; of an adapter with those of its base."""
    base = base_of(folder)
    base_folder = whole_folder(base) if base else None
    return weight_count(folder) + (weight_count(base_folder) if base_folder else 0)


def shape_in(folder: Path) -> Shape | None:
    """The shape of the model in a folder, for an adapter of its base; None where no file tells."""
    base = base_of(folder)
    place = whole_folder(base) if base else folder
    try:
        return shape_of(json.loads((place / "config.json").read_text(encoding="utf-8"))) if place else None
    except (OSError, ValueError):
        return None


def _is_whole(folder: Path) -> bool:
    """Whether all weight files are present; a download may be incomplete."""
    try:
        indexes = [json.loads(index.read_text(encoding="utf-8")) for index in folder.glob("*.safetensors.index.json")]
        named = {name for index in indexes for name in index["weight_map"].values()}
    except (OSError, ValueError, LookupError, AttributeError, TypeError):
        return False
    return all((folder / name).is_file() for name in named) and any(folder.glob("*.safetensors"))


def _tensors(file: Path) -> Iterator[dict[str, Any]]:
    """Header entries of a safetensors file; empty if it is damaged."""
    try:
        with open(file, "rb") as content:
            (length,) = struct.unpack("<Q", content.read(8))
            header = json.loads(content.read(min(length, 100 * 2**20)))
        yield from (entry for name, entry in header.items() if name != "__metadata__")
    except (OSError, ValueError, struct.error, AttributeError):
        return
