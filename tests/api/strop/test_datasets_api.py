"""Data sets over HTTP."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

import stored_tasks
from models import save_tiny_model
from strop.data.samples.sample_sets import SAMPLES
from strop.services.container import Services


def upload(services: Services, *rows: dict[str, Any], name: str = "rows.jsonl") -> str:
    """A file of rows; its id."""
    return services.files.add(name, "fine-tune", [json.dumps(row).encode() + b"\n" for row in rows]).id


def make(client: TestClient, services: Services, count: int = 5, name: str | None = None) -> dict[str, Any]:
    """A data set of so many questions."""
    rows = [{"prompt": f"Question {number}?", "metadata": {"ground_truth": number}} for number in range(count)]
    answer = client.post(
        "datasets", json={"file_id": upload(services, *rows), "name": name or f"made {time.time_ns()}"}
    )
    assert answer.status_code == 200, answer.text
    made: dict[str, Any] = answer.json()
    return made


def test_an_upload_gets_a_name_and_can_be_read_back(client: TestClient, server: Services) -> None:
    file_id = upload(server, {"prompt": "One?"}, name="first.jsonl")
    made = client.post("datasets", json={"file_id": file_id, "description": "One row"}).json()
    assert (made["name"], made["rows"], made["description"]) == ("first", 1, "One row")
    assert made["id"].startswith("ds_")
    assert client.get(f"datasets/{made['id']}").json() == made
    assert made in client.get("datasets").json()["data"]


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        ({}, 400, "file_id"),
        ({"file_id": "file-x", "sample": "maths"}, 400, "file_id"),
        ({"file_id": "file-x", "name": "a"}, 404, "file_id"),
        ({"sample": "nope"}, 404, "sample"),
        ({"sample": "maths", "split": "test"}, 400, "split"),
        ({"sampel": "maths"}, 400, "sampel"),
        ({"sample": "maths", "name": "a\nb"}, 400, "name"),
    ],
)
def test_what_makes_no_data_set_is_refused_by_field(
    client: TestClient, body: dict[str, Any], status: int, param: str
) -> None:
    answer = client.post("datasets", json=body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (status, param)


def test_a_refused_name_leaves_no_file_behind(client: TestClient, server: Services) -> None:
    made = make(client, server, name="taken")
    before = len(server.files.list())
    answer = client.post("datasets", json={"sample": "maths", "name": made["name"]})
    assert (answer.status_code, answer.headers["x-should-retry"]) == (409, "false")
    assert len(server.files.list()) == before


def test_samples_are_listed_with_their_rewards_and_made(client: TestClient) -> None:
    listed = client.get("samples").json()["data"]
    assert [sample["id"] for sample in listed] == list(SAMPLES)
    assert "def grade(" in client.get("samples/coding").json()["reward"]
    made = client.post("datasets", json={"sample": "json-extraction"}).json()
    assert (made["name"], made["rows"]) == ("json-extraction", 240)
    held_out = client.post("datasets", json={"sample": "json-extraction", "split": "validation"}).json()
    assert held_out["rows"] == 40


def test_rows_are_paged_with_what_training_makes_of_them(client: TestClient, server: Services) -> None:
    made = make(client, server)
    path = f"datasets/{made['id']}/rows"
    page = client.get(path, params={"limit": 2}).json()
    row = page["data"][0]
    assert (row["line"], row["reference"], row["messages"]) == (1, 0, [{"role": "user", "content": "Question 0?"}])
    assert row["fields"]["metadata"] == {"ground_truth": 0}
    lines = [row["line"] for row in page["data"]]
    while page["has_more"]:
        page = client.get(path, params={"limit": 2, "after": page["next"]}).json()
        lines += [row["line"] for row in page["data"]]
    assert lines == [1, 2, 3, 4, 5]


def test_rows_are_searched_for_a_text(client: TestClient, server: Services) -> None:
    made = make(client, server)
    found = client.get(f"datasets/{made['id']}/rows", params={"search": "QUESTION 3"}).json()
    assert [row["line"] for row in found["data"]] == [4]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50, deadline=None)
@given(after=st.text(max_size=20) | st.from_regex(r"\A\d{1,3}-\d{1,3}\Z"))
def test_no_cursor_breaks_a_page(client: TestClient, server: Services, after: str) -> None:
    found = server.files.list()
    made = client.get("datasets").json()["data"][0]
    answer = client.get(f"datasets/{made['id']}/rows", params={"after": after})
    assert answer.status_code in (200, 400)
    assert found


def test_long_rows_make_short_pages(client: TestClient, server: Services) -> None:
    file_id = upload(server, *({"prompt": "x" * 600_000} for _ in range(3)))
    made = client.post("datasets", json={"file_id": file_id, "name": "long"}).json()
    page = client.get(f"datasets/{made['id']}/rows").json()
    assert (len(page["data"]), page["has_more"]) == (2, True)


def test_names_change_and_data_sets_go_with_their_file_if_asked(client: TestClient, server: Services) -> None:
    made = make(client, server)
    assert client.patch(f"datasets/{made['id']}", json={"name": "renamed"}).json()["name"] == "renamed"
    assert client.delete(f"datasets/{made['id']}").json() == {"object": "dataset", "id": made["id"], "deleted": True}
    assert client.get(f"datasets/{made['id']}").status_code == 404
    assert server.files.get(made["file_id"])
    again = client.post("datasets", json={"file_id": made["file_id"], "name": "again"}).json()
    client.delete(f"datasets/{again['id']}", params={"file": True})
    assert made["file_id"] not in [file.id for file in server.files.list()]


def test_what_an_unfinished_job_needs_stays(client: TestClient, server: Services) -> None:
    made = make(client, server)
    stored_tasks.add_job(server.database, "ftjob-1", training_file=made["file_id"])
    answer = client.delete(f"datasets/{made['id']}")
    assert answer.status_code == 409
    assert "ftjob-1" in answer.json()["error"]["message"]


def test_a_check_counts_what_a_data_set_holds(client: TestClient, server: Services) -> None:
    made = make(client, server)
    report = client.post(f"datasets/{made['id']}/check", json={}).json()
    assert (report["rows"], report["with_reference"], report["faults"]) == (5, 5, 0)
    assert report["fields"] == {"prompt": 5, "metadata": 5, "metadata.ground_truth": 5}
    assert (report["prompts"], report["prompts_unknown"]) == (None, None)


def test_a_file_is_checked_by_line_without_being_stored(client: TestClient, server: Services) -> None:
    before = len(server.files.list())
    content = b'{"prompt": "good"}\n{"prompt": \n{"messages": []}\n'
    report = client.post("datasets/check", files={"file": ("../odd.jsonl", content)}).json()
    assert (report["rows"], report["faults"]) == (1, 2)
    assert [fault["line"] for fault in report["first_faults"]] == [2, 3]
    assert all(fault["problem"] and fault["remedy"] for fault in report["first_faults"])
    assert len(server.files.list()) == before


def test_a_file_to_check_may_be_larger_than_other_bodies(client: TestClient) -> None:
    content = (json.dumps({"prompt": "x" * 1000}) + "\n").encode() * 6000
    assert client.post("datasets/check", files={"file": ("rows.jsonl", content)}).json()["rows"] == 6000


def test_prompts_over_a_limit_are_counted_for_a_model_at_hand(
    client: TestClient, server: Services, tmp_path: Path
) -> None:
    model = save_tiny_model("llama", tmp_path / "model")
    file_id = upload(server, *({"prompt": "word " * count} for count in (1, 10, 100)))
    made = client.post("datasets", json={"file_id": file_id, "name": "prompts"}).json()
    asked = {"model": str(model), "max_prompt_tokens": 100}
    prompts = client.post(f"datasets/{made['id']}/check", json=asked).json()["prompts"]
    assert (prompts["counted"], prompts["dropped"], prompts["refused"]) == (3, 1, 0)
    assert prompts["lengths"] == sorted(prompts["lengths"])
    assert prompts["quantiles"]["1.0"] == prompts["lengths"][-1] > 100


def test_a_model_that_is_not_here_leaves_its_count_open(client: TestClient, server: Services) -> None:
    made = make(client, server)
    report = client.post(f"datasets/{made['id']}/check", json={"model": "nobody/nothing"}).json()
    assert report["prompts"] is None
    assert "not on this machine" in report["prompts_unknown"]


def test_a_split_makes_two_data_sets_that_share_no_prompt(client: TestClient, server: Services) -> None:
    made = make(client, server, count=20, name="whole")
    parts = client.post(f"datasets/{made['id']}/split", json={"validation": 0.25}).json()
    assert (parts["train"]["rows"], parts["validation"]["rows"]) == (15, 5)
    assert parts["validation"]["name"] == "whole (validation)"
    assert client.post(f"datasets/{made['id']}/split", json={"validation": 1}).status_code == 400
