"""What rewards made of answers: in figures, as a distribution, and row by row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from strop.services.reward_tests import AnswerObject, TriedRow
from strop.web.histogram import bars, draw_bars
from strop.web.rows import preview, shown
from strop.web.theme import tag, tag_text, text

_BARS = 20
_USEFUL = 0.2
"""With a smaller share of useful prompts, most of the work of training is for nothing."""


@dataclass(frozen=True)
class Scores:
    """All answers of a test together."""

    answers: int
    rewards: tuple[float, ...]
    """Statistics over the scored answers only."""
    failures: dict[str, int]
    """By cause."""
    components: dict[str, float]
    """Means by name."""
    useful: float | None
    """Share of the rows whose answers differ in reward; None where every row has one answer."""
    seconds: float
    """For scoring the mean answer."""
    slowest: float

    @classmethod
    def of(cls, rows: Sequence[TriedRow]) -> Scores:
        """What the rows of a test come to."""
        answers = [answer for row in rows for answer in row.answers]
        names = dict.fromkeys(name for answer in answers for name in answer.components)
        several = [row.spread for row in rows if len(row.answers) > 1]
        seconds = [answer.seconds for answer in answers]
        return cls(
            answers=len(answers),
            rewards=tuple(answer.reward for answer in answers if answer.reward is not None),
            failures=dict(Counter(answer.failure.cause for answer in answers if answer.failure)),
            components={name: fmean(a.components[name] for a in answers if name in a.components) for name in names},
            useful=fmean(several) if several else None,
            seconds=fmean(seconds) if seconds else 0.0,
            slowest=max(seconds, default=0.0),
        )

    @property
    def mean(self) -> float | None:
        """Mean reward; None where nothing was scored."""
        return fmean(self.rewards) if self.rewards else None


def advice(scores: Scores) -> tuple[str, str] | None:
    """Warning to show before training with this reward, with its severity; None without a problem."""
    if scores.failures and not scores.rewards:
        return "s-error", "No completion could be scored. Check the failures below and fix the reward."
    if scores.failures:
        failed = sum(scores.failures.values())
        return (
            "s-error",
            f"{failed} of {scores.answers} completions could not be scored. Training drops such groups and pauses when "
            "there are too many.",
        )
    if not scores.rewards or scores.useful is None:
        return None
    if len(set(scores.rewards)) == 1:
        same = scores.rewards[0]
        if same == 0:
            return (
                "s-error",
                "Every completion scored 0, so there is nothing to learn from. Give partial credit for what the model "
                "can already do, or use easier prompts or a stronger model.",
            )
        return (
            "s-error",
            f"Every completion scored {same:g}, so there is nothing to learn from. Make the reward more fine-grained "
            f"or the task harder.",
        )
    if scores.useful < _USEFUL:
        return (
            "s-note",
            f"Only {scores.useful:.0%} of the prompts have completions with different rewards, and only those give a "
            "gradient. Use a more fine-grained reward, a higher temperature or more samples per prompt.",
        )
    return None


def draw_scores(rows: Sequence[TriedRow]) -> None:
    """The results of a test."""
    scores = Scores.of(rows)
    found = advice(scores)
    if found is not None:
        tag_text("p", found[1], found[0])
    with tag("dl", "s-figures"):
        for name, value in _figures(scores):
            with tag("div"):
                tag_text("dt", name)
                tag_text("dd", value, "mono")
    draw_bars(bars(scores.rewards, _BARS), "reward", digits=2)
    if len(scores.components) > 1:
        _components(scores)
    for row in rows:
        draw_row(row)


def _figures(scores: Scores) -> list[tuple[str, str]]:
    found = [("Completions", f"{scores.answers:,}")]
    if scores.mean is not None:
        found.append(("Mean reward", f"{scores.mean:.3f}"))
        found.append(("Reward range", f"{min(scores.rewards):.2f} to {max(scores.rewards):.2f}"))
    if scores.useful is not None:
        found.append(("Prompts with varied rewards", f"{scores.useful:.0%}"))
    found.append(("Scoring time", f"{_short(scores.seconds)} on average, at most {_short(scores.slowest)}"))
    failed = ", ".join(f"{count} {cause}" for cause, count in scores.failures.items())
    found.append(("Failures", failed or "none"))
    return found


def _short(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def _components(scores: Scores) -> None:
    with tag("div", "s-table-wrap"), tag("table", "s-table"):
        with tag("thead"), tag("tr"):
            tag_text("th", "Component")
            tag_text("th", "Mean", "s-number")
        with tag("tbody"):
            for name, mean in scores.components.items():
                with tag("tr"):
                    tag_text("td", name, "mono")
                    tag_text("td", f"{mean:.3f}", "s-number mono")


def draw_row(row: TriedRow) -> None:
    """One row with all its answers, collapsed at first."""
    with tag("details", "s-card s-tried"):
        with tag("summary"):
            text(preview(row.messages), "s-clamp")
            with tag("span", "s-row s-small"):
                text("not scored" if row.mean is None else f"mean {row.mean:.2f}", "mono")
                if len(row.answers) > 1:
                    text("rewards differ" if row.spread else "same reward", "s-good" if row.spread else "s-warn")
                if row.reference is not None:
                    text(f"reference: {shown(row.reference)}", "s-muted s-clip")
        for answer in row.answers:
            _answer(answer)


def _answer(answer: AnswerObject) -> None:
    with tag("div", "s-answer"):
        with tag("div", "s-row s-small"):
            text("failed" if answer.reward is None else f"{answer.reward:.3f}", "mono s-strong")
            for name, value in answer.components.items():
                if len(answer.components) > 1:
                    weight = answer.weights.get(name, 1.0)
                    text(f"{name} {value:.2f}" + ("" if weight == 1 else f" × {weight:g}"), "mono s-muted")
            text(_short(answer.seconds), "mono s-muted")
        tag_text("pre", answer.answer or "(empty)")
        if answer.failure:
            tag_text("p", f"{answer.failure.cause}: {answer.failure.message}", "s-error")
            if answer.failure.detail:
                tag_text("pre", answer.failure.detail, "s-note")
        if answer.logs:
            tag_text("pre", answer.logs, "s-note s-small")
