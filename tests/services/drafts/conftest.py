"""Services with data sets and rewards, and nothing that runs by itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from served import services
from strop.services import datasets
from strop.services.container import Services
from strop.services.datasets import NewDataset
from strop.services.drafts.draft import JobDraft, RewardPart

GRADE = "def grade(sample, item):\n    return float(len(sample.output_text))\n"


@dataclass(frozen=True)
class Place:
    """A server, and the ids of its data sets."""

    services: Services
    train: str
    validation: str

    def draft(self, **values: object) -> JobDraft:
        """A draft that nothing is wrong with, but for what is changed."""
        part = RewardPart(name="length", source=GRADE)
        whole = JobDraft(model="smollm2-135m", train=self.train, validation=self.validation, rewards=(part,), seed=5)
        return whole.model_copy(update=values)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with services(tmp_path_factory.mktemp("server") / "data") as found:
        train = datasets.create.blocking(found, NewDataset(sample="maths"))
        validation = datasets.create.blocking(found, NewDataset(sample="maths", split="validation"))
        yield Place(found, train.id, validation.id)
