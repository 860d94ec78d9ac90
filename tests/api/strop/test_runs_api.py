"""Runs over HTTP: lists, one run, curves, steps, prompts, heat maps, rollouts."""

from __future__ import annotations

import json
import urllib.parse
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

import stored_tasks
from run_folders import new_run, old_line, play, record, rollout_line
from strop.services.container import Services
from strop.store.rollout_lines import TOKEN_KEYS
from strop.store.rundir import RunDir, RunState

LAST = 30


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    """A finished run of 30 steps, outside of the data folder."""
    run = new_run(tmp_path_factory.mktemp("runs") / "played", "played")
    play(run, 1, LAST)
    run.set_status(RunState.SUCCEEDED, step=LAST, total_steps=LAST)
    return run


@pytest.fixture(scope="module")
def run_id(client: TestClient, folder: RunDir) -> str:
    """That run, imported."""
    answer = client.post("runs/import", json={"path": str(folder.path)})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["id"])


def get(client: TestClient, path: str, **query: Any) -> Any:
    answer = client.get(path, params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def pages(client: TestClient, path: str, **query: Any) -> list[Any]:
    """The items of all pages."""
    found: list[Any] = []
    after: dict[str, str] = {}
    while True:
        page = get(client, path, **query, **after)
        found += page["data"]
        if not page["has_more"]:
            return found
        after = {"after": page["last_id"]}


# Runs.


def test_an_imported_run_has_all_that_its_folder_says(client: TestClient, run_id: str, folder: RunDir) -> None:
    run = get(client, f"runs/{run_id}")
    assert (run["name"], run["state"], run["step"], run["total_steps"]) == ("played", "succeeded", LAST, LAST)
    assert run["folder"] == str(folder.path)
    assert run["config"]["rewards"][0]["name"] == "score"
    assert (run["job_id"], run["seconds_left"]) == (None, None)
    newest = folder.metrics()[-1]
    assert run["metrics"]["latest"]["reward"] == newest["reward"]
    assert run["summary"].startswith("loss ")
    assert run["metrics"]["training_metrics"]["reward"]["steps"] == list(range(1, LAST + 1))
    assert run["metrics"]["validation_metrics"]["reward"]["steps"] == list(range(3, LAST + 1, 3))
    assert (run["rollouts"], len(run["sparkline"])) == (LAST * 16, LAST)


def test_importing_again_changes_nothing(client: TestClient, run_id: str, folder: RunDir) -> None:
    before = get(client, "runs")
    assert client.post("runs/import", json={"path": str(folder.path)}).json()["id"] == run_id
    assert get(client, "runs") == before


@pytest.mark.parametrize("path", ["relative/path", "/nowhere/at/all", "/etc", "/a\0b"])
def test_what_is_no_run_folder_is_not_imported(client: TestClient, path: str) -> None:
    assert client.post("runs/import", json={"path": path}).status_code == 400


def test_runs_are_searched_filtered_sorted_and_paged(client: TestClient, run_id: str, tmp_path: Path) -> None:
    for name in ("alpha", "beta"):
        run = new_run(tmp_path / name, name)
        record(run, 1, [rollout_line(1)])
        run.set_status(RunState.PAUSED)
        client.post("runs/import", json={"path": str(run.path)})
    assert [run["name"] for run in get(client, "runs", search="ALPH")["data"]] == ["alpha"]
    assert {run["name"] for run in get(client, "runs", state="paused")["data"]} == {"alpha", "beta"}
    assert [run["name"] for run in pages(client, "runs", sort="name", limit=1)] == ["alpha", "beta", "played"]
    assert client.get("runs", params={"sort": "nonsense"}).status_code == 400
    assert client.get("runs", params={"state": "nonsense"}).status_code == 400


def test_a_run_that_is_forgotten_can_be_imported_again(client: TestClient, tmp_path: Path) -> None:
    run = new_run(tmp_path / "gone", "gone")
    made = client.post("runs/import", json={"path": str(run.path)}).json()
    assert client.delete(f"runs/{made['id']}").json() == {"object": "run", "id": made["id"], "deleted": True}
    assert client.get(f"runs/{made['id']}").status_code == 404
    assert client.delete(f"runs/{made['id']}").status_code == 404
    assert run.config_file.exists()
    assert client.post("runs/import", json={"path": str(run.path)}).json()["id"] == made["id"]


def test_the_run_of_an_unfinished_job_is_not_forgotten(client: TestClient, server: Services, tmp_path: Path) -> None:
    made = client.post("runs/import", json={"path": str(new_run(tmp_path / "busy").path)}).json()
    stored_tasks.add_job(server.database, "ftjob-9", "running", run_id=made["id"])
    answer = client.delete(f"runs/{made['id']}")
    assert (answer.status_code, "ftjob-9" in answer.text) == (409, True)
    assert get(client, f"runs/{made['id']}")["job_id"] == "ftjob-9"


def test_a_run_that_goes_on_shows_live_and_unchanged_ones_cost_nothing(client: TestClient, tmp_path: Path) -> None:
    run = new_run(tmp_path / "live", "live")
    play(run, 1, 2)
    run_id = client.post("runs/import", json={"path": str(run.path)}).json()["id"]
    row = get(client, f"runs/{run_id}/prompts")["data"][0]["id"]
    paths = [f"runs/{run_id}", f"runs/{run_id}/metrics?name=reward", f"runs/{run_id}/prompts/{row}/heatmap"]
    tags = {path: client.get(path).headers["etag"] for path in paths}
    for path, tag in tags.items():
        unchanged = client.get(path, headers={"if-none-match": f'"other", {tag}'})
        assert (unchanged.status_code, unchanged.content, unchanged.headers["etag"]) == (304, b"", tag)
    play(run, 3, 4)
    for path, tag in tags.items():
        assert client.get(path, headers={"if-none-match": tag}).status_code == 200
    assert get(client, paths[1])["data"]["reward"]["steps"] == [1, 2, 3, 4]


def test_a_resumed_run_that_does_steps_again_is_another_answer(client: TestClient, tmp_path: Path) -> None:
    run = new_run(tmp_path / "resumed", "resumed")
    play(run, 1, 4)
    run_id = client.post("runs/import", json={"path": str(run.path)}).json()["id"]
    tag = client.get(f"runs/{run_id}").headers["etag"]
    run.forget_after(2)
    play(run, 3, 4, seed=2)
    again = client.get(f"runs/{run_id}", headers={"if-none-match": tag})
    assert again.status_code == 200
    assert again.json()["metrics"]["latest"]["reward"] == run.metrics()[-1]["reward"]


def test_the_code_of_rewards_is_shown_where_it_is_one(client: TestClient, tmp_path: Path) -> None:
    run = new_run(tmp_path / "coded", "coded")
    (tmp_path / "reward.py").write_text("def score(sample, item): return 1")
    (tmp_path / "secret.txt").write_text("secret")
    text = run.config_file.read_text(encoding="utf-8")
    second = '\n[[rewards]]\nname = "other"\nsource = "../secret.txt:grade"\n'
    run.config_file.write_text(text.replace('source = "reward.py', 'source = "../reward.py') + second)
    run_id = client.post("runs/import", json={"path": str(run.path)}).json()["id"]
    code = get(client, f"runs/{run_id}/rewards")["data"]
    assert [(reward["id"], reward["code"]) for reward in code] == [
        ("score", "def score(sample, item): return 1"),
        ("other", None),
    ]


# Curves.


def test_metric_names_are_told_apart(client: TestClient, run_id: str) -> None:
    found = get(client, f"runs/{run_id}/metrics/names")
    groups = {name["name"]: name["group"] for name in found["data"]}
    assert groups == {
        "reward": "reward",
        "loss": "training",
        "time/train": "time",
        "validation/reward": "validation",
        "failures/timeout": "failure",
    }


def test_components_are_named_once(client: TestClient, tmp_path: Path) -> None:
    run = new_run(tmp_path / "parts", "parts")
    names = ("reward/f/a b", "max_reward/f/a b", "solve_rate/f/a b", "validation/reward/f/a b", "entropy")
    record(run, 1, metrics=dict.fromkeys(names, 0.5))
    run_id = client.post("runs/import", json={"path": str(run.path)}).json()["id"]
    found = get(client, f"runs/{run_id}/metrics/names")
    assert found["components"] == ["f/a b"]
    assert [name["group"] for name in found["data"]] == ["component"] * 3 + ["validation", "rollout"]
    assert list(get(client, f"runs/{run_id}/metrics", name="reward/f/a b")["data"]) == ["reward/f/a b"]


def test_curves_are_cut_to_a_range_smoothed_and_thinned(client: TestClient, run_id: str, folder: RunDir) -> None:
    path = f"runs/{run_id}/metrics"
    whole = get(client, path, name=["reward", "loss"], smoothing=0.9)
    assert list(whole["data"]) == ["reward", "loss"]
    assert whole["data"]["reward"]["values"] == [step["reward"] for step in folder.metrics()]
    part = get(client, path, name="reward", smoothing=0.9, first=11, last=20)["data"]["reward"]
    assert part["steps"] == list(range(11, 21))
    assert part["smoothed"] == whole["data"]["reward"]["smoothed"][10:20]
    assert len(get(client, path, name="reward", points=10)["data"]["reward"]["steps"]) <= 10
    assert get(client, path, name="unknown")["data"] == {"unknown": {"steps": [], "values": [], "smoothed": []}}
    assert whole["newest_step"] == LAST


@pytest.mark.parametrize(
    "query", ["smoothing=1", "smoothing=nan", "points=1", "points=1e9", "first=-1", "last=99999999999"]
)
def test_numbers_out_of_range_are_refused(client: TestClient, run_id: str, query: str) -> None:
    answer = client.get(f"runs/{run_id}/metrics?{query}")
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, query.partition("=")[0])


