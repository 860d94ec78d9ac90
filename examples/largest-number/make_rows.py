"""Write train.jsonl and heldout.jsonl: three numbers, of which the largest is asked for.

python make_rows.py
"""

import json
import random
from pathlib import Path


def rows(generator: random.Random, count: int, seen: set[tuple[int, ...]]) -> list[str]:
    """`count` lines whose numbers, in whatever order, occur in no other line."""
    lines = []
    while len(lines) < count:
        numbers = generator.sample(range(10, 100), 3)
        if tuple(sorted(numbers)) in seen:
            continue
        seen.add(tuple(sorted(numbers)))
        question = f"Which of these numbers is the largest: {numbers[0]}, {numbers[1]} or {numbers[2]}?"
        row = {
            "messages": [{"role": "user", "content": f"{question} Reply with the number only."}],
            "metadata": {"ground_truth": max(numbers)},
        }
        lines.append(json.dumps(row) + "\n")
    return lines


def main() -> None:
    generator, seen = random.Random(2026), set()
    for file, count in (("train.jsonl", 240), ("heldout.jsonl", 40)):
        (Path(__file__).parent / file).write_text("".join(rows(generator, count, seen)), encoding="utf-8")


if __name__ == "__main__":
    main()
