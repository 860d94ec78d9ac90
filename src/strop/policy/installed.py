"""The models on this machine, by their files. Loads no model and does not import torch."""

from __future__ import annotations

import json
from pathlib import Path

from huggingface_hub import try_to_load_from_cache
from huggingface_hub.errors import HFValidationError

from strop.policy.catalogue import find_entry, local_folder
from strop.types import Json


def installed_folder(name: str) -> Path | None:
    """Folder of a model that can be loaded without a download;

    `name` is a catalogue name, a Hugging Face id or a folder.
    """
    try:
        folder = local_folder(name)
    except OSError:  # longer than a path can be
        return None
    if folder:
        return folder
    entry = find_entry(name)
    if entry and entry.wheel:
        return None
    try:
        found = try_to_load_from_cache(entry.repository if entry else name, "config.json")
    except HFValidationError:  # no name that the hub could know
        return None
    return Path(found).parent if isinstance(found, str) else None


def chat_template(folder: Path) -> str:
    """Text of a model's chat templates (for an adapter, those of its base model); empty if there is none."""
    file = folder / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    found = _read(folder / "tokenizer_config.json").get("chat_template")
    if found:
        return found if isinstance(found, str) else "\n".join(str(entry.get("template")) for entry in found)
    base = _read(folder / "adapter_config.json").get("base_model_name_or_path")
    place = installed_folder(base) if isinstance(base, str) else None
    return chat_template(place) if place and place != folder else ""


def _read(file: Path) -> dict[str, Json]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
