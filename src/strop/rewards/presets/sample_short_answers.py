"""Score a short answer against the ones that its row accepts."""

import re
from typing import Any

MOST_WORDS = 12
"""A longer answer is no short one: else naming everything would pay."""


def grade(sample: Any, item: Any) -> dict[str, float]:
    """0.7 where the answer names the right thing, and 0.3 more where it is nothing else."""
    said = words(sample.output_text)
    accepted = [words(answer) for answer in item.metadata.accepted]
    named = len(said) <= MOST_WORDS and any(contains(said, answer) for answer in accepted)
    return {"correct": 0.7 if named else 0.0, "brief": 0.3 if said in accepted else 0.0}


def words(text: str) -> list[str]:
    """Words in lower case, without articles and punctuation."""
    return [word for word in re.findall(r"\w+", text.casefold()) if word not in ("a", "an", "the")]


def contains(text: list[str], part: list[str]) -> bool:
    """Whether the words of `part` stand in a row in `text`."""
    return any(text[start : start + len(part)] == part for start in range(len(text)))
