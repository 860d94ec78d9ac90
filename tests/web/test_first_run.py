"""From an empty server to a chat with what was trained on it: the pages with the real small model."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from server_process import ServerProcess, serving

TRAINING_MS = 240_000
"""Milliseconds that two busy cores may need for a few steps."""
SHORTER = {"changes": {"strop": {"train": {"max_steps": 1}, "eval": {"samples": 1}}}}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with serving(tmp_path_factory.mktemp("server") / "data") as started:
        yield started


def test_the_example_is_run_paused_resumed_deployed_and_talked_to(page: Page, server: ServerProcess) -> None:
    page.goto(server.url)
    page.get_by_role("button", name="Run the example").click()
    page.wait_for_url("**/experiments/**")
    job = re.split(r"[/?]", page.url)[4]

    page.get_by_role("button", name="Pause").click(timeout=TRAINING_MS)
    expect(page.locator(".s-badge", has_text="paused")).to_be_visible(timeout=TRAINING_MS)
    page.get_by_role("button", name="Resume").click()
    expect(page.locator(".s-badge", has_text="running")).to_be_visible(timeout=TRAINING_MS)
    # The curves come by themselves, while the run goes on.
    chart = page.get_by_role("img", name=re.compile(r"Average reward: from .* at step \d+ to .* at step \d+"))
    expect(chart).to_be_visible(timeout=TRAINING_MS)
    seen = chart.get_attribute("aria-label")
    expect(chart).not_to_have_attribute("aria-label", seen or "", timeout=TRAINING_MS)
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator(".s-badge", has_text="cancelled")).to_be_visible(timeout=TRAINING_MS)

    # The same once more, shorter than anybody would want it but a test.
    answer = server.http.post(f"/v1/strop/jobs/{job}/clone", json=SHORTER)
    assert answer.status_code == 200, answer.text
    page.goto(f"{server.url}/experiments/{answer.json()['id']}?tab=checkpoints")
    expect(page.locator(".s-badge", has_text="succeeded")).to_be_visible(timeout=TRAINING_MS)
    page.get_by_role("button", name="Deploy").first.click(timeout=TRAINING_MS)

    page.wait_for_url("**/playground?model=**")
    page.get_by_label("Message").fill("In Perth lives an 89-year-old farmer named Olga.")
    page.get_by_role("button", name="Send").click()
    expect(page.locator(".s-turn--assistant pre")).not_to_be_empty(timeout=TRAINING_MS)
    expect(page.get_by_text(re.compile(r"\d+ tokens · "))).to_be_visible(timeout=TRAINING_MS)