# Steps, prompts, heat maps, rollouts.


def test_steps_are_listed_the_newest_first(client: TestClient, run_id: str) -> None:
    steps = pages(client, f"runs/{run_id}/steps", limit=7)
    assert [step["step"] for step in steps] == list(range(LAST, 0, -1))
    assert (steps[0]["prompts"], steps[0]["samples"], steps[0]["damage"]) == (4, 16, None)
    assert [step["step"] for step in get(client, f"runs/{run_id}/steps", first=5, last=6, sort="step")["data"]] == [
        5,
        6,
    ]


def test_prompts_are_searched_filtered_sorted_and_counted(client: TestClient, run_id: str) -> None:
    path = f"runs/{run_id}/prompts"
    everything = pages(client, path, limit=5)
    assert [prompt["line"] for prompt in everything] == list(range(1, 13))
    found = get(client, path, search="QUESTION 1?", count=True)
    assert ([prompt["id"] for prompt in found["data"]], found["total"]) == (["row-1"], 1)
    best = pages(client, path, sort="-reward", limit=3)
    rewards = [prompt["reward"] for prompt in best if prompt["reward"] is not None]
    assert rewards == sorted(rewards, reverse=True)
    bounded = get(client, path, min_reward=rewards[2], count=True)
    assert bounded["total"] == sum(reward >= rewards[2] for reward in rewards)
    failed = get(client, path, failed=True)["data"]
    assert [prompt["id"] for prompt in failed] == [prompt["id"] for prompt in everything if prompt["failed"]]
    assert get(client, path)["total"] is None


