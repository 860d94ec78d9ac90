"""Deployments: what names stand for, when models are loaded, and what is counted."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from job_cases import new_job

from answers import chat_body, chunks_of, joined, texts_of
from job_requests import train
from served import services
from strop.config import SamplingConfig, dump_config
from strop.errors import CheckpointError, Conflict, InvalidRequest, ModelError, NotFound, Unavailable
from strop.jobs.job import Job
from strop.serve.answers import Answer
from strop.serve.bodies import ChatBody
from strop.serve.client import CHAT
from strop.serve.generate import Delta, Done, Event, Finished, GenerateRequest, Started
from strop.serve.state import EngineState, ModelState
from strop.services.container import Services
from strop.services.deployments import Deployments, LoadState
from strop.store.files import write_atomic
from strop.store.rundir import RunDir

WAIT_S = 20


class FakeModels:
    """A model process that holds names."""

    def __init__(self) -> None:
        self.held: dict[str, str] = {}
        self.loads: list[tuple[str, str]] = []
        self.gate = asyncio.Event()
        """Loading waits for it."""
        self.gate.set()
        self.error: Exception | None = None
        """What the next loads fail with."""
        self.working = 0
        """Completions that somebody else asked for."""
        self.asked: list[dict[str, Any]] = []

    async def load(self, name: str, source: str) -> ModelState:
        self.loads.append((name, source))
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        if self.held.setdefault(name, source) != source:
            raise Conflict(f"{name} is loaded from {self.held[name]}")
        return self._state(name)

    async def unload(self, name: str) -> None:
        self.held.pop(name, None)

    async def state(self) -> EngineState | None:
        return EngineState(tuple(map(self._state, self.held)), 0, 0, "cpu")

    def _state(self, name: str) -> ModelState:
        return ModelState(name, self.held[name], None, 1, 0, self.working, 0, 100)

    async def complete(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        request = self._request(path, body)

        async def events() -> AsyncGenerator[Event]:
            for event in self._events(request):
                yield event

        return await Answer(request).whole(events())

    async def stream(self, path: str, body: dict[str, Any]) -> AsyncGenerator[dict[str, Any]]:
        request = self._request(path, body)
        for chunk in chunks_of(request, self._events(request)):
            yield chunk

    def _request(self, path: str, body: dict[str, Any]) -> GenerateRequest:
        assert path == CHAT
        if body["model"] not in self.held:
            raise NotFound(f"{body['model']} is not loaded", param="model")
        self.asked.append(body)
        return ChatBody.model_validate(body).request()

    def _events(self, request: GenerateRequest) -> Iterator[Event]:
        yield Started(tuple(range(10)))
        for index in range(request.n):
            yield Delta(index, self.held[request.model], drawn=5)
            yield Finished(index, "stop", 5)
        yield Done(10, 5 * request.n)


class Clock:
    """Seconds that pass when told."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class Case:
    """Deployments over services of their own and a fake model process."""

    def __init__(self, given: Services) -> None:
        self.given = given
        self.models, self.clock = FakeModels(), Clock()
        self.deployments = self.anew()

    def anew(self) -> Deployments:
        """As after another start of the server."""
        return Deployments(self.given.jobs, self.given.folder, self.models, clock=self.clock)

    def job(self, *steps: int) -> Job:
        """A job with a checkpoint at each of some steps."""
        job = self.given.jobs.create(new_job(suffix="mine"))
        train(self.given, job.id, steps)
        return self.given.jobs.get(job.id)


def run(folder: Path, check: Callable[[Case], Awaitable[None]]) -> None:
    async def main() -> None:
        with services(folder / "data") as given:
            case = Case(given)
            async with asyncio.timeout(WAIT_S):
                await check(case)
                await case.deployments.close()

    asyncio.run(main())


def model_folder(path: Path) -> Path:
    """What passes for a model of full weights as long as nobody loads it."""
    path.mkdir(parents=True)
    (path / "config.json").write_text("{}")
    (path / "model.safetensors").write_bytes(b"")
    return path


