"""Evaluations from end to end: the server, killed in the middle, its processes, and real models."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from threading import Event
from typing import Any

from chat_endpoint import Asked, ChatEndpoint, Reply, says
from models import save_tiny_model
from server_process import ServerProcess, serving

ROWS = 6
REWARD = """
def grade(sample, item):
    return {"right": float(sample.output_text == str(item.reference)), "short": float(len(sample.output_text) < 3)}
"""


def create(server: ServerProcess, model: Any, **fields: Any) -> str:
    body = {
        "model": model,
        "rewards": [{"name": "score", "python": REWARD}],
        "sampling": {"max_prompt_tokens": 64, "max_completion_tokens": 8},
        "seed": 1,
        **fields,
    }
    answer = server.http.post("/v1/strop/evaluations", json=body)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["id"])


def get(server: ServerProcess, path: str, **query: Any) -> Any:
    answer = server.http.get(f"/v1/strop/{path}", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def until(server: ServerProcess, evaluation: str, **fields: Any) -> Any:
    deadline = time.monotonic() + 120
    while True:
        found = get(server, f"evaluations/{evaluation}")
        if all(found[name] == value for name, value in fields.items()):
            return found
        assert found["status"] in ("queued", "running"), found["reason"]
        assert time.monotonic() < deadline, found
        time.sleep(0.1)


def test_an_evaluation_outlives_the_server_and_two_are_compared(tmp_path: Path) -> None:
    asked: Counter[int] = Counter()
    go = Event()

    def answer(request: Asked) -> Reply:
        number = int(request.body["messages"][-1]["content"].split()[1])
        asked[number] += 1
        if number >= 4:
            go.wait(60)
        return says(str(number))

    model = save_tiny_model("llama", tmp_path / "model")
    rows = "".join(
        json.dumps({"prompt": f"Number {n} please.", "metadata": {"ground_truth": n}}) + "\n" for n in range(ROWS)
    )
    with ChatEndpoint(answer) as endpoint:
        with serving(tmp_path / "data") as server:
            upload = {"purpose": "fine-tune"}, {"file": ("rows.jsonl", rows)}
            file_id = server.http.post("/v1/files", data=upload[0], files=upload[1]).json()["id"]
            deployed = server.http.post("/v1/strop/deployments", json={"source": str(model), "name": "tiny"})
            assert deployed.status_code == 200, deployed.text
            outside = create(server, {"model": "outside", "base_url": endpoint.url}, file_id=file_id, name="outside")
            own = create(server, "tiny", file_id=file_id, name="own")
            assert until(server, outside, rows_done=4)["status"] == "running"
            assert get(server, f"evaluations/{own}")["position"] == 1
            server.kill()
        go.set()
        with serving(tmp_path / "data") as server:
            done = until(server, outside, status="succeeded")
            assert (done["rows_done"], done["restarts"]) == (ROWS, 0)
            assert done["report"]["components"]["right"]["mean"] == 1.0
            until(server, own, status="succeeded")
            compared = get(server, "evaluations/compare", base=own, other=outside)
            server.stop()
    assert asked == dict.fromkeys(range(ROWS), 1)  # no row was asked twice, though the server died
    figures = compared["figures"]
    assert (figures["rows"], figures["better"], figures["worse"]) == (ROWS, ROWS, 0)
    assert figures["p_value"] == 2 / 2**ROWS
    assert compared["notes"] == []
    best = compared["data"][0]
    assert best["other"]["rollouts"][0]["turns"][0]["message"]["content"] == str(best["line"] - 1)
