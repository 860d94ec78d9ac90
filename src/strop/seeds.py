"""Seeds derived from names instead of the order in which random numbers are drawn.

A run that resumes at step 40 draws the same numbers as an uninterrupted run, because each draw is seeded by its
purpose: the run's seed, the step, the row and the index.
"""

from __future__ import annotations

from hashlib import blake2b


def derive_seed(*parts: int | str) -> int:
    """A seed below 2**63 derived from the parts, identical on every machine and Python version."""
    text = "\x1f".join(str(part) for part in parts)
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest()) >> 1