# What names stand for


def test_a_name_of_the_catalogue_is_deployed_with_the_first_request(tmp_path: Path) -> None:
    async def check(case: Case) -> None:
        answers = await case.deployments.chat(chat_body("SmolLM2-135M-Instruct"))
        (loaded,) = case.models.loads
        assert loaded[0] == "smollm2-135m" and Path(loaded[1]).is_absolute()
        assert texts_of(answers) == [loaded[1]]
        found = await case.deployments.get("smollm2-135m")
        assert (found.state, found.source, found.requests) == (LoadState.LOADED, "smollm2-135m", 1)
        await case.deployments.chat(chat_body("smollm2-135m"))
        assert len(case.models.loads) == 1

    run(tmp_path, check)


@pytest.mark.parametrize(
    ("model", "says"),
    [
        ("gpt-4o", "no model 'gpt-4o'"),
        ("qwen3-0.6b", "not on this machine; fetch it with `strop models pull qwen3-0.6b`"),
        ("nobody/nothing", "nobody/nothing is not on this machine"),
        ("ft:tiny:strop::00000000", "no job of this server has that name"),
        ("ftckpt_000000000000000000000000", "ftckpt_0"),
        ("run_000000000000000000000000", "run_0"),
        ("", "no model ''"),
        ("../secrets", "no model"),
        ("\ud800\0", "no model"),
    ],
)
def test_a_request_for_what_is_not_here_deploys_and_fetches_nothing(tmp_path: Path, model: str, says: str) -> None:
    async def check(case: Case) -> None:
        with pytest.raises(NotFound, match=says):
            await case.deployments.chat(chat_body(model))
        assert case.models.loads == []
        assert await case.deployments.list() == []

    run(tmp_path, check)


def test_a_request_opens_no_folder_of_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model_folder(tmp_path / "here" / "model")
    monkeypatch.chdir(tmp_path)

    async def check(case: Case) -> None:
        for model in (str(tmp_path / "here/model"), "here/model", "./here/model"):
            with pytest.raises(NotFound):
                await case.deployments.resolve(model)

    run(tmp_path, check)


def test_a_trained_model_answers_by_its_name_and_by_each_checkpoint(tmp_path: Path) -> None:
    async def check(case: Case) -> None:
        job = case.job(1, 2, 3)
        newest = await case.deployments.resolve(job.model_name)
        assert newest.path.endswith("step-000003") and not Path(newest.path).is_absolute()
        second = await case.deployments.resolve(f"{job.model_name}:ckpt-step-2")
        assert second.path.endswith("step-000002")
        assert (await case.deployments.resolve(second.source)).name == second.name  # by the checkpoint's id
        assert len(await case.deployments.list()) == 2
        with pytest.raises(NotFound, match=r"checkpoints of run_.* are at step 1, 2, 3"):
            await case.deployments.resolve(f"{job.model_name}:ckpt-step-7")

    run(tmp_path, check)


def test_a_models_own_name_follows_its_training_when_it_is_loaded_again(tmp_path: Path) -> None:
    async def check(case: Case) -> None:
        job = case.job(1)
        name = job.model_name
        chosen = await case.deployments.create(name, name="chosen")
        first = await case.deployments.resolve(name)
        train(case.given, job.id, [2])
        assert (await case.deployments.resolve(name)).path == first.path  # while it is in memory
        await case.deployments.unload(name)
        assert (await case.deployments.resolve(name)).path.endswith("step-000002")
        await case.deployments.unload("chosen")
        assert (await case.deployments.resolve("chosen")).path == chosen.path == first.path

    run(tmp_path, check)


