"""Score the answer to a problem whose result is a whole number."""

import re
from typing import Any

NUMBER = r"-?\d+(?:[.,]\d+)*"


def grade(sample: Any, item: Any) -> dict[str, float]:
    """0.9 where the last number of the answer is right, and 0.1 where there is nothing but a number."""
    text = sample.output_text.strip()
    numbers = re.findall(NUMBER, text)
    right = bool(numbers) and numbers[-1].replace(",", "") == str(item.metadata.ground_truth)
    bare = re.fullmatch(NUMBER + r"\.?", text) is not None
    return {"correct": 0.9 if right else 0.0, "format": 0.1 if bare else 0.0}
