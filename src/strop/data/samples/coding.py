"""Small functions to write, with tests as metadata."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from strop.data.samples.splits import Fields, Splits, distinct, question
from strop.types import Json

INSTRUCTION = "Reply with Python code only. It may not import anything."
TESTS = 5

WORDS = "river stone apple cloud lamp garden mirror bottle window paper silver train copper basket violet".split()


@dataclass(frozen=True)
class Task:
    """A function to write. `{k}` and `{c}` in its text and body are drawn for each row."""

    name: str
    does: str
    argument: str
    """Name of its one argument, a key of `ARGUMENTS`."""
    body: str


ARGUMENTS: Mapping[str, Callable[[random.Random], Json]] = {
    "n": lambda generator: generator.randint(-30, 60),
    "numbers": lambda generator: [generator.randint(-20, 40) for _ in range(generator.randint(3, 9))],
    "text": lambda generator: " ".join(generator.sample(WORDS, generator.randint(2, 5))),
    "words": lambda generator: generator.sample(WORDS, generator.randint(2, 7)),
}

TRAIN_TASKS = (
    Task("add", "returns n plus {k}", "n", "return n + {k}"),
    Task("scale", "returns n multiplied by {k}", "n", "return n * {k}"),
    Task("is_multiple", "returns True if n is a multiple of {k}, else False", "n", "return n % {k} == 0"),
    Task("at_most", "returns n, but never more than {k}", "n", "return min(n, {k})"),
    Task("distance", "returns how far n is from {k}, as a number that is never negative", "n", "return abs(n - {k})"),
    Task("add_to_all", "returns a list of the numbers, each plus {k}", "numbers", "return [x + {k} for x in numbers]"),
    Task("keep_above", "returns a list of the numbers above {k}", "numbers", "return [x for x in numbers if x > {k}]"),
    Task(
        "count_above",
        "returns how many of the numbers are above {k}",
        "numbers",
        "return sum(x > {k} for x in numbers)",
    ),
    Task("first", "returns a list of the first {k} numbers", "numbers", "return numbers[:{k}]"),
    Task("count_letter", 'returns how often the letter "{c}" occurs in the text', "text", 'return text.count("{c}")'),
    Task("without", 'returns the text without the letter "{c}"', "text", 'return text.replace("{c}", "")'),
    Task("repeat", "returns the text {k} times in a row, with nothing in between", "text", "return text * {k}"),
    Task(
        "longer",
        "returns a list of the words with more than {k} letters",
        "words",
        "return [w for w in words if len(w) > {k}]",
    ),
    Task(
        "starts",
        'returns a list of the words that start with "{c}"',
        "words",
        'return [w for w in words if w.startswith("{c}")]',
    ),
    Task("join", 'returns the words as one string with "{c}" between them', "words", 'return "{c}".join(words)'),
)
HELDOUT_TASKS = (
    Task("subtract", "returns n minus {k}", "n", "return n - {k}"),
    Task(
        "keep_multiples",
        "returns a list of the numbers that are multiples of {k}",
        "numbers",
        "return [x for x in numbers if x % {k} == 0]",
    ),
    Task(
        "sum_above", "returns the sum of the numbers above {k}", "numbers", "return sum(x for x in numbers if x > {k})"
    ),
    Task(
        "has_letter", 'returns True if the letter "{c}" occurs in the text, else False', "text", 'return "{c}" in text'
    ),
    Task(
        "count_longer",
        "returns how many of the words have more than {k} letters",
        "words",
        "return sum(len(w) > {k} for w in words)",
    ),
)


def make() -> Splits:
    """100 functions to write in training, and 30 of other kinds."""
    generator = random.Random(5)
    return Splits(
        distinct(lambda: _row(generator, TRAIN_TASKS), 100),
        distinct(lambda: _row(generator, HELDOUT_TASKS), 30),
    )


def _row(generator: random.Random, tasks: Sequence[Task]) -> Fields:
    task, drawn = generator.choice(tasks), {"k": generator.randint(2, 9), "c": generator.choice("aeilnoprst")}
    signature = f"def {task.name}({task.argument}):"
    code = f"{signature}\n    {task.body.format(**drawn)}"
    text = f"Write the Python function `{signature[4:-1]}`, which {task.does.format(**drawn)}. {INSTRUCTION}"
    return question(text, code, function=task.name, tests=_tests(generator, task, code))


def _tests(generator: random.Random, task: Task, code: str) -> list[dict[str, Json]]:
    """Arguments, and what our own solution makes of them."""
    scope: dict[str, Callable[[Json], Json]] = {}
    exec(code, scope)
    arguments = [ARGUMENTS[task.argument](generator) for _ in range(TESTS)]
    return [{"argument": argument, "expected": scope[task.name](argument)} for argument in arguments]
