"""Score an answer against the facts that its row names."""

import json
from typing import Any


def grade(sample: Any, item: Any) -> dict[str, float]:
    """1 for the right JSON object, with part of it for each part that is right."""
    truth = item.metadata.ground_truth
    try:
        answer = json.loads(sample.output_text)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        return {"format": 0.0, "name": 0.0, "age": 0.0}
    return {
        "format": 0.2 if set(answer) == {"name", "age"} else 0.0,
        "name": 0.4 if answer.get("name") == truth.name else 0.0,
        "age": 0.4 if answer.get("age") == truth.age else 0.0,
    }
