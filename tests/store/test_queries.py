"""Lists of runs, prompts and rollouts: filters, search, order, pages, heat maps."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from run_folders import new_run, play, record, rollout_line, turn
from strop.errors import InvalidRequest, NotFound
from strop.store import queries
from strop.store.db import Database
from strop.store.ingest import Ingester
from strop.store.queries import PromptFilter, RolloutFilter
from strop.store.rundir import RunState

ALL, ALL_PROMPTS = RolloutFilter(), PromptFilter()
TEXTS = ["The Straße is long.", "100% sure", "a_b and a\\b", "nothing", "ÄPFEL und Birnen", "no"]


@dataclass(frozen=True)
class Case:
    """A run in a database, and how to ask for its parts."""

    database: Database
    run_id: str

    def rollouts(self, filters: RolloutFilter = ALL, **order: Any) -> list[dict[str, Any]]:
        with self.database.read() as connection:
            found = queries.rollouts_page(connection, self.run_id, filters, **order)
            if not order:
                assert queries.count_rollouts(connection, self.run_id, filters) == len(found)
            return found

    def prompts(self, filters: PromptFilter = ALL_PROMPTS, **order: Any) -> list[dict[str, Any]]:
        with self.database.read() as connection:
            found = queries.prompts_page(connection, self.run_id, filters, **order)
            if not order:
                assert queries.count_prompts(connection, self.run_id, filters) == len(found)
            return found

    def places(self, **filters: Any) -> list[tuple[int, str, int]]:
        """Step, row and sample of what a filter leaves."""
        found = self.rollouts(RolloutFilter(**filters))
        return [(item["step"], item["row"], item["sample"]) for item in found]

    def rows(self, **filters: Any) -> list[str]:
        return [item["row"] for item in self.prompts(PromptFilter(**filters))]


@pytest.fixture
def case(database: Database, tmp_path: Path) -> Case:
    """Three steps of two prompts with two samples; row-3 is drawn in the last one only."""
    run = new_run(tmp_path / "runs" / "one")
    rewards = iter([0.0, 1.0, 0.5, 0.5, 0.25, None, 1.0, 0.75, 0.1, 0.9, 0.3, 0.3])
    for step, rows in ((1, ("row-1", "row-2")), (2, ("row-2", "row-1")), (3, ("row-1", "row-3"))):
        lines = []
        for row in rows:
            for sample in (0, 1):
                reward = next(rewards)
                lines.append(
                    rollout_line(
                        step,
                        row,
                        sample,
                        reward=reward,
                        cause="timeout" if reward is None else None,
                        stop_reason="length" if sample else "stop",
                        question=f"Question of {row}",
                        answer=TEXTS[(2 * step + sample) % len(TEXTS)],
                        components=None if reward is None else {"form": 1 - reward, 'odd "name"': reward},
                        tokens=step + sample,
                    )
                )
        record(run, step, lines)
    return Case(database, Ingester(database, tmp_path).import_run(run.path))


# Rollouts


def test_a_rollout_shows_what_its_line_says(case: Case) -> None:
    first = case.rollouts()[0]
    assert first.pop("id").startswith("ro_")
    assert first == {
        "run_id": case.run_id,
        "row": "row-1",
        "step": 1,
        "sample": 0,
        "reward": 0.0,
        "advantage": -0.5,
        "stop_reason": "stop",
        "cause": None,
        "length": 1,
        "answer": "a_b and a\\b",
        "components": {"form": 1.0, 'odd "name"': 0.0},
    }


def test_rollouts_come_in_the_order_of_their_files(case: Case) -> None:
    assert case.places()[:4] == [(1, "row-1", 0), (1, "row-1", 1), (1, "row-2", 0), (1, "row-2", 1)]
    assert [place[1] for place in case.places(step=2)] == ["row-2", "row-2", "row-1", "row-1"]


@pytest.mark.parametrize(
    ("filters", "places"),
    [
        ({"step": 3, "row": "row-3"}, [(3, "row-3", 0), (3, "row-3", 1)]),
        ({"first": 2, "last": 2, "sample": 1}, [(2, "row-2", 1), (2, "row-1", 1)]),
        ({"min_reward": 0.9}, [(1, "row-1", 1), (2, "row-1", 0), (3, "row-1", 1)]),
        ({"max_reward": 0.1}, [(1, "row-1", 0), (3, "row-1", 0)]),
        ({"min_reward": 0.3, "max_reward": 0.3}, [(3, "row-3", 0), (3, "row-3", 1)]),
        ({"component": "form", "min_reward": 0.9}, [(1, "row-1", 0), (3, "row-1", 0)]),
        ({"component": "unknown", "min_reward": 0.0}, []),
        ({"failed": True}, [(2, "row-2", 1)]),
        ({"cause": "timeout"}, [(2, "row-2", 1)]),
        ({"cause": "crash"}, []),
        ({"failed": False, "step": 2, "sample": 1}, [(2, "row-1", 1)]),
        ({"stop_reason": "length", "step": 1}, [(1, "row-1", 1), (1, "row-2", 1)]),
        ({"step": 2**40}, []),
        ({"first": -(2**70), "last": 0}, []),
    ],
)
def test_a_filter_leaves_what_it_says(filters: dict[str, Any], places: list[tuple[int, str, int]], case: Case) -> None:
    assert case.places(**filters) == places


@pytest.mark.parametrize(
    ("search", "texts"),
    [
        ("STRASSE", {"The Straße is long."}),
        ("straße", {"The Straße is long."}),
        ("100%", {"100% sure"}),
        ("%", {"100% sure"}),
        ("a_b", {"a_b and a\\b"}),
        ("a\\B", {"a_b and a\\b"}),
        ("äpfel", {"ÄPFEL und Birnen"}),
        ("NO", {"no", "nothing"}),
        ("of ROW-3", {"The Straße is long.", "100% sure"}),
        ("never\0said", set()),
        ("\ud800", set()),
        ("", set(TEXTS)),
    ],
)
def test_search_finds_parts_of_prompts_and_answers_whatever_their_case(
    search: str, texts: set[str], case: Case
) -> None:
    assert {item["answer"] for item in case.rollouts(RolloutFilter(search=search))} == texts


def test_turns_after_the_first_and_calls_of_tools_are_searched(database: Database, tmp_path: Path) -> None:
    run = new_run(tmp_path / "runs" / "tools")
    call = {"id": "call_1", "type": "function", "function": {"name": "look_up", "arguments": '{"city": "Łódź"}'}}
    asks = {"role": "assistant", "content": "", "tool_calls": [call]}
    result = {"role": "tool", "content": "17 degrees", "tool_call_id": "call_1"}
    first = {**turn(""), "message": asks}
    turns = [{**first, "observations": [result]}, turn("It is warm.")]
    record(run, 1, [{**rollout_line(1), "turns": turns}, {**rollout_line(1, sample=1), "turns": [first]}])
    case = Case(database, Ingester(database, tmp_path).import_run(run.path))
    assert [item["answer"] for item in case.rollouts()] == ["It is warm.", 'look_up({"city": "Łódź"})']
    assert case.places(search="łódź") == [(1, "row-1", 0), (1, "row-1", 1)]
    assert case.places(search="17 Degrees") == [(1, "row-1", 0)]


def test_rollouts_are_sorted_with_those_that_have_no_reward_last(case: Case) -> None:
    best = [item["reward"] for item in case.rollouts(sort="-reward")]
    assert best == [1.0, 1.0, 0.9, 0.75, 0.5, 0.5, 0.3, 0.3, 0.25, 0.1, 0.0, None]
    assert [item["reward"] for item in case.rollouts(sort="reward")] == [*best[-2::-1], None]
    assert [item["length"] for item in case.rollouts(sort="-length")] == sorted([1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4])[
        ::-1
    ]


def test_rollouts_are_sorted_by_a_component(case: Case) -> None:
    found = case.rollouts(RolloutFilter(component="form"), sort="-reward")
    assert [item["components"].get("form") for item in found][:3] == [1.0, 0.9, 0.75]
    assert found[-1]["components"] == {}


@pytest.mark.parametrize("sort", ["step", "-step", "reward", "-reward", "length", "-length", "advantage"])
@pytest.mark.parametrize("limit", [1, 5])
def test_pages_join_to_the_whole_list(sort: str, limit: int, case: Case) -> None:
    whole = [item["id"] for item in case.rollouts(sort=sort, limit=100)]
    assert len(whole) == 12
    assert joined(lambda after: [item["id"] for item in case.rollouts(sort=sort, limit=limit, after=after)]) == whole


def joined(page: Callable[[str | None], list[str]]) -> list[str]:
    """All pages, one behind the other."""
    found: list[str] = []
    while more := page(found[-1] if found else None):
        found += more
    return found


@pytest.mark.parametrize("sort", ["unknown", "--step", "", "reward desc"])
def test_an_unknown_order_is_refused(sort: str, case: Case) -> None:
    with pytest.raises(InvalidRequest, match="cannot sort by") as caught:
        case.rollouts(sort=sort)
    assert caught.value.param == "sort"


@pytest.mark.parametrize("name", ["ro_999999", "ro_", "ro_-1", "ro_x", "1", "", "ro_" + "9" * 40, "ro_\0", "ro_²"])
def test_a_rollout_that_is_not_there_is_named(name: str, case: Case) -> None:
    with case.database.read() as connection:
        for ask in (queries.rollout, lambda c, n: queries.whole_rollout(c, Path("/"), n)):
            with pytest.raises(NotFound, match="no rollout"):
                ask(connection, name)
    with pytest.raises(NotFound, match="no rollout"):
        case.rollouts(after=name)


def test_one_rollout_is_what_the_page_shows(case: Case) -> None:
    shown = case.rollouts()[3]
    with case.database.read() as connection:
        assert queries.rollout(connection, shown["id"]) == shown


# Heat map


def test_a_heat_map_has_a_cell_for_each_rollout_of_a_prompt(case: Case) -> None:
    with case.database.read() as connection:
        cells = queries.heat_map(connection, case.run_id, "row-2")
        assert queries.heat_map(connection, case.run_id, "row-2", first=2, last=2) == cells[2:]
    assert [(cell["step"], cell["sample"], cell["reward"], cell["stop_reason"], cell["cause"]) for cell in cells] == [
        (1, 0, 0.5, "stop", None),
        (1, 1, 0.5, "length", None),
        (2, 0, 0.25, "stop", None),
        (2, 1, None, "length", "timeout"),
    ]
    assert [cell["id"] for cell in cells] == [item["id"] for item in case.rollouts(RolloutFilter(row="row-2"))]


@pytest.mark.parametrize("row", ["row-9", "", "row\0", "\udfff"])
def test_a_row_that_was_never_drawn_is_named(row: str, case: Case) -> None:
    with case.database.read() as connection, pytest.raises(NotFound, match="has drawn no row"):
        queries.heat_map(connection, case.run_id, row)


# Prompts


def test_a_prompt_shows_its_newest_step(case: Case) -> None:
    assert case.prompts()[1] == {
        "row": "row-2",
        "line": 2,
        "preview": "Question of row-2",
        "step": 2,
        "samples": 2,
        "failed": 1,
        "truncated": 1,
        "reward": 0.25,
        "best": 0.25,
        "components": {"form": 0.75, 'odd "name"': 0.25},
        "answer": "ÄPFEL und Birnen",
    }


@pytest.mark.parametrize(
    ("filters", "rows"),
    [
        ({}, ["row-1", "row-2", "row-3"]),
        ({"search": "QUESTION OF row-3"}, ["row-3"]),
        ({"search": "row-2"}, ["row-2"]),
        ({"search": "be brief"}, ["row-1", "row-2", "row-3"]),
        ({"min_reward": 0.3}, ["row-1", "row-3"]),
        ({"max_reward": 0.25}, ["row-2"]),
        ({"component": "form", "min_reward": 0.7}, ["row-2", "row-3"]),
        ({"failed": True}, ["row-2"]),
        ({"failed": False}, ["row-1", "row-3"]),
        ({"cause": "timeout"}, ["row-2"]),
        ({"stop_reason": "length"}, ["row-1", "row-2", "row-3"]),
        ({"stop_reason": "tool_limit"}, []),
    ],
)
def test_a_filter_of_prompts_is_about_their_newest_step(filters: dict[str, Any], rows: list[str], case: Case) -> None:
    assert case.rows(**filters) == rows


@pytest.mark.parametrize(
    ("sort", "rows"),
    [
        ("-line", ["row-3", "row-2", "row-1"]),
        ("-reward", ["row-1", "row-3", "row-2"]),
        ("best", ["row-2", "row-3", "row-1"]),
        ("-failed", ["row-2", "row-3", "row-1"]),
        ("step", ["row-2", "row-1", "row-3"]),
    ],
)
def test_prompts_are_sorted(sort: str, rows: list[str], case: Case) -> None:
    assert [item["row"] for item in case.prompts(sort=sort)] == rows
    assert joined(lambda after: [item["row"] for item in case.prompts(sort=sort, limit=1, after=after)]) == rows


# Steps and runs


def test_a_step_shows_what_was_sampled_in_it(case: Case) -> None:
    with case.database.read() as connection:
        found = queries.steps_page(connection, case.run_id, sort="-step")
        assert queries.steps_page(connection, case.run_id, sort="-step", limit=1, after=3) == found[1:2]
        assert queries.steps_page(connection, case.run_id, first=2, last=2) == found[1:2]
    assert [step["step"] for step in found] == [3, 2, 1]
    assert found[1] == {
        "step": 2,
        "prompts": 2,
        "samples": 4,
        "failed": 1,
        "truncated": 2,
        "reward": pytest.approx((0.25 + 1.0 + 0.75) / 3),
        "damage": None,
    }


def test_runs_are_listed_filtered_and_paged(database: Database, tmp_path: Path) -> None:
    ingester, names = Ingester(database, tmp_path), {}
    for place, name in enumerate(("alpha", "beta", "gamma", "delta")):
        run = new_run(tmp_path / "runs" / name, name=f"{name}-run")
        os.utime(run.config_file, (1000 + place, 1000 + place))
        if name == "beta":
            run.set_status(RunState.SUCCEEDED)
        if name in ("alpha", "gamma"):
            play(run, 1, 2, seed=place)
        names[ingester.import_run(run.path)] = name

    def listed(**asked: Any) -> list[str]:
        with database.read() as connection:
            return [names[item["id"]] for item in queries.runs(connection, **asked)]

    assert listed() == ["delta", "gamma", "beta", "alpha"]
    assert listed(sort="name") == ["alpha", "beta", "delta", "gamma"]
    assert listed(state="succeeded") == ["beta"]
    assert listed(search="TA-R") == ["delta", "beta"]
    assert listed(search="a_run") == []
    assert set(listed(sort="-reward")[2:]) == {"beta", "delta"}  # which have none
    ids = {name: key for key, name in names.items()}

    def pages(sort: str) -> list[str]:
        return joined(lambda after: listed(sort=sort, limit=1, after=after and ids[after]))

    for sort in ("-created_at", "name", "-reward", "state"):
        assert pages(sort) == listed(sort=sort)


@pytest.mark.parametrize("name", ["run_nowhere", "", "\0", "\ud800", "x" * 10_000])
def test_a_run_that_is_not_there_is_named(name: str, database: Database) -> None:
    with database.read() as connection:
        for ask in (queries.run, queries.checkpoints, queries.rollouts_page, queries.prompts_page, queries.steps_page):
            with pytest.raises(NotFound, match="no run"):
                ask(connection, name)
        with pytest.raises(NotFound, match="no run"):
            queries.runs(connection, after=name)


@settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(), st.text(), st.integers(), st.floats(allow_nan=False))
def test_no_filter_makes_a_query_fail(case: Case, text: str, other: str, number: int, bound: float) -> None:
    filters = RolloutFilter(first=number, sample=number, min_reward=bound, component=other, cause=other, search=text)
    case.rollouts(filters, sort="-reward")
    case.prompts(PromptFilter(component=other, max_reward=bound, stop_reason=other, search=text), sort="reward")
