"""1 where the answer is the reference, ignoring case and outer space."""

from typing import Any


def grade(sample: Any, item: Any) -> float:
    answer = sample.output_text.strip().casefold()
    return 1.0 if answer == str(item.reference).strip().casefold() else 0.0
