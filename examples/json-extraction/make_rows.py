"""Write train.jsonl and heldout.jsonl: sentences about people, and the facts to extract.

    python make_rows.py

The seed is fixed, so the files in this folder are what this script writes. Names and
sentence forms of the held-out rows never occur in training: a good score there means that
the model learned to extract, not to remember.
"""

import json
import random
from pathlib import Path

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


def rows(generator: random.Random, names: list[str], forms: list[str], count: int) -> list[dict]:
    """`count` distinct rows; sentence forms and names take turns, the rest is drawn."""
    made: dict[str, dict] = {}
    while len(made) < count:
        name, form, age = generator.choice(names), generator.choice(forms), generator.randint(18, 94)
        text = form.format(name=name, age=age, job=generator.choice(JOBS), city=generator.choice(CITIES))
        made[text] = {
            "messages": [{"role": "user", "content": f"{TASK}\n\n{text}"}],
            "metadata": {"ground_truth": {"name": name, "age": age}},
        }
    return list(made.values())


def main() -> None:
    generator = random.Random(2026)
    folder = Path(__file__).parent
    for file, names, forms, count in (
        ("train.jsonl", TRAIN_NAMES, TRAIN_FORMS, 240),
        ("heldout.jsonl", HELDOUT_NAMES, HELDOUT_FORMS, 40),
    ):
        lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows(generator, names, forms, count))
        (folder / file).write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
