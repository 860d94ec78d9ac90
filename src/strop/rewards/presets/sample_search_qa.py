"""Score a short answer that stands in a passage."""

import re
from collections import Counter
from typing import Any


def grade(sample: Any, item: Any) -> dict[str, float]:
    """0.6 for the answer itself, and up to 0.4 for the words that it shares with the right one."""
    answer, truth = words(sample.output_text), words(item.metadata.ground_truth)
    return {"exact": 0.6 if answer == truth else 0.0, "overlap": 0.4 * overlap(answer, truth)}


def words(text: str) -> list[str]:
    """Words in lower case, without articles and punctuation."""
    return [word for word in re.findall(r"\w+", text.casefold()) if word not in ("a", "an", "the")]


def overlap(answer: list[str], truth: list[str]) -> float:
    """F1: the harmonic mean of how much is right and how much of the right is there."""
    shared = sum((Counter(answer) & Counter(truth)).values())
    return 2 * shared / (len(answer) + len(truth)) if shared else 0.0
