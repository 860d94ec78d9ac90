"""A job from the first step of the wizard to its page, in a browser, on a real server."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from browser import Watched, violations
from models import save_tiny_model
from server_process import ServerProcess, serving

FAULTY = [
    json.dumps({"messages": [{"role": "user", "content": "1 + 1?"}], "metadata": {"ground_truth": "2"}}),
    json.dumps({"messages": []}),
    "not JSON",
]
MENDED = [
    json.dumps({"messages": [{"role": "user", "content": f"{n} + 1?"}], "metadata": {"ground_truth": str(n + 1)}})
    for n in range(1, 9)
]
GRADE = "def grade(sample, item):\n    return len(sample.output_text) % 4 / 4\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("server")


@pytest.fixture(scope="module")
def model(folder: Path) -> Path:
    return save_tiny_model("llama", folder / "model")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[ServerProcess]:
    with serving(folder / "data") as started:
        yield started
        assert "Traceback" not in started.stop()


def upload(page: Page, path: Path, lines: list[str]) -> None:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    page.locator("input[type=file]").set_input_files(path)


def write_code(page: Page, source: str) -> None:
    page.locator(".cm-content").click()
    page.keyboard.press("Control+A")
    page.keyboard.insert_text(source)


def next_step(page: Page, title: str, landmark: str) -> None:
    page.get_by_role("button", name=f"Next: {title}").click()
    page.get_by_role("heading", name=landmark, exact=True).wait_for()


def job_of(server: ServerProcess, page: Page) -> dict[str, Any]:
    page.wait_for_url("**/experiments/ftjob-*")
    job: dict[str, Any] = server.http.get(f"/v1/strop/jobs/{page.url.rpartition('/')[2]}").json()
    return job


def test_a_job_is_made_although_the_file_was_faulty_at_first(
    server: ServerProcess, model: Path, page: Page, tmp_path: Path
) -> None:
    page.goto(f"{server.url}/jobs/new")

    # Nothing is asked of the server before there is something to look at; what is missing is said where it is.
    page.get_by_role("button", name="Next: Dataset").click()
    expect(page.get_by_text("choose a model")).to_be_visible()
    page.get_by_label("Another model").fill(str(model))
    expect(page.get_by_text("Draft saved")).to_be_visible()
    next_step(page, "Dataset", "Training rows")

    # Every faulty line is shown, nothing is stored, and the mended file is taken at the same place.
    upload(page, tmp_path / "sums.jsonl", FAULTY)
    faults = page.get_by_role("alert").locator("tbody tr")
    expect(faults).to_have_count(2)
    expect(faults.nth(0)).to_contain_text(re.compile("2.*messages is an empty list"))
    expect(faults.nth(1)).to_contain_text(re.compile("3.*not JSON"))
    assert server.http.get("/v1/files").json()["data"] == []
    upload(page, tmp_path / "sums.jsonl", MENDED)
    expect(page.get_by_text("8 rows, no errors")).to_be_visible()
    expect(page.get_by_text("0 of 8", exact=True)).to_be_visible()  # prompts dropped at the usual limit
    page.get_by_label("Max prompt length").fill("4")
    expect(page.get_by_text("8 of 8", exact=True)).to_be_visible()
    page.get_by_label("Max prompt length").fill("64")
    page.get_by_label("Part of these rows").check()
    page.get_by_label("Held-out share (%)").fill("25")
    page.get_by_role("button", name="Hold out").click()
    expect(page.get_by_text("sums (train) (6 rows)").or_(page.locator("[value^='sums (train)']")).first).to_be_visible()
    next_step(page, "Tools", "Conversation mode")

    # A value that cannot be is refused at its field, in the words of the configuration.
    page.get_by_label("Max response length").fill("0")
    expect(page.get_by_text("greater than or equal to 1, found 0")).to_be_visible()
    page.get_by_role("button", name="Next: Reward").click()
    expect(page.get_by_role("heading", name="Conversation mode")).to_be_visible()
    page.get_by_label("Max response length").fill("8")
    page.get_by_label("Samples per prompt").fill("4")
    expect(page.get_by_text("2 steps of 4 prompts × 4 samples")).to_be_visible()
    next_step(page, "Reward", "Add a reward")

    page.get_by_label("Preset").click()
    page.get_by_role("option", name="Custom").click()
    write_code(page, "def grade(")
    page.get_by_role("button", name="Test", exact=True).click()
    expect(page.get_by_text("is not valid Python code").first).to_be_visible()
    write_code(page, GRADE)
    page.get_by_role("button", name="Test", exact=True).click()
    expect(page.get_by_text("Prompts with varied rewards")).to_be_visible(timeout=120_000)
    expect(page.get_by_text("tokens per second")).to_be_visible()
    expect(page.locator(".s-tried")).to_have_count(4)
    next_step(page, "Review", "Job")

    expect(page.get_by_text("if completions stay as long as in the test")).to_be_visible()
    create = page.get_by_role("button", name="Confirm & Create")
    expect(create).to_be_disabled()
    page.get_by_label("Name", exact=True).fill("no name")
    page.get_by_role("checkbox").click()
    create.click()
    expect(page.get_by_text("no name").or_(page.get_by_text("should match pattern")).first).to_be_visible()
    page.get_by_label("Name", exact=True).fill("sums")
    page.get_by_role("checkbox").click()
    create.click()

    job = job_of(server, page)
    server.http.post(f"/v1/fine_tuning/jobs/{job['id']}/cancel")
    assert job["config"]["name"] == "sums"
    assert job["config"]["model"] == str(model)
    assert job["config"]["sampling"]["max_completion_tokens"] == 8
    assert job["config"]["train"]["samples_per_prompt"] == 4
    assert job["request"]["strop"]["rewards"] == [{"name": "custom", "python": GRADE}]

    # The draft leads to its job from now on; a clone brings everything along.
    page.go_back()
    page.get_by_role("button", name="Clone the job").click()
    page.wait_for_url("**/jobs/new?draft=*")
    page.get_by_role("button", name="Review", exact=True).click()
    page.get_by_role("heading", name="Job", exact=True).wait_for()
    row = page.locator(".s-review-row")
    expect(row.filter(has_text="Max response length")).to_contain_text("8")
    expect(row.filter(has_text="Held-out rows")).to_contain_text("sums (validation) (2 rows)")
    page.get_by_role("checkbox").click()
    page.get_by_role("button", name="Confirm & Create").click()
    clone = job_of(server, page)
    server.http.post(f"/v1/fine_tuning/jobs/{clone['id']}/cancel")
    assert clone["id"] != job["id"]
    assert clone["config"] == job["config"]


@pytest.mark.parametrize("look", [{}, {"scheme": "dark"}, {"width": 390}], ids=["light", "dark", "phone"])
def test_no_step_keeps_anybody_out(
    server: ServerProcess, watched: Callable[..., Watched], look: dict[str, Any]
) -> None:
    page = watched(**look).page
    page.goto(f"{server.url}/jobs/new")
    page.get_by_label("smollm2-135m").check()
    for title, landmark in (
        ("Dataset", "Training rows"),
        ("Tools", "Conversation mode"),
        ("Reward", "Add a reward"),
        ("Review", "Job"),
    ):
        next_step(page, title, landmark)
        if title == "Dataset":
            page.locator("details.s-samples").evaluate("element => { element.open = true }")
            page.get_by_role("button", name="Use Maths").click()
            expect(page.get_by_label("Another data set")).to_be_checked()
        page.wait_for_load_state("networkidle")
        assert violations(page) == []
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_draft_outlives_a_server_that_is_killed(
    folder: Path, watched: Callable[..., Watched], tmp_path: Path
) -> None:
    seen = watched()
    page = seen.page
    with serving(tmp_path / "data") as first:
        page.goto(f"{first.url}/jobs/new")
        page.get_by_label("smollm2-135m").check()
        next_step(page, "Dataset", "Training rows")
        page.get_by_role("button", name="Use Maths").click()
        expect(page.get_by_label("Another data set")).to_be_checked()
        next_step(page, "Tools", "Conversation mode")
        page.get_by_label("Epochs").fill("3")
        next_step(page, "Reward", "Add a reward")
        write_code(page, GRADE)
        page.wait_for_timeout(2_000)  # the editor sends what was typed after a pause; until then the old draft is saved
        expect(page.get_by_text("Draft saved")).to_be_visible()
        address = page.url
        first.kill()
    seen.errors.clear()  # the page noticed that nobody answers
    page.goto("about:blank")
    port = first.url.rpartition(":")[2]
    with serving(tmp_path / "data", "--port", port) as second:
        assert second.url == first.url
        page.goto(address)
        expect(page.locator(".cm-content")).to_contain_text("len(sample.output_text) % 4")
        page.get_by_role("button", name="Back: Tools").click()
        expect(page.get_by_label("Epochs")).to_have_value("3")
        page.wait_for_url("**step=tools")
        page.go_back()
        expect(page.locator(".cm-content")).to_contain_text("len(sample.output_text) % 4")
        page.get_by_role("button", name="Review", exact=True).click()
        row = page.locator(".s-review-row")
        expect(row.filter(has_text="Base model")).to_contain_text("smollm2-135m")
        expect(row.filter(has_text="Held-out rows")).to_contain_text("Maths (held out)")
        expect(row.filter(has_text="Epochs")).to_contain_text("3")
        page.goto(f"{second.url}/jobs/new")
        page.get_by_text("Continue a draft (1)").click()
        expect(page.get_by_role("link", name="smollm2-135m")).to_be_visible()
        page.goto("about:blank")
    seen.errors.clear()
