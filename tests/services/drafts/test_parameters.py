from __future__ import annotations

from typing import Any

import pytest

from strop.services.drafts.draft import JobDraft
from strop.services.drafts.parameters import BATCH_SIZES, PARAMETERS, default_of, fault_of, value_of
from strop.web.wizard.steps.tools import meant


def test_the_defaults_are_those_of_the_references() -> None:
    defaults = {key: default_of(key) for key in PARAMETERS}
    assert defaults["train.batch_size"] == 4
    assert defaults["train.epochs"] == 1
    assert defaults["train.samples_per_prompt"] == 8
    assert defaults["sampling.temperature"] == 1.0
    assert defaults["sampling.max_prompt_tokens"] == 512
    assert defaults["sampling.max_completion_tokens"] == 1024
    assert defaults["train.kl_coefficient"] == 0.001
    assert defaults["train.learning_rate"] == "auto"
    assert defaults["train.save_every"] is None
    assert BATCH_SIZES == (1, 2, 4, 8, 16, 32)


@pytest.mark.parametrize("key", PARAMETERS)
def test_every_parameter_is_one_of_the_configuration_and_explained(key: str) -> None:
    parameter = PARAMETERS[key]
    assert parameter.label and parameter.hint.endswith(".")
    assert fault_of(key, default_of(key)) == "" or default_of(key) is None
    for option in parameter.options or ():
        assert fault_of(key, option) == ""


@pytest.mark.parametrize(
    "key, value, words",
    [
        ("train.batch_size", 0, "greater than or equal to 1"),
        ("train.samples_per_prompt", 1, "greater than or equal to 2"),
        ("train.epochs", 1.5, "integer"),
        ("train.learning_rate", "fast", "auto"),
        ("sampling.stop", [""], "at least 1 character"),
        ("sampling.template", [1], "table"),
        ("device", "tpu", "cuda"),
    ],
)
def test_what_is_wrong_with_a_value(key: str, value: Any, words: str) -> None:
    assert words in fault_of(key, value)
    assert key not in fault_of(key, value)


def test_a_value_has_its_default_filled_in() -> None:
    draft = JobDraft().with_value("train.epochs", 3, default_of("train.epochs"))
    assert value_of(draft.values, "train.epochs") == 3
    assert value_of(draft.values, "train.batch_size") == 4
    assert value_of(draft.values, "device") == "auto"


@pytest.mark.parametrize(
    "key, shown, value",
    [
        ("train.epochs", 3.0, 3),
        ("train.epochs", 3.5, 3.5),
        ("train.epochs", None, None),
        ("sampling.temperature", 0.5, 0.5),
        ("sampling.stop", "a\n\nb", ["a", "b"]),
        ("sampling.template", '{"a": 1}', {"a": 1}),
        ("sampling.template", "", None),
    ],
)
def test_what_a_field_stands_for(key: str, shown: Any, value: Any) -> None:
    assert meant(PARAMETERS[key], shown) == value
