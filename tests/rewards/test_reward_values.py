"""What `grade` may return, what it is given, and what counts as a failure."""

from __future__ import annotations

from pathlib import Path

import pytest
from reward_files import outcome, returning, reward

from strop.types import Failure

# Scores.


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("0.25", 0.25),
        ("-3", -3.0),
        ("True", 1.0),
        ("False", 0.0),
        ("1e308", 1e308),
        ("__import__('fractions').Fraction(1, 4)", 0.25),
        ("__import__('decimal').Decimal('0.5')", 0.5),
        ("__import__('numpy').float32(0.5)", 0.5),
        ("__import__('numpy').bool_(True)", 1.0),
        ("__import__('numpy').array(0.5)", 0.5),
        ("{'format': True, 'answer': 0.5}", {"format": 1.0, "answer": 0.5}),
        ("{'mean': __import__('numpy').mean([1, 2])}", {"mean": 1.5}),
    ],
)
def test_a_finite_number_or_a_dict_of_them_is_a_score(tmp_path: Path, expression: str, value: object) -> None:
    result = outcome(returning(tmp_path, f"return {expression}"))
    assert (result.value, result.failure) == (value, None)


@pytest.mark.parametrize(
    ("expression", "cause", "message"),
    [
        ("None", "none", "returned None; it must return a number on every path"),
        ("float('nan')", "nan", "returned nan; a finite number is expected"),
        ("float('inf')", "nan", "returned inf; a finite number is expected"),
        ("10**400", "nan", "returned an integer too large for a float"),
        ("__import__('numpy').float64('nan')", "nan", "returned nan; a finite number is expected"),
        ("'0.5'", "type", "returned str '0.5'; a number is expected"),
        ("b'1'", "type", "returned bytes b'1'; a number is expected"),
        ("__import__('numpy').str_('3')", "type", "returned str_ np.str_('3'); a number is expected"),
        ("[0.5]", "type", "returned list [0.5]; a number is expected"),
        ("__import__('numpy').array([0.5])", "type", "returned ndarray array([0.5]); a number is expected"),
        ("1j", "type", "returned complex 1j; a number is expected"),
        ("{}", "type", "returned an empty dict; it needs at least one component"),
        ("{1: 0.5}", "type", "returned a dict with key int 1; component names are non-empty strings"),
        ("{'a': 1, 'b': None}", "none", "returned, for component 'b', None; it must return a number on every path"),
        ("{'a': float('nan')}", "nan", "returned, for component 'a', nan; a finite number is expected"),
        ("{'a': 'x'}", "type", "returned, for component 'a', str 'x'; a number is expected"),
        ("{'a': {'b': 1}}", "type", "returned, for component 'a', dict {'b': 1}; a number is expected"),
    ],
)
def test_anything_else_is_a_failure_that_shows_the_value(
    tmp_path: Path, expression: str, cause: str, message: str
) -> None:
    result = outcome(returning(tmp_path, f"return {expression}"))
    assert (result.value, result.failure) == (None, Failure(cause, message))


def test_a_value_whose_own_methods_raise_is_a_failure(tmp_path: Path) -> None:
    result = outcome(
        reward(
            tmp_path,
            """
            class Odd:
                def __float__(self): raise RuntimeError("no float")
                def __repr__(self): raise RuntimeError("no repr")

            def grade(sample, item):
                return Odd()
            """,
        )
    )
    assert result.failure and result.failure.cause == "type"
    assert result.failure.message.startswith("returned Odd <Odd instance at ")
    assert result.failure.message.endswith("which is not a number: RuntimeError: no float")


def test_an_answer_too_large_for_a_frame_is_a_failure(tmp_path: Path) -> None:
    result = outcome(returning(tmp_path, "return {'x' * 17_000_000: 1.0}"))
    assert result.failure and result.failure.cause == "size"
    assert "more than the limit of 16,777,216" in result.failure.message


# Errors.


def test_an_exception_is_reported_with_the_users_frames_only(tmp_path: Path) -> None:
    config = reward(
        tmp_path,
        """\
        def helper(text):
            return int(text)

        def grade(sample, item):
            return helper("ten")
        """,
    )
    failure = outcome(config).failure
    path = tmp_path / "reward.py"
    assert failure and failure.cause == "exception"
    assert failure.message == f"ValueError: invalid literal for int() with base 10: 'ten' at {path}:2"
    assert [line for line in failure.detail.splitlines() if "^" not in line] == [
        "Traceback (most recent call last):",
        f'  File "{path}", line 5, in grade',
        '    return helper("ten")',
        f'  File "{path}", line 2, in helper',
        "    return int(text)",
        "ValueError: invalid literal for int() with base 10: 'ten'",
    ]


