"""Evaluations over HTTP."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from train_cases import failed_group, group

import stored_tasks
from models import save_tiny_model
from strop.evals.report import report, row_result
from strop.evals.run import measure
from strop.evals.spec import read_spec
from strop.services.container import Services
from strop.store.evaluated import row_values, save_rows
from strop.store.rollout_lines import group_lines
from strop.store.tables import deployments
from strop.types import Group

REWARD = {"name": "exact", "python": "def grade(sample, item):\n    return 1.0\n"}
REMOTE = {"model": "m", "base_url": "https://models.example/v1"}


@pytest.fixture(scope="module")
def file_id(server: Services) -> str:
    rows = [{"prompt": f"Question {number}?"} for number in range(1, 5)]
    return server.files.add("held.jsonl", "fine-tune", [json.dumps(row).encode() + b"\n" for row in rows]).id


def create(client: TestClient, **fields: Any) -> dict[str, Any]:
    answer = client.post("evaluations", json={"model": REMOTE, "rewards": [REWARD], **fields})
    assert answer.status_code == 200, answer.text
    made: dict[str, Any] = answer.json()
    return made


def finish(server: Services, evaluation_id: str, *groups: Group) -> None:
    """As the runner does, with these groups for rows."""
    queue = server.evaluations
    evaluation = queue.get(evaluation_id)
    figures = {"metrics": measure(groups, 1.0), "report": report([row_result(found, 1.0) for found in groups]).__dict__}
    with server.database.write() as connection:
        save_rows(connection, evaluation.seq, [row_values(group_lines(found), 1.0) for found in groups])
    values: dict[str, Any] = {"rows_done": len(groups), "rows_total": len(groups), "finished_at": 9.0}
    text = json.dumps(figures, default=vars)
    stored_tasks.become(server.database, evaluation_id, status="succeeded", metrics=text, **values)


@pytest.fixture(scope="module")
def pair(client: TestClient, server: Services, file_id: str) -> tuple[str, str]:
    """Two evaluations: of four rows one is better, one worse, one equal, and one could not be scored."""
    first, second = (create(client, file_id=file_id, name=name, seed=1)["id"] for name in ("before", "after"))
    finish(server, first, *(group(reward, number=n) for n, reward in enumerate((0.0, 1.0, 0.5, 1.0), 1)))
    finish(server, second, *(group(r, number=n) for n, r in enumerate((1.0, 0.5, 0.5), 1)), failed_group(number=4))
    return first, second


def test_an_evaluation_is_queued_with_a_document_that_the_worker_reads(
    client: TestClient, server: Services, file_id: str
) -> None:
    made = create(client, file_id=file_id, limit=2, eval={"samples": 4, "temperature": 1.0}, seed=5)
    assert (made["status"], made["name"], made["report"]) == (
        "queued",
        "m@https://models.example/v1 on held.jsonl",
        None,
    )
    folder = server.evaluations.folder(server.evaluations.get(made["id"]))
    spec = read_spec(folder.spec(), folder.path)
    assert (spec.limit, spec.config.seed, spec.config.eval.samples) == (2, 5, 4)
    assert spec.data == str(server.files.path(file_id).resolve())
    source, function = spec.config.rewards[0].source.split(":")
    assert Path(source).read_text() == REWARD["python"]
    assert (function, spec.target.source, spec.target.base_url) == ("grade", "m", REMOTE["base_url"])
    assert made["request"]["eval"] == {"samples": 4, "temperature": 1.0}


def test_a_model_of_this_machine_and_a_deployment_are_named_alike(
    client: TestClient, server: Services, file_id: str, tmp_path: Path
) -> None:
    model = save_tiny_model("llama", tmp_path / "tiny")
    made = create(client, model=str(model), file_id=file_id)
    assert server.evaluations.get(made["id"]).spec["model"] == {
        "kind": "base",
        "source": str(model),
        "label": str(model),
        "concurrency": 16,
    }
    with server.database.write() as connection:
        values = {"id": "dep_1", "created_at": 1.0, "name": "helper", "source": "tiny", "path": str(model)}
        connection.execute(deployments.insert().values(wanted="loaded", **values))
    made = create(client, model="helper", file_id=file_id)
    folder = server.evaluations.folder(server.evaluations.get(made["id"]))
    target = read_spec(folder.spec(), folder.path).target
    assert (made["model"], target.kind, target.name, target.source) == ("helper", "deployment", "helper", str(model))
    assert target.socket == str(server.folder.engine_socket)


def test_a_model_of_a_provider_is_asked_where_the_provider_is(
    client: TestClient, server: Services, file_id: str
) -> None:
    server.secrets.set("PROVIDER_KEY", "rosebud")
    client.put("providers/one", json={"base_url": "https://models.example/v1", "api_key_env": "PROVIDER_KEY"})
    made = create(client, file_id=file_id, model={"model": "large", "provider": "one"})
    client.delete("providers/one")
    assert made["name"] == "large@one on held.jsonl"
    folder = server.evaluations.folder(server.evaluations.get(made["id"]))
    target = read_spec(folder.spec(), folder.path).target
    assert (target.source, target.base_url, target.api_key_env) == (
        "large",
        "https://models.example/v1",
        "PROVIDER_KEY",
    )


@pytest.mark.parametrize(
    ("changes", "status", "param"),
    [
        ({"model": {"model": "m"}}, 400, "model.provider"),
        ({"model": {**REMOTE, "provider": "one"}}, 400, "model.provider"),
        ({"model": {"model": "m", "provider": "no-such-one"}}, 400, "model.provider"),
        ({"rewards": None}, 400, "rewards"),
        ({"file_id": None}, 400, "dataset_id"),
        ({"dataset_id": "ds_x"}, 400, "dataset_id"),
        ({"file_id": "file-none"}, 404, "file_id"),
        ({"model": "no-such-model"}, 400, "model"),
        ({"model": "ftckpt_none"}, 400, "model"),
        ({"model": {**REMOTE, "base_url": "http://169.254.169.254/v1"}}, 400, "model.base_url"),
        ({"model": {**REMOTE, "base_url": "file:///etc/passwd"}}, 400, "model.base_url"),
        ({"model": {**REMOTE, "base_url": "https://h/v1?x=1"}}, 400, "model.base_url"),
        ({"model": {**REMOTE, "api_key_env": "NOT_STORED_KEY"}}, 400, "model.api_key_env"),
        ({"rewards": [{**REWARD, "env": ["NOT_STORED_TOKEN"]}]}, 400, "rewards"),
        ({"eval": {"samples": 2}}, 400, "eval.samples"),
        ({"eval": {"sampels": 2}}, 400, "eval.sampels"),
        ({"job_id": "ftjob-none"}, 404, None),
    ],
)
def test_what_cannot_be_evaluated_is_refused_by_field(
    client: TestClient, file_id: str, changes: dict[str, Any], status: int, param: str | None
) -> None:
    body = {"model": REMOTE, "rewards": [REWARD], "file_id": file_id, **changes}
    answer = client.post("evaluations", json={key: value for key, value in body.items() if value is not None})
    assert answer.status_code == status, answer.text
    if param is not None:
        assert answer.json()["error"]["param"] == param


@pytest.mark.parametrize("path", ["eval_%00", "eval_%ED%A0%80", "compare?base=%00&other=x", "eval_x/rows?after=%00"])
def test_ids_that_no_database_takes_are_unknown_ids(client: TestClient, path: str) -> None:
    assert client.get(f"evaluations/{path}").status_code == 404


def test_a_key_that_is_stored_is_named_and_never_shown(client: TestClient, server: Services, file_id: str) -> None:
    server.secrets.set("STORED_KEY", "sk-never-shown")
    made = create(client, model={**REMOTE, "api_key_env": "STORED_KEY"}, file_id=file_id)
    assert "STORED_KEY" in json.dumps(made)
    assert "sk-never-shown" not in client.get(f"evaluations/{made['id']}").text
    assert "sk-never-shown" not in server.evaluations.folder(server.evaluations.get(made["id"])).spec_file.read_text()


def test_a_finished_one_has_figures_with_intervals(client: TestClient, pair: tuple[str, str]) -> None:
    found = client.get(f"evaluations/{pair[1]}").json()
    assert (found["status"], found["rows_done"]) == ("succeeded", 4)
    assert (found["report"]["rows"], found["report"]["scored"]) == (4, 3)
    assert found["report"]["reward"]["low"] < found["report"]["reward"]["mean"] < found["report"]["reward"]["high"]
    assert found["report"]["pass_at"]["1"]["mean"] == pytest.approx(1 / 3)
    assert set(found["report"]["components"]) == {"score"}
    assert found["metrics"]["rollouts_errored"] == 1


def test_figures_are_there_as_far_as_rows_are(client: TestClient, server: Services, file_id: str) -> None:
    made = create(client, file_id=file_id)
    evaluation = server.evaluations.get(made["id"])
    folder = server.evaluations.folder(evaluation)
    folder.status_file.write_text(json.dumps({"message": "loading", "rows_per_second": 2.5}))
    with server.database.write() as connection:
        save_rows(connection, evaluation.seq, [row_values(group_lines(group(1.0, number=1)), 1.0)])
    stored_tasks.become(server.database, evaluation.id, status="running", rows_done=1, rows_total=4)
    found = client.get(f"evaluations/{made['id']}").json()
    assert found["report"]["reward"] == {"mean": 1.0, "low": None, "high": None}
    assert (found["metrics"], found["message"], found["rows_per_second"]) == (None, "loading", 2.5)


def test_what_has_not_changed_is_not_sent_again(client: TestClient, server: Services, file_id: str) -> None:
    made = create(client, file_id=file_id)
    first = client.get(f"evaluations/{made['id']}")
    tag = {"if-none-match": first.headers["etag"]}
    assert client.get(f"evaluations/{made['id']}", headers=tag).status_code == 304
    server.evaluations.folder(server.evaluations.get(made["id"])).status_file.write_text('{"rows_done": 1}')
    assert client.get(f"evaluations/{made['id']}", headers=tag).status_code == 200
    listed = client.get("evaluations", params={"limit": 3})
    tag = {"if-none-match": listed.headers["etag"]}
    assert client.get("evaluations", params={"limit": 3}, headers=tag).status_code == 304
    server.evaluations.cancel(made["id"])
    assert client.get("evaluations", params={"limit": 3}, headers=tag).status_code == 200


def test_lists_go_from_page_to_page_and_by_status(client: TestClient, file_id: str) -> None:
    made = [create(client, file_id=file_id, name=f"listed {number}")["id"] for number in range(3)]
    first = client.get("evaluations", params={"limit": 2}).json()
    assert [found["id"] for found in first["data"]] == [made[2], made[1]]
    assert first["has_more"]
    then = client.get("evaluations", params={"limit": 1, "after": first["last_id"]}).json()
    assert then["data"][0]["id"] == made[0]
    cancelled = client.post(f"evaluations/{made[0]}/cancel").json()
    assert cancelled["status"] == "cancelled"
    listed = client.get("evaluations", params={"status": "cancelled"}).json()["data"]
    assert made[0] in [found["id"] for found in listed]
    assert {found["status"] for found in listed} == {"cancelled"}


def test_rows_come_with_their_answers_sorted_and_filtered(client: TestClient, pair: tuple[str, str]) -> None:
    page = client.get(f"evaluations/{pair[1]}/rows", params={"sort": "-reward", "limit": 2}).json()
    assert [row["reward"] for row in page["data"]] == [1.0, 0.5]
    assert page["data"][0]["rollouts"][0]["turns"][0]["message"] == {"role": "assistant", "content": "answer"}
    assert page["has_more"]
    last = client.get(f"evaluations/{pair[1]}/rows", params={"sort": "-reward", "after": page["last_id"]}).json()
    assert [row["reward"] for row in last["data"]] == [0.5, None]
    failed = client.get(f"evaluations/{pair[1]}/rows", params={"failed": True}).json()["data"]
    assert [row["failure"] for row in failed] == ["exception happened"]
    assert failed[0]["rollouts"][1]["failure"]["cause"] == "exception"


def test_an_answer_is_whole_with_tokens_and_knows_its_group(
    client: TestClient, server: Services, pair: tuple[str, str]
) -> None:
    queue = server.evaluations
    groups = [group(0.0, 1.0, number=number) for number in (1, 2)]
    for found in groups:
        queue.folder(queue.get(pair[0])).append(group_lines(found))
    row = groups[0].row.id
    path = f"evaluations/{pair[0]}/rows/{row}/rollouts"
    whole = client.get(f"{path}/0").json()
    (line, _) = group_lines(groups[0])
    assert (whole["evaluation_id"], whole["row"], whole["line"]) == (pair[0], row, 1)
    assert whole["prompt"] == line["prompt"]
    assert [turn["message"] for turn in whole["turns"]] == [turn["message"] for turn in line["turns"]]
    (segment,) = whole["segments"]
    assert segment["token_ids"] == line["turns"][0]["token_ids"]
    members = client.get(f"{path}/0/group").json()["data"]
    assert [member["sample"] for member in members] == [0]
    for missing in (f"{path}/1", f"{path}/1/group", f"evaluations/{pair[0]}/rows/none/rollouts/0", f"{path}/x"):
        assert client.get(missing).status_code in (400, 404), missing


def test_an_answer_without_tokens_in_the_folder_has_no_segments(client: TestClient, pair: tuple[str, str]) -> None:
    row = client.get(f"evaluations/{pair[1]}/rows").json()["data"][0]["row"]
    assert client.get(f"evaluations/{pair[1]}/rows/{row}/rollouts/0").json()["segments"] == []


def test_a_row_that_was_damaged_on_disk_is_said_to_be(
    client: TestClient, server: Services, pair: tuple[str, str]
) -> None:
    row = client.get(f"evaluations/{pair[1]}/rows").json()["data"][1]["row"]
    server.evaluations.folder(server.evaluations.get(pair[1])).append(
        [{"row": row, "sample": 0, "turns": [{"token_ids": 1}]}]
    )
    found = client.get(f"evaluations/{pair[1]}/rows/{row}/rollouts/0")
    assert (found.status_code, "damaged" in found.text) == (400, True)


def test_two_are_compared_row_by_row(client: TestClient, pair: tuple[str, str]) -> None:
    found = client.get("evaluations/compare", params={"base": pair[0], "other": pair[1]}).json()
    figures = found["figures"]
    assert (figures["rows"], figures["better"], figures["worse"], figures["equal"]) == (3, 1, 1, 1)
    assert (figures["before"]["mean"], figures["after"]["mean"]) == (0.5, pytest.approx(2 / 3))
    assert figures["change"]["mean"] == pytest.approx(1 / 6)
    assert figures["p_value"] == 1.0
    assert set(figures["components"]) == {"score"}
    assert [row["change"] for row in found["data"]] == [1.0, 0.0, -0.5, None]
    assert (found["data"][0]["base"]["reward"], found["data"][0]["other"]["reward"]) == (0.0, 1.0)
    assert (found["base"]["name"], found["other"]["name"], found["notes"]) == ("before", "after", [])


def test_pairs_go_from_page_to_page(client: TestClient, pair: tuple[str, str]) -> None:
    query: dict[str, Any] = {"base": pair[0], "other": pair[1], "sort": "change", "limit": 2}
    first = client.get("evaluations/compare", params=query).json()
    second = client.get("evaluations/compare", params={**query, "after": first["last_id"]}).json()
    assert [row["change"] for row in first["data"] + second["data"]] == [-0.5, 0.0, 1.0, None]
    assert (first["has_more"], second["has_more"]) == (True, False)


def test_a_comparison_that_is_not_fair_says_why(
    client: TestClient, server: Services, file_id: str, pair: tuple[str, str]
) -> None:
    other = create(client, file_id=file_id, eval={"temperature": 0.5}, seed=2, name="warmer")["id"]
    query = {"base": pair[0], "other": other}
    answer = client.get("evaluations/compare", params=query)
    assert answer.status_code == 400
    assert "no row in common" in answer.json()["error"]["message"]
    finish(server, other, group(1.0, number=1), group(1.0, number=2))
    notes = client.get("evaluations/compare", params=query).json()["notes"]
    assert notes == ["the two have other settings of eval", "the two have other settings of seed"]


def test_what_was_cancelled_goes_on_and_what_has_ended_can_be_deleted(
    client: TestClient, file_id: str, pair: tuple[str, str]
) -> None:
    made = create(client, file_id=file_id)["id"]
    assert client.delete(f"evaluations/{made}").status_code == 409
    client.post(f"evaluations/{made}/cancel")
    assert client.post(f"evaluations/{made}/resume").json()["status"] == "queued"
    client.post(f"evaluations/{made}/cancel")
    assert client.delete(f"evaluations/{made}").json() == {"object": "evaluation", "id": made, "deleted": True}
    assert client.get(f"evaluations/{made}").status_code == 404
    assert client.post(f"evaluations/{pair[0]}/resume").status_code == 409


def test_a_file_that_an_evaluation_waits_for_cannot_be_deleted(client: TestClient, server: Services) -> None:
    waiting = server.files.add("needed.jsonl", "fine-tune", [b'{"prompt": "One?"}\n']).id
    made = create(client, file_id=waiting)["id"]
    answer = client.delete(f"http://localhost/v1/files/{waiting}")
    assert answer.status_code == 409
    assert made in answer.json()["error"]["message"]
