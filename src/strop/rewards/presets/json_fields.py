"""0.2 for a JSON object, and 0.8 times the share of the reference's fields that are right."""

import json
from typing import Any


def grade(sample: Any, item: Any) -> dict[str, float]:
    try:
        answer = json.loads(sample.output_text)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        return {"json": 0.0, "fields": 0.0}
    right = sum(key in answer and answer[key] == value for key, value in item.reference.items())
    return {"json": 0.2, "fields": 0.8 * right / len(item.reference)}
