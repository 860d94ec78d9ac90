"""Questions about a short passage that holds the answer. Everything in it is invented."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass

from strop.data.samples.splits import Fields, Splits, distinct, question

INSTRUCTION = "Answer the question from the passage, in a few words."

FIRST = "Alder Brack Corvel Dunmar Elsin Farrow Garth Hollin Ister Kelmor Larken Morven Nethby Orrin Pellam".split()
SECOND = "bridge museum library lighthouse theatre station garden mill".split()
HELDOUT_FIRST = "Quillon Rasken Sorrel Tamwick Ulver".split()
TOWNS = "Port Vale|Stonemere|East Halden|Birchwick|Lower Fenn|Marlow Cross|Kings Tarn|Old Severin".split("|")
PEOPLE = "Ines Calder|Jorun Hale|Matteo Bright|Sade Lorne|Viktor Ames|Yuki Tarrant|Noor Elwes|Piet Marsh".split("|")
MATERIALS = "granite|red brick|oak|limestone|cast iron|sandstone".split("|")


@dataclass(frozen=True)
class Fact:
    """Something that a passage says and a question can ask for."""

    sentence: str
    question: str


FACTS: Mapping[str, Fact] = {
    "town": Fact("The {place} stands in {town}.", "In which town does the {place} stand?"),
    "year": Fact("The {place} was opened in {year}.", "In which year was the {place} opened?"),
    "person": Fact("{person} designed the {place}.", "Who designed the {place}?"),
    "material": Fact("The {place} is built of {material}.", "What is the {place} built of?"),
    "visitors": Fact(
        "About {visitors} people visit the {place} every week.", "How many people visit the {place} weekly?"
    ),
}


def make() -> Splits:
    """240 questions to train on, and 60 about places that occur in none of them."""
    generator = random.Random(411)
    return Splits(
        distinct(lambda: _row(generator, FIRST), 240),
        distinct(lambda: _row(generator, HELDOUT_FIRST), 60),
    )


def _row(generator: random.Random, first: list[str]) -> Fields:
    """Two places in one passage, so that looking for the kind of answer is not enough."""
    names = generator.sample(first, 2)
    places = [_place(generator, f"{name} {generator.choice(SECOND)}") for name in names]
    told = [FACTS[fact].sentence.format_map(place) for place in places for fact in generator.sample(sorted(FACTS), 3)]
    asked, place = _asked(generator, places, told)
    generator.shuffle(told)
    text = f"{INSTRUCTION}\n\nPassage: {' '.join(told)}\n\nQuestion: {FACTS[asked].question.format_map(place)}"
    return question(text, place[asked])


def _place(generator: random.Random, name: str) -> dict[str, str]:
    return {
        "place": name,
        "town": generator.choice(TOWNS),
        "year": str(generator.randint(1790, 1990)),
        "person": generator.choice(PEOPLE),
        "material": generator.choice(MATERIALS),
        "visitors": str(generator.randrange(200, 5000, 50)),
    }


def _asked(generator: random.Random, places: list[dict[str, str]], told: list[str]) -> tuple[str, dict[str, str]]:
    """One of the facts that the passage tells, and the place that it is about."""
    known = [
        (name, place) for place in places for name, fact in FACTS.items() if fact.sentence.format_map(place) in told
    ]
    return generator.choice(known)
