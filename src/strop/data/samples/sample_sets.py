"""The sample data sets by name: their rows, and the name of the reward preset that fits."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from strop.data.samples import coding, json_extraction, maths, search_qa, short_answers
from strop.data.samples.splits import Fields, Splits
from strop.errors import NotFound

Split = Literal["train", "validation"]


@dataclass(frozen=True)
class Sample:
    """A data set that strop can make."""

    name: str
    title: str
    description: str
    """One line: what a row asks, and what is scored."""
    make: Callable[[], Splits]
    preset: str
    """Name of the reward preset that fits."""

    def rows(self, split: Split) -> tuple[Fields, ...]:
        """The rows of one part, the same every time."""
        splits = self.make()
        return splits.train if split == "train" else splits.validation

    def lines(self, split: Split) -> Iterator[bytes]:
        """The rows as a data file has them."""
        for row in self.rows(split):
            yield (json.dumps(row, ensure_ascii=False) + "\n").encode()


SAMPLES: Mapping[str, Sample] = {
    sample.name: sample
    for sample in (
        Sample(
            "json-extraction",
            "JSON extraction",
            "A sentence about a person becomes JSON with name and age; each part of the object is scored.",
            json_extraction.make,
            "sample_json_extraction",
        ),
        Sample(
            "maths",
            "Maths",
            "Sums and short word problems with whole numbers; the last number of the answer counts.",
            maths.make,
            "sample_maths",
        ),
        Sample(
            "coding",
            "Coding",
            "Small Python functions; scored by five tests each, run apart from everything else.",
            coding.make,
            "sample_coding",
        ),
        Sample(
            "search-qa",
            "Search QA",
            "A question about a short passage that holds the answer; scored by the words in common.",
            search_qa.make,
            "sample_search_qa",
        ),
        Sample(
            "short-answers",
            "Short answers",
            "Capitals, elements, young animals and continents; scored against the accepted names.",
            short_answers.make,
            "sample_short_answers",
        ),
    )
}


def find_sample(name: str) -> Sample:
    """The sample of a name. Raises NotFound that lists the names there are."""
    if name not in SAMPLES:
        raise NotFound(f"there is no sample {name!r}; there are {', '.join(SAMPLES)}", param="sample")
    return SAMPLES[name]
