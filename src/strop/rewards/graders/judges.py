"""`score_model` and `label_model`: a model reads the answer and judges it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, model_validator

from strop.rewards.graders.fields import Shape, Text, Texts, described, fault, is_number, number
from strop.rewards.graders.grade import Part, Settings
from strop.rewards.graders.grader import Grader
from strop.rewards.graders.judge_answers import Unreadable, parse_answer, without_thoughts
from strop.rewards.graders.messages import Messages
from strop.types import Json

MAX_CONCURRENT = 16
"""Requests of one model grader that are under way at the same time, unless it says otherwise."""

_STEPS: dict[str, Json] = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {"description": {"type": "string"}, "conclusion": {"type": "string"}},
        "required": ["description", "conclusion"],
        "additionalProperties": False,
    },
}

Limit = Annotated[int, number(1, 2**31, whole=True)]


class JudgeSampling(Shape):
    """How the judge's answer is drawn."""

    temperature: Annotated[float, number(0, 2)] | None = None
    top_p: Annotated[float, number(0, 1)] | None = None
    seed: Annotated[int, number(-(2**63), 2**63 - 1, whole=True)] | None = None
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    max_completion_tokens: Limit | None = None
    max_completions_tokens: Limit | None = None
    """The same: OpenAI's graders spell it with one s more than everything else does."""

    def as_request(self) -> dict[str, Json]:
        """Settings in the names of chat completions; what is not given is left out."""
        found = self.model_dump(exclude_none=True, exclude={"max_completions_tokens"})
        limit = self.max_completion_tokens or self.max_completions_tokens
        return found if limit is None else found | {"max_completion_tokens": limit}


class Judge(Grader):
    """What both kinds of model graders share: the model that is asked, and how."""

    model: Text
    input: Messages
    sampling_params: JudgeSampling = JudgeSampling()
    base_url: Text | None = None
    """None: $OPENAI_BASE_URL, else OpenAI."""
    api_key_env: Text | None = None
    """Variable that holds the key. None: $OPENAI_API_KEY, or no key where there is a `base_url`."""
    max_concurrent: Annotated[int, number(1, 256, whole=True)] = MAX_CONCURRENT

    @property
    def lowest(self) -> float:
        """Value of an answer that lacks what the messages need."""
        return 0.0

    @property
    def schema_name(self) -> str:
        """Name of the schema that an answer must have."""
        raise NotImplementedError

    @property
    def answer_schema(self) -> dict[str, Json]:
        """What an answer must look like, as JSON schema."""
        raise NotImplementedError

    @property
    def answer_words(self) -> str:
        """The schema as a sentence: not every server can hold a model to it, and the model should know why."""
        raise NotImplementedError

    def verdict(self, text: str) -> float:
        """The value of an answer. Raises Unreadable."""
        raise NotImplementedError

    def part(self, settings: Settings) -> Part:
        """Ask over HTTP, with a client that needs the extra `graders`."""
        part: Part = settings.load("strop.rewards.graders.judge_part", self.type).JudgePart(self, settings)
        return part


def _check_range(value: Json) -> Json:
    if not isinstance(value, list) or len(value) != 2 or not all(map(is_number, value)):
        raise fault(f"expected 2 numbers, found {described(value)}")
    low, high = value
    if low >= high:
        raise fault(f"[{low:g}, {high:g}] is not a range; write the lower number first")
    return value


class ScoreModel(Judge):
    """A number that a model gives, moved into a range."""

    type: Literal["score_model"]
    range: Annotated[tuple[float, float], BeforeValidator(_check_range)] = (0.0, 1.0)

    @property
    def lowest(self) -> float:
        """The lower end of the range."""
        return self.range[0]

    @property
    def schema_name(self) -> str:
        """Name of the schema."""
        return "score"

    @property
    def answer_schema(self) -> dict[str, Json]:
        """Reasoning, then a number."""
        return _object({"steps": _STEPS, "result": {"type": "number"}})

    @property
    def answer_words(self) -> str:
        """The schema as a sentence."""
        low, high = self.range
        return _words(f'"result": a number from {low:g} to {high:g}')

    def verdict(self, text: str) -> float:
        """The result in an object, or just a number. Raises Unreadable."""
        found = parse_answer(text)
        result = found.get("result") if isinstance(found, dict) else found
        if isinstance(result, bool) or not isinstance(result, int | float):
            raise Unreadable(f"its result is {json.dumps(result)[:60]}, not a number")
        if isinstance(result, float) and not math.isfinite(result):
            raise Unreadable("its result is too large")
        # An integer may be too large for a float; the range is not.
        low, high = self.range
        return float(min(max(result, low), high))


class LabelModel(Judge):
    """1 where a model chooses one of the passing labels, else 0."""

    type: Literal["label_model"]
    labels: Texts
    passing_labels: Texts

    @model_validator(mode="after")
    def _check_labels(self) -> Self:
        if len(set(self.labels)) < len(self.labels):
            raise fault("a label is listed twice", "labels")
        unknown = [label for label in self.passing_labels if label not in self.labels]
        if unknown:
            why = f"{unknown[0]!r} is not one of the labels: {', '.join(self.labels)}"
            raise fault(why, "passing_labels")
        return self

    @property
    def schema_name(self) -> str:
        """Name of the schema."""
        return "label"

    @property
    def answer_schema(self) -> dict[str, Json]:
        """Reasoning, then a label."""
        return _object({"steps": _STEPS, "label": {"type": "string", "enum": list(self.labels)}})

    @property
    def answer_words(self) -> str:
        """The schema as a sentence."""
        return _words(f'"label": one of {", ".join(map(json.dumps, self.labels))}')

    def verdict(self, text: str) -> float:
        """The label in an object, or just the label. Raises Unreadable."""
        label: Json = without_thoughts(text)
        if label not in self.labels:
            found = parse_answer(text)
            label = found.get("label") if isinstance(found, dict) else found
        if label not in self.labels:
            raise Unreadable(f"its label is {json.dumps(label)[:60]}, none of {', '.join(self.labels)}")
        return float(label in self.passing_labels)


def _object(properties: Mapping[str, Json]) -> dict[str, Json]:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }


def _words(result: str) -> str:
    return (
        "Reply with one JSON object and nothing else, with two keys: "
        '"steps": your reasoning, a list of {"description": …, "conclusion": …}, then ' + result + "."
    )
