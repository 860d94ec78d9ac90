"""Score solutions of grade-school mathematics: right first, brief second."""

import re


def correct(sample, item):
    """1 if the last number of the answer is the expected one."""
    numbers = re.findall(r"-?\d[\d,]*\.?\d*", sample.output_text)
    if not numbers:
        return 0.0
    return float(numbers[-1].replace(",", "").rstrip(".")) == float(item.metadata.ground_truth)


def brief(sample, item):
    """From 1 for an empty answer down to 0 at 2,000 characters."""
    return max(0.0, 1 - len(sample.output_text) / 2000)
