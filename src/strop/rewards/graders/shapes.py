"""OpenAI's grader objects, checked and read into frozen dataclasses.

A shape knows what a grader is, not how it is run. Faults are InvalidRequest with the place in
`param`, such as `grader.graders.style.operation`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from strop.rewards.graders.formula import Formula, FormulaError, parse_formula
from strop.rewards.graders.keys import Keys, refuse
from strop.rewards.graders.messages import MessageTemplate, read_messages, read_template
from strop.rewards.graders.template import Template, Variable
from strop.types import Json

OPERATIONS = ("eq", "ne", "like", "ilike")
METRICS = (
    "fuzzy_match",
    "bleu",
    "gleu",
    "meteor",
    "rouge_1",
    "rouge_2",
    "rouge_3",
    "rouge_4",
    "rouge_5",
    "rouge_l",
)
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
MAX_SOURCE_BYTES = 256_000
MAX_PARTS = 32
MAX_CONCURRENT = 16
"""Requests of one model grader that are under way at the same time, unless it says otherwise."""

COSINE = (
    "cosine is refused: it compares embeddings, which needs an embedding model, and OpenAI offers it in evals only, "
    f"not for fine-tuning; use one of {', '.join(METRICS)}"
)
NEEDS_NAMES = (
    "a list of graders needs names to use in calculate_output: give each a `name` of letters, digits and _ "
    "that differs from the others, or write `graders` as an object"
)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class StringCheck:
    """Compares two texts: 1 or 0."""

    type: ClassVar[str] = "string_check"
    name: str
    input: Template
    reference: Template
    operation: str
    """One of OPERATIONS; `neq` has become `ne`."""


@dataclass(frozen=True)
class TextSimilarity:
    """How alike two texts are, from 0 to 1."""

    type: ClassVar[str] = "text_similarity"
    name: str
    input: Template
    reference: Template
    metric: str
    """One of METRICS."""


@dataclass(frozen=True)
class Python:
    """`grade(sample, item)` as text."""

    type: ClassVar[str] = "python"
    name: str
    source: str


@dataclass(frozen=True)
class Judge:
    """The model that a model grader asks, and how."""

    model: str
    input: tuple[MessageTemplate, ...]
    sampling: Mapping[str, Json]
    """Settings in the names of chat completions."""
    base_url: str | None = None
    """None: $OPENAI_BASE_URL, else OpenAI."""
    api_key_env: str | None = None
    """Variable that holds the key. None: $OPENAI_API_KEY, or no key where there is a `base_url`."""
    max_concurrent: int = MAX_CONCURRENT


@dataclass(frozen=True)
class ScoreModel:
    """A number that a model gives, within a range."""

    type: ClassVar[str] = "score_model"
    name: str
    judge: Judge
    low: float
    high: float


@dataclass(frozen=True)
class LabelModel:
    """1 where a model chooses one of the passing labels, else 0."""

    type: ClassVar[str] = "label_model"
    name: str
    judge: Judge
    labels: tuple[str, ...]
    passing: frozenset[str]


Single = StringCheck | TextSimilarity | Python | ScoreModel | LabelModel


@dataclass(frozen=True)
class Multi:
    """Several graders, and the formula that makes one number of theirs."""

    type: ClassVar[str] = "multi"
    name: str
    parts: Mapping[str, Single]
    """By the names that the formula uses."""
    formula: Formula


Grader = Single | Multi


def parse_grader(value: Json, where: str = "grader") -> Grader:
    """The grader that a JSON value describes. Raises InvalidRequest; `where` begins its `param`."""
    keys = Keys(value, where)
    if keys.type == "multi":
        return _multi(keys)
    return _single(keys)


def variables_of(grader: Grader) -> tuple[Variable, ...]:
    """All that its templates read, to check rows before they are used."""
    match grader:
        case Multi():
            return tuple(variable for part in grader.parts.values() for variable in variables_of(part))
        case StringCheck() | TextSimilarity():
            return grader.input.variables + grader.reference.variables
        case ScoreModel() | LabelModel():
            return tuple(variable for message in grader.judge.input for variable in message.variables)
        case Python():
            return ()


def _single(keys: Keys) -> Single:
    match keys.type:
        case "string_check":
            grader: Single = _string_check(keys)
        case "text_similarity":
            grader = _text_similarity(keys)
        case "python":
            grader = _python(keys)
        case "score_model":
            grader = _score_model(keys)
        case "label_model":
            grader = _label_model(keys)
        case "multi":
            raise refuse(keys.at("type"), "a multi grader cannot hold another multi grader")
        case other:
            known = "string_check, text_similarity, python, score_model, label_model, multi"
            raise refuse(keys.at("type"), f"unknown grader type {other!r}; known are {known}")
    keys.finish()
    return grader


def _string_check(keys: Keys) -> StringCheck:
    input_, reference = read_template(keys, "input"), read_template(keys, "reference")
    operation = keys.choice("operation", (*OPERATIONS, "neq"))
    return StringCheck(keys.name(), input_, reference, "ne" if operation == "neq" else operation)


def _text_similarity(keys: Keys) -> TextSimilarity:
    input_, reference = read_template(keys, "input"), read_template(keys, "reference")
    metric = keys.text("evaluation_metric")
    if metric == "cosine":
        raise refuse(keys.at("evaluation_metric"), COSINE)
    return TextSimilarity(keys.name(), input_, reference, keys.choice("evaluation_metric", METRICS))


def _python(keys: Keys) -> Python:
    source = keys.text("source")
    size = len(source.encode(errors="surrogatepass"))
    if size >= MAX_SOURCE_BYTES:
        raise refuse(keys.at("source"), f"{size:,} bytes; a source has less than {MAX_SOURCE_BYTES:,}")
    keys.skip("image_tag")  # strop has no images: what is installed is there
    return Python(keys.name(), source)


def _score_model(keys: Keys) -> ScoreModel:
    low, high = keys.numbers("range", (0.0, 1.0))
    if low >= high:
        raise refuse(keys.at("range"), f"[{low:g}, {high:g}] is no range; write the lower number first")
    return ScoreModel(keys.name(), _judge(keys), low, high)


def _label_model(keys: Keys) -> LabelModel:
    labels, passing = keys.texts("labels"), keys.texts("passing_labels")
    if len(set(labels)) < len(labels):
        raise refuse(keys.at("labels"), "a label stands there twice")
    unknown = [label for label in passing if label not in labels]
    if unknown:
        raise refuse(keys.at("passing_labels"), f"{unknown[0]!r} is not one of the labels: {', '.join(labels)}")
    return LabelModel(keys.name(), _judge(keys), tuple(labels), frozenset(passing))


def _judge(keys: Keys) -> Judge:
    return Judge(
        model=keys.text("model"),
        input=read_messages(keys, "input"),
        sampling=_sampling(keys),
        base_url=keys.text("base_url", default=None),
        api_key_env=keys.text("api_key_env", default=None),
        max_concurrent=int(keys.number("max_concurrent", 1, 256, whole=True, default=MAX_CONCURRENT)),
    )


def _sampling(keys: Keys) -> dict[str, Json]:
    given = keys.table("sampling_params")
    if given is None:
        return {}
    found: dict[str, Json] = {
        "temperature": given.number("temperature", 0, 2, default=None),
        "top_p": given.number("top_p", 0, 1, default=None),
        "seed": given.number("seed", -(2**63), 2**63 - 1, whole=True, default=None),
        "reasoning_effort": given.choice("reasoning_effort", EFFORTS, default=None),
    }
    # OpenAI's graders spell it with one s more than everything else does.
    for spelling in ("max_completions_tokens", "max_completion_tokens"):
        limit = given.number(spelling, 1, 2**31, whole=True, default=None)
        found["max_completion_tokens"] = limit or found.get("max_completion_tokens")
    given.finish()
    return {name: value for name, value in found.items() if value is not None}


def _multi(keys: Keys) -> Multi:
    parts = _parts(keys)
    text = keys.text("calculate_output")
    try:
        formula = parse_formula(text)
    except FormulaError as error:
        raise refuse(keys.at("calculate_output"), f"{text!r} is no formula: {error}") from None
    unknown = sorted(formula.names - parts.keys())
    if unknown:
        raise refuse(keys.at("calculate_output"), f"there is no grader {unknown[0]!r}; there are {', '.join(parts)}")
    name = keys.name()
    keys.finish()
    return Multi(name, parts, formula)


def _parts(keys: Keys) -> dict[str, Single]:
    """The graders in any of the three forms that OpenAI's documents show: by key, a list, or just one."""
    given, where = keys.value("graders"), keys.at("graders")
    if isinstance(given, list):
        parts = _listed([Keys(entry, f"{where}.{index}") for index, entry in enumerate(given)], where)
    elif isinstance(given, dict) and isinstance(given.get("type"), str):
        parts = _listed([Keys(given, where)], where)
    elif isinstance(given, dict):
        parts = {_part_name(key, where): _single(Keys(entry, f"{where}.{key}")) for key, entry in given.items()}
    else:
        raise refuse(where, "expected an object of graders by name")
    if not 1 <= len(parts) <= MAX_PARTS:
        raise refuse(where, f"{len(parts)} graders; a multi grader has 1 to {MAX_PARTS}")
    return parts


def _part_name(key: str, where: str) -> str:
    if not _NAME.fullmatch(key):
        raise refuse(f"{where}.{key}", "its name must be letters, digits and _, so that the formula can use it")
    return key


def _listed(entries: list[Keys], where: str) -> dict[str, Single]:
    """By name where that is fit for a formula, else by type, as OpenAI's example has it: string_check_score."""
    parts: dict[str, Single] = {}
    for entry in entries:
        grader = _single(entry)
        name = grader.name if entry.has("name") and _NAME.fullmatch(grader.name) else f"{grader.type}_score"
        if name in parts:
            raise refuse(where, NEEDS_NAMES)
        parts[name] = grader
    return parts