def test_prompts_are_rendered_as_in_the_training_of_a_checkpoint_unless_the_request_says_otherwise(
    tmp_path: Path,
) -> None:
    async def check(case: Case) -> None:
        job = case.job(1)
        trained = RunDir(case.given.folder.found(job.folder))
        options = {"enable_thinking": False, "date": "today"}
        changed = trained.config().model_copy(update={"sampling": SamplingConfig(template=options)})
        write_atomic(trained.config_file, dump_config(changed))
        await case.deployments.chat(chat_body(job.model_name, chat_template_kwargs={"date": "never"}))
        await case.deployments.chat(chat_body("smollm2-135m"))
        found = [body.get("chat_template_kwargs") for body in case.models.asked]
        assert found == [{"enable_thinking": False, "date": "never"}, None]

    run(tmp_path, check)


def test_an_older_checkpoint_in_memory_under_the_name_gives_way(tmp_path: Path) -> None:
    async def check(case: Case) -> None:
        name = case.job(1).model_name
        case.models.held[name] = "/older"
        found = await case.deployments.resolve(name)
        assert case.models.held[name] == str(case.given.folder.found(found.path))

    run(tmp_path, check)


def test_a_damaged_checkpoint_is_not_loaded(tmp_path: Path) -> None:
    async def check(case: Case) -> None:
        job = case.job(1)
        file = case.given.folder.found(job.folder) / "checkpoints" / "step-000001" / "adapter_config.json"
        file.write_text("{ }")
        with pytest.raises(CheckpointError, match="damaged"):
            await case.deployments.resolve(job.model_name)
        found = await case.deployments.get(job.model_name)
        assert found.state is LoadState.FAILED and "damaged" in (found.reason or "")
        file.write_text("{}")
        assert (await case.deployments.resolve(job.model_name)).state is LoadState.LOADED

    run(tmp_path, check)


def test_folders_of_models_runs_and_checkpoints_can_be_deployed(tmp_path: Path) -> None:
    async def check(case: Case) -> None:
        exported = await case.deployments.create(str(model_folder(tmp_path / "exported")))
        assert (exported.name, exported.source) == ("exported", str(tmp_path / "exported"))
        folder = case.given.folder.found(case.job(1, 2).folder)
        best = await case.deployments.create(str(folder))
        assert best.name == f"{folder.name}-step-2"
        named = await case.deployments.create(str(folder / "checkpoints" / "step-000001"), name="first")
        assert named.path.endswith("step-000001")
        assert {name for name, _ in case.models.loads} == {"exported", best.name, "first"}

    run(tmp_path, check)


# Creating and deleting


@pytest.mark.parametrize(
    ("source", "settings", "error", "says"),
    [
        ("gpt-4o", {}, NotFound, "no model 'gpt-4o'"),
        ("/nowhere", {}, ModelError, "/nowhere: no model there"),
        ("smollm2-135m", {"name": "  "}, InvalidRequest, "printable"),
        ("smollm2-135m", {"name": "ft:mine"}, InvalidRequest, "how trained models are called"),
        ("smollm2-135m", {"name": "taken"}, Conflict, "'taken' is taken"),
    ],
)
def test_what_cannot_be_deployed_is_refused(
    tmp_path: Path, source: str, settings: dict[str, Any], error: type[Exception], says: str
) -> None:
    async def check(case: Case) -> None:
        await case.deployments.create("smollm2-135m", name="taken")
        with pytest.raises(error, match=says):
            await case.deployments.create(source, **settings)
        assert [found.name for found in await case.deployments.list()] == ["taken"]

    run(tmp_path, check)


def test_nothing_is_left_of_a_deployment_that_cannot_be_loaded(tmp_path: Path) -> None:
    async def check(case: Case) -> None:
        case.models.error = ModelError("smollm2-135m: cannot be loaded")
        with pytest.raises(ModelError):
            await case.deployments.create("smollm2-135m")
        assert await case.deployments.list() == []
        await case.deployments.create("smollm2-135m", wait=False)
        while (found := await case.deployments.get("smollm2-135m")).state is LoadState.LOADING:
            await asyncio.sleep(0)
        assert (found.state, found.reason) == (LoadState.FAILED, "smollm2-135m: cannot be loaded")
        case.models.error = None
        assert (await case.deployments.load("smollm2-135m")).reason is None

    run(tmp_path, check)


