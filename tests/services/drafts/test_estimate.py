from __future__ import annotations

import dataclasses

import pytest

from strop.policy.memory import Shape, shape_of, training_memory
from strop.services.drafts.draft import JobDraft, Trial
from strop.services.drafts.estimate import Pace, Work, estimate, pace_of
from strop.services.reward_tests import AnswerObject, TriedRow

WORK = Work(rows=10, batch_size=4, samples=8, epochs=2)
PACE = Pace(tokens=20, tokens_per_second=100, reward_seconds=0.01)


def test_steps_and_answers_of_a_whole_run() -> None:
    assert (WORK.steps, WORK.answers) == (6, 160)  # the last step of an epoch has two rows
    short = dataclasses.replace(WORK, max_steps=2)
    assert (short.steps, short.answers) == (2, 64)


@pytest.mark.parametrize("every, times", [(None, 7), (3, 3), (4, 3), (0, 0)])
def test_validations_of_a_run(every: int | None, times: int) -> None:
    work = dataclasses.replace(WORK, validation_rows=5, eval_every=every)
    assert work.validations == times
    assert WORK.validations == 0


def test_time_is_that_of_the_tokens() -> None:
    found = estimate(WORK, PACE)
    assert found.sampling == 160 * 20 / 100
    assert found.rewards == 0  # they are scored meanwhile
    assert found.total == found.sampling + found.training


def test_slow_rewards_are_waited_for() -> None:
    slow = estimate(WORK, dataclasses.replace(PACE, reward_seconds=1.0))
    assert slow.rewards == 160 / 2 - slow.sampling


def test_validation_takes_its_own_answers() -> None:
    work = dataclasses.replace(WORK, validation_rows=5, eval_every=3, eval_samples=2)
    assert estimate(work, PACE).validation == 3 * 5 * 2 * 20 / 100


def test_memory_is_weights_and_the_larger_of_sampling_and_training() -> None:
    shape = Shape(layers=30, width=576, kv_heads=3, head_width=64)
    found = training_memory(1e9, shape, concurrent=64, tokens_each=1536, forward_tokens=4096, recompute=False)
    assert found.cache == 2 * 2 * 30 * 3 * 64 * 64 * 1536
    assert found.total == 1e9 + max(found.cache, found.activations)
    small = training_memory(1e9, shape, concurrent=64, tokens_each=1536, forward_tokens=4096, recompute=True)
    assert small.activations < found.activations / 10


@pytest.mark.parametrize(
    "config, shape",
    [
        ({"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4}, Shape(2, 64, 4, 16)),
        (
            {
                "text_config": {
                    "num_hidden_layers": 2,
                    "hidden_size": 64,
                    "num_attention_heads": 4,
                    "num_key_value_heads": 2,
                    "head_dim": 32,
                }
            },
            Shape(2, 64, 2, 32),
        ),
        ({"hidden_size": 64}, None),
        ({"num_hidden_layers": "x", "hidden_size": 64, "num_attention_heads": 4}, None),
    ],
)
def test_the_shape_of_a_model(config: dict[str, object], shape: Shape | None) -> None:
    assert shape_of(config) == shape


def test_the_pace_is_that_of_a_test_of_the_same_things() -> None:
    answer = AnswerObject(answer="", reward=1.0, components={}, weights={}, failure=None, logs="", seconds=0.5)
    row = TriedRow(id="r", line=1, messages=[], reference=None, answers=[answer], mean=1.0, spread=False)
    draft = JobDraft(model="m")
    trial = Trial(
        of=draft.tested,
        rows=(row,),
        tokens=30,
        answers=2,
        seconds=3.0,
        cut_off=0,
        memory_bytes=0,
        prompt_tokens=9,
    )
    assert pace_of(draft) is None
    tested = draft.model_copy(update={"trial": trial})
    assert pace_of(tested) == Pace(15, 10, 0.5)
    assert pace_of(tested.model_copy(update={"model": "other"})) is None
