"""The pool: loading, order, seeds, retries, output, and nothing left behind."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest
from reward_files import ITEM, SAMPLE, children, outcome, outcomes, returning, reward

from strop.errors import RewardError
from strop.rewards.load import load_reward
from strop.rewards.pool import RewardPool
from strop.rewards.process import Code
from strop.rewards.reward_function import Outcome

# Loading.


def load_error(pool: RewardPool) -> str:
    with pytest.raises(RewardError) as caught:
        asyncio.run(pool.start())
    return caught.value.message


@pytest.mark.parametrize(
    ("code", "parts"),
    [
        ("def grade(sample, item)\n    return 1\n", ["SyntaxError: expected ':'", "{path}:1"]),
        ("import json\nimport nowhere\n", ["No module named 'nowhere'", "{path}:2", "import nowhere"]),
        ("raise SystemExit('stop')\n", ["SystemExit: stop", "{path}:1"]),
        ("print('loading')\nimport os\nos._exit(4)\n", ["exited with code 4", "loading"]),
        ("import ctypes\nctypes.string_at(0)\n", ["ended by SIGSEGV", 'reward.py", line 2 in <module>']),
        ("def mark(sample, item): ...\n", ["{path} has no function 'grade'; it has mark"]),
        ("grade = 3\n", ["{path} has no function 'grade'; it has none"]),
        ("\ndef grade(sample): ...\n", ["grade(sample) at {path}:2 cannot be called with two arguments"]),
    ],
)
def test_a_function_that_cannot_be_loaded_is_refused_with_file_and_line(
    tmp_path: Path, code: str, parts: list[str]
) -> None:
    message = load_error(RewardPool(reward(tmp_path, code)))
    for part in ["reward 'score' cannot be loaded", *parts]:
        assert part.format(path=tmp_path / "reward.py") in message
    assert "strop/rewards" not in message


def test_a_function_that_comes_as_text_runs_in_the_temporary_folder(tmp_path: Path) -> None:
    text = "import os\ndef grade(sample, item):\n    print(os.getcwd() == os.environ['HOME'])\n    return 1 / 0\n"

    async def main() -> Outcome:
        pool = RewardPool(returning(tmp_path, "return 1"), code=Code("grader.py", "grade", text))
        await pool.start()
        try:
            return await pool.call(SAMPLE, ITEM, 1)
        finally:
            await pool.close()

    failed = asyncio.run(main())
    assert failed.failure and failed.failure.message == "ZeroDivisionError: division by zero at grader.py:4"
    assert "return 1 / 0" in failed.failure.detail
    assert failed.logs.startswith("True\n")


def test_a_function_that_comes_as_text_is_refused_with_its_line(tmp_path: Path) -> None:
    pool = RewardPool(returning(tmp_path, "return 1"), code=Code("grader.py", "grade", "\nimport nowhere\n"))
    assert "No module named 'nowhere' at grader.py:2" in load_error(pool)


def test_a_file_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    config = returning(tmp_path, "return 1")
    (tmp_path / "reward.py").unlink()
    assert load_error(RewardPool(config)) == f"reward 'score': {tmp_path}/reward.py: file not found"


@pytest.mark.parametrize("source", ["reward.py", "reward.txt:grade", "grade", ""])
def test_a_source_of_unknown_form_is_refused(tmp_path: Path, source: str) -> None:
    config = returning(tmp_path, "return 1").model_copy(update={"source": source})
    with pytest.raises(RewardError, match=r"is neither a Python function, file\.py:function, nor a grader"):
        load_reward(config)


def test_a_failed_start_leaves_nothing_behind(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd")), children()
    load_error(RewardPool(reward(tmp_path, "1 / 0\n")))
    assert (len(os.listdir("/proc/self/fd")), children()) == before


# Calls.


def test_calls_at_the_same_time_get_their_own_answers(tmp_path: Path) -> None:
    code = """
        import time

        def grade(sample, item):
            time.sleep(item.delay)
            return item.number
        """

    async def main() -> list[Outcome]:
        pool = RewardPool(reward(tmp_path, code, workers=4))
        await pool.start()
        items = [{"number": number, "delay": 0.002 * (number % 5)} for number in range(40)]
        results = await asyncio.gather(*(pool.call(SAMPLE, item, 0) for item in items))
        await pool.close()
        return results

    assert [result.value for result in asyncio.run(main())] == [float(number) for number in range(40)]


def test_waiting_for_a_free_process_does_not_count_as_time(tmp_path: Path) -> None:
    config = returning(tmp_path, "__import__('time').sleep(0.15)\nreturn 1", workers=1, timeout_s=0.5)

    async def main() -> list[Outcome]:
        pool = RewardPool(config)
        await pool.start()
        results = await asyncio.gather(*(pool.call(SAMPLE, ITEM, 0) for _ in range(6)))
        await pool.close()
        return results

    results = asyncio.run(main())
    assert [result.value for result in results] == [1.0] * 6
    assert all(0.15 <= result.seconds < 0.5 for result in results)


def test_an_answer_in_time_counts_although_the_event_loop_was_busy(tmp_path: Path) -> None:
    async def main() -> Outcome:
        pool = RewardPool(returning(tmp_path, "return 1", timeout_s=0.2))
        await pool.start()
        call = asyncio.create_task(pool.call(SAMPLE, ITEM, 0))
        await asyncio.sleep(0)
        time.sleep(0.4)
        try:
            return await call
        finally:
            await pool.close()

    assert asyncio.run(main()).value == 1.0


@pytest.mark.parametrize(
    "expression",
    [
        "__import__('random').random()",
        "float(__import__('numpy').random.rand())",
        "hash(sample.output_text) / 2**64",
        "float(''.join({'1', '2', '3', '4', '5', '6', '7'}))",
    ],
)
def test_a_seeded_call_gives_the_same_value_in_every_process(tmp_path: Path, expression: str) -> None:
    config = reward(tmp_path, f"import numpy\n\ndef grade(sample, item):\n    return {expression}\n")
    [first, other, again] = outcomes(config, [5, 6, 5])
    fresh = outcome(config, seed=5)
    assert first.value is not None
    assert first.value == again.value == fresh.value
    assert ("random" in expression) == (first.value != other.value)


def test_processes_that_start_later_run_the_code_that_was_there_at_the_start(tmp_path: Path) -> None:
    config = returning(tmp_path, "import os\nos._exit(1) if item.crash else None\nreturn 1")

    async def main() -> Outcome:
        pool = RewardPool(config)
        await pool.start()
        returning(tmp_path, "return 2")
        await pool.call(SAMPLE, {"crash": True}, 0)
        try:
            return await pool.call(SAMPLE, {"crash": False}, 0)
        finally:
            await pool.close()

    assert asyncio.run(main()).value == 1.0


def test_arguments_changed_by_one_call_are_whole_in_the_next(tmp_path: Path) -> None:
    config = returning(tmp_path, "item.metadata.clear()\nitem.pop('prompt')\nreturn len(item)")
    assert [result.value for result in outcomes(config, [1, 2])] == [1.0, 1.0]


def test_a_row_that_cannot_be_handed_over_is_a_failure(tmp_path: Path) -> None:
    async def main() -> list[Outcome]:
        pool = RewardPool(returning(tmp_path, "return 1"))
        await pool.start()
        items: list[dict[str, object]] = [{"text": "x" * 17_000_000}, {"set": {1}}, {"number": float("nan")}]
        results = [await pool.call(SAMPLE, item, 0) for item in items]
        await pool.close()
        return results

    assert [result.failure and result.failure.cause for result in asyncio.run(main())] == ["size"] * 3


# Retries.

FLAKY = """
    import os, pathlib, time

    def grade(sample, item):
        tries = pathlib.Path("tries")
        tries.write_text(tries.read_text() + "x" if tries.exists() else "x")
        if len(tries.read_text()) <= {failures}:
            {fault}
        return 1.0
    """


@pytest.mark.parametrize("fault", ["raise OSError('api down')", "os._exit(1)", "os.kill(os.getpid(), 9)"])
def test_an_exception_or_a_crash_gets_a_second_try(tmp_path: Path, fault: str) -> None:
    result = outcome(reward(tmp_path, FLAKY.format(failures=1, fault=fault)))
    assert result.value == 1.0
    assert "[first try: " in result.logs


def test_there_is_no_third_try(tmp_path: Path) -> None:
    result = outcome(reward(tmp_path, FLAKY.format(failures=2, fault="raise OSError('api down')")))
    assert result.failure and result.failure.cause == "exception"
    assert (tmp_path / "tries").read_text(encoding="utf-8") == "xx"


@pytest.mark.parametrize("fault", ["return None", "return 'x'", "time.sleep(9)"])
def test_a_wrong_value_or_a_timeout_gets_no_second_try(tmp_path: Path, fault: str) -> None:
    result = outcome(reward(tmp_path, FLAKY.format(failures=1, fault=fault), timeout_s=0.3))
    assert result.failure
    assert (tmp_path / "tries").read_text(encoding="utf-8") == "x"


# Output.


def test_logs_prints_and_what_programs_print_are_kept_in_order(tmp_path: Path) -> None:
    code = """
        import logging, subprocess, sys
        log = logging.getLogger("judge")

        def grade(sample, item):
            print("one")
            log.info("two %d", 2)
            log.debug("not this")
            subprocess.run(["echo", "three"])
            print("four", file=sys.stderr)
            log.warning("bad format %d", "text")
            sys.stdout.buffer.write(b"five\\n")
            print("\\ud800")
            return 1
        """
    assert outcome(reward(tmp_path, code)).logs.splitlines() == [
        "one",
        "INFO:judge:two 2",
        "three",
        "four",
        "WARNING:judge:bad format %d [%d format: a real number is required, not str]",
        "five",
        "\\ud800",
    ]


def test_a_logged_exception_has_its_traceback(tmp_path: Path) -> None:
    body = "import logging\ntry:\n    1 / 0\nexcept ZeroDivisionError:\n    logging.exception('caught')\nreturn 0"
    logs = outcome(returning(tmp_path, body)).logs
    assert logs.startswith("ERROR:root:caught\nTraceback")
    assert logs.endswith("ZeroDivisionError: division by zero\n")


def test_output_belongs_to_the_call_that_made_it(tmp_path: Path) -> None:
    config = returning(tmp_path, "print(__import__('random').random())\nreturn 1")
    [first, second] = outcomes(config, [1, 2])
    assert len(first.logs.splitlines()) == len(second.logs.splitlines()) == 1
    assert first.logs != second.logs


def test_a_hundred_megabytes_of_output_are_capped_and_do_not_block(tmp_path: Path) -> None:
    body = "for _ in range(100):\n    print('x' * 2**20)\nprint('the end')\nreturn 1"
    result = outcome(returning(tmp_path, body))
    assert result.value == 1.0
    assert len(result.logs) < 66_000
    assert "bytes of output cut]" in result.logs
    assert result.logs.endswith("the end\n")


def test_log_records_are_capped_in_number_and_length(tmp_path: Path) -> None:
    body = "import logging\nlogging.info('y' * 5000)\nfor _ in range(250):\n    logging.info('n')\nreturn 1"
    lines = outcome(returning(tmp_path, body)).logs.splitlines()
    assert lines[0] == f"INFO:root:{'y' * 1990} [3010 characters cut]"
    assert lines[1:] == ["INFO:root:n"] * 199 + ["[51 more log records cut]"]


def test_output_of_a_call_that_hangs_is_kept(tmp_path: Path) -> None:
    result = outcome(returning(tmp_path, "print('before')\nwhile True: pass", timeout_s=0.3))
    assert result.logs == "before\n"


# Nothing left behind.


def test_two_hundred_calls_leave_no_process_no_file_and_no_folder(tmp_path: Path) -> None:
    code = """
        import os, pathlib, time

        def grade(sample, item):
            pathlib.Path("home").write_text(os.environ["HOME"])
            pathlib.Path(os.environ["TMPDIR"], "left").touch()
            if item.number % 25 == 0:
                os._exit(1)
            if item.number == 7:
                time.sleep(9)
            return item.number
        """

    async def main() -> list[Outcome]:
        pool = RewardPool(reward(tmp_path, code, timeout_s=0.5))
        await pool.start()
        results = await asyncio.gather(*(pool.call(SAMPLE, {"number": number}, 0) for number in range(200)))
        await pool.close()
        await pool.close()
        return results

    before = len(os.listdir("/proc/self/fd")), children()
    results = asyncio.run(main())
    assert (len(os.listdir("/proc/self/fd")), children()) == before
    assert not Path((tmp_path / "home").read_text(encoding="utf-8")).exists()
    failed = [number for number, result in enumerate(results) if result.failure]
    assert failed == [0, 7, 25, 50, 75, 100, 125, 150, 175]


def test_a_cancelled_call_ends_its_process(tmp_path: Path) -> None:
    async def main() -> None:
        pool = RewardPool(returning(tmp_path, "while True: pass"))
        await pool.start()
        call = asyncio.create_task(pool.call(SAMPLE, ITEM, 0))
        await asyncio.sleep(0.1)
        call.cancel()
        await asyncio.wait({call})
        assert call.cancelled()
        assert children() == before
        await pool.close()

    before = children()
    asyncio.run(main())


def test_closing_ends_calls_that_are_under_way(tmp_path: Path) -> None:
    async def main() -> Outcome:
        pool = RewardPool(returning(tmp_path, "while True: pass"))
        await pool.start()
        call = asyncio.create_task(pool.call(SAMPLE, ITEM, 0))
        await asyncio.sleep(0.1)
        await pool.close()
        return await call

    before = children()
    result = asyncio.run(main())
    assert result.failure and result.failure.message == "the pool is not open"
    assert children() == before
