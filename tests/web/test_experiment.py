"""The experiment of a recorded run in a browser: its heat map, its links, what it shows and what it asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, Position, expect

from browser import Watched, violations
from run_folders import new_run, record, rollout_line
from server_process import ServerProcess, serving, strop
from strop.store.rundir import RunState

STEPS, SAMPLES = 12, 4
CELL, LEFT, TOP = 20, 2, 20
"""Of the heat map, in pixels: as in heat_map.js."""
HOSTILE = (
    "**bold** and `code` <img src=x onerror=alert(1)><script>alert(1)</script> "
    "![seen](http://elsewhere.example/beacon.png) [run](javascript:alert(1)) [page](https://docs.example/a)"
)
TABS = ("overview", "metrics", "rollouts", "checkpoints", "files", "logs")
HIDE = """
    window.asHidden = false;
    Object.defineProperty(document, "hidden", {get: () => window.asHidden});
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    data = tmp_path_factory.mktemp("server") / "data"
    for name in ("another-run", "a-run-with-a-name-that-is-far-too-long-for-one-line-on-a-phone"):
        folder = tmp_path_factory.mktemp("runs") / "case"
        _record(folder, name)
        imported = strop("runs", "import", folder, "--data-dir", data)
        assert imported.returncode == 0, imported.stderr
    with serving(data) as started:
        yield started


def _record(folder: Path, name: str) -> None:
    run = new_run(folder, name)
    for step in range(1, STEPS + 1):
        lines = [
            rollout_line(
                step,
                f"row-{row}",
                sample,
                reward=step / STEPS if sample else 0.0,
                answer=HOSTILE if sample == 1 else f"answer {sample} of step {step} " * 20,
                question=f"Question {row}?",
                cause="timeout" if sample == 3 and step % 2 else None,
                stop_reason="length" if sample == 2 else "stop",
            )
            for row in (1, 2)
            for sample in range(SAMPLES)
        ]
        metrics = {"reward": step / STEPS, "loss": 0.1, "reward/score": step / STEPS, "advantages": 1e-17}
        record(run, step, lines, metrics | ({"validation/reward": 0.5} if step % 4 == 0 else {}))
    run.set_status(RunState.SUCCEEDED, step=STEPS, total_steps=STEPS)


@pytest.fixture(scope="module")
def experiment(server: ServerProcess) -> str:
    """The address of the run's page."""
    run = server.http.get("/v1/strop/runs").json()["data"][0]["id"]
    return f"{server.url}/experiments/{run}"


def _open(page: Page, address: str) -> None:
    page.goto(address)
    page.locator("h1").wait_for()


def _cell(step: int, attempt: int) -> Position:
    return {"x": LEFT + (step - 1) * CELL + 8, "y": TOP + (attempt - 1) * CELL + 8}


def test_an_attempt_is_opened_with_the_mouse(page: Page, experiment: str) -> None:
    _open(page, f"{experiment}?tab=rollouts")
    page.get_by_role("button", name="Question 1?").click()
    expect(page.get_by_text("Select an attempt")).to_be_visible()
    page.locator(".s-heat canvas").click(position=_cell(6, 2))
    expect(page.get_by_role("heading", name="Step 6, attempt 2")).to_be_visible()
    expect(page.locator(".s-sum")).to_contain_text("0.5 (score) = 0.5")
    page.locator(".s-heat canvas").click(position=_cell(3, 4))
    expect(page.get_by_text("timeout happened")).to_be_visible()


def test_the_heat_map_is_walked_with_the_keyboard(page: Page, experiment: str) -> None:
    _open(page, f"{experiment}?tab=rollouts")
    page.locator("body").press("/")
    expect(page.locator("input[data-search]:focus")).to_be_visible()
    page.locator("input[data-search]").press("Tab")
    page.evaluate("document.activeElement.blur()")
    page.locator("body").press("j")
    page.keyboard.press("j")
    expect(page.locator("[data-item]:focus")).to_have_text("Question 2?")
    page.keyboard.press("Enter")
    expect(page.locator(".s-heat canvas")).to_be_focused()
    for key in ("ArrowLeft", "ArrowDown", "ArrowDown", "Enter"):
        page.keyboard.press(key)
    expect(page.get_by_role("heading", name=f"Step {STEPS - 1}, attempt 3")).to_be_visible()
    expect(page.get_by_text("cut off at the token limit", exact=True).first).to_be_visible()
    page.keyboard.press("ArrowUp")
    expect(page.get_by_role("heading", name=f"Step {STEPS - 1}, attempt 2")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_text("Select an attempt")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator(".s-heat")).to_have_count(0)


