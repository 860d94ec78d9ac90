"""Seeds that depend on names, not on the order in which random numbers are drawn.

A run that resumes at step 40 draws what the uninterrupted run drew at step 40, because each
draw is seeded by what it is for: the run's seed, the step, the row, the index.
"""

from __future__ import annotations

from hashlib import blake2b


def derive_seed(*parts: int | str) -> int:
    """A seed below 2**63 from the parts, the same on every machine and Python."""
    text = "\x1f".join(str(part) for part in parts)
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest()) >> 1
