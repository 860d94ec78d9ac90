"""Graders as reward functions: files, rows, logged parts, and packages that are not there."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from grading import ROW, check, rollout, settings
from judge_server import says, serving
from reward_files import children

from strop.config import RewardConfig
from strop.errors import RewardError
from strop.rewards.grade_arguments import sample_payload
from strop.rewards.graders.function import GraderFunction, row_item
from strop.rewards.graders.parse import parse_grader
from strop.rewards.load import load_reward
from strop.rewards.reward_function import Outcome
from strop.rewards.scorer import Scorer
from strop.types import Failure, Message, Reward, Rollout, Row

CODE = {"type": "python", "source": "def grade(sample, item):\n    return len(sample['output_text']) / 10\n"}
MULTI = {"type": "multi", "graders": {"exact": check(), "length": CODE}, "calculate_output": "exact - 0.5 * length"}


def table(folder: Path, grader: Any, name: str = "quality", **changes: Any) -> RewardConfig:
    path = folder / f"{name}.json"
    path.write_text(grader if isinstance(grader, str) else json.dumps(grader), encoding="utf-8")
    return RewardConfig.model_validate({"name": name, "source": str(path)} | changes)


def scored(*tables: RewardConfig, text: str = "4", row: Row = ROW) -> Rollout:
    async def main() -> Rollout:
        async with Scorer.from_config(tables) as scorer:
            return await scorer.score(row, rollout(text), 1)

    return asyncio.run(main())


def test_a_grader_file_is_a_reward_whose_parts_are_logged(tmp_path: Path) -> None:
    result = scored(table(tmp_path, MULTI, weight=2.0))
    components = {"quality": 0.95, "quality/exact": 1.0, "quality/length": 0.1}
    assert result.reward == Reward(1.9, components, {"quality": 2.0, "quality/exact": 0.0, "quality/length": 0.0})
    assert result.timing["reward"] > 0


def test_a_grader_file_stands_beside_other_rewards(tmp_path: Path) -> None:
    (tmp_path / "reward.py").write_text("def grade(sample, item): return 0.5\n")
    function = RewardConfig.model_validate({"name": "half", "source": f"{tmp_path}/reward.py:grade"})
    result = scored(table(tmp_path, check(), "exact"), function)
    assert result.reward == Reward(1.5, {"exact": 1.0, "half": 0.5}, {"exact": 1.0, "half": 1.0})


def test_a_grader_that_fails_fails_the_rollout(tmp_path: Path) -> None:
    result = scored(table(tmp_path, check(reference="{{item.expected}}")))
    assert result.reward is None
    assert result.failure and result.failure.cause == "variable"
    assert result.failure.message.startswith("quality: {{ item.expected }}: there is no 'expected' in item")


def test_an_answer_at_fault_is_scored_and_says_so(tmp_path: Path) -> None:
    result = scored(table(tmp_path, check(input="{{sample.output_json.a}}")), text="no JSON")
    assert result.reward and result.reward.total == 0.0
    assert result.logs == "lowest value: {{ sample.output_json.a }}: the answer is not JSON"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "not JSON: Expecting property name"),
        ("[" * 100_000, "not JSON: "),
        (b"\xff\xfe\x00".decode("latin-1"), "not JSON: "),
        ("[]", "grader: expected an object, found a list of 0"),
        ({"type": "magic"}, "grader.type: unknown type 'magic'"),
        ({"type": "string_check", "input": "{{x}}"}, "grader.input: {{x}} does not begin with item. or sample."),
    ],
)
def test_a_faulty_file_is_refused_with_its_name_and_the_place(tmp_path: Path, text: Any, why: str) -> None:
    config = table(tmp_path, text)
    with pytest.raises(RewardError) as caught:
        load_reward(config)
    assert caught.value.message.startswith(f"reward 'quality': {tmp_path}/quality.json: {why}")
    assert caught.value.param == "rewards.source"


def test_a_file_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    config = settings(source=str(tmp_path / "a:b" / "grader.json"))
    with pytest.raises(RewardError, match=r"/a:b/grader\.json: file not found$"):
        load_reward(config)


def test_a_variable_that_is_listed_must_be_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JUDGE_KEY", raising=False)
    with pytest.raises(RewardError, match="environment variable JUDGE_KEY is not set"):
        scored(table(tmp_path, check(), env=["JUDGE_KEY"]))


def test_a_judges_key_comes_from_the_variables_that_the_reward_lists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUDGE_KEY", "sk-of-the-judge")
    grader = {"type": "score_model", "model": "judge", "input": [{"role": "user", "content": "x"}]}
    with serving(says("1 sk-of-the-judge"), says("1")) as server:
        grader |= {"base_url": server.url, "api_key_env": "JUDGE_KEY"}
        with pytest.raises(RewardError, match=r'needs \$JUDGE_KEY, .* add env = \["JUDGE_KEY"\]'):
            scored(table(tmp_path, grader))
        result = scored(table(tmp_path, grader, env=["JUDGE_KEY"]))
    assert result.reward and result.reward.total == 1.0
    assert server.headers[0]["authorization"] == "Bearer sk-of-the-judge"
    assert "1 [redacted JUDGE_KEY]" in result.logs


def test_a_start_that_fails_leaves_no_process_behind(tmp_path: Path) -> None:
    graders = {"good": CODE, "bad": {"type": "python", "source": "1 / 0"}}
    config = table(tmp_path, {"type": "multi", "graders": graders, "calculate_output": "good + bad"})
    before = children()
    with pytest.raises(RewardError, match=r"'quality\.bad' cannot be loaded"):
        scored(config)
    assert children() == before


def test_a_grader_that_is_not_started_fails_and_raises_nothing() -> None:
    async def main() -> Outcome:
        function = GraderFunction(settings(), parse_grader(check()))
        await function.close()
        return await function.score(ROW, rollout("4"), 1)

    assert asyncio.run(main()) == Outcome(failure=Failure("start", "the grader is not started"))


def test_an_accident_in_a_grader_is_a_failure_and_not_raised() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]

    async def main() -> Failure | None:
        function = GraderFunction(settings(), parse_grader(check(reference="{{item.deep}}")))
        await function.start()
        return (await function.grade(sample_payload(rollout("4")), {"deep": deep}, 1)).failure

    failure = asyncio.run(main())
    while deep:  # a structure of this depth is not freed at once either
        deep = deep.pop()
    assert failure and failure.cause == "other" and failure.message.startswith("RecursionError: ")


def test_a_reference_that_there_is_none_of_is_absent() -> None:
    assert "reference" not in row_item(ROW)
    messages = (Message("user", "2 + 2?"),)
    assert row_item(Row("r", 1, messages, (), "4", {})) == {"prompt": "2 + 2?", "reference": "4", "metadata": {}}
    assert row_item(Row("r", 1, messages, (), None, {"reference": None}))["reference"] is None


WITHOUT = """
import sys
class Gone:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"openai", "httpx2", "rapidfuzz", "nltk", "rouge_score"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Gone())
from grading import check, grade
from strop.errors import RewardError
import strop.rewards.load, strop.rewards.graders.result
print(grade(check(), "4", {"answer": "4"}).value)
for shape in ({"type": "text_similarity", "input": "a", "reference": "a", "evaluation_metric": "bleu"},
              {"type": "score_model", "model": "m", "input": [{"role": "user", "content": "x"}]}):
    try:
        grade(shape, "4")
    except RewardError as error:
        print(error.message)
"""


def test_a_base_installation_runs_what_it_can_and_names_what_to_install() -> None:
    path = [str(Path(__file__).parents[1]), *sys.path]
    code = f"import sys; sys.path[:] = {path!r}\n{textwrap.dedent(WITHOUT)}"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    value, similarity, judge = run.stdout.splitlines()
    assert value == "1.0"
    assert similarity == (
        "reward 'score': text_similarity needs the package nltk, which is not installed; "
        "run `pip install 'strop[graders]'`"
    )
    assert judge.startswith("reward 'score': score_model needs the package ")