@pytest.mark.parametrize("error", ["SystemExit(3)", "KeyboardInterrupt", "GeneratorExit", "RecursionError('deep')"])
def test_no_exception_ends_the_process(tmp_path: Path, error: str) -> None:
    failure = outcome(returning(tmp_path, f"raise {error}")).failure
    assert failure and failure.cause == "exception"
    assert failure.message.startswith(error.partition("(")[0])


def test_an_exception_without_a_text_is_reported(tmp_path: Path) -> None:
    code = """
        class Mute(Exception):
            def __str__(self): raise RuntimeError

        def grade(sample, item):
            raise Mute
        """
    failure = outcome(reward(tmp_path, code)).failure
    assert failure and failure.message.startswith("Mute: (no text)")


def test_endless_recursion_is_an_exception_with_a_short_traceback(tmp_path: Path) -> None:
    failure = outcome(returning(tmp_path, "return grade(sample, item)")).failure
    assert failure and failure.cause == "exception"
    assert "[Previous line repeated" in failure.detail


# What it is given.


@pytest.mark.parametrize(
    "expression",
    [
        "sample.output_text == sample['output_text'] == '42'",
        "sample.trajectories[0].response == sample['trajectories'][0]['response'] == '42'",
        "item.metadata.answer == item['metadata']['answer'] == '42'",
        "item.metadata.tags[0].name == 'easy'",
        "item.get('absent', 7) == 7",
        "not hasattr(item, 'absent')",
        "isinstance(item, dict) and list(item) == ['prompt', 'metadata']",
        "__import__('copy').deepcopy(item) == item",
        "__import__('json').loads(__import__('json').dumps(item)) == item",
    ],
)
def test_sample_and_item_work_by_attribute_and_by_subscript(tmp_path: Path, expression: str) -> None:
    assert outcome(returning(tmp_path, f"return {expression}")).value == 1.0


def test_a_missing_name_is_answered_with_the_known_ones(tmp_path: Path) -> None:
    failure = outcome(returning(tmp_path, "return item.metadata.anwser")).failure
    assert failure
    assert failure.message.startswith("AttributeError: no 'anwser' here; there is answer, tags")


def test_an_async_function_works_and_keeps_its_event_loop(tmp_path: Path) -> None:
    code = """
        import asyncio
        loops = set()

        async def grade(sample, item):
            await asyncio.sleep(0)
            loops.add(id(asyncio.get_running_loop()))
            return len(loops)
        """
    assert outcome(reward(tmp_path, code)).value == 1.0


def test_an_exception_in_an_async_function_has_the_users_frames_only(tmp_path: Path) -> None:
    failure = outcome(reward(tmp_path, "async def grade(sample, item):\n    return 1 / 0\n")).failure
    assert failure
    assert failure.message == f"ZeroDivisionError: division by zero at {tmp_path}/reward.py:2"
    assert failure.detail.count('File "') == 1


def test_siblings_can_be_imported_and_files_read_by_relative_names(tmp_path: Path) -> None:
    (tmp_path / "words.py").write_text("LIST = ['a', 'b']\n", encoding="utf-8")
    (tmp_path / "bonus.txt").write_text("3", encoding="utf-8")
    code = """
        from words import LIST

        def grade(sample, item):
            return len(LIST) + int(open("bonus.txt").read())
        """
    assert outcome(reward(tmp_path, code)).value == 5.0


def test_a_file_may_be_named_like_a_module_that_strop_uses(tmp_path: Path) -> None:
    config = returning(tmp_path, "return 1")
    (tmp_path / "reward.py").rename(tmp_path / "random.py")
    renamed = config.model_copy(update={"source": f"{tmp_path}/random.py:grade"})
    assert outcome(renamed).value == 1.0


def test_dataclasses_and_other_encodings_work(tmp_path: Path) -> None:
    code = """\
        # -*- coding: latin-1 -*-
        from __future__ import annotations
        from dataclasses import dataclass

        @dataclass
        class Part:
            score: float

        def grade(sample, item):
            return Part(len("é")).score
        """
    config = reward(tmp_path, code)
    path = tmp_path / "reward.py"
    path.write_bytes(path.read_text(encoding="utf-8").encode("latin-1"))
    assert outcome(config).value == 1.0