def test_a_heat_map_has_every_attempt_at_a_prompt(client: TestClient, run_id: str) -> None:
    found = get(client, f"runs/{run_id}/prompts/row-1/heatmap")
    rollouts = pages(client, f"runs/{run_id}/rollouts", row="row-1", limit=100)
    assert {cell["id"] for cell in found["cells"]} == {rollout["id"] for rollout in rollouts}
    assert found["steps"] == sorted({rollout["step"] for rollout in rollouts})
    rewards = [cell["reward"] for cell in found["cells"] if cell["reward"] is not None]
    assert (found["samples"], found["lowest"], found["highest"]) == (4, min(rewards), max(rewards))
    part = get(client, f"runs/{run_id}/prompts/row-1/heatmap", first=found["steps"][1], last=found["steps"][1])
    assert part["steps"] == [found["steps"][1]]
    assert client.get(f"runs/{run_id}/prompts/row-99/heatmap").status_code == 404


def test_rollouts_are_filtered_sorted_searched_and_counted(client: TestClient, run_id: str) -> None:
    path = f"runs/{run_id}/rollouts"
    everything = pages(client, path, limit=100)
    assert len(everything) == LAST * 16
    assert get(client, path, count=True, limit=1)["total"] == LAST * 16
    step = pages(client, path, step=7)
    assert {rollout["step"] for rollout in step} == {7}
    top = get(client, path, sort="-reward", limit=5)["data"]
    assert top[0]["reward"] == max(rollout["reward"] or 0 for rollout in everything)
    assert {rollout["cause"] for rollout in pages(client, path, failed=True)} == {"timeout"}
    assert {rollout["stop_reason"] for rollout in pages(client, path, stop_reason="length", limit=500)} == {"length"}
    assert pages(client, path, stop_reason="max_turns") == []
    assert client.get(path, params={"stop_reason": "tired"}).status_code == 400
    assert all("STRASSE" in rollout["answer"].upper() for rollout in pages(client, path, search="strasse", first=LAST))
    assert client.get(path, params={"min_reward": "nan"}).status_code == 400


