"""Warning signs over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

from run_folders import new_run, record


def imported(client: TestClient, path: Path, steps: int, **metrics: float) -> str:
    run = new_run(path, path.name)
    for step in range(1, steps + 1):
        record(run, step, metrics={"reward": 0.0, "max_reward": 0.0, "frac_reward_zero_std": 1.0, **metrics})
    found: str = client.post("runs/import", json={"path": str(path)}).json()["id"]
    return found


def findings(client: TestClient, run_id: str) -> Any:
    answer = client.get(f"runs/{run_id}/findings")
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_finding_has_evidence_cause_and_action(client: TestClient, tmp_path: Path) -> None:
    found = findings(client, imported(client, tmp_path / "zero", 60))
    assert (found["newest_step"], found["young"]) == (60, False)
    (finding,) = found["data"]
    assert (finding["rule"], finding["severity"]) == ("always_zero", "critical")
    assert finding["symptom"] == "Reward is always 0.0"
    assert finding["evidence"] == [
        {
            "metric": "max_reward",
            "first_step": 1,
            "last_step": 60,
            "before": 0.0,
            "after": 0.0,
            "text": "max_reward 0 over steps 1 to 60",
        }
    ]
    assert finding["cause"]
    assert finding["action"]


def test_failures_count_against_the_size_of_a_step(client: TestClient, tmp_path: Path) -> None:
    # 4 prompts with 8 samples a step are the default: 2 of 32 failed.
    run_id = imported(client, tmp_path / "failing", 3, rollouts_errored=2.0, **{"failures/timeout": 2.0})
    (finding,) = findings(client, run_id)["data"]
    assert finding["rule"] == "graders_failing"
    assert finding["symptom"].startswith("6%")
    assert finding["cause"].endswith("timeout")


def test_a_young_run_has_nothing_to_say_and_a_run_without_steps_neither(client: TestClient, tmp_path: Path) -> None:
    found = findings(client, imported(client, tmp_path / "young", 3))
    assert (found["young"], found["data"]) == (True, [])
    found = findings(client, imported(client, tmp_path / "empty", 0))
    assert (found["newest_step"], found["data"]) == (0, [])


def test_findings_that_are_known_are_not_sent_again(client: TestClient, tmp_path: Path) -> None:
    run_id = imported(client, tmp_path / "known", 3)
    first = client.get(f"runs/{run_id}/findings")
    again = client.get(f"runs/{run_id}/findings", headers={"if-none-match": first.headers["etag"]})
    assert again.status_code == 304


def test_an_unknown_run_is_not_found(client: TestClient) -> None:
    assert client.get("runs/run_none/findings").status_code == 404