def test_who_does_not_wait_sees_it_loading(tmp_path: Path) -> None:
    async def check(case: Case) -> None:
        case.models.gate.clear()
        made = await case.deployments.create("smollm2-135m", idle_minutes=5, wait=False)
        assert (made.state, made.idle_minutes, made.engine) == (LoadState.LOADING, 5, None)
        case.models.gate.set()
        found = await case.deployments.load(made.id)
        assert found.state is LoadState.LOADED and found.engine is not None

    run(tmp_path, check)


def test_a_deleted_deployment_is_out_of_memory_and_gone(tmp_path: Path) -> None:
    async def check(case: Case) -> None:
        made = await case.deployments.create("smollm2-135m", name="mine")
        await case.deployments.delete("mine")
        assert case.models.held == {}
        for call in (case.deployments.get, case.deployments.load, case.deployments.unload, case.deployments.delete):
            with pytest.raises(NotFound, match=f"no deployment '{made.id}'"):
                await call(made.id)

    run(tmp_path, check)


# Loading


def test_many_first_requests_load_once(tmp_path: Path) -> None:
    async def check(case: Case) -> None:
        case.models.gate.clear()
        asked = [asyncio.create_task(case.deployments.chat(chat_body("smollm2-135m"))) for _ in range(8)]
        while not case.models.loads:
            await asyncio.sleep(0)
        asked[0].cancel()  # whoever gives up stops nobody else
        case.models.gate.set()
        await asyncio.gather(*asked[1:])
        assert len(case.models.loads) == 1
        assert (await case.deployments.get("smollm2-135m")).requests == 7

    run(tmp_path, check)


def test_a_model_that_the_process_lost_is_loaded_again_for_the_next_request(tmp_path: Path) -> None:
    async def check(case: Case) -> None:
        await case.deployments.create("smollm2-135m")
        case.models.held.clear()
        assert (await case.deployments.get("smollm2-135m")).state is LoadState.LOADING
        await case.deployments.chat(chat_body("smollm2-135m"))
        assert len(case.models.loads) == 2

    run(tmp_path, check)


def test_a_failure_to_load_is_the_requests_and_is_tried_again(tmp_path: Path) -> None:
    async def check(case: Case) -> None:
        case.models.error = Unavailable("needs 8 GiB", retry_after=60)
        for _ in range(2):
            with pytest.raises(Unavailable, match="needs 8 GiB"):
                await case.deployments.chat(chat_body("smollm2-135m"))
        case.models.error = None
        await case.deployments.chat(chat_body("smollm2-135m"))
        assert len(case.models.loads) == 3

    run(tmp_path, check)


def test_what_was_loaded_is_loaded_when_the_server_starts_and_nothing_else(tmp_path: Path) -> None:
    async def check(case: Case) -> None:
        for name in "abc":
            await case.deployments.create("smollm2-135m", name=name)
        await case.deployments.unload("b")
        await case.deployments.close()
        case.models.held.clear()
        case.deployments = case.anew()
        await case.deployments.start()
        while len(case.models.held) < 2:
            await asyncio.sleep(0.01)
        assert case.models.held.keys() == {"a", "c"}

    run(tmp_path, check)


# Use


def test_requests_and_tokens_are_counted(tmp_path: Path) -> None:
    async def check(case: Case) -> None:
        for count in (1, 3):
            await case.deployments.chat(chat_body("smollm2-135m", n=count))
        found = await case.deployments.get("smollm2-135m")
        assert (found.requests, found.prompt_tokens, found.completion_tokens) == (2, 20, 20)
        assert found.last_used_at is not None

    run(tmp_path, check)


