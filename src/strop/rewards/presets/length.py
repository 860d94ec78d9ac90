"""1 up to a number of words, then less and less; 0 from twice as many on, and for an empty answer."""

from typing import Any

WORDS = 100


def grade(sample: Any, item: Any) -> float:
    words = len(sample.output_text.split())
    return min(1.0, max(0.0, 2 - words / WORDS)) if words else 0.0
