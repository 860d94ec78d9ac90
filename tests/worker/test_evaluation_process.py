"""An evaluation over a folder: as a process that is killed or stopped, resumed, failed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from chat_endpoint import Asked, ChatEndpoint, Reply, fails, says
from models import save_tiny_model
from strop.errors import RunError
from strop.store.evaldir import EvaluationDir
from strop.worker.evaluation import evaluate_folder

REWARD = """
def grade(sample, item):
    return float(sample.output_text == str(item.reference))
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Rows and a reward; the answer to row N is N."""
    rows = [{"prompt": f"Number {n}?", "metadata": {"ground_truth": n}} for n in range(6)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "reward.py").write_text(REWARD)
    return tmp_path


def created(place: Path, model: dict[str, Any], data: str = "../rows.jsonl", **config: Any) -> EvaluationDir:
    tables = {
        "rewards": [{"name": "exact", "source": data.replace("rows.jsonl", "reward.py:grade"), "workers": 1}],
        "sampling": {"max_prompt_tokens": 64, "max_completion_tokens": 8},
        **config,
    }
    return EvaluationDir.create(place / "eval", {"model": model, "data": data, "config": tables})


def remote(url: str, **more: Any) -> dict[str, Any]:
    return {"kind": "remote", "source": "m", "base_url": url, "concurrency": 2, **more}


def started(folder: EvaluationDir) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "strop.worker", "evaluate", str(folder.path), "--token", "1"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def run(folder: EvaluationDir) -> int:
    """In this process, which has torch imported already."""
    return evaluate_folder(folder.path, lambda: False)


def rows_of(folder: EvaluationDir) -> list[int]:
    return [json.loads(line)["line"] for line in folder.rollouts_file.read_text().splitlines()]


def answers_of(folder: EvaluationDir) -> dict[tuple[int, int], str]:
    lines = [json.loads(line) for line in folder.rollouts_file.read_text().splitlines()]
    return {(line["line"], line["sample"]): line["turns"][0]["message"]["content"] for line in lines}


def wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def number(asked: Asked) -> int:
    return int(asked.body["messages"][-1]["content"].split()[1].rstrip("?"))


class Holding:
    """Answers some rows at once, and the others once it is let go."""

    def __init__(self, *held: int) -> None:
        self.held = set(held)
        self.go = threading.Event()

    def __call__(self, asked: Asked) -> Reply:
        if number(asked) in self.held:
            self.go.wait(60)
        return says(str(number(asked)))


@pytest.fixture
def holding() -> Iterator[Holding]:
    held = Holding(3, 5)
    yield held
    held.go.set()


def test_a_model_of_this_machine_is_evaluated_and_its_figures_are_left(place: Path) -> None:
    save_tiny_model("llama", place / "model")
    folder = created(place, {"kind": "folder", "source": "../model"}, eval={"samples": 2, "temperature": 1.0})
    assert run(folder) == 0
    status, metrics = folder.status(), folder.metrics()
    assert (status["state"], status["rows_done"], status["rows_total"], status["rows_failed"]) == ("succeeded", 6, 6, 0)
    assert metrics is not None
    assert metrics["metrics"]["response_length"] > 0
    assert metrics["metrics"]["entropy"] > 0
    assert metrics["report"]["rows"] == 6
    assert metrics["report"]["pass_at"].keys() == {"1", "2"}
    assert sorted(rows_of(folder)) == sorted([1, 2, 3, 4, 5, 6] * 2)


def test_a_deployment_answers_as_the_model_itself_does(place: Path) -> None:
    model, settings = save_tiny_model("llama", place / "model"), {"eval": {"samples": 2, "temperature": 1.0}}
    local = created(place / "local", {"kind": "folder", "source": "../../model"}, "../../rows.jsonl", **settings)
    socket = place / "engine.sock"
    deployed = {"kind": "deployment", "source": str(model), "name": "tiny", "socket": "../../engine.sock"}
    served = created(place / "served", deployed, "../../rows.jsonl", **settings)
    engine = subprocess.Popen(
        [sys.executable, "-m", "strop.worker.serving", str(socket), "--parent", str(os.getpid()), "--device", "cpu"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"},
    )
    try:
        wait(socket.exists)
        assert run(served) == 0, served.status()
    finally:
        engine.terminate()
        engine.wait()
    assert run(local) == 0
    assert answers_of(served) == answers_of(local)
    assert served.metrics()["metrics"]["response_length"] == local.metrics()["metrics"]["response_length"]  # type: ignore[index]


def test_a_killed_process_goes_on_where_it_stopped(place: Path, holding: Holding) -> None:
    with ChatEndpoint(holding) as endpoint:
        folder = created(place, remote(endpoint.url))
        process = started(folder)
        wait(lambda: folder.rollouts_file.exists() and len(rows_of(folder)) == 4)
        process.kill()
        process.communicate()
        assert folder.status()["state"] == "running"
        holding.go.set()
        before = len(endpoint.asked)
        assert run(folder) == 0
        again = [number(asked) for asked in endpoint.asked[before:]]
    assert sorted(again) == [3, 5]
    assert sorted(rows_of(folder)) == [1, 2, 3, 4, 5, 6]
    metrics = folder.metrics()
    assert metrics is not None
    assert metrics["metrics"]["reward"] == 1.0
    assert metrics["report"]["scored"] == 6


def test_a_request_to_stop_is_kept_within_moments_and_loses_no_row(place: Path, holding: Holding) -> None:
    with ChatEndpoint(holding) as endpoint:
        folder = created(place, remote(endpoint.url))
        process = started(folder)
        wait(lambda: folder.rollouts_file.exists() and len(rows_of(folder)) == 4)
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=60)
        holding.go.set()
    assert process.returncode == 0, output
    assert folder.status()["state"] == "paused"
    assert folder.metrics() is None
    assert len(rows_of(folder)) == 4


def test_a_key_that_is_refused_fails_with_the_name_of_the_setting(
    place: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SOME_KEY", "sk-never-shown")
    with ChatEndpoint(lambda asked: fails(401, "who are you?")) as endpoint:
        folder = created(place, remote(endpoint.url, api_key_env="SOME_KEY"))
        assert run(folder) == 1
        assert endpoint.asked[0].key == "Bearer sk-never-shown"
    status, output = folder.status(), "".join(capfd.readouterr())
    assert status["state"] == "failed"
    assert "$SOME_KEY" in status["message"]
    assert "who are you?" in status["message"]
    assert status["message"] in output
    assert "Traceback" not in output
    assert "sk-never-shown" not in output + json.dumps(status)


@pytest.mark.parametrize("url", ["http://169.254.169.254/v1", "http://[::ffff:169.254.169.254]/v1"])
def test_addresses_that_give_credentials_away_are_never_asked(place: Path, url: str) -> None:
    folder = created(place, remote(url))
    assert run(folder) == 1
    assert "gives away credentials" in folder.status()["message"]


def test_rows_that_failed_are_asked_again_by_the_next_process(place: Path) -> None:
    down = {2, 4}

    def answer(asked: Asked) -> Reply:
        return fails(418, "teapot") if number(asked) in down else says(str(number(asked)))

    with ChatEndpoint(answer) as endpoint:
        folder = created(place, remote(endpoint.url))
        assert run(folder) == 1
        assert folder.status()["state"] == "failed"
        assert "2 of 6 rows could not be scored" in folder.status()["message"]
        assert "418: teapot" in folder.status()["message"]
        down.clear()
        assert run(folder) == 0
    assert len(endpoint.asked) == 8
    assert sorted(rows_of(folder)) == [1, 2, 3, 4, 5, 6]


def test_a_few_failed_rows_are_counted_and_in_no_figure(place: Path) -> None:
    with ChatEndpoint(lambda asked: fails(418) if number(asked) == 0 else says(str(number(asked)))) as endpoint:
        folder = created(place, remote(endpoint.url))
        assert run(folder) == 0
    metrics = folder.metrics()
    assert metrics is not None
    assert (metrics["report"]["rows"], metrics["report"]["scored"]) == (6, 5)
    assert metrics["metrics"]["failures/refused"] == 1
    assert folder.status()["rows_failed"] == 1


def test_a_document_that_cannot_be_read_is_a_failure_with_its_key(place: Path) -> None:
    folder = created(place, {"kind": "magic", "source": "m"})
    assert run(folder) == 1
    assert "model.kind" in folder.status()["message"]


def test_a_folder_that_is_no_evaluation_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"no spec\.json"):
        run(EvaluationDir(tmp_path))
