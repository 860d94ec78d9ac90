"""python: what the source gets to see, and what becomes of what it returns."""

from __future__ import annotations

import textwrap
from typing import Any

import pytest
from grading import grade, settings

from strop.errors import RewardError
from strop.rewards.graders.grade import Grade


def python(body: str) -> dict[str, Any]:
    source = "def grade(sample, item):\n" + textwrap.indent(textwrap.dedent(body), "    ")
    return {"type": "python", "name": "mine", "source": source}


def graded(body: str, text: str = '{"a": [1, 2]}', **options: Any) -> Grade:
    return grade(python(body), text, {"answer": "4", "metadata": {"level": 2}}, **options)


@pytest.mark.parametrize(
    "condition",
    [
        "sample['output_text'] == '{\"a\": [1, 2]}'",
        "sample['output_json'] == {'a': [1, 2]} and sample.output_json.a[1] == 2",
        "sample['output_tools'] == []",
        "sample['choices'][0]['message']['content'] == sample['output_text']",
        "sample.trajectories[0].response == sample.messages[0].content == sample.output_text",
        "item['answer'] == item.answer == '4' and item['metadata']['level'] == 2",
    ],
)
def test_the_source_sees_what_openai_documents_and_what_strop_adds(condition: str) -> None:
    assert graded(f"return float({condition})").value == 1.0


def test_it_may_import_and_define_what_it_likes() -> None:
    source = """
    import json, math
    WEIGHTS = {"a": 0.25}
    async def grade(sample, item):
        return math.sqrt(WEIGHTS["a"]) * len(json.loads(sample["output_text"])["a"])
    """
    assert grade({"type": "python", "source": textwrap.dedent(source)}, '{"a": [1, 2]}').value == 1.0


def test_it_sees_none_of_the_variables_of_the_reward(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGE_KEY", "sk-of-the-judge")
    config = settings(env=("JUDGE_KEY",))
    body = "import os\nreturn float('JUDGE_KEY' in os.environ)"
    assert graded(body, config=config, variables={"JUDGE_KEY": "sk-of-the-judge"}).value == 0.0


@pytest.mark.parametrize(
    ("body", "cause", "message"),
    [
        ("return 1 / 0", "exception", "ZeroDivisionError: division by zero at grader.py:2"),
        ("return None", "none", "returned None; it must return a number on every path"),
        ("return float('nan')", "nan", "returned nan; a finite number is expected"),
        ("return '1'", "type", "returned str '1'; a number is expected"),
        ("return {'a': 1, 'b': 2}", "type", "returned components a, b; a grader returns one number"),
        ("import os\nos._exit(3)", "crash", "the process exited with code 3"),
        ("raise SystemExit", "exception", "SystemExit at grader.py:2"),
    ],
)
def test_anything_but_a_number_is_a_failure_and_never_zero(body: str, cause: str, message: str) -> None:
    result = graded(body)
    assert result.value is None
    assert result.failure and (result.failure.cause, result.failure.message) == (cause, message)


def test_a_source_that_hangs_is_ended_at_the_time_limit() -> None:
    result = graded("while True: pass", config=settings(timeout_s=0.3))
    assert result.failure and result.failure.cause == "timeout"
    assert 'File "grader.py", line 2 in grade' in result.failure.detail


def test_what_it_prints_is_kept() -> None:
    assert graded("print('looking')\nreturn 1").logs == "looking\n"


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("def grade(sample, item)\n", "SyntaxError: expected ':' at grader.py:1"),
        ("import nowhere\n", "No module named 'nowhere' at grader.py:1"),
        ("def score(sample, item): ...\n", "grader.py has no function 'grade'; it has score"),
        ("def grade(sample): ...\n", "grade(sample) at grader.py:1 cannot be called with two arguments"),
    ],
)
def test_a_source_that_cannot_be_loaded_is_refused_with_its_line(source: str, why: str) -> None:
    with pytest.raises(RewardError) as caught:
        grade({"type": "python", "source": source}, "4")
    assert caught.value.message.startswith("reward 'score' cannot be loaded: ")
    assert why in caught.value.message
