"""Sums and short word problems with whole numbers, small enough for a small model."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from strop.data.samples.splits import Fields, Splits, distinct, question

INSTRUCTION = "Answer with the number only."

NAMES = "Ada Ben Chloe Dario Edda Felix Gita Hugo Iris Jan Kira Leo Mina Nils".split()
THINGS = "apples pencils marbles stickers buttons shells cards nuts".split()


@dataclass(frozen=True)
class Form:
    """A kind of problem: its text around two numbers, and what the answer is."""

    text: str
    answer: Callable[[int, int], int]
    largest: int
    """Of either number."""


# The first number is never smaller than the second.
TRAIN_FORMS = (
    Form("What is {a} + {b}?", lambda a, b: a + b, 20),
    Form("What is {a} - {b}?", lambda a, b: a - b, 20),
    Form("What is {a} times {b}?", lambda a, b: a * b, 10),
    Form("{name} has {a} {things} and finds {b} more. How many {things} are there now?", lambda a, b: a + b, 30),
    Form("{name} had {a} {things} and gave {b} away. How many {things} are left?", lambda a, b: a - b, 30),
    Form("A bag holds {a} {things}. How many {things} are in {b} bags?", lambda a, b: a * b, 10),
    Form("{name} has {a} {things}, twice. How many {things} are that, less {b}?", lambda a, b: 2 * a - b, 12),
    Form("On Monday {name} counts {a} {things}, on Tuesday {b}. How many together?", lambda a, b: a + b, 40),
    Form("{name} needs {a} {things} and has {b}. How many {things} are missing?", lambda a, b: a - b, 40),
)
HELDOUT_FORMS = (
    Form("There are {a} {things} on the table and {b} on the floor. How many in all?", lambda a, b: a + b, 30),
    Form("{name} drops {b} of {a} {things}. How many are still in hand?", lambda a, b: a - b, 30),
    Form("{b} children get {a} {things} each. How many {things} do they need?", lambda a, b: a * b, 10),
)


def make() -> Splits:
    """300 problems to train on, and 60 of other forms."""
    generator = random.Random(1707)
    return Splits(
        distinct(lambda: _problem(generator, TRAIN_FORMS), 300),
        distinct(lambda: _problem(generator, HELDOUT_FORMS), 60),
    )


def _problem(generator: random.Random, forms: Sequence[Form]) -> Fields:
    form = generator.choice(forms)
    b, a = sorted((generator.randint(2, form.largest), generator.randint(2, form.largest)))
    text = form.text.format(a=a, b=b, name=generator.choice(NAMES), things=generator.choice(THINGS))
    return question(f"{text} {INSTRUCTION}", form.answer(a, b))
