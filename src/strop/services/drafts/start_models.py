"""Models to train: how large they are, what they need, and whether this machine has it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from strop.errors import StropError
from strop.policy.catalogue import CATALOGUE, Entry, find_entry
from strop.policy.memory import training_bytes
from strop.policy.weights import parameters_in, whole_folder
from strop.services import models
from strop.services.container import Services
from strop.services.machine import devices
from strop.services.threads import in_thread
from strop.services.trained import find_trained, is_trained

GB = 1e9
_ROOM = 1.3
"""Activations, keys and values, and the rest of the machine, beside what weights take."""
_BILLIONS = re.compile(r"(?<![\d.])(\d{1,3}(?:\.\d{1,2})?)\s?([bm])(?![a-z])", re.IGNORECASE)

Fit = Literal["fits", "tight", "too large", "unknown"]


@dataclass(frozen=True)
class Choice:
    """A model that may be trained."""

    name: str
    about: str
    parameters: float | None
    """Billions; None where nothing tells."""
    guessed: bool
    """Whether only its name tells how large it is."""
    here: bool
    """Whether nothing of it has to be fetched."""

    def memory_gb(self, method: str) -> float | None:
        """What training takes, without activations."""
        return None if self.parameters is None else training_bytes(self.parameters, method)


@dataclass(frozen=True)
class Room:
    """The largest device of this machine."""

    name: str
    gb: float

    def fit(self, need_gb: float | None) -> Fit:
        """Whether a need can be met."""
        if need_gb is None:
            return "unknown"
        if need_gb > self.gb:
            return "too large"
        return "fits" if need_gb * _ROOM <= self.gb else "tight"


@dataclass(frozen=True)
class Offer:
    """What a draft may start from."""

    room: Room
    catalogue: Sequence[Choice]
    trained: Mapping[str, str]
    """Names of models that were trained here, by what a request says."""


@in_thread
def offer(services: Services, chosen: str) -> Offer:
    """What a draft may start from; `chosen` is among the trained models where it is one."""
    names = {found.id: found.id for found in models.trained.blocking(services)}
    if is_trained(chosen) and chosen not in names:
        names[chosen] = label_of(services, chosen)
    return Offer(this_machine(), catalogue(), names)


def this_machine() -> Room:
    """The GPU with the most memory, or the machine's own memory where there is none."""
    found = devices()
    largest = max(found[1:] or found[:1], key=lambda device: device.memory_bytes)
    return Room(largest.name if largest.id != "cpu" else "memory of this machine", largest.memory_bytes / GB)


def catalogue() -> list[Choice]:
    """The models that strop knows by name."""
    return [_known(entry) for entry in CATALOGUE.values()]


@in_thread
def described(services: Services, name: str) -> Choice:
    """Any model that can be named, as far as it is known."""
    entry = find_entry(name)
    if entry is not None:
        return _known(entry)
    folder = folder_of(services, name)
    if folder is not None:
        return Choice(label_of(services, name), str(folder), _billions(folder), False, True)
    guess = guessed_size(name)
    return Choice(name, "not on this machine", guess, guess is not None, False)


def folder_of(services: Services, name: str) -> Path | None:
    """Where a model lies; None where it is not on this machine."""
    try:
        return find_trained(services.jobs, services.folder, name).folder if is_trained(name) else whole_folder(name)
    except StropError:
        return None


def label_of(services: Services, name: str) -> str:
    """What people call a model: checkpoints have names beside their ids."""
    try:
        return find_trained(services.jobs, services.folder, name).name if is_trained(name) else name
    except StropError:
        return name


def guessed_size(name: str) -> float | None:
    """Billions of parameters by a name such as `Qwen/Qwen3-4B`; the largest number that it has."""
    found = [float(number) / (1000 if unit.lower() == "m" else 1) for number, unit in _BILLIONS.findall(name)]
    return max(found, default=None)


def _known(entry: Entry) -> Choice:
    about = f"{entry.summary}; {entry.licence}"
    return Choice(entry.name, about, entry.parameters, False, whole_folder(entry.name) is not None)


def _billions(folder: Path) -> float | None:
    """By the files of weights; of an adapter with those of its base."""
    return parameters_in(folder) / 1e9 or None
