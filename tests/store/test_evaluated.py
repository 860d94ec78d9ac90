"""Rows of evaluations in the database: taken in, paged, paired."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from train_cases import failed_group, group

import stored_tasks
from strop.errors import InvalidRequest, NotFound
from strop.store.db import Database
from strop.store.evaldir import EvaluationDir
from strop.store.evaluated import AnswerFile, row_values, save_rows
from strop.store.queries.evaluations import RowFilter, evaluation_results, evaluation_rows_page, paired_page
from strop.store.rollout_lines import group_lines
from strop.store.tables import evaluation_rows
from strop.types import Group, Message


def evaluation(database: Database, name: str, groups: list[Group]) -> int:
    """An evaluation with these rows; its number in the tables."""
    seq = stored_tasks.add_evaluation(database, name, "succeeded")
    with database.write() as connection:
        save_rows(connection, seq, [row_values(group_lines(found), 1.0) for found in groups])
    return seq


def page(database: Database, **options: Any) -> list[Any]:
    with database.read() as connection:
        return [row["row"] for row in evaluation_rows_page(connection, "eval_a", **options)]


def pairs(database: Database, **options: Any) -> list[tuple[str, float | None]]:
    with database.read() as connection:
        return [(row["row"], row["change"]) for row in paired_page(connection, "eval_a", "eval_b", **options)]


def test_a_row_has_means_passes_and_every_answer(database: Database) -> None:
    evaluation(database, "eval_a", [group({"form": 1.0, "fact": 0.0}, {"form": 0.5, "fact": 1.0}, number=7)])
    with database.read() as connection:
        (row,) = evaluation_rows_page(connection, "eval_a")
        (result,) = evaluation_results(connection, "eval_a")
    assert (row["row"], row["line"], row["reward"], row["passed"], row["samples"]) == ("row-7", 7, 1.25, 2, 2)
    assert row["components"] == {"form": 0.75, "fact": 0.5}
    assert row["prompt"] == [{"role": "user", "content": "question 7"}]
    assert [answer["reward"] for answer in row["rollouts"]] == [1.0, 1.5]
    assert result == {"row": "row-7", "reward": 1.25, "passed": 2, "samples": 2, "components": row["components"]}


def test_a_row_that_could_not_be_scored_has_no_reward_but_a_reason(database: Database) -> None:
    evaluation(database, "eval_a", [failed_group("timeout", number=1)])
    with database.read() as connection:
        (row,) = evaluation_rows_page(connection, "eval_a")
    assert (row["reward"], row["failure"]) == (None, "timeout happened")


def test_taking_a_row_in_again_replaces_it(database: Database) -> None:
    seq = evaluation(database, "eval_a", [failed_group(number=1), group(1.0, number=2)])
    with database.write() as connection:
        save_rows(connection, seq, [row_values(group_lines(group(0.5, number=1)), 1.0)] * 2)
        save_rows(connection, seq, [])
        found = connection.execute(sa.select(evaluation_rows.c.row, evaluation_rows.c.failure)).all()
    assert sorted(map(tuple, found)) == [("row-1", None), ("row-2", None)]


def test_text_that_databases_do_not_store_is_no_obstacle(database: Database) -> None:
    odd = group(1.0)
    row = dataclasses.replace(odd.row, messages=(Message("user", "a nul: \0"),))
    evaluation(database, "eval_a", [Group(row, odd.rollouts)])
    with database.read() as connection:
        (found,) = evaluation_rows_page(connection, "eval_a")
    assert found["prompt"][0]["content"] == "a nul: \0"


@pytest.fixture
def several(database: Database) -> Database:
    """Rows 1 to 6 of two evaluations; row 4 failed in the second, row 6 is only in the first."""
    first = [group(reward, number=n) for n, reward in enumerate((0.0, 0.5, 0.5, 1.0, 0.25, 0.0), 1)]
    second = [group(reward, number=n) for n, reward in enumerate((1.0, 0.5, 0.25, 0.0, 0.5), 1) if n != 4]
    evaluation(database, "eval_a", first)
    evaluation(database, "eval_b", [*second, failed_group(number=4)])
    return database


@pytest.mark.parametrize(
    ("sort", "expected"),
    [
        ("line", "123456"),
        ("-line", "654321"),
        ("reward", "165234"),
        ("-reward", "432561"),
    ],
)
def test_pages_follow_each_other_in_any_order(several: Database, sort: str, expected: str) -> None:
    names = [f"row-{digit}" for digit in expected]
    assert page(several, sort=sort) == names
    walked: list[str] = []
    while found := page(several, sort=sort, limit=2, after=walked[-1] if walked else None):
        walked += found
    assert walked == names


def test_rows_are_found_by_reward_failure_and_words(several: Database) -> None:
    assert page(several, filters=RowFilter(min_reward=0.5, max_reward=0.9)) == ["row-2", "row-3"]
    assert page(several, filters=RowFilter(search="QUESTION 4")) == ["row-4"]
    assert page(several, filters=RowFilter(search="%")) == []
    assert page(several, filters=RowFilter(failed=True)) == []
    with several.read() as connection:
        failed = evaluation_rows_page(connection, "eval_b", RowFilter(failed=True))
    assert [row["row"] for row in failed] == ["row-4"]


def test_pairs_are_sorted_by_what_changed_and_those_without_a_score_come_last(several: Database) -> None:
    falling = [("row-1", 1.0), ("row-5", 0.25), ("row-2", 0.0), ("row-3", -0.25), ("row-4", None)]
    assert pairs(several) == falling
    assert pairs(several, sort="change") == [*falling[3::-1], falling[4]]
    assert [name for name, _ in pairs(several, sort="line")] == [f"row-{n}" for n in range(1, 6)]
    walked: list[tuple[str, float | None]] = []
    while found := pairs(several, limit=2, after=walked[-1][0] if walked else None):
        walked += found
    assert walked == falling


def test_a_pair_has_both_answers(several: Database) -> None:
    with several.read() as connection:
        first = paired_page(connection, "eval_a", "eval_b", limit=1)[0]
    assert (first["row"], first["line"]) == ("row-1", 1)
    assert (first["base"]["reward"], first["other"]["reward"]) == (0.0, 1.0)
    assert first["other"]["rollouts"][0]["turns"][0]["message"] == {"role": "assistant", "content": "answer"}


def test_what_is_unknown_is_named(several: Database) -> None:
    with several.read() as connection:
        with pytest.raises(NotFound, match="no evaluation 'eval_x'"):
            evaluation_rows_page(connection, "eval_x")
        with pytest.raises(NotFound, match="no evaluation 'eval_x'"):
            paired_page(connection, "eval_a", "eval_x")
        with pytest.raises(NotFound, match="no row 'row-9'"):
            evaluation_rows_page(connection, "eval_a", after="row-9")
        with pytest.raises(InvalidRequest, match="cannot sort by 'colour'"):
            evaluation_rows_page(connection, "eval_a", sort="colour")


def test_a_file_is_read_row_by_row_as_it_grows_and_anew_when_it_is_replaced(tmp_path: Path) -> None:
    folder = EvaluationDir.create(tmp_path / "eval", {})
    answers = AnswerFile(folder.rollouts_file, samples=2)
    assert answers.new_rows() == []
    folder.append(group_lines(group(0.0, 1.0, number=1)))
    assert [[line["row"] for line in row] for row in answers.new_rows()] == [["row-1", "row-1"]]
    assert answers.new_rows() == []
    whole = "".join(map(str, folder.rollouts_file.read_text().splitlines(keepends=True)))
    with open(folder.rollouts_file, "a") as file:  # a row that is still being written
        file.write(whole.replace("row-1", "row-2")[:-20])
    assert answers.new_rows() == []
    folder.keep_complete(["row-1"], 2)
    folder.append(group_lines(group(1.0, 1.0, number=2)))
    assert [row[0]["row"] for row in answers.new_rows()] == ["row-1", "row-2"]