def test_a_stream_counts_once_with_all_that_it_used(tmp_path: Path) -> None:
    async def check(case: Case) -> None:
        texts = await joined(case.deployments.chat_stream(chat_body("smollm2-135m", n=2)))
        assert set(texts.values()) == {case.models.held["smollm2-135m"]}
        found = await case.deployments.get("smollm2-135m")
        assert (found.requests, found.prompt_tokens, found.completion_tokens) == (1, 10, 10)

    run(tmp_path, check)


def test_a_stream_that_is_cancelled_counts_with_what_it_got(tmp_path: Path) -> None:
    async def check(case: Case) -> None:
        chunks = case.deployments.chat_stream(chat_body("smollm2-135m", n=3))
        while not [one for one in (await anext(chunks))["choices"] if one["finish_reason"]]:
            pass
        await chunks.aclose()
        found = await case.deployments.get("smollm2-135m")
        assert (found.requests, found.prompt_tokens, found.completion_tokens) == (1, 10, 5)

    run(tmp_path, check)


def test_the_answer_has_the_name_that_the_request_used(tmp_path: Path) -> None:
    async def check(case: Case) -> None:
        name = "SmolLM2-135M-Instruct"
        assert (await case.deployments.chat(chat_body(name)))["model"] == name
        assert {chunk["model"] async for chunk in case.deployments.chat_stream(chat_body(name))} == {name}

    run(tmp_path, check)


@asynccontextmanager
async def asking(case: Case, name: str) -> AsyncIterator[None]:
    """A request that is under way."""
    chunks = case.deployments.chat_stream(chat_body(name, n=2))
    await anext(chunks)
    yield
    await chunks.aclose()


def test_what_is_idle_is_unloaded_and_comes_back_when_it_is_asked(tmp_path: Path) -> None:
    async def check(case: Case) -> None:
        await case.deployments.create("smollm2-135m", name="usual")
        await case.deployments.create("smollm2-135m", name="short", idle_minutes=1)
        await case.deployments.create("smollm2-135m", name="never", idle_minutes=0)
        case.clock.now = 61
        await case.deployments.unload_idle()
        assert case.models.held.keys() == {"usual", "never"}
        async with asking(case, "usual"):
            case.clock.now += 31 * 60
            await case.deployments.unload_idle()
            assert "usual" in case.models.held
        await case.deployments.unload_idle()
        assert "usual" in case.models.held  # it was used until just now
        case.clock.now += 31 * 60
        case.models.working = 1  # an evaluation asks the process itself
        await case.deployments.unload_idle()
        assert "usual" in case.models.held
        case.models.working = 0
        await case.deployments.unload_idle()
        assert case.models.held.keys() == {"never"}
        assert (await case.deployments.get("usual")).state is LoadState.UNLOADED
        await case.deployments.chat(chat_body("usual"))
        assert (await case.deployments.get("usual")).state is LoadState.LOADED

    run(tmp_path, check)


def test_idle_models_make_room_and_come_back_when_they_are_asked(tmp_path: Path) -> None:
    async def check(case: Case) -> None:
        await case.deployments.create("smollm2-135m", name="usual")
        await case.deployments.create("smollm2-135m", name="never", idle_minutes=0)
        async with asking(case, "usual"):
            assert not (await case.deployments.served()).idle
            await case.deployments.make_room()
            assert case.models.held.keys() == {"usual", "never"}
        assert (await case.deployments.served()).idle
        await case.deployments.make_room()
        assert not case.models.held
        await case.deployments.chat(chat_body("usual"))
        assert case.models.held.keys() == {"usual"}

    run(tmp_path, check)


def test_a_source_whose_files_are_gone_is_said_so(tmp_path: Path) -> None:
    async def check(case: Case) -> None:
        job = case.job(1)
        shutil.rmtree(case.given.folder.found(job.folder) / "checkpoints" / "step-000001")
        with pytest.raises(NotFound, match="step-000001 is gone"):
            await case.deployments.resolve(job.model_name)

    run(tmp_path, check)
