"""Data sets and rewards in a browser: made, looked at, changed, tested, deleted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from browser import Watched, violations
from server_process import ServerProcess, serving


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with serving(tmp_path_factory.mktemp("server") / "data") as started:
        yield started
        assert "Traceback" not in started.stop()


def test_a_data_set_from_its_sample_to_its_end(server: ServerProcess, page: Page) -> None:
    page.goto(f"{server.url}/datasets")
    page.get_by_role("button", name="Add Short answers").click()
    page.wait_for_url("**/datasets/ds_*")
    address = page.url.partition("?")[0]
    expect(page.get_by_role("heading", name="Short answers")).to_be_visible()

    # Rows, by page and by search; the search stands in the address.
    lines = page.locator("tbody tr td:first-child")
    expect(lines.first).to_have_text("1")
    page.get_by_role("button", name="Next", exact=True).click()
    expect(lines.first).to_have_text("11")
    page.get_by_role("button", name="Previous").click()
    expect(lines.first).to_have_text("1")
    page.get_by_label("Search rows").fill("puppy")
    expect(page.locator("tbody tr")).to_have_count(2)
    page.wait_for_url("**search=puppy*")
    page.reload()
    expect(page.locator("tbody tr")).to_have_count(2)
    page.locator("tbody summary").first.click()
    expect(page.get_by_text("Row as JSON").first).to_be_visible()
    assert violations(page) == []

    # A name that is taken is refused where it was typed.
    page.get_by_role("button", name="Rename").click()
    page.get_by_label("Name", exact=True).fill("Short answers (held out)")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("is taken; choose another one")).to_be_visible()
    page.get_by_label("Name", exact=True).fill("Facts")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("heading", name="Facts")).to_be_visible()

    page.get_by_role("button", name="Split").click()
    page.get_by_label("Held-out share (%)").fill("50")
    page.locator("form").get_by_role("button", name="Split").click()
    expect(page.get_by_role("heading", name="Facts (train)")).to_be_visible()
    expect(page.get_by_text("92 rows")).to_be_visible()

    page.goto(address)
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("alertdialog")).to_have_count(0)
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("alertdialog").get_by_role("button", name="Delete").click()
    page.wait_for_url("**/datasets")
    page.get_by_label("Search data sets").fill("facts")
    expect(page.locator("tbody tr")).to_have_count(2)
    page.goto(address)
    expect(page.get_by_text("It may have been deleted")).to_be_visible()


def test_a_reward_from_its_start_to_its_end(server: ServerProcess, page: Page, tmp_path: Path) -> None:
    rows = tmp_path / "sums.jsonl"
    rows.write_text('{"messages": [{"role": "user", "content": "2 + 2?"}], "metadata": {"ground_truth": "4"}}\n')
    page.goto(f"{server.url}/datasets")
    page.locator("input[type=file]").set_input_files(rows)
    page.wait_for_url("**/datasets/ds_*")
    page.goto(f"{server.url}/rewards")
    page.get_by_role("button", name="New reward from Number match").click()
    page.wait_for_url("**/rewards/rw_*")
    address = page.url

    # References should get the most there is; answers of one's own show what the reward thinks of them.
    page.get_by_role("button", name="Test", exact=True).click()
    expect(page.get_by_text("1.00 to 1.00")).to_be_visible()
    page.get_by_label("Your own completions").check()
    expect(page.get_by_text("2 + 2?").first).to_be_visible()
    page.get_by_label("Completions", exact=True).fill("it is 4\n---\nit is 5")
    page.get_by_role("button", name="Test", exact=True).click()
    expect(page.get_by_text("0.00 to 1.00")).to_be_visible()
    expect(page.get_by_text("rewards differ")).to_be_visible()

    # Completion knows what a function gets; what cannot be read is not stored.
    editor = page.locator(".cm-content")
    editor.click()
    page.keyboard.press("Control+End")
    page.keyboard.type("\nx = item.ref")
    expect(page.locator(".cm-tooltip-autocomplete")).to_contain_text("reference")
    page.keyboard.press("Escape")
    page.keyboard.type(" =")
    page.get_by_role("button", name="Save as version 2").click()
    expect(page.get_by_role("alert")).to_contain_text("not valid Python")
    page.keyboard.press("Control+A")
    editor.click()
    page.keyboard.press("Control+A")
    page.keyboard.insert_text("def grade(sample, item):\n    return 0.5\n")
    page.get_by_role("button", name="Save as version 2").click()
    page.get_by_role("heading", name="Version 2").wait_for()

    # Two versions beside each other, by a link that can be shared.
    page.get_by_label("Compare version 2 with").click()
    page.get_by_role("option", name="version 1").click()
    expect(page.locator(".s-diff--more").filter(has_text="return 0.5")).to_be_visible()
    page.wait_for_url("**against=1*")
    expect(page.get_by_role("listbox")).to_have_count(0)  # the menu takes a moment to close
    assert violations(page) == []
    page.goto(f"{address}?version=1")
    expect(page.get_by_role("heading", name="Version 1 (not the newest)")).to_be_visible()

    page.get_by_role("button", name="Delete").click()
    page.get_by_role("alertdialog").get_by_role("button", name="Delete").click()
    page.wait_for_url("**/rewards")
    assert server.http.get("/v1/strop/rewards").json()["data"] == []


def test_an_editor_follows_the_theme(server: ServerProcess, watched: Callable[..., Watched]) -> None:
    page = watched(scheme="dark").page
    made = server.http.post("/v1/strop/rewards", json={"name": "dark", "python": "def grade(s, i): return 1  # one"})
    page.goto(f"{server.url}/rewards/{made.json()['id']}")
    page.locator(".cm-content").wait_for()
    page.wait_for_load_state("networkidle")
    assert violations(page) == []
