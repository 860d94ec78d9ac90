"""strop's own calls for jobs: search, details, clones, forks, deletion; and models by their names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sa
from openai import OpenAI

from job_requests import GRADER, become, create, fake_model, method, train, upload
from served import connected, services
from strop.errors import NotFound
from strop.jobs.task import TaskStatus
from strop.services.container import Services
from strop.services.trained import find_trained
from strop.store.tables import deployments


class Own:
    """strop's calls by plain HTTP, and OpenAI's client for the rest."""

    def __init__(self, given: Services, client: OpenAI, model: Path) -> None:
        self.given, self.client, self.model = given, client, model
        self._url = f"{client.base_url}strop/jobs"

    def create(self, **fields: Any) -> Any:
        return create(self.client, self.model, **fields)

    def call(self, verb: str, path: str = "", expected: int = 200, **options: Any) -> Any:
        response = httpx.request(verb, f"{self._url}{path}", timeout=30, **options)
        assert response.status_code == expected, response.text
        return response.json()

    def refused(self, status: int, verb: str, path: str, **options: Any) -> dict[str, Any]:
        error: dict[str, Any] = self.call(verb, path, status, **options)["error"]
        return error


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Own]:
    folder = tmp_path_factory.mktemp("jobs")
    with services(folder / "data") as given, connected(given) as client:
        yield Own(given, client, fake_model(folder / "tiny"))


def test_jobs_are_found_by_status_and_by_a_part_of_anything_people_see(own: Own) -> None:
    by_name = own.create(suffix="Zebra").id
    by_tag = own.create(metadata={"team": "the ZEBRA team"}).id
    become(own.given, by_tag, TaskStatus.QUEUED)
    own.create()
    found = own.call("GET", "", params={"search": "zebra"})
    assert [job["id"] for job in found["data"]] == [by_tag, by_name]
    waiting = own.call("GET", "", params={"search": "zebra", "status": ["queued", "running"]})
    assert [job["id"] for job in waiting["data"]] == [by_tag]
    page = own.call("GET", "", params={"search": "zebra", "limit": 1})
    assert (page["has_more"], page["last_id"]) == (True, by_tag)
    assert own.call("GET", "", params={"search": by_name[10:20]})["data"][0]["id"] == by_name


def test_details_have_the_configuration_and_the_request(own: Own) -> None:
    job = own.create(seed=5, metadata={"a": "b"})
    found = own.call("GET", f"/{job.id}")
    assert found["config"]["train"]["batch_size"] == 4
    assert found["request"]["method"]["reinforcement"]["grader"] == GRADER
    assert not any(key.startswith("_") for key in found["request"])


def test_a_clone_is_the_same_job_with_changes(own: Own) -> None:
    old = own.create(suffix="first", extra_body={"strop": {"train": {"batch_size": 2}, "sampling": {"top_p": 1.0}}})
    changes = {"suffix": "second", "strop": {"train": {"epochs": 3}}}
    new = own.call("POST", f"/{old.id}/clone", json={"changes": changes})
    assert new["id"] != old.id
    assert (new["name"], new["seed"], new["training_file"]) == ("second", old.seed, old.training_file)
    train_table = own.given.jobs.get(new["id"]).config.train
    assert (train_table.batch_size, train_table.epochs) == (2, 3)
    assert own.call("POST", f"/{old.id}/clone", json={})["name"] == "first"


def test_changes_that_cannot_be_are_refused(own: Own) -> None:
    old = own.create()
    error = own.refused(400, "POST", f"/{old.id}/clone", json={"changes": {"sufix": "x"}})
    assert error["param"] == "changes.sufix"
    assert "did you mean 'suffix'?" in error["message"]
    error = own.refused(400, "POST", f"/{old.id}/clone", json={"changes": {"strop": {"train": {"epochs": 0}}}})
    assert error["param"] == "strop.train.epochs"
    own.refused(404, "POST", "/ftjob-none/clone", json={})


def test_a_fork_starts_from_a_checkpoint(own: Own) -> None:
    old = own.create(suffix="parent")
    train(own.given, old.id, [2, 4])
    name = own.given.jobs.get(old.id).model_name
    new = own.call(
        "POST", f"/{old.id}/fork", json={"checkpoint": f"{name}:ckpt-step-2", "changes": {"suffix": "child"}}
    )
    job = own.given.jobs.get(new["id"])
    assert job.config.model == f"forks/{job.forked_from}"
    assert (job.forked_from or "").startswith("ftckpt_")
    assert job.model_name.startswith("ft:tiny:strop:child:")
    # The fork of a fork's clone finds the same checkpoint.
    assert own.given.jobs.get(own.call("POST", f"/{new['id']}/clone", json={})["id"]).config.model == job.config.model


def test_only_checkpoints_of_the_job_can_be_forked(own: Own) -> None:
    first, second = own.create(), own.create()
    train(own.given, first.id, [2])
    name = own.given.jobs.get(first.id).model_name
    error = own.refused(400, "POST", f"/{second.id}/fork", json={"checkpoint": f"{name}:ckpt-step-2"})
    assert "is not one of job" in error["message"]
    own.refused(404, "POST", f"/{first.id}/fork", json={"checkpoint": f"{name}:ckpt-step-3"})
    own.refused(404, "POST", f"/{first.id}/fork", json={"checkpoint": "ftckpt_none"})


def test_a_finished_job_is_deleted_with_its_run(own: Own) -> None:
    job = own.create()
    run = train(own.given, job.id, [1])
    assert "cancel it first" in own.refused(409, "DELETE", f"/{job.id}")["message"]
    found = become(own.given, job.id, TaskStatus.CANCELLED)
    assert own.call("DELETE", f"/{job.id}") == {"object": "fine_tuning.job", "id": job.id, "deleted": True}
    own.refused(404, "GET", f"/{job.id}")
    assert not run.path.exists()
    assert found.run_id is not None
    with pytest.raises(NotFound):
        own.given.ingester.folder(found.run_id)
    # The rows are the user's, not the job's.
    assert own.client.files.retrieve(job.training_file).id == job.training_file


def test_a_job_whose_checkpoint_answers_requests_is_not_deleted(own: Own) -> None:
    job = own.create()
    run = train(own.given, job.id, [1])
    become(own.given, job.id, TaskStatus.SUCCEEDED)
    values = {"id": "dep_1", "created_at": 1.0, "name": "mine", "source": "x", "wanted": "loaded"}
    with own.given.database.write() as connection:
        path = own.given.folder.stored(run.checkpoints / "step-000001")
        connection.execute(sa.insert(deployments).values(path=path, **values))
    assert "deployment mine" in own.refused(409, "DELETE", f"/{job.id}")["message"]


def test_a_fork_outlives_the_job_that_it_starts_from(own: Own) -> None:
    job = own.create()
    train(own.given, job.id, [1])
    name = become(own.given, job.id, TaskStatus.SUCCEEDED).model_name
    fork = own.call("POST", f"/{job.id}/fork", json={"checkpoint": f"{name}:ckpt-step-1"})["id"]
    own.call("DELETE", f"/{job.id}")
    start = own.given.folder.found(own.given.jobs.get(fork).config.model)
    assert (start / "adapter_config.json").is_file()


# Names of trained models


def test_a_trained_model_is_found_by_any_of_its_names(own: Own) -> None:
    job = own.create()
    run = train(own.given, job.id, [1, 3])
    known = own.given.jobs.get(job.id)
    newest, first = (run.checkpoints / f"step-{step:06d}" for step in (3, 1))

    def folder(text: str) -> Path:
        return find_trained(own.given.jobs, own.given.folder, text).folder

    assert folder(known.model_name) == folder(str(known.run_id)) == newest
    assert folder(f"{known.model_name}:ckpt-step-1") == first
    found = find_trained(own.given.jobs, own.given.folder, f"{known.model_name}:ckpt-step-1")
    assert folder(found.id) == first
    assert found.name == f"{known.model_name}:ckpt-step-1"


@pytest.mark.parametrize("text", ["ft:a:strop::00000000", "ft:a:strop::00000000:ckpt-step-1", "ftckpt_0", "run_0"])
def test_unknown_models_are_named(own: Own, text: str) -> None:
    with pytest.raises(NotFound, match=text.partition(":ckpt")[0]):
        find_trained(own.given.jobs, own.given.folder, text)


def test_a_model_whose_job_has_not_begun_is_not_found(own: Own) -> None:
    job = own.given.jobs.get(create(own.client, own.model, training_file=upload(own.client), method=method()).id)
    with pytest.raises(NotFound, match="has not begun"):
        find_trained(own.given.jobs, own.given.folder, job.model_name)
