"""The inspector of a recorded run in a browser: conversations of several turns, their tokens, older lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from browser import Watched, violations
from models import save_tiny_model
from run_folders import old_line, record, rollout_line, run_config, turn
from server_process import ServerProcess, serving, strop
from strop.store.rundir import RunDir, RunState
from strop.types import Json

ASKED = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "weather", "arguments": '{"city": "Oslo"}'},
}


def _two_turns(sample: int) -> dict[str, Json]:
    """A question back, the user's answer, then the final answer; the second turn is a segment of its own
    in the attempt with number 1."""
    first, last = turn("Which town?", 3), turn("It is cold in Oslo.", 2, "length")
    first["observations"] = [{"role": "user", "content": "Oslo, please."}]
    last |= {"input_ids": [20, 21], "new_segment": sample == 1, "version": 4}
    return rollout_line(1, "row-1", sample) | {"turns": [first, last], "length": 5, "stop_reason": "length"}


def _tool_call() -> dict[str, Json]:
    first, last = turn("", 3), turn("Minus 4 degrees.")
    first["message"]["tool_calls"] = [ASKED]
    first["observations"] = [{"role": "tool", "content": "-4", "name": "weather", "tool_call_id": "call_1"}]
    return rollout_line(1, "row-2") | {"turns": [first, last], "length": 7, "stop_reason": "max_turns"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    data, folder = tmp_path_factory.mktemp("server") / "data", tmp_path_factory.mktemp("runs")
    model = save_tiny_model("llama", folder / "model")  # its tokenizer gives tokens their text
    run = RunDir.create(folder / "case", run_config("case").model_copy(update={"model": str(model)}))
    old = [old_line(rollout_line(1, "row-3", sample, answer="from before", tokens=2)) for sample in (0, 1)]
    record(run, 1, [_two_turns(0), _two_turns(1), _tool_call(), *old])
    run.set_status(RunState.SUCCEEDED, step=1, total_steps=1)
    imported = strop("runs", "import", run.path, "--data-dir", data)
    assert imported.returncode == 0, imported.stderr
    with serving(data) as started:
        yield started


@pytest.fixture(scope="module")
def address(server: ServerProcess) -> Callable[..., str]:
    """The page of an attempt: `address("row-1", show="group")`."""
    run = server.http.get("/v1/strop/runs").json()["data"][0]["id"]
    found = server.http.get(f"/v1/strop/runs/{run}/rollouts").json()["data"]

    def find(row: str, sample: int = 0, show: str = "") -> str:
        (rollout,) = (one["id"] for one in found if (one["row"], one["sample"]) == (row, sample))
        return f"{server.url}/experiments/{run}?tab=rollouts&row={row}&rollout={rollout}&show={show}"

    return find


def _said(page: Page) -> list[str]:
    page.locator(".s-inspector .s-turn").first.wait_for()
    return page.locator(".s-inspector .s-turn").all_inner_texts()


def test_a_conversation_shows_every_turn_and_what_came_between(page: Page, address: Callable[..., str]) -> None:
    page.goto(address("row-1"))
    assert _said(page) == [
        "system\nBe brief.",
        "user\na question",
        "assistant · turn 1 of 2 · finished · 3 tokens · policy version 0\nWhich town?",
        "user\nOslo, please.",
        "assistant · turn 2 of 2 · cut off at the token limit · 2 tokens · policy version 4\nIt is cold in Oslo.",
    ]
    expect(page.locator(".s-inspector .s-badge")).to_have_text("cut off at the token limit")
    expect(page.locator(".s-inspector .s-facts")).to_contain_text("5 tokens in 2 turns after a prompt of 3")


def test_the_group_shows_every_turn_of_each_attempt(page: Page, address: Callable[..., str]) -> None:
    page.goto(address("row-1", show="group"))
    members = page.locator(".s-group-item")
    expect(members).to_have_count(2)
    for member in members.all():
        for text in ("Which town?", "Oslo, please.", "It is cold in Oslo."):
            expect(member).to_contain_text(text)
    members.nth(1).click()
    expect(page.get_by_role("heading", name="Step 1, attempt 2")).to_be_visible()


def test_a_tool_call_and_its_result_are_shown(page: Page, address: Callable[..., str]) -> None:
    page.goto(address("row-2"))
    assert _said(page)[2:4] == [
        'assistant · turn 1 of 2 · finished · 3 tokens · policy version 0\nweather({"city": "Oslo"})',
        "tool · weather\n-4",
    ]
    expect(page.locator(".s-inspector .s-badge")).to_have_text("reached the turn limit")


def test_tokens_are_shown_by_segment_and_the_given_ones_apart(page: Page, address: Callable[..., str]) -> None:
    page.goto(address("row-1", show="tokens"))
    expect(page.locator(".s-token--sampled")).to_have_count(5)
    expect(page.locator(".s-token--given")).to_have_count(2)
    expect(page.get_by_text("Grey tokens were not sampled")).to_be_visible()
    expect(page.get_by_text("segment 1 of")).to_have_count(0)
    page.goto(address("row-1", sample=1, show="tokens"))
    expect(page.get_by_text("segment 1 of 2 · 3 tokens after a prompt of 3")).to_be_visible()
    expect(page.get_by_text("segment 2 of 2 · 2 tokens after a prompt of 2")).to_be_visible()
    expect(page.locator(".s-token--given")).to_have_count(0)


def test_a_rollout_of_an_older_version_is_shown_like_any_other(page: Page, address: Callable[..., str]) -> None:
    page.goto(address("row-3"))
    assert _said(page) == [
        "system\nBe brief.",
        "user\na question",
        "assistant · completion · finished · 2 tokens\nfrom before",
    ]
    page.get_by_role("button", name="Tokens").click()
    expect(page.locator(".s-token--sampled")).to_have_count(2)
    page.get_by_role("button", name="Group").click()
    expect(page.locator(".s-group-item")).to_have_text(
        [f"attempt {n}0.5completion · finished · 2 tokensfrom before" for n in (1, 2)]
    )


@pytest.mark.parametrize("look", [{}, {"scheme": "dark"}, {"width": 390}], ids=["light", "dark", "phone"])
def test_a_view_keeps_nobody_out(
    look: dict[str, Any], watched: Callable[..., Watched], address: Callable[..., str]
) -> None:
    page = watched(**look).page
    for show, part in (("", ".s-turn"), ("tokens", ".s-tokens"), ("group", ".s-group-item")):
        page.goto(address("row-1", show=show))
        page.locator(f".s-inspector {part}").first.wait_for()
        assert violations(page) == [], show
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
