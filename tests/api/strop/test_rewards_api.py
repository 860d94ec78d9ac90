"""The library of rewards over HTTP, and tests of rewards on answers."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from starlette.testclient import TestClient

import stored_tasks
from strop.rewards.presets.index import presets
from strop.services.container import Services

CODE = "def grade(sample, item):\n    return 1.0\n"
GRADER = {
    "type": "string_check",
    "name": "same",
    "operation": "eq",
    "input": "{{sample.output_text}}",
    "reference": "{{item.reference}}",
}


def make(client: TestClient, **body: Any) -> dict[str, Any]:
    answer = client.post("rewards", json={"name": f"made {time.time_ns()}", **(body or {"python": CODE})})
    assert answer.status_code == 200, answer.text
    made: dict[str, Any] = answer.json()
    return made


def test_a_reward_is_made_listed_and_renamed(client: TestClient) -> None:
    made = make(client, python=CODE, env=["API_KEY"])
    assert (made["latest"], made["kind"], made["env"]) == (1, "python", ["API_KEY"])
    assert client.get(f"rewards/{made['id']}").json() == made
    assert made in client.get("rewards").json()["data"]
    renamed = client.patch(f"rewards/{made['id']}", json={"name": "renamed"}).json()
    assert client.get("rewards", params={"search": "RENAM"}).json()["data"] == [renamed]


def test_versions_stay_and_can_be_compared(client: TestClient) -> None:
    made = make(client)
    path = f"rewards/{made['id']}/versions"
    second = client.post(path, json={"python": CODE.replace("1.0", "0.5")}).json()
    assert (second["version"], second["python"]) == (2, CODE.replace("1.0", "0.5"))
    assert [version["version"] for version in client.get(path).json()["data"]] == [2, 1]
    assert client.get(f"{path}/1").json()["python"] == CODE
    diff = client.get(f"{path}/2/diff").json()
    assert (diff["against"], diff["diff"].splitlines()[-2:]) == (1, ["-    return 1.0", "+    return 0.5"])
    assert client.get(f"{path}/2/diff", params={"against": 2}).json()["diff"] == ""
    assert client.get(f"{path}/7").status_code == 404
    assert client.get(f"{path}/1/diff").status_code == 404
    assert client.get(f"{path}/{10**30}").status_code == 400


def test_a_grader_comes_back_as_it_was_sent(client: TestClient) -> None:
    made = make(client, grader=GRADER)
    version = client.get(f"rewards/{made['id']}/versions/1").json()
    assert (made["kind"], version["grader"], version["python"]) == ("grader", GRADER, None)


def test_the_reward_of_a_sample_can_be_taken(client: TestClient) -> None:
    made = make(client, sample="maths")
    source = client.get(f"rewards/{made['id']}/versions/1").json()["python"]
    assert source == client.get("samples/maths").json()["reward"]


def test_presets_are_offered(client: TestClient) -> None:
    listed = client.get("rewards/presets").json()["data"]
    assert [preset["id"] for preset in listed] == list(presets())
    assert all("def grade(" in preset["python"] for preset in listed if preset["kind"] == "python")
    assert all("type" in preset["grader"] for preset in listed if preset["kind"] == "grader")


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        ({"name": "x"}, 400, "python"),
        ({"name": "x", "python": CODE, "grader": GRADER}, 400, "python"),
        ({"name": "x", "python": "def grade("}, 400, "source"),
        ({"name": "x", "python": CODE, "env": ["a b"]}, 400, "env"),
        ({"name": "x", "grader": {"type": "string_check"}}, 400, None),
        ({"name": "x", "sample": "nope"}, 404, "sample"),
        ({"python": CODE}, 400, "name"),
    ],
)
def test_what_is_no_reward_is_refused(client: TestClient, body: dict[str, Any], status: int, param: str | None) -> None:
    answer = client.post("rewards", json=body)
    assert answer.status_code == status
    assert param is None or answer.json()["error"]["param"] == param


def test_a_reward_in_use_is_not_deleted(client: TestClient, server: Services) -> None:
    made = make(client)
    config = json.dumps({"rewards": [{"source": f"rewards/{made['id']}/1/reward.py:grade"}]})
    stored_tasks.add_job(server.database, "ftjob-1", "running", config=config)
    assert client.delete(f"rewards/{made['id']}").status_code == 409
    stored_tasks.forget_tasks(server.database)
    assert client.delete(f"rewards/{made['id']}").json()["deleted"] is True
    assert client.get(f"rewards/{made['id']}").status_code == 404


# Tests of rewards on answers.

ROWS = [
    {"prompt": "6 * 7?", "metadata": {"ground_truth": "42"}},
    {"prompt": "2 + 2?", "metadata": {"ground_truth": "4"}},
]
EXACT = {"name": "exact", "python": presets()["exact_match"].source}


def score(client: TestClient, **body: Any) -> dict[str, Any]:
    answer = client.post("rewards/test", json={"rewards": [EXACT], "rows": ROWS, **body})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_answers_are_scored_row_by_row(client: TestClient) -> None:
    result = score(client, answers=[["42", "43"], ["5", "5"]])
    assert [[answer["reward"] for answer in row["answers"]] for row in result["data"]] == [[1, 0], [0, 0]]
    assert [(row["mean"], row["spread"], row["reference"]) for row in result["data"]] == [
        (0.5, True, "42"),
        (0, False, "4"),
    ]
    summary = result["summary"]
    assert (summary["answers"], summary["scored"], summary["mean"], summary["rows_with_spread"]) == (4, 4, 0.25, 0.5)


def test_references_are_scored_where_no_answers_are_given(client: TestClient) -> None:
    assert score(client)["summary"]["lowest"] == 1.0


def test_several_rewards_of_all_kinds_are_weighed_as_in_training(client: TestClient) -> None:
    made = make(client, python=CODE)
    rewards = [
        {**EXACT, "weight": 0.5},
        {"name": "kept", "reward": made["id"]},
        {"name": "same", "grader": GRADER, "weight": 2},
        {"name": "size", "python": "def grade(sample, item): return len(sample.output_text)", "weight": 0},
    ]
    (first, _) = score(client, rewards=rewards, answers=[["42"], ["4"]])["data"]
    assert first["answers"][0]["reward"] == pytest.approx(3.5)
    assert first["answers"][0]["components"] == {"exact": 1, "kept": 1, "same": 1, "size": 2}
    assert first["answers"][0]["weights"]["size"] == 0


def test_rows_may_come_from_a_data_set(client: TestClient) -> None:
    made = client.post("datasets", json={"sample": "maths"}).json()
    rewards = [{"name": "maths", "python": client.get("samples/maths").json()["reward"]}]
    result = score(client, rewards=rewards, rows=None, dataset_id=made["id"], limit=3)
    assert len(result["data"]) == 3
    assert result["summary"]["mean"] == 1.0


def test_logs_and_failures_stand_beside_their_answer(client: TestClient) -> None:
    code = """
