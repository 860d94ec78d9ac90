"""Names of things that clients see."""

from __future__ import annotations

import secrets


def new_id(prefix: str) -> str:
    """A fresh id such as `ftjob-1f0c…`: the prefix, then 24 hexadecimal digits."""
    return f"{prefix}{secrets.token_hex(12)}"
