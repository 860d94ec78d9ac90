"""Holding out rows by their prompts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from strop.data.rows import load_rows, refuse_overlap
from strop.data.split import held_out_lines
from strop.errors import InvalidRequest
from strop.types import Row


@pytest.fixture
def rows(tmp_path: Path) -> list[Row]:
    """60 rows over 40 prompts."""
    lines = [json.dumps({"prompt": f"question {number % 40}", "place": number}) for number in range(60)]
    (tmp_path / "rows.jsonl").write_text("\n".join(lines))
    return load_rows(tmp_path / "rows.jsonl")


def test_a_share_of_the_prompts_is_held_out_and_none_stands_on_both_sides(rows: list[Row]) -> None:
    held_out = held_out_lines(rows, 0.25, seed=1)
    validation = [row for row in rows if row.line in held_out]
    assert len({row.messages for row in validation}) == 10
    refuse_overlap([row for row in rows if row.line not in held_out], validation, "train", "validation")


def test_the_seed_decides_which_and_nothing_else(rows: list[Row]) -> None:
    assert held_out_lines(rows, 0.25, seed=1) == held_out_lines(list(reversed(rows)), 0.25, seed=1)
    assert held_out_lines(rows, 0.25, seed=1) != held_out_lines(rows, 0.25, seed=2)


@pytest.mark.parametrize(("share", "prompts"), [(0.0001, 1), (0.9999, 39)])
def test_neither_side_is_empty(rows: list[Row], share: float, prompts: int) -> None:
    held_out = held_out_lines(rows, share, seed=1)
    assert len({row.messages for row in rows if row.line in held_out}) == prompts


def test_one_prompt_cannot_be_parted(rows: list[Row]) -> None:
    with pytest.raises(InvalidRequest, match="1 different prompts"):
        held_out_lines([rows[0], rows[40]], 0.5, seed=1)
