"""Evaluations in a browser: made in the form, followed to their end, compared; a real endpoint is the model."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from browser import Watched, violations
from chat_endpoint import Asked, ChatEndpoint, Reply, says
from server_process import ServerProcess, serving

GRADE = "def grade(sample, item):\n    return {'right': float(sample.output_text == item.metadata.ground_truth)}\n"
ROWS = [
    {"messages": [{"role": "user", "content": f"{n} + 1?"}], "metadata": {"ground_truth": str(n + 1)}} for n in range(8)
]


def answer(asked: Asked) -> Reply:
    """`able` adds; `poor` does so for small numbers only."""
    number = int(asked.body["messages"][-1]["content"].split()[0])
    right = asked.body["model"] == "able" or number < 2
    return says(*[str(number + 1) if right else "no idea"] * asked.body.get("n", 1))


@pytest.fixture(scope="module")
def endpoint() -> Iterator[ChatEndpoint]:
    with ChatEndpoint(answer) as started:
        yield started


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, endpoint: ChatEndpoint) -> Iterator[ServerProcess]:
    with serving(tmp_path_factory.mktemp("server") / "data") as started:
        rows = "\n".join(json.dumps(row) for row in ROWS)
        form: dict[str, Any] = {"files": {"file": ("sums.jsonl", rows)}, "data": {"purpose": "fine-tune"}}
        file_id = started.http.post("/v1/files", **form).json()["id"]
        for path, body in (
            ("datasets", {"name": "sums", "file_id": file_id}),
            ("rewards", {"name": "adds", "python": GRADE}),
        ):
            started.http.post(f"/v1/strop/{path}", json=body).raise_for_status()
        started.http.put("/v1/strop/providers/one", json={"base_url": endpoint.url}).raise_for_status()
        yield started
        assert "Traceback" not in started.stop()


def evaluate(page: Page, server: ServerProcess, model: str) -> None:
    """Fill in the form, and wait for the end of the evaluation on its page."""
    page.goto(f"{server.url}/evaluate")
    page.get_by_label("Model, checkpoint or deployment").fill(model)
    page.get_by_text("Use a model behind").click()
    page.get_by_label("Provider").click()
    page.get_by_role("option", name="one", exact=True).click()
    page.get_by_label("Dataset").click()
    page.get_by_role("option", name="sums (8 rows)").click()
    page.get_by_label("Rewards").click()
    page.get_by_role("option", name="adds").click()
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Start").click()
    page.wait_for_url("**/evaluations/eval_*")
    expect(page.get_by_text("succeeded")).to_be_visible()


def test_two_models_are_evaluated_and_compared(
    page: Page, watched: Callable[..., Watched], server: ServerProcess
) -> None:
    evaluate(page, server, "poor")
    expect(page.get_by_text("8 of 8 rows")).to_be_visible()
    expect(page.locator(".s-facts")).to_contain_text("0.250")
    expect(page.locator("article")).to_have_count(8)  # they came without a reload
    page.get_by_label("Search prompts").fill("5 + 1")
    expect(page.locator("article")).to_have_count(1)
    assert violations(page) == []
    evaluate(page, server, "able")
    expect(page.locator(".s-facts")).to_contain_text("1.000")

    page.goto(f"{server.url}/evaluations")
    page.get_by_role("checkbox", name="Compare poor@one on sums").click()
    page.get_by_role("checkbox", name="Compare able@one on sums").click()
    page.get_by_role("button", name="Compare two").click()
    expect(page.get_by_role("heading", name="able@one outperforms poor@one")).to_be_visible()
    expect(page.get_by_text("6 better, 0 worse, 2 equal of 8")).to_be_visible()
    expect(page.locator("article").first).to_contain_text("+1.000")
    for look in ({}, {"scheme": "dark"}, {"width": 390}):
        again = watched(**look).page
        again.goto(page.url)
        again.locator("article").first.wait_for()
        assert violations(again) == []
        assert again.evaluate("document.documentElement.scrollWidth <= innerWidth")


def conversations(server: ServerProcess) -> list[str]:
    """Two evaluations of rows with a second question each, that the user asks whatever the first answer was."""
    rows = [
        {"messages": [{"role": "user", "content": f"{n} + 1?"}], "metadata": {"user_turns": [f"{n + 4} + 1?"]}}
        for n in (1, 2)
    ]
    text = "\n".join(json.dumps(row) for row in rows)
    form: dict[str, Any] = {"files": {"file": ("talks.jsonl", text)}, "data": {"purpose": "fine-tune"}}
    file_id = server.http.post("/v1/files", **form).json()["id"]
    return [
        server.http.post(
            "/v1/strop/evaluations",
            json={
                "model": {"model": model, "provider": "one"},
                "file_id": file_id,
                "rewards": [
                    {"name": "long", "python": "def grade(sample, item):\n    return len(sample.output_text) / 10\n"}
                ],
                "environment": {"name": "user_turns"},
                "eval": {"samples": 2, "temperature": 1.0},
            },
        ).json()["id"]
        for model in ("poor", "able")
    ]


def test_every_turn_of_an_answer_is_shown_and_opens_in_the_inspector(
    page: Page, watched: Callable[..., Watched], server: ServerProcess
) -> None:
    first, second = conversations(server)
    page.goto(f"{server.url}/evaluations/{second}")
    expect(page.locator("article")).to_have_count(2, timeout=180_000)  # two processes start one after the other
    answers = page.locator("article").first.locator(".s-group-item")
    expect(answers).to_have_count(2)
    for answer_text in ("2", "5 + 1?", "6"):
        expect(answers.nth(1)).to_contain_text(answer_text)
    answers.nth(1).click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("heading", name="Line 1, attempt 2")).to_be_visible()
    assert dialog.locator(".s-turn pre").all_inner_texts() == ["1 + 1?", "2", "5 + 1?", "6"]
    dialog.get_by_role("button", name="Tokens").click()
    expect(dialog.get_by_text("The tokens of this attempt were not recorded")).to_be_visible()
    dialog.get_by_role("button", name="Group").click()
    dialog.locator(".s-group-item").first.click()
    expect(dialog.get_by_role("heading", name="Line 1, attempt 1")).to_be_visible()
    page.wait_for_url("**sample=0&show=group")
    page.reload()
    expect(dialog.get_by_role("heading", name="Line 1, attempt 1")).to_be_visible()
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    page.wait_for_url(f"**/evaluations/{second}")

    address = f"{server.url}/evaluations/compare?base={first}&other={second}&sort=line"
    for look in ({}, {"scheme": "dark"}, {"width": 390}):
        again = watched(**look).page
        again.goto(address)
        again.locator("article").first.locator(".s-group-item").last.click()
        opened = again.get_by_role("dialog")
        expect(opened.locator(".s-turn pre").last).to_have_text("6")  # of the model that is able
        assert violations(again) == []
        assert again.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_what_is_wrong_is_said_at_its_field(page: Page, server: ServerProcess) -> None:
    page.goto(f"{server.url}/evaluate")
    start = page.get_by_role("button", name="Start")
    start.click()
    expect(page.get_by_text("choose a model")).to_be_visible()
    page.get_by_label("Model, checkpoint or deployment").fill("no-such-model")
    start.click()
    expect(page.get_by_text("choose the rows that it answers")).to_be_visible()
    page.get_by_label("Dataset").click()
    page.get_by_role("option", name="sums (8 rows)").click()
    start.click()
    expect(page.get_by_text("'no-such-model' is not known here")).to_be_visible()
    page.get_by_label("Model, checkpoint or deployment").fill("smollm2-135m")
    start.click()
    expect(page.get_by_text("say how answers are scored")).to_be_visible()
    page.get_by_label("Rewards").click()
    page.get_by_role("option", name="adds").click()
    page.keyboard.press("Escape")
    page.get_by_label("Completions per row").fill("0")
    start.click()
    expect(page.get_by_text("greater than or equal to 1")).to_be_visible()
