"""1 where the last number of the answer is the reference, apart from rounding."""

import math
import re
from typing import Any


def grade(sample: Any, item: Any) -> float:
    numbers = re.findall(r"-?\d+(?:\.\d+)?", sample.output_text.replace(",", ""))
    return 1.0 if numbers and math.isclose(float(numbers[-1]), float(item.reference), rel_tol=1e-6) else 0.0
