"""Files are old or new, whenever the writer is killed."""

from __future__ import annotations

import json
import math
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from strop.store.files import append_line, json_line, read_lines, sync_folder, write_atomic, write_json

WRITER = """
import itertools, sys
from pathlib import Path
from strop.store.files import write_atomic
path = Path(sys.argv[1])
for number in itertools.count():
    write_atomic(path, f"{number % 10}" * 2_000_000)
    print(number, flush=True)
"""


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    file = tmp_path / "file.txt"
    write_atomic(file, "first\n")
    write_atomic(file, "zweite – Zeile\n")
    assert file.read_bytes() == "zweite – Zeile\n".encode()
    assert list(tmp_path.iterdir()) == [file]


def test_a_writer_killed_at_any_moment_leaves_a_whole_file(tmp_path: Path) -> None:
    file = tmp_path / "file.txt"
    chance = random.Random(17)
    write_atomic(file, "0" * 2_000_000)
    for _ in range(12):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, file], stdout=subprocess.PIPE)
        assert writer.stdout is not None
        writer.stdout.readline()
        time.sleep(chance.uniform(0, 0.03))
        writer.send_signal(signal.SIGKILL)
        said = writer.communicate()[0].split()
        text = file.read_text()
        assert text == text[0] * 2_000_000
        # What it said to have written is there, or the write after it.
        if said:
            assert int(text[0]) in (int(said[-1]) % 10, (int(said[-1]) + 1) % 10)


def test_a_failed_write_leaves_the_old_content(tmp_path: Path) -> None:
    file = tmp_path / "file.txt"
    write_atomic(file, "old")
    with pytest.raises(UnicodeEncodeError):
        write_atomic(file, "\ud800")
    assert file.read_text() == "old"


def test_json_for_people_is_indented_and_ends_its_last_line(tmp_path: Path) -> None:
    write_json(tmp_path / "file.json", {"a": [1, "ä"]})
    assert (tmp_path / "file.json").read_text(encoding="utf-8") == '{\n  "a": [\n    1,\n    "ä"\n  ]\n}\n'


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_no_file_holds_a_number_that_json_does_not_know(value: float, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        json_line({"loss": value})
    with pytest.raises(ValueError, match="JSON compliant"):
        write_json(tmp_path / "file.json", {"loss": value})
    assert not (tmp_path / "file.json").exists()


def test_a_json_line_is_one_line_whatever_it_holds() -> None:
    line = json_line({"text": "one\ntwo\u2028three", "number": 0.1})
    assert line.endswith("}\n")
    assert line.count("\n") == 1
    assert json.loads(line) == {"text": "one\ntwo\u2028three", "number": 0.1}


def test_lines_come_back_as_they_were_appended(tmp_path: Path) -> None:
    file = tmp_path / "lines.jsonl"
    values = [{"step": 1, "text": "a\nb"}, {"step": 2, "text": "ü\u2028"}]
    for value in values:
        append_line(file, json_line(value))
    assert list(read_lines(file)) == values


def test_a_file_that_is_not_there_has_no_lines(tmp_path: Path) -> None:
    assert list(read_lines(tmp_path / "lines.jsonl")) == []


def test_a_last_line_cut_off_anywhere_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "lines.jsonl"
    whole, last = json_line({"step": 1}).encode(), json_line({"step": 2, "text": "ü"}).encode()
    for end in range(len(last)):
        file.write_bytes(whole + last[:end])
        assert list(read_lines(file)) == [{"step": 1}], end


def test_a_folder_that_is_not_there_cannot_be_synced(tmp_path: Path) -> None:
    sync_folder(tmp_path)
    with pytest.raises(FileNotFoundError):
        sync_folder(tmp_path / "nowhere")
