"""Files of a job, read in a process of their own."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from strop.config import DataConfig
from strop.errors import DataError
from strop.jobs.validation import Validation

ENVIRONMENT = dict(os.environ)


def rows(path: Path, *prompts: str) -> str:
    path.write_text("".join(json.dumps({"prompt": prompt}) + "\n" for prompt in prompts))
    return str(path)


def result(check: Validation) -> dict[str, int]:
    while (found := check.result()) is None:
        time.sleep(0.02)
    return found


def test_good_files_are_counted(tmp_path: Path) -> None:
    data = DataConfig(train=rows(tmp_path / "a", "one", "two"), validation=rows(tmp_path / "b", "three"))
    assert result(Validation(data, ENVIRONMENT)) == {"training": 2, "validation": 1}


def test_faults_come_with_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "a").write_text('{"prompt": "one"}\n{"prompt": 7}\n')
    with pytest.raises(DataError, match=f"{tmp_path / 'a'}:2: "):
        result(Validation(DataConfig(train=str(tmp_path / "a")), ENVIRONMENT))


def test_a_prompt_in_both_files_is_refused(tmp_path: Path) -> None:
    data = DataConfig(train=rows(tmp_path / "a", "one", "two"), validation=rows(tmp_path / "b", "two"))
    with pytest.raises(DataError, match="same prompt as"):
        result(Validation(data, ENVIRONMENT))


def test_a_file_that_is_gone_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nowhere"):
        result(Validation(DataConfig(train=str(tmp_path / "nowhere")), ENVIRONMENT))


def test_a_file_that_never_ends_holds_nobody_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    check = Validation(DataConfig(train=str(tmp_path / "pipe")), ENVIRONMENT)
    assert check.result() is None
    check.close()
