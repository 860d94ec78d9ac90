"""The texts that the review shows make the very job that it creates."""

from __future__ import annotations

import io
import json
import re
import shlex
from contextlib import redirect_stdout
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest

from served import served
from strop.config import anchored, read_config
from strop.rewards.load import load_reward
from strop.services.drafts.check import Checked, check
from strop.services.drafts.draft import RewardPart
from strop.services.drafts.export import as_curl, as_python, as_toml
from strop.services.job_creation import create_job, write_files
from strop.services.job_request import JobRequest

SOURCE = '''"""It's a "reward" with \\\\ and 'quotes'."""


def grade(sample, item):
    return {"länge": 1.0, "b": '\\n' in sample.output_text}
'''
GRADER = {
    "type": "string_check",
    "name": "x",
    "operation": "ilike",
    "input": "{{sample.output_text}}",
    "reference": "it's",
}
VALUES = {"train.epochs": 2, "train.learning_rate": 1e-5, "sampling.stop": ["\n", "it's"], "lora.r": 4, "device": "cpu"}


@pytest.fixture(scope="module")
def checked(place: Any) -> Checked:
    rewards = (
        RewardPart(name="code", source=SOURCE, weight=0.5, env=("A_KEY",)),
        RewardPart(name="judge", kind="grader", source=json.dumps(GRADER)),
    )
    place.services.secrets.set("A_KEY", "secret")
    found = check.blocking(
        place.services, place.draft(rewards=rewards, values=VALUES, carried={"metadata": {"team": "a's"}})
    )
    assert found.faults == {}
    return found


def created(place: Any, checked: Checked) -> Any:
    """What the button makes."""
    return create_job(JobRequest.model_validate(checked.request), place.services, None, repeated=False)


def test_the_toml_is_the_configuration_of_the_job(place: Any, checked: Checked, tmp_path: Path) -> None:
    assert checked.order is not None
    write_files(checked.order, place.services)
    text = as_toml(checked.order, place.services.folder.path)
    (tmp_path / "config.toml").write_text(text, encoding="utf-8")
    config = read_config(tmp_path / "config.toml")
    assert config == anchored(created(place, checked).config, place.services.folder.path)
    assert "# Needs in the environment: A_KEY\n" in text
    assert "secret" not in text
    assert Path(config.data.train).is_file()
    for reward in config.rewards:
        load_reward(reward)


def test_the_python_program_makes_the_same_job(place: Any, checked: Checked) -> None:
    assert checked.request is not None
    said = io.StringIO()
    with served(place.services) as url, redirect_stdout(said):
        exec(as_python(checked.request, url.removesuffix("/v1"), local=True), {})
    job_id = said.getvalue().split()[0]
    assert place.services.jobs.get(job_id).config == created(place, checked).config
    assert place.services.jobs.get(job_id).metadata == {"team": "a's"}


def test_the_call_of_curl_makes_the_same_job(place: Any, checked: Checked) -> None:
    assert checked.request is not None
    with served(place.services) as url:
        words = shlex.split(as_curl(checked.request, url.removesuffix("/v1"), local=True))
        headers = dict(re.split(": ", word) for flag, word in pairwise(words) if flag == "-H")
        with httpx.Client(transport=httpx.HTTPTransport(retries=5), timeout=30) as http:
            answer = http.post(words[1], headers=headers, content=words[words.index("-d") + 1].encode())
    assert answer.status_code == 200, answer.text
    assert place.services.jobs.get(answer.json()["id"]).config == created(place, checked).config


def test_a_server_with_keys_is_shown_one(checked: Checked) -> None:
    assert checked.request is not None
    assert "Bearer $OPENAI_API_KEY" in as_curl(checked.request, "http://far:8100", local=False)
    assert 'os.environ["OPENAI_API_KEY"]' in as_python(checked.request, "http://far:8100", local=False)
