"""Score an answer to "which number is the largest?"."""

import re


def grade(sample, item):
    """1 if the first number of the answer is the largest of the three."""
    first = re.search(r"\d+", sample.output_text)
    return 1.0 if first and int(first.group()) == item.metadata.ground_truth else 0.0