def test_one_rollout_is_whole_and_knows_its_group(client: TestClient, run_id: str, folder: RunDir) -> None:
    short = get(client, f"runs/{run_id}/rollouts", step=7, sample=2)["data"][0]
    whole = get(client, f"rollouts/{short['id']}")
    (line,) = [
        line
        for line in map(json.loads, folder.rollout_file(7).read_text(encoding="utf-8").splitlines())
        if (line["row"], line["sample"]) == (short["row"], 2)
    ]
    for name in ("prompt", "components", "weights", "advantage", "length", "timing", "logs"):
        assert whole[name] == line[name], name
    (said,) = whole["turns"]
    assert said == {key: value for key, value in line["turns"][0].items() if key not in TOKEN_KEYS}
    # No tokenizer of "tiny" is on this machine.
    ids = line["turns"][0]["token_ids"]
    assert whole["segments"] == [{"prompt_tokens": 3, "token_ids": ids, "tokens": None}]
    group = get(client, f"rollouts/{short['id']}/group")
    assert [member["sample"] for member in group["data"]] == [0, 1, 2, 3]
    assert short["id"] in [member["id"] for member in group["data"]]
    assert client.get("rollouts/ro_999999").status_code == 404


def test_a_rollout_of_an_older_version_is_shown_like_any_other(client: TestClient, tmp_path: Path) -> None:
    run = new_run(tmp_path / "old", "old")
    record(run, 1, [old_line(rollout_line(1, answer="from before"))])
    run_id = client.post("runs/import", json={"path": str(run.path)}).json()["id"]
    (rollout,) = get(client, f"runs/{run_id}/rollouts")["data"]
    assert (rollout["answer"], rollout["length"]) == ("from before", 4)
    whole = get(client, f"rollouts/{rollout['id']}")
    assert [turn["message"]["content"] for turn in whole["turns"]] == ["from before"]
    assert whole["segments"] == [{"prompt_tokens": 3, "token_ids": [10, 11, 12, 13], "tokens": None}]


def test_a_rollout_that_was_damaged_on_disk_is_said_to_be(client: TestClient, tmp_path: Path) -> None:
    run = new_run(tmp_path / "damaged", "damaged")
    line = {**rollout_line(1), "weights": "none"}
    record(run, 1, [line])
    run_id = client.post("runs/import", json={"path": str(run.path)}).json()["id"]
    rollout = get(client, f"runs/{run_id}/rollouts")["data"][0]
    answer = client.get(f"rollouts/{rollout['id']}")
    assert (answer.status_code, "damaged" in answer.text) == (400, True)


PATHS = [
    "runs/{}",
    "runs/{}/metrics",
    "runs/{}/steps",
    "runs/{}/prompts",
    "runs/{}/rollouts",
    "runs/{}/prompts/{}/heatmap",
    "rollouts/{}",
    "rollouts/{}/group",
    "checkpoints/{}",
    "runs/{}/files",
    "runs/{}/files/{}",
    "runs/{}/logs",
    "runs/{}/archive",
]


@settings(max_examples=60, deadline=None)
@given(path=st.sampled_from(PATHS), name=st.text(min_size=1, max_size=40))
def test_no_name_in_a_path_breaks_the_server(client: TestClient, run_id: str, path: str, name: str) -> None:
    quoted = urllib.parse.quote(name, safe="")
    for first in (quoted, run_id):
        answer = client.get(path.format(first, quoted))
        assert answer.status_code in (200, 307, 400, 404), (answer.status_code, answer.text)
