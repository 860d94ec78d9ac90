"""Rules over curves: each fires on its pattern, and none on a healthy run."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from run_cases import Shape, learning, run, steady, straight

from strop.insight.doctor import METRICS, RULES, diagnose
from strop.insight.findings import Curves, Evidence, Severity
from strop.insight.trend import Curve

SEEDS = range(8)
WRONG = (Severity.WARNING, Severity.CRITICAL)

ZERO = {
    "reward": steady(0),
    "max_reward": steady(0),
    "solve_rate": steady(0),
    "reward_group_std": steady(0),
    "frac_reward_zero_std": steady(1),
}
FULL = {**ZERO, "reward": steady(1), "max_reward": steady(1), "solve_rate": steady(1)}
HALF = {**FULL, "reward": steady(0.5), "max_reward": steady(0.5)}

FLAT = {
    "reward": steady(0.2),
    "max_reward": steady(0.5),
    "solve_rate": steady(0.5),
    "validation/reward": steady(0.2),
    "reward_group_std": steady(0.3),
    "frac_reward_zero_std": steady(0.2),
    "entropy": steady(0.9),
}
QUICK = {
    "reward": learning(0.2, 0.6, 0.1, 0.02),
    "max_reward": learning(0.5, 0.9, 0.1, 0.02),
    "solve_rate": learning(0.5, 0.9, 0.1, 0.02),
    "validation/reward": learning(0.2, 0.6, 0.1, 0.02),
}
COLLAPSING = {
    "reward": steady(0.4),
    "max_reward": learning(0.7, 0.42, 0.2),
    "solve_rate": learning(0.7, 0.45, 0.2),
    "entropy": learning(0.9, 0.1, 0.2),
    "reward_group_std": learning(0.3, 0.04, 0.2),
    "validation/reward": steady(0.4),
}


def overfitted(share: float) -> float:
    return 0.2 + min(share, 0.4) - 0.6 * max(0.0, share - 0.4)


# Rule, severity, steps, and the curves in which a run differs from a healthy one.
PATTERNS: list[tuple[str, Severity, int, Mapping[str, Shape]]] = [
    ("always_zero", Severity.CRITICAL, 5, ZERO),
    ("always_zero", Severity.CRITICAL, 200, ZERO),
    ("solved_at_once", Severity.CRITICAL, 5, FULL),
    ("no_spread", Severity.CRITICAL, 5, HALF),
    ("graders_failing", Severity.CRITICAL, 1, {"rollouts_errored": steady(30)}),
    ("graders_failing", Severity.WARNING, 10, {"rollouts_errored": steady(5)}),
    ("nothing_learned", Severity.WARNING, 150, FLAT),
    ("no_signal", Severity.WARNING, 150, {**FLAT, "frac_reward_zero_std": steady(0.85)}),
    (
        "easy_prompts_only",
        Severity.WARNING,
        150,
        {"reward": learning(0.2, 0.5), "max_reward": learning(0.5, 0.62), "solve_rate": steady(0.6)},
    ),
    ("overfitting", Severity.CRITICAL, 150, {"validation/reward": overfitted}),
    ("not_generalizing", Severity.WARNING, 200, {"validation/reward": steady(0.25)}),
    ("longer_answers", Severity.WARNING, 100, {**FLAT, "response_length": straight(100, 260)}),
    ("longer_answers", Severity.NOTICE, 100, {"response_length": straight(100, 260)}),
    ("shorter_answers", Severity.NOTICE, 100, {"response_length": straight(200, 60)}),
    ("cut_off", Severity.WARNING, 60, {"response_length_clip_ratio": steady(0.5)}),
    ("collapse", Severity.WARNING, 100, COLLAPSING),
    ("drift", Severity.WARNING, 200, {**QUICK, "kl_loss": straight(0.001, 0.3)}),
    ("best_falls", Severity.WARNING, 100, {"max_reward": straight(0.9, 0.5), "reward": straight(0.5, 0.35)}),
    ("samplers_differ", Severity.WARNING, 20, {"sampler_trainer_gap": steady(0.4)}),
    ("saturated", Severity.NOTICE, 400, QUICK),
    ("improving", Severity.GOOD, 100, {}),
]


def rules(curves: Curves) -> dict[str, Severity]:
    return {finding.rule: finding.severity for finding in diagnose(curves)}


@pytest.mark.parametrize(("rule", "severity", "steps", "shapes"), PATTERNS)
def test_a_rule_finds_its_pattern(rule: str, severity: Severity, steps: int, shapes: Mapping[str, Shape]) -> None:
    found = [rules(run(steps, seed, shapes)).get(rule) for seed in SEEDS]
    assert found.count(severity) >= len(SEEDS) - 1  # noise may hide it once


def test_every_rule_has_a_pattern_here() -> None:
    spiky = run(100)
    named = {rule for rule, *_ in PATTERNS} | set(rules(with_spikes(spiky)))
    # `nothing_learned` has a second finding, for groups that are constant.
    assert len(named) == len(RULES) + 1


def test_every_finding_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "warning-signs.md").read_text(encoding="utf-8")
    assert [rule for rule, *_ in [*PATTERNS, ("spikes",)] if f"| `{rule}` |" not in page] == []


def with_spikes(curves: Curves) -> Curves:
    norms = curves["grad_norm"]
    values = [12.0 if step % 20 == 0 else value for step, value in zip(norms.steps, norms.values, strict=True)]
    return dataclasses.replace(curves, by_name={**curves.by_name, "grad_norm": Curve(norms.steps, values)})


def test_repeated_spikes_of_gradients_are_found_and_their_steps_named() -> None:
    (found,) = [finding for finding in diagnose(with_spikes(run(100))) if finding.rule == "spikes"]
    assert found.symptom == "Gradient norm has 5 spikes in 100 steps"
    assert found.action.endswith("20, 40, 60, 80, 100")


def test_tiny_gradients_of_a_solved_task_make_the_others_no_spikes() -> None:
    curves = run(100)
    values = [0.4 if step % 5 == 0 or step < 30 else 1e-4 for step in curves["grad_norm"].steps]
    norms = Curve(curves["grad_norm"].steps, values)
    assert "spikes" not in rules(dataclasses.replace(curves, by_name={**curves.by_name, "grad_norm": norms}))


@settings(deadline=None, max_examples=200)
@given(seed=st.integers(0, 2**31), steps=st.integers(0, 400))
def test_a_healthy_noisy_run_has_no_warning_at_any_step(seed: int, steps: int) -> None:
    found = diagnose(run(steps, seed, planned=400))
    assert [finding.rule for finding in found if finding.severity in WRONG] == []


HEALTHY_TOO: list[Mapping[str, Shape]] = [
    # A task that the model is good at from the start, and gets better at.
    {
        "reward": learning(0.6, 0.93),
        "max_reward": learning(0.9, 1.0),
        "solve_rate": learning(0.93, 1.0),
        "validation/reward": learning(0.6, 0.9),
        "frac_reward_zero_std": learning(0.4, 0.8),
        "reward_group_std": learning(0.2, 0.05),
    },
    # Rewards of another scale.
    {
        "reward": lambda share: 50 * learning(0.2, 0.85)(share),
        "max_reward": lambda share: 50 * learning(0.5, 0.97)(share),
    },
    # Thinking longer, within reason.
    {"response_length": learning(300, 370)},
    # No validation, no KL.
    {"kl_loss": steady(0.0)},
]


@pytest.mark.parametrize("shapes", HEALTHY_TOO)
@pytest.mark.parametrize("steps", [20, 50, 100, 200, 400])
def test_runs_that_are_healthy_in_other_ways_have_no_warning(shapes: Mapping[str, Shape], steps: int) -> None:
    found = [rules(run(steps, seed, shapes, planned=400)) for seed in SEEDS]
    assert [finding for each in found for finding in each.values() if finding in WRONG] == []


def test_a_young_run_is_left_alone_but_for_what_is_certain() -> None:
    for rule, _, _, shapes in PATTERNS:
        early = set(rules(run(49, 1, shapes, planned=150)))
        assert early <= {"always_zero", "solved_at_once", "no_spread", "graders_failing", "samplers_differ"}, rule


def test_a_few_answers_without_reward_prove_nothing() -> None:
    few = dataclasses.replace(run(5, 0, ZERO), rollouts_per_step=8)
    assert diagnose(few) == []
    assert diagnose(run(4, 0, ZERO)) == []


def test_what_explains_another_finding_stands_for_it() -> None:
    assert set(rules(run(200, 0, ZERO))) == {"always_zero"}
    assert set(rules(run(200, 0, HALF))) & {"no_signal", "nothing_learned", "drift"} == set()


def test_a_task_that_is_learned_is_no_loss_of_spread() -> None:
    course = learning(0.2, 1.0, 0.25, 0.04)
    solved: Mapping[str, Shape] = {
        "reward": course,
        "max_reward": learning(0.5, 1.0, 0.2, 0.04),
        "solve_rate": learning(0.5, 1.0, 0.2, 0.04),
        "frac_reward_zero_std": lambda share: 1.0 if share > 0.6 else 0.2,
        "validation/reward": course,
    }
    assert [found for found in rules(run(200, 0, solved, noise=0.2)).values() if found in WRONG] == []


def test_findings_come_with_numbers_steps_cause_and_action() -> None:
    (found,) = [f for f in diagnose(run(150, 0, {"validation/reward": overfitted})) if f.rule == "overfitting"]
    validation, reward = found.evidence
    assert validation.metric == "validation/reward"
    assert validation.before > validation.after
    assert validation.last_step == 150
    assert reward.after > reward.before
    assert f"step {validation.first_step}" in found.action
    assert found.cause
    assert 40 <= validation.first_step <= 80


def test_the_gravest_comes_first() -> None:
    shapes = {
        "validation/reward": overfitted,
        "response_length_clip_ratio": steady(0.5),
        "response_length": straight(200, 60),
    }
    order = [finding.severity for finding in diagnose(run(150, 0, shapes))]
    assert order == sorted(order, key=list(Severity).index, reverse=True)
    assert len(set(order)) >= 3


def test_the_most_frequent_cause_of_failures_is_named() -> None:
    curves = run(10, 0, {"rollouts_errored": steady(8)})
    steps = curves["rollouts_errored"].steps
    causes = {"failures/timeout": Curve(steps, [7.0] * 10), "failures/nan": Curve(steps[:1], [8.0])}
    found = diagnose(dataclasses.replace(curves, by_name={**curves.by_name, **causes}))
    assert found[0].cause.endswith("most frequent cause: timeout")
    assert found[0].symptom.endswith("of the completions could not be scored")


def test_step_0_is_no_training_step() -> None:
    curves = run(60)
    early = {
        name: curve if name.startswith("validation/") else Curve((0, *curve.steps), (9.0, *curve.values))
        for name, curve in curves.by_name.items()
    }
    assert rules(dataclasses.replace(curves, by_name=early)) == rules(curves)


def test_runs_without_steps_or_with_few_metrics_are_no_obstacle() -> None:
    assert diagnose(Curves({}, 8)) == []
    for name in METRICS:
        diagnose(run(200, 0, {name: None}))


def test_evidence_reads_as_a_sentence() -> None:
    assert str(Evidence("reward", 1, 60, 0.20491, 0.21)) == "reward 0.205 → 0.21 over steps 1 to 60"
    assert str(Evidence("reward", 1, 5, 1.0, 1.0)) == "reward 1 over steps 1 to 5"


REAL = json.loads(Path(__file__).with_name("real_runs.json").read_text())
"""150 steps of a tiny model, 4 prompts with 8 samples, validated every 10 steps. It is paid for vowels
(and learns it by step 40), by chance, or always the same. A metric that never changed is one number."""


def real(name: str, steps: int) -> Curves:
    curves = {}
    for metric, found in REAL[name].items():
        every = 10 if metric.startswith("validation/") else 1
        places = range(0 if every == 10 else 1, 151, every)
        values = found if isinstance(found, list) else [found] * len(places)
        curves[metric] = Curve(places, values).until(steps)
    return Curves(curves, rollouts_per_step=32)


@pytest.mark.parametrize("steps", [5, 20, 49])
def test_a_real_run_that_learns_is_left_alone(steps: int) -> None:
    assert diagnose(real("vowels", steps)) == []


def test_of_a_real_run_that_has_learned_only_what_is_true_is_said() -> None:
    assert set(rules(real("vowels", 60))) == {"improving", "cut_off"}
    assert set(rules(real("vowels", 150))) == {"cut_off"}  # its answers have 24 tokens, all of them


def test_a_real_run_that_is_paid_by_chance_learns_nothing_and_drifts() -> None:
    assert set(rules(real("chance", 49))) == set()
    assert set(rules(real("chance", 150))) == {"nothing_learned", "drift", "cut_off"}


def test_a_real_run_with_one_reward_for_all_is_known_within_ten_steps() -> None:
    assert set(rules(real("constant", 10))) == {"no_spread"}
    assert set(rules(real("constant", 150))) == {"no_spread", "cut_off"}