def grade(sample, item):
    print("scoring", sample.output_text)
    return 1 / (len(sample.output_text) - 2)
"""
    result = score(client, rewards=[{"name": "odd", "python": code}], answers=[["a", "bb"], ["ccc"]])
    failed = result["data"][0]["answers"][1]
    assert (failed["reward"], failed["failure"]["cause"]) == (None, "exception")
    assert "ZeroDivisionError" in failed["failure"]["message"]
    assert "scoring bb" in failed["logs"]
    assert result["summary"]["failures"] == {"exception": 1}


@pytest.mark.timeout(120)
def test_a_test_ends_in_time_whatever_a_reward_does(client: TestClient) -> None:
    code = """
import time
def grade(sample, item):
    time.sleep(0 if sample.output_text == "quick" else 600)
    return 1
"""
    rewards = [{"name": "slow", "python": code, "timeout_s": 600}]
    result = score(client, rewards=rewards, answers=[["quick"], ["slow"]], seconds=3)
    assert [row["answers"][0]["failure"] and row["answers"][0]["failure"]["cause"] for row in result["data"]] == [
        None,
        "not reached",
    ]


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("def score(a, b): return 1", "grade"),
        ("raise RuntimeError('at import')\ndef grade(a, b): return 1", "at import"),
        ("import time; time.sleep(600)\ndef grade(a, b): return 1", "within 2 s"),
    ],
)
def test_a_reward_that_cannot_be_loaded_is_an_error(client: TestClient, code: str, problem: str) -> None:
    body = {"rewards": [{"name": "broken", "python": code}], "rows": ROWS, "seconds": 2}
    answer = client.post("rewards/test", json=body)
    assert answer.status_code == 400
    assert problem in answer.json()["error"]["message"]


def test_secrets_reach_the_reward_that_names_them_and_nothing_else(client: TestClient, server: Services) -> None:
    server.secrets.set("JUDGE_KEY", "very-secret-value")
    server.secrets.set("OTHER_KEY", "another-secret")
    code = """
import os
def grade(sample, item):
    print("key", os.environ["JUDGE_KEY"])
    return {"named": os.environ["JUDGE_KEY"] == "very-secret-value", "other": "OTHER_KEY" in os.environ}
"""
    rewards = [{"name": "keyed", "python": code, "env": ["JUDGE_KEY"]}]
    result = score(client, rewards=rewards, rows=ROWS[:1], answers=[["x"]])
    assert result["data"][0]["answers"][0]["components"] == {"named": 1, "other": 0}
    assert "very-secret-value" not in json.dumps(result)
    missing = {"rewards": [{**EXACT, "env": ["NO_SUCH_KEY"]}], "rows": ROWS}
    answer = client.post("rewards/test", json=missing)
    assert (answer.status_code, "NO_SUCH_KEY" in answer.text) == (400, True)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"rows": None}, "rows"),
        ({"dataset_id": "ds_x"}, "rows"),
        ({"rows": [{"prompt": ""}]}, "rows[0]"),
        ({"rows": [{"prompt": "x", "deep": json.loads("[" * 70 + "]" * 70)}]}, "rows[0]"),
        ({"answers": [["a"]]}, "answers"),
        ({"answers": [[], ["a"]]}, "answers[0]"),
        ({"rows": [{"prompt": "no reference"}]}, "answers"),
        ({"rewards": []}, "rewards"),
        ({"seconds": 1e9}, "seconds"),
    ],
)
def test_a_malformed_test_is_refused(client: TestClient, body: dict[str, Any], param: str) -> None:
    sent = {"rewards": [EXACT], "rows": ROWS, **body}
    answer = client.post("rewards/test", content=json.dumps(sent), headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
