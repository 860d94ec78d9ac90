"""Names of rewards in a job."""

from __future__ import annotations

import re


def reward_name(title: str) -> str:
    """What can be of a title in the name of a reward: `exact_match` for `Exact match`."""
    name = re.sub(r"[^a-z0-9]+", "_", title.rpartition(": ")[2].lower()).strip("_")
    return name if re.match("[a-z]", name) else "reward"
