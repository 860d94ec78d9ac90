"""What a reward function can break, and what it gets to see: attacks on real processes."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from reward_files import ITEM, SAMPLE, alive, outcome, outcomes, returning, reward, wait_for

import strop
from strop.errors import RewardError
from strop.rewards.pool import RewardPool
from strop.rewards.reward_function import Outcome
from strop.types import Failure

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="limits and signals of Linux")


# Hangs.


@pytest.mark.parametrize(
    "body",
    [
        "while True: pass",
        "__import__('re').match(r'(a+)+$', 'a' * 40 + 'b')",
        "__import__('time').sleep(60)",
        "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True: pass",
        "import signal\nsignal.signal(signal.SIGABRT, signal.SIG_IGN)\nwhile True: pass",
        "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)",
        "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
    ],
)
def test_a_hang_is_killed_at_the_limit(tmp_path: Path, body: str) -> None:
    started = time.monotonic()
    result = outcome(returning(tmp_path, body, timeout_s=0.5))
    assert result.failure and result.failure.cause == "timeout"
    assert result.failure.message == "no answer within 0.5 s"
    assert time.monotonic() - started < 4


@linux_only
def test_a_hang_is_reported_with_the_line_where_it_hangs(tmp_path: Path) -> None:
    failure = outcome(returning(tmp_path, "import re\nre.match(r'(a+)+$', 'a' * 40 + 'b')", timeout_s=0.3)).failure
    assert failure
    assert f'File "{tmp_path}/reward.py", line 3 in grade' in failure.detail
    assert "strop/rewards" not in failure.detail


def test_the_next_call_after_a_hang_is_answered(tmp_path: Path) -> None:
    code = """
        import time

        def grade(sample, item):
            if item.hang:
                time.sleep(60)
            return 1
        """

    async def main() -> list[Outcome]:
        pool = RewardPool(reward(tmp_path, code, timeout_s=0.3, workers=1))
        await pool.start()
        results = [await pool.call(SAMPLE, {"hang": hang}, 0) for hang in (False, True, False)]
        await pool.close()
        return results

    assert [result.value for result in asyncio.run(main())] == [1.0, None, 1.0]


# Crashes.


@linux_only
@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("import os; os._exit(3)", "the process exited with code 3"),
        ("import os; os._exit(0)", "the process exited with code 0"),
        ("import ctypes; ctypes.string_at(0)", "the process was ended by SIGSEGV"),
        ("import os; os.abort()", "the process was ended by SIGABRT"),
        (
            "import os; os.kill(os.getpid(), 9)",
            "the process was ended by SIGKILL; perhaps the machine ran out of memory",
        ),
    ],
)
def test_a_crash_is_named(tmp_path: Path, body: str, message: str) -> None:
    result = outcome(returning(tmp_path, f"print('before')\n{body}"))
    assert result.failure and result.failure.cause == "crash"
    assert result.failure.message == message
    assert result.logs.startswith("before\n")


@linux_only
def test_a_segmentation_fault_is_reported_with_its_line(tmp_path: Path) -> None:
    failure = outcome(returning(tmp_path, "import ctypes\nctypes.string_at(0)")).failure
    assert failure and f'File "{tmp_path}/reward.py", line 3 in grade' in failure.detail


def test_a_process_that_dies_between_calls_costs_nothing(tmp_path: Path) -> None:
    async def main() -> list[Outcome]:
        pool = RewardPool(returning(tmp_path, "import os\nreturn os.getpid()"))
        await pool.start()
        first = await pool.call(SAMPLE, ITEM, 0)
        assert isinstance(first.value, float)
        os.kill(int(first.value), signal.SIGKILL)
        second = await pool.call(SAMPLE, ITEM, 0)
        await pool.close()
        return [first, second]

    first, second = asyncio.run(main())
    assert second.failure is None
    assert first.value != second.value


# Memory, files, descriptors.


@linux_only
@pytest.mark.parametrize(
    "body",
    [
        "return len(bytearray(10**10))",
        "parts = []\nwhile True: parts.append(bytearray(10**6))",
        "parts = []\nwhile True: parts.append('x' * 100)",
        "import numpy\nreturn numpy.ones(10**10).sum()",
    ],
)
def test_memory_is_limited(tmp_path: Path, body: str) -> None:
    failure = outcome(returning(tmp_path, body, memory_mb=256)).failure
    assert failure and failure.cause == "memory"
    assert f"{tmp_path}/reward.py:" in failure.message


@linux_only
def test_memory_that_a_call_leaves_full_does_not_spoil_the_next_one(tmp_path: Path) -> None:
    code = """
        kept = []

        def grade(sample, item):
            if item.fill:
                while True: kept.append(bytearray(10**5))
            return len(kept)
        """

    async def main() -> list[Outcome]:
        pool = RewardPool(reward(tmp_path, code, workers=1, memory_mb=256))
        await pool.start()
        results = [await pool.call(SAMPLE, {"fill": fill}, 0) for fill in (True, False)]
        await pool.close()
        return results

    full, after = asyncio.run(main())
    assert full.failure and full.failure.cause == "memory"
    assert after.value == 0.0


@linux_only
def test_files_and_descriptors_are_limited(tmp_path: Path) -> None:
    code = """
        import os

        def grade(sample, item):
            kept = []
            try:
                while True: kept.append(open(os.devnull))
            except OSError:
                opened = len(kept)
            kept.clear()
            with open(os.environ["TMPDIR"] + "/big", "wb", buffering=0) as file:
                try:
                    while True: file.write(bytes(2**20))
                except OSError:
                    return {"opened": opened, "mib": file.tell() / 2**20}
        """
    value = outcome(reward(tmp_path, code)).value
    assert isinstance(value, dict)
    assert 200 < value["opened"] < 256
    assert value["mib"] == 64


@linux_only
def test_it_has_no_open_file_but_its_own(tmp_path: Path) -> None:
    code = """
        import os

        def grade(sample, item):
            links = [f"/proc/self/fd/{fd}" for fd in range(3, 200)]
            print(*(os.readlink(link) for link in links if os.path.lexists(link)))
            return 1
        """
    with open(tmp_path / "secret.txt", "w", encoding="utf-8") as file:
        os.set_inheritable(file.fileno(), True)
        [link] = outcome(reward(tmp_path, code)).logs.split()
    assert link.startswith("socket:")


# Environment and secrets.


def test_it_sees_the_named_variables_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPEN_KEY", "open-value")
    monkeypatch.setenv("HIDDEN_KEY", "hidden-value")
    monkeypatch.setenv("TZ", "UTC")
    body = "import os\nprint(*sorted(os.environ))\nreturn os.environ['OPEN_KEY'].startswith('open')"
    result = outcome(returning(tmp_path, body, env=("OPEN_KEY",)))
    assert result.value == 1.0
    extra = {"PYTHONUSERBASE"}
    assert set(result.logs.split()) - extra == {
        *("HOME", "LANG", "LC_ALL", "MALLOC_ARENA_MAX", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OPEN_KEY"),
        *("PATH", "PYTHONHASHSEED", "PYTHONUTF8", "TMPDIR", "TZ"),
    }


def test_home_is_a_folder_of_its_own(tmp_path: Path) -> None:
    body = "import os\nprint(os.environ['HOME'], os.listdir(os.environ['HOME']), os.getcwd())\nreturn 1"
    home, listing, folder = outcome(returning(tmp_path, body)).logs.split()
    assert home != os.environ.get("HOME")
    assert (listing, folder) == ("[]", str(tmp_path))


def test_a_named_variable_that_is_not_set_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RewardError, match="environment variable STROP_NO_SUCH_KEY is not set"):
        outcome(returning(tmp_path, "return 1", env=("STROP_NO_SUCH_KEY",)))


def test_values_of_named_variables_are_redacted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_KEY", "sk-123456")
    monkeypatch.setenv("API_KEY_LONG", "sk-123456-and-more")
    monkeypatch.setenv("FLAG", "1")
    monkeypatch.setenv("HOME", str(tmp_path))
    body = "import os\nprint(os.environ['API_KEY_LONG'], 1)\nraise ValueError(os.environ['API_KEY'])"
    result = outcome(returning(tmp_path, body, env=("API_KEY", "API_KEY_LONG", "FLAG", "HOME")))
    assert "[redacted API_KEY_LONG] 1" in result.logs
    assert result.failure
    assert result.failure.message == f"ValueError: [redacted API_KEY] at {tmp_path}/reward.py:4"
    assert "sk-123456" not in str(result)


def test_a_secret_in_a_load_error_is_redacted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_KEY", "sk-123456")
    with pytest.raises(RewardError) as caught:
        outcome(reward(tmp_path, "import os\nraise ValueError(os.environ['API_KEY'])\n", env=("API_KEY",)))
    assert "[redacted API_KEY]" in caught.value.message
    assert "sk-123456" not in caught.value.message


def test_standard_input_is_empty(tmp_path: Path) -> None:
    assert outcome(returning(tmp_path, "import sys\nreturn len(sys.stdin.read())")).value == 0.0


# Forged answers.

FIND_CHANNEL = """
    import json, os, stat, struct

    def channel():
        for fd in range(3, 100):
            try:
                if stat.S_ISSOCK(os.fstat(fd).st_mode):
                    return fd
            except OSError:
                pass

    def send(body):
        os.write(channel(), struct.pack(">I", len(body)) + body)
    """


@pytest.mark.parametrize(
    "forgery",
    [
        "send(json.dumps({'id': 1, 'value': 99.0}).encode())",
        "send(json.dumps({'value': 99.0}).encode())",
        "send(b'99.0')",
        "send(b'null')",
        "send(b'not json')",
        "send(b'[' * 200_000)",
        "send(b'\\xff\\xfe')",
        "os.write(channel(), b'\\xff\\xff\\xff\\xff')",
    ],
)
def test_a_forged_frame_is_a_failure_and_ends_the_process(tmp_path: Path, forgery: str) -> None:
    code = f"{FIND_CHANNEL}\n    def grade(sample, item):\n        {forgery}\n        return 1\n"
    results = outcomes(reward(tmp_path, code), [1, 2])
    assert [result.failure and result.failure.cause for result in results] == ["protocol"] * 2


@pytest.mark.parametrize(
    "body",
    ["'value': float('nan')", "'value': '1'", "'value': {}", "'value': True", "'failure': {'cause': 'made up'}", ""],
)
def test_a_forged_frame_with_the_right_number_is_still_checked(tmp_path: Path, body: str) -> None:
    code = f"""{FIND_CHANNEL}
    import inspect

    def grade(sample, item):
        call = inspect.currentframe().f_back.f_locals["call"]
        send(json.dumps({{"id": call["id"], {body}}}).encode())
        return 1
    """
    failure = outcome(reward(tmp_path, code)).failure
    assert failure and failure.cause == "protocol"


# Processes that it starts.


@linux_only
@pytest.mark.parametrize("after", ["time.sleep(60)", "os._exit(1)", "os.kill(os.getpid(), 11)"])
def test_what_it_started_dies_with_it(tmp_path: Path, after: str) -> None:
    code = f"""
        import os, pathlib, subprocess, time

        def grade(sample, item):
            child = subprocess.Popen(["sleep", "60"])
            with open("children", "a") as file:
                print(child.pid, file=file)
            {after}
        """
    outcome(reward(tmp_path, code, timeout_s=0.5))
    pids = [int(line) for line in (tmp_path / "children").read_text(encoding="utf-8").split()]
    assert pids
    assert wait_for(lambda: not any(map(alive, pids)))


@linux_only
def test_a_crash_is_seen_at_once_although_a_fork_of_it_lives_on(tmp_path: Path) -> None:
    body = "import os, time\nif os.fork() == 0:\n    time.sleep(60)\nos._exit(7)"
    started = time.monotonic()
    failure = outcome(returning(tmp_path, body, timeout_s=30)).failure
    assert failure == Failure("crash", "the process exited with code 7")
    assert time.monotonic() - started < 10


@linux_only
def test_a_fork_that_comes_back_from_the_function_does_not_answer(tmp_path: Path) -> None:
    config = returning(tmp_path, "import os\nreturn 2 if os.fork() == 0 else os.wait() and 1")
    assert [result.value for result in outcomes(config, [1, 2, 3])] == [1.0] * 3


@linux_only
def test_multiprocessing_works(tmp_path: Path) -> None:
    body = "import multiprocessing\nwith multiprocessing.Pool(2) as pool:\n    return sum(pool.map(abs, [-1, 2]))"
    assert outcome(returning(tmp_path, body)).value == 3.0


@linux_only
def test_no_process_outlives_a_parent_that_is_killed(tmp_path: Path) -> None:
    returning(tmp_path, "import os, pathlib, time\npathlib.Path('pid').write_text(str(os.getpid()))\ntime.sleep(60)")
    script = f"""
import asyncio
from strop.config import RewardConfig
from strop.rewards.pool import RewardPool

async def main():
    pool = RewardPool(RewardConfig(name="score", source="{tmp_path}/reward.py:grade", timeout_s=60))
    await pool.start()
    await pool.call({{}}, {{}}, 0)

asyncio.run(main())
"""
    path = os.pathsep.join([str(Path(strop.__file__).parents[1]), *filter(None, sys.path)])
    parent = subprocess.Popen([sys.executable, "-c", script], env=os.environ | {"PYTHONPATH": path})
    written = tmp_path / "pid"
    try:
        assert wait_for(lambda: written.exists() and bool(written.read_text(encoding="utf-8")), 20)
        pid = int(written.read_text(encoding="utf-8"))
        assert alive(pid)
    finally:
        parent.kill()
        parent.wait()
    assert wait_for(lambda: not alive(pid))


@linux_only
def test_it_cannot_gain_privileges(tmp_path: Path) -> None:
    assert outcome(returning(tmp_path, "return 'NoNewPrivs:\\t1' in open('/proc/self/status').read()")).value == 1.0
