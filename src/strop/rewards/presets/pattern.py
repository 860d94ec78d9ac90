"""1 where the whole answer matches a regular expression."""

import re
from typing import Any

PATTERN = re.compile(r"Answer: .+", re.DOTALL)


def grade(sample: Any, item: Any) -> float:
    return 1.0 if PATTERN.fullmatch(sample.output_text.strip()) else 0.0
