"""Sentences about people, and the facts to extract. `examples/json-extraction` has these rows too.

Names and sentence forms of the held-out rows never occur in training: a good score there
means that the model learned to extract, not to remember.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from strop.data.samples.splits import Fields, Splits, distinct, question

TASK = 'Extract the name and the age from this sentence as JSON with the keys "name" and "age".'

TRAIN_NAMES = """
Alice Bob Carla David Elena Frank Greta Hassan Ines Jonas Karin Liam Maria Noah Olga Pavel
Quinn Rosa Samuel Tara Umar Vera Walter Ximena Yusuf Zoe Anton Bianca Cedric Dora Emil Fiona
Gustav Hanna Igor Julia Kevin Laura Miguel Nadia
""".split()
HELDOUT_NAMES = "Oscar Petra Ravi Sofia Tomas Ulrike Victor Wanda Arjun Beatriz Claude Deniz".split()

TRAIN_FORMS = [
    "{name} is {age} years old and works as a {job}.",
    "My neighbour {name}, a {job}, turned {age} last week.",
    "At {age}, {name} still works as a {job} in {city}.",
    "{name} moved to {city} at the age of {age}.",
    "The {job} from {city} is called {name} and is {age}.",
    "Meet {name} ({age}), our new {job}.",
    "Yesterday {name} celebrated birthday number {age} in {city}.",
    "{name}, aged {age}, was born in {city}.",
    "This is {name}. {name} is a {job}, {age} years of age.",
    "In {city} lives a {age}-year-old {job} named {name}.",
    "Name: {name}. Occupation: {job}. Age: {age}.",
    "People in {city} know {name} well: a {job} of {age}.",
]
HELDOUT_FORMS = [
    "The {age}-year-old {name} has been a {job} for a long time.",
    "{name} from {city} is {age}.",
    "I met {name} in {city}; the {job} is {age} now.",
    "Our {job} {name} just turned {age}.",
]
JOBS = "teacher nurse carpenter pilot baker lawyer farmer painter driver dentist".split()
CITIES = "Lisbon Oslo Nairobi Lima Kyoto Prague Boston Cairo Hanoi Perth".split()


def make() -> Splits:
    """240 rows to train on and 40 held-out ones."""
    generator = random.Random(2026)
    return Splits(
        distinct(lambda: _row(generator, TRAIN_NAMES, TRAIN_FORMS), 240),
        distinct(lambda: _row(generator, HELDOUT_NAMES, HELDOUT_FORMS), 40),
    )


def _row(generator: random.Random, names: Sequence[str], forms: Sequence[str]) -> Fields:
    name, form, age = generator.choice(names), generator.choice(forms), generator.randint(18, 94)
    text = form.format(name=name, age=age, job=generator.choice(JOBS), city=generator.choice(CITIES))
    return question(f"{TASK}\n\n{text}", {"name": name, "age": age})
