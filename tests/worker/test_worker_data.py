"""The rows of a run: checked against each other and fitted to the model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from train_cases import config

from strop.config import DataConfig, RunConfig
from strop.errors import DataError
from strop.types import Row
from strop.worker.data import RunData, load_data


class Letters:
    """A chat in which every letter of the prompt is a token; it refuses prompts with a question mark."""

    def prompt_ids(self, row: Row) -> tuple[int, ...]:
        text = row.messages[0].content
        if "?" in text:
            raise DataError(f"line {row.line}: no questions")
        return tuple(map(ord, text))

    def text(self, token_ids: Sequence[int]) -> str:
        return "".join(map(chr, token_ids))


def written(folder: Path, name: str, *prompts: str) -> str:
    path = folder / name
    path.write_text("".join(json.dumps({"prompt": prompt}) + "\n" for prompt in prompts))
    return str(path)


def settings(train: str, validation: str | None = None, limit: int = 10) -> RunConfig:
    base = config({"max_prompt_tokens": limit})
    return base.model_copy(update={"data": DataConfig(train=train, validation=validation)})


def loaded(made: RunConfig) -> tuple[RunData, list[str]]:
    said: list[str] = []
    return load_data(made, Letters(), said.append), said


def test_rows_that_fit_are_kept_and_longer_ones_dropped_and_counted(tmp_path: Path) -> None:
    data, said = loaded(settings(written(tmp_path, "rows.jsonl", "short", "x" * 10, "x" * 11, "y" * 50)))
    assert [row.line for row in data.train] == [1, 2]
    assert data.dropped == 2
    assert said == [
        "2 training rows, 0 validation rows",
        "2 training prompts are longer than sampling.max_prompt_tokens = 10: dropped",
    ]


def test_validation_rows_are_fitted_too_and_counted_apart(tmp_path: Path) -> None:
    train, held_out = written(tmp_path, "rows.jsonl", "a", "b"), written(tmp_path, "held.jsonl", "c", "z" * 11)
    data, said = loaded(settings(train, held_out))
    assert [row.messages[0].content for row in data.validation] == ["c"]
    assert data.dropped == 0
    assert said[1:] == ["1 validation prompts are longer than sampling.max_prompt_tokens = 10: dropped"]


def test_a_file_of_which_nothing_fits_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"all 2 prompts are longer than sampling\.max_prompt_tokens = 3"):
        loaded(settings(written(tmp_path, "rows.jsonl", "long", "longer"), limit=3))


def test_rows_that_the_template_refuses_are_all_named(tmp_path: Path) -> None:
    path = written(tmp_path, "rows.jsonl", "a?", "b", "c?")
    with pytest.raises(DataError) as caught:
        loaded(settings(path))
    assert caught.value.message.splitlines() == [f"{path}: line 1: no questions", f"{path}: line 3: no questions"]


def test_many_refused_rows_are_counted_behind_the_first(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        loaded(settings(written(tmp_path, "rows.jsonl", *[f"{n}?" for n in range(25)])))
    lines = caught.value.message.splitlines()
    assert len(lines) == 21
    assert lines[-1].endswith("and 5 more")


def test_held_out_rows_must_not_be_trained_on(tmp_path: Path) -> None:
    train, held_out = written(tmp_path, "rows.jsonl", "a", "b"), written(tmp_path, "held.jsonl", "b")
    with pytest.raises(DataError, match=r"held\.jsonl"):
        loaded(settings(train, held_out))


def test_the_fingerprint_is_that_of_the_whole_training_file(tmp_path: Path) -> None:
    first, _ = loaded(settings(written(tmp_path, "rows.jsonl", "a", "b")))
    again, _ = loaded(settings(written(tmp_path, "copy.jsonl", "a", "b")))
    longer, _ = loaded(settings(written(tmp_path, "longer.jsonl", "a", "b", "x" * 99)))
    assert first.fingerprint == again.fingerprint
    # Of a row that was dropped: another limit would take it in.
    assert longer.fingerprint != first.fingerprint
