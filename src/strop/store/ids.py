"""Public ids."""

from __future__ import annotations

import hashlib
import secrets


def new_id(prefix: str) -> str:
    """A new id such as `ftjob-1f0c…`: the prefix and 24 hexadecimal digits."""
    return f"{prefix}{secrets.token_hex(12)}"


def run_id(stored_path: str) -> str:
    """The id of the run in a folder, identical for each import. See `DataFolder.stored`."""
    return f"run_{_digits(stored_path)}"


def checkpoint_id(run: str, step: int) -> str:
    """The id of a run's checkpoint."""
    return f"ftckpt_{_digits(f'{run}{step}')}"


def _digits(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:24]
