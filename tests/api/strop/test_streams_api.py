"""Logs over HTTP, and what is followed by server-sent events while it grows."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from run_folders import new_run, play
from served import served
from strop.services.container import Services
from strop.store.rundir import RunDir, RunState

Event = tuple[str, str | None, Any]
"""Kind, id and data."""


@pytest.fixture(scope="module")
def web(server: Services) -> Iterator[httpx.Client]:
    """A client of a real server."""
    with served(server) as url, httpx.Client(base_url=f"{url}/strop", timeout=30) as client:
        yield client


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    """A run of three steps that is being trained."""
    run = new_run(tmp_path / "run", "streamed")
    play(run, 1, 3)
    return run


@pytest.fixture
def run_id(server: Services, run: RunDir) -> str:
    return server.ingester.import_run(run.path)


class Stream:
    """The events of a stream, as they come."""

    def __init__(self, answer: httpx.Response) -> None:
        self._found: queue.Queue[Event] = queue.Queue()
        self._thread = threading.Thread(target=self._read, args=(answer,), daemon=True)
        self._thread.start()

    def next(self, *kinds: str) -> Event:
        """The next event of these kinds; fails after 20 seconds without."""
        while True:
            event = self._found.get(timeout=20)
            if event[0] in kinds:
                return event

    def _read(self, answer: httpx.Response) -> None:
        fields: dict[str, str] = {}
        try:
            for line in answer.iter_lines():
                if line:
                    name, _, value = line.partition(": ")
                    fields[name] = value
                elif "event" in fields:
                    self._found.put((fields["event"], fields.get("id"), json.loads(fields["data"])))
                    fields = {}
        except httpx.HTTPError:
            pass  # the test closed it


@contextmanager
def stream(web: httpx.Client, path: str, headers: dict[str, str] | None = None, **query: Any) -> Iterator[Stream]:
    with web.stream("GET", path, params=query, headers=headers) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield Stream(answer)


# Runs.


def test_a_run_is_followed_while_it_grows(web: httpx.Client, run: RunDir, run_id: str) -> None:
    with run.lock(), stream(web, f"runs/{run_id}/stream") as events:
        assert events.next("status")[2]["step"] == 3
        assert events.next("checkpoints")[2] == {"data": []}
        play(run, 4, 5)
        for step in (4, 5):
            kind, event_id, data = events.next("step", "reset")
            assert (kind, event_id, data["step"], data["samples"]) == ("step", str(step), step, 16)
            assert data["metrics"]["reward"] == run.metrics()[step - 1]["reward"]
        run.set_status(RunState.SUCCEEDED, step=5, total_steps=5)
        while events.next("status")[2]["state"] != "succeeded":
            pass


def test_a_stream_resumes_after_the_last_step_that_was_seen(web: httpx.Client, run_id: str) -> None:
    with stream(web, f"runs/{run_id}/stream", {"last-event-id": "1"}) as events:
        assert [events.next("step")[1] for _ in range(2)] == ["2", "3"]
    with stream(web, f"runs/{run_id}/stream", after=2) as events:
        assert events.next("step")[1] == "3"


def test_steps_that_are_taken_back_are_said_to_be(web: httpx.Client, run: RunDir, run_id: str) -> None:
    with stream(web, f"runs/{run_id}/stream", after=0) as events:
        assert [events.next("step", "reset")[1] for _ in range(3)] == ["1", "2", "3"]
        run.forget_after(1)
        play(run, 2, 2, seed=9)
        assert events.next("reset")[2]["newest_step"] in (1, 2)


def test_a_stream_ends_with_its_run(web: httpx.Client, server: Services, run_id: str) -> None:
    with stream(web, f"runs/{run_id}/stream") as events:
        events.next("status")
        server.ingester.forget(run_id)
        assert events.next("deleted")[2] == {"id": run_id}


def test_unknown_runs_have_no_streams(web: httpx.Client) -> None:
    for path in ("stream", "logs", "logs/stream"):
        assert web.get(f"runs/run_x/{path}").status_code == 404


# Logs.


def test_the_last_lines_of_a_log_and_older_ones(web: httpx.Client, run: RunDir, run_id: str) -> None:
    for number in range(10):
        run.log(f"line {number}")
    page = web.get(f"runs/{run_id}/logs", params={"lines": 3}).json()
    assert [line["text"][20:] for line in page["data"]] == ["line 7", "line 8", "line 9"]
    assert (page["has_more"], page["end"]) == (True, page["bytes"])
    older = web.get(f"runs/{run_id}/logs", params={"lines": 100, "before": page["start"]}).json()
    assert (len(older["data"]), older["has_more"]) == (7, False)


def test_logs_are_filtered_by_level_and_text_and_hold_no_markup_but_text(
    web: httpx.Client, run: RunDir, run_id: str
) -> None:
    run.raw_output.write_text("\x1b[31mred\x1b[0m\nERROR bad <script>\nWARNING odd\nfine\n")
    path = f"runs/{run_id}/logs"
    texts = [line["text"] for line in web.get(path, params={"log": "output"}).json()["data"]]
    assert texts == ["red", "ERROR bad <script>", "WARNING odd", "fine"]
    bad = web.get(path, params={"log": "output", "level": "warning"}).json()["data"]
    assert [line["level"] for line in bad] == ["error", "warning"]
    assert len(web.get(path, params={"log": "output", "search": "SCRIPT"}).json()["data"]) == 1
    assert web.get(path, params={"log": "../../etc/passwd"}).status_code == 400


def test_a_log_is_followed_and_resumed_by_byte(web: httpx.Client, run: RunDir, run_id: str) -> None:
    run.log("before")
    with stream(web, f"runs/{run_id}/logs/stream") as events:
        run.log("first")
        _, first_id, data = events.next("lines")
        assert [line["text"][20:] for line in data["data"]] == ["first"]
    run.log("second")
    with stream(web, f"runs/{run_id}/logs/stream", {"last-event-id": str(first_id)}) as events:
        assert [line["text"][20:] for line in events.next("lines")[2]["data"]] == ["second"]


def test_a_log_that_begins_anew_is_said_to(web: httpx.Client, run: RunDir, run_id: str) -> None:
    run.log("old")
    with stream(web, f"runs/{run_id}/logs/stream", after=0) as events:
        events.next("lines")
        run.training_log.unlink()
        assert events.next("reset")[0] == "reset"
        run.log("new")
        assert events.next("lines")[2]["data"][0]["text"].endswith("new")


def test_a_followed_log_is_filtered(web: httpx.Client, run: RunDir, run_id: str) -> None:
    with stream(web, f"runs/{run_id}/logs/stream", after=0, level="error") as events:
        run.log("loss 0.1")
        run.log("failed: out of memory")
        assert [line["text"][20:] for line in events.next("lines")[2]["data"]] == ["failed: out of memory"]
