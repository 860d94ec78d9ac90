"""What a recorded step leaves in the run folder."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import pytest
from train_cases import config, group, rollout, row

from strop.store.recorder import RunRecorder, rollout_lines, summary
from strop.store.rundir import RunDir
from strop.types import Group, Message, Row, StepRecord, StopReason, ToolCall

METRICS = {
    "loss": 4.11e-5,
    "grad_norm": 0.505,
    "learning_rate": 2e-6,
    "reward": 0.5,
    "solve_rate": 0.75,
    "response_length": 12.34,
}


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return RunDir.create(tmp_path / "run", config())


def test_the_line_of_a_step_reads_as_users_know_it() -> None:
    record = StepRecord(101, METRICS)
    line, rewards = summary(record).split(" | ")
    assert line == "loss 4.11e-5 • grad 0.505 • lr 2.00e-6 @ step 101"
    assert rewards == "reward 0.500 • solved 0.75 • length 12.3"


@pytest.mark.parametrize(
    ("loss", "shown"),
    [(-0.5, "-5.00e-1"), (0.0, "0.00e+0"), (12.0, "1.20e+1"), (3e-12, "3.00e-12"), (1e10, "1.00e+10")],
)
def test_a_loss_of_any_size_is_shown_with_its_exponent(loss: float, shown: str) -> None:
    assert summary(StepRecord(1, {"loss": loss})) == f"loss {shown} @ step 1"


def test_a_step_without_an_update_says_so() -> None:
    assert summary(StepRecord(0, {"validation/reward": 0.25})) == "no update @ step 0 | validation 0.250"
    assert summary(StepRecord(3, {})) == "no update @ step 3"


def test_a_record_leaves_rollouts_metrics_log_and_status(run: RunDir) -> None:
    record = StepRecord(7, METRICS, (group(0.0, 1.0),), ((-1.0, 1.0),), ("weights left alone: no reason",))
    RunRecorder(run).record(record)
    assert len(list(run.read_rollouts())) == 2
    assert run.metrics() == [{"step": 7, **METRICS}]
    log = [line[20:] for line in run.training_log.read_text(encoding="utf-8").splitlines()]
    assert log == ["weights left alone: no reason", summary(record)]
    assert (run.status()["state"], run.status()["step"]) == ("running", 7)


def test_a_validation_before_the_first_step_has_no_rollouts_file(run: RunDir) -> None:
    RunRecorder(run).record(StepRecord(0, {"validation/reward": 0.25}))
    assert not run.rollout_file(0).exists()
    assert run.metrics() == [{"step": 0, "validation/reward": 0.25}]


def test_a_step_counts_only_once_its_rollouts_are_there(run: RunDir) -> None:
    # The metrics cannot be written: the rollouts are, and will be replaced, but no step counts.
    with pytest.raises(ValueError, match="JSON compliant"):
        RunRecorder(run).record(StepRecord(1, {"loss": math.nan}, (group(1.0),), ((0.0,),)))
    assert run.rollout_file(1).exists()
    assert run.metrics() == []


def test_a_rollout_is_complete_in_itself() -> None:
    asked = Row("r-1", 12, (Message("system", "Be brief."), Message("user", "2 + 2?")), (), "4", {})
    played = Group(
        asked,
        (5, 6),
        (
            rollout(
                (20, 21, 22),
                mask=(True, False, True),
                reward={"form": 1.0, "fact": 0.25},
                logprobs=(-0.12345678, 0.0, -2.0),
                entropy=0.30000001,
                stop_reason=StopReason.LENGTH,
            ),
        ),
    )
    (line,) = rollout_lines(StepRecord(3, {}, (played,), ((0.5,),)))
    assert json.loads(json.dumps(line)) == {
        "step": 3,
        "row": "r-1",
        "line": 12,
        "sample": 0,
        "reward": 1.25,
        "components": {"form": 1.0, "fact": 0.25},
        "weights": {"form": 1.0, "fact": 1.0},
        "advantage": 0.5,
        "stop_reason": "length",
        "failure": None,
        "prompt": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2 + 2?"}],
        "messages": [{"role": "assistant", "content": "answer"}],
        "prompt_ids": [5, 6],
        "token_ids": [20, 21, 22],
        "sampled_mask": [1, 0, 1],
        "sampler_logprobs": [-0.123457, 0.0, -2.0],
        "length": 2,
        "entropy": 0.3,
        "logs": "",
        "timing": {"sample": 0.25},
    }


def test_an_answer_of_an_outside_model_has_a_length_but_no_ids() -> None:
    outside = dataclasses.replace(rollout((), reward=1.0), entropy=None, counted_tokens=9)
    (line,) = rollout_lines(StepRecord(0, {}, (Group(row(), (), (outside,)),), ((),)))
    assert (line["token_ids"], line["length"], line["entropy"]) == ([], 9, None)


def test_a_failed_rollout_names_its_cause_and_has_no_reward() -> None:
    played = Group(row(), (1,), (rollout([4], reward=1.0), rollout([5], failure="timeout", index=1)))
    scored, failed = rollout_lines(StepRecord(1, {}, (played,), ((),)))
    assert (scored["reward"], scored["advantage"], scored["failure"]) == (1.0, None, None)
    assert (failed["reward"], failed["components"]) == (None, {})
    assert failed["failure"] == {
        "cause": "timeout",
        "message": "timeout happened",
        "detail": "Traceback of timeout",
    }


def test_tool_calls_are_kept_in_openai_form() -> None:
    call = ToolCall("call_1", "search", '{"q": "x"}')
    turns = (Message("assistant", "", (call,)), Message("tool", "found", (), "call_1"))
    played = Group(row(), (1,), (dataclasses.replace(rollout([4], reward=1.0), messages=turns),))
    (line,) = rollout_lines(StepRecord(1, {}, (played,), ((0.0,),)))
    assert line["messages"] == [
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {"id": "call_1", "type": "function", "function": {"name": "search", "arguments": '{"q": "x"}'}}
            ],
        },
        {"role": "tool", "content": "found", "tool_call_id": "call_1"},
    ]