def test_every_view_has_a_link(page: Page, watched: Callable[..., Watched], experiment: str) -> None:
    _open(page, experiment)
    page.get_by_role("tab", name="Rollouts").click()
    page.get_by_label("Search prompts").fill("Question 2")
    page.get_by_label("Filter by outcome").select_option("failed=false")
    page.get_by_label("Sort").select_option("reward")
    page.get_by_role("button", name="Question 2?").click()
    page.locator(".s-heat canvas").click(position=_cell(5, 3))
    page.get_by_role("button", name="Group").click()
    expect(page.locator(".s-group-item")).to_have_count(SAMPLES)
    page.wait_for_url("**show=group**")
    again = watched().page
    _open(again, page.url)
    expect(again.get_by_role("heading", name="Step 5, attempt 3")).to_be_visible()
    expect(again.locator(".s-group-item")).to_have_count(SAMPLES)
    expect(again.get_by_label("Search prompts")).to_have_value("Question 2")
    expect(again.get_by_label("Filter by outcome")).to_have_value("failed=false")
    expect(again.get_by_label("Sort")).to_have_value("reward")


def test_a_step_shows_how_its_prompts_begin(page: Page, experiment: str) -> None:
    _open(page, f"{experiment}?tab=rollouts&by=step")
    page.get_by_role("button", name="7", exact=True).click()
    expect(page.get_by_role("heading", name="Step 7")).to_be_visible()
    page.get_by_role("button", name="attempt 2: 0.58").first.click()
    expect(page.get_by_role("heading", name="Step 7, attempt 2")).to_be_visible()
    page.go_back()
    expect(page.get_by_role("heading", name="Step 7", exact=True)).to_be_visible()


def test_what_a_model_writes_is_text_until_asked_and_never_fetches(page: Page, experiment: str) -> None:
    _open(page, f"{experiment}?tab=rollouts&row=row-1")
    page.locator(".s-heat canvas").click(position=_cell(2, 2))
    expect(page.locator(".s-turn--assistant pre")).to_contain_text("**bold**")
    page.get_by_role("button", name="Rendered").click()
    answer = page.locator(".s-turn--assistant .s-rendered")
    expect(answer.locator("strong")).to_have_text("bold")
    expect(answer.locator("code")).to_have_text("code")
    expect(answer).to_contain_text("<img src=x onerror=alert(1)><script>alert(1)</script>")
    expect(answer).to_contain_text("[image: seen] [run](javascript:alert(1))")
    expect(answer.locator("img, script")).to_have_count(0)
    assert [link.get_attribute("href") for link in answer.locator("a").all()] == ["https://docs.example/a"]
    page.reload()
    expect(answer.locator("strong")).to_have_text("bold")  # that it is rendered stands in the address


@pytest.mark.parametrize("look", [{}, {"scheme": "dark"}, {"width": 390}], ids=["light", "dark", "phone"])
@pytest.mark.parametrize("tab", TABS)
def test_a_tab_keeps_nobody_out(
    tab: str, look: dict[str, Any], watched: Callable[..., Watched], experiment: str
) -> None:
    page = watched(**look).page
    _open(page, f"{experiment}?tab={tab}&row=row-1")
    page.get_by_role("tab", name=tab.capitalize(), selected=True).wait_for()
    if tab in ("overview", "metrics"):
        page.locator(".s-chart-canvas canvas").first.wait_for()
    if tab == "rollouts":
        page.locator(".s-heat canvas").click(position=_cell(3, 1))
        page.locator(".s-sum").wait_for()
    assert violations(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("look", [{}, {"scheme": "dark"}, {"width": 390}], ids=["light", "dark", "phone"])
def test_runs_are_drawn_over_each_other(
    look: dict[str, Any], watched: Callable[..., Watched], server: ServerProcess
) -> None:
    page = watched(**look).page
    _open(page, server.url)
    page.get_by_label("Compare another-run").check()
    page.get_by_label("Compare a-run-with").check()
    page.get_by_role("button", name="Compare 2").click()
    page.wait_for_url("**/compare?run=run_*&run=run_*")
    page.locator(".s-chart-canvas canvas").first.wait_for()
    assert violations(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_hidden_page_asks_for_nothing(watched: Callable[..., Watched], server: ServerProcess) -> None:
    page = watched().page
    page.add_init_script(HIDE)
    _open(page, server.url)
    page.locator("[data-item]").first.wait_for()
    with page.expect_request("**/v1/**"):
        pass  # a page that is seen keeps up
    page.evaluate("window.asHidden = true")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.wait_for_timeout(5000)
    assert [url for url in asked if "/v1/" in url] == []


def test_a_page_may_only_load_from_its_own_server(page: Page, experiment: str) -> None:
    answer = page.goto(experiment)
    assert answer is not None
    policy = answer.header_value("content-security-policy") or ""
    assert "default-src 'self'" in policy
    assert "http" not in policy


def test_a_lost_connection_is_said_and_mended(watched: Callable[..., Watched], experiment: str) -> None:
    page = watched().page
    _open(page, experiment)
    page.wait_for_function("window.socket?.connected")
    page.evaluate("document.getElementById('popup').ariaHidden = false")  # as NiceGUI shows it
    notice = page.get_by_text("Connection lost")
    expect(notice).to_be_visible()
    box = page.locator("#popup").bounding_box()
    assert box is not None
    assert box["x"] + box["width"] <= 1280
    page.evaluate("window.socket.io.engine.close()")
    page.wait_for_function("window.socket.connected")
    expect(notice).to_be_hidden()
