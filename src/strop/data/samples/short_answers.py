"""Facts that a few words answer, from a table of our own."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass

from strop.data.samples.splits import Fields, Splits, question

INSTRUCTION = "Answer with the name only."
HELD_OUT_OF = 5
"""One fact out of so many is held out."""


@dataclass(frozen=True)
class Relation:
    """Facts of one kind: two ways to ask, and pairs of what is asked about and the answer."""

    forms: tuple[str, str]
    pairs: Mapping[str, str]


def _pairs(text: str) -> dict[str, str]:
    """`France: Paris, Japan: Tokyo` as a mapping."""
    pairs = (pair.strip().partition(": ") for pair in text.split(","))
    return {subject: answer for subject, _, answer in pairs}


RELATIONS = (
    Relation(
        ("What is the capital of {subject}?", "Which city is the capital of {subject}?"),
        _pairs(
            """France: Paris, Japan: Tokyo, Italy: Rome, Spain: Madrid, Portugal: Lisbon, Norway: Oslo,
            Sweden: Stockholm, Finland: Helsinki, Denmark: Copenhagen, Poland: Warsaw, Austria: Vienna,
            Hungary: Budapest, Greece: Athens, Ireland: Dublin, Germany: Berlin, Belgium: Brussels,
            Egypt: Cairo, Kenya: Nairobi, Ghana: Accra, Ethiopia: Addis Ababa, Morocco: Rabat,
            Senegal: Dakar, Peru: Lima, Chile: Santiago, Argentina: Buenos Aires, Colombia: Bogotá,
            Cuba: Havana, Canada: Ottawa, Mexico: Mexico City, Brazil: Brasília, India: New Delhi,
            China: Beijing, Thailand: Bangkok, Vietnam: Hanoi, Philippines: Manila, Mongolia: Ulaanbaatar,
            Iran: Tehran, Iraq: Baghdad, Turkey: Ankara, Jordan: Amman, Australia: Canberra,
            New Zealand: Wellington, Iceland: Reykjavik, Latvia: Riga, Estonia: Tallinn, Croatia: Zagreb"""
        ),
    ),
    Relation(
        ("Which chemical element has the symbol {subject}?", "{subject} is the symbol of which element?"),
        _pairs(
            """H: Hydrogen, He: Helium, C: Carbon, N: Nitrogen, O: Oxygen, F: Fluorine, Ne: Neon, Na: Sodium,
            Mg: Magnesium, Si: Silicon, P: Phosphorus, S: Sulfur, Cl: Chlorine, K: Potassium, Ca: Calcium,
            Fe: Iron, Cu: Copper, Zn: Zinc, Ag: Silver, Sn: Tin, I: Iodine, Au: Gold, Hg: Mercury, Pb: Lead,
            U: Uranium, Li: Lithium, Al: Aluminium, Ti: Titanium, Ni: Nickel, W: Tungsten"""
        ),
    ),
    Relation(
        ("What is a young {subject} called?", "What do people call a baby {subject}?"),
        _pairs(
            """dog: puppy, cat: kitten, cow: calf, horse: foal, sheep: lamb, goat: kid, pig: piglet, hen: chick,
            duck: duckling, goose: gosling, lion: cub, kangaroo: joey, deer: fawn, swan: cygnet, owl: owlet,
            eel: elver, hare: leveret, frog: tadpole, eagle: eaglet, elephant: calf"""
        ),
    ),
    Relation(
        ("On which continent is {subject}?", "Which continent does {subject} belong to?"),
        _pairs(
            """Nigeria: Africa, Tunisia: Africa, Zambia: Africa, Mali: Africa, Nepal: Asia, Laos: Asia,
            Pakistan: Asia, Malaysia: Asia, Romania: Europe, Bulgaria: Europe, Slovenia: Europe, Malta: Europe,
            Bolivia: South America, Ecuador: South America, Uruguay: South America, Guatemala: North America,
            Honduras: North America, Jamaica: North America"""
        ),
    ),
)
ALSO_RIGHT: Mapping[str, tuple[str, ...]] = {
    "Bogotá": ("Bogota",),
    "Brasília": ("Brasilia",),
    "New Delhi": ("Delhi",),
    "Sulfur": ("Sulphur",),
    "Aluminium": ("Aluminum",),
    "Tungsten": ("Wolfram",),
    "Ulaanbaatar": ("Ulan Bator",),
    "Reykjavik": ("Reykjavík",),
    "puppy": ("pup", "whelp"),
    "tadpole": ("froglet",),
}


def make() -> Splits:
    """Every fact asked for in two ways; one fact out of five is held out, in both ways."""
    generator = random.Random(88)
    train: list[Fields] = []
    heldout: list[Fields] = []
    for relation in RELATIONS:
        for place, (subject, answer) in enumerate(relation.pairs.items()):
            rows = heldout if place % HELD_OUT_OF == HELD_OUT_OF - 1 else train
            accepted = [answer, *ALSO_RIGHT.get(answer, ())]
            for form in relation.forms:
                rows.append(question(f"{form.format(subject=subject)} {INSTRUCTION}", answer, accepted=accepted))
    generator.shuffle(train)
    generator.shuffle(heldout)
    return Splits(tuple(train), tuple(heldout))
