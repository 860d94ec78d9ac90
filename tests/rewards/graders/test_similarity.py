"""text_similarity: every metric against numbers worked out by hand, and against its library."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from grading import grade
from hypothesis import given, settings
from hypothesis import strategies as st
from rouge_score.rouge_scorer import RougeScorer

from strop.rewards.graders.similarity import MAX_CHARS, METRICS
from strop.rewards.graders.text_metrics import METRICS as FUNCTIONS

WORDNET_FREE = [metric for metric in METRICS if metric != "meteor"]


def similarity(metric: str, **changes: Any) -> dict[str, Any]:
    texts = {"input": "{{sample.output_text}}", "reference": "{{item.answer}}"}
    return {"type": "text_similarity", "evaluation_metric": metric} | texts | changes


@pytest.mark.parametrize(
    ("metric", "text", "reference", "value"),
    [
        # "ittn" is common: 2 * 4 / (6 + 7).
        ("fuzzy_match", "kitten", "sitting", 8 / 13),
        ("fuzzy_match", "Kitten", "kitten", 10 / 12),
        # Of 1 to 4 words in a row 5 of 6, 3 of 5, 1 of 4 and 0 of 3 are common, the last taken for 0.1.
        ("bleu", "the cat sat on the mat", "the cat is on the mat", (5 / 6 * 3 / 5 * 1 / 4 * 0.1 / 3) ** 0.25),
        # Both words are right, but there are twice as many: exp(1 - 4 / 2).
        ("bleu", "the cat", "the cat is here", 2.718281828459045**-1),
        ("bleu", "Paris", "Paris", 1.0),
        # The same counts together: 9 of 18.
        ("gleu", "the cat sat on the mat", "the cat is on the mat", 0.5),
        # 1 + 0 of the reference's 2 + 1.
        ("gleu", "the", "the cat", 1 / 3),
        ("rouge_1", "The cat sat on the mat.", "the cat is on the mat", 5 / 6),
        ("rouge_2", "The cat sat on the mat.", "the cat is on the mat", 3 / 5),
        ("rouge_3", "The cat sat on the mat.", "the cat is on the mat", 1 / 4),
        # Precision 2 / 3, recall 2 / 2.
        ("rouge_4", "a b c d e f", "a b c d e", 4 / 5),
        ("rouge_5", "a b c d e f", "a b c d e", 2 / 3),
        # "a c d" is common: 2 * 3 / (4 + 5).
        ("rouge_l", "a b c d", "a c x d y", 2 / 3),
        # Words of other scripts count too.
        ("rouge_1", "Привет, мир!", "мир", 2 / 3),
        ("rouge_l", "größe straße", "Größe Straße", 1.0),
    ],
)
def test_metrics_have_the_values_that_one_works_out_by_hand(
    metric: str, text: str, reference: str, value: float
) -> None:
    assert grade(similarity(metric), text, {"answer": reference}).value == pytest.approx(value)


@pytest.mark.parametrize("metric", WORDNET_FREE)
def test_equal_texts_have_one_and_different_ones_zero(metric: str) -> None:
    text = "one two three four five six"
    assert grade(similarity(metric), text, {"answer": text}).value == pytest.approx(1.0)
    other = grade(similarity(metric), "zzz", {"answer": text}).value
    assert other is not None and other < 0.2


@pytest.mark.parametrize("metric", WORDNET_FREE)
@pytest.mark.parametrize(("text", "reference"), [("", "a b"), ("a b", ""), ("", ""), ("?!", "..."), ("\ud800", "a")])
def test_texts_without_words_have_a_value_too(metric: str, text: str, reference: str) -> None:
    value = grade(similarity(metric), text, {"answer": reference}).value
    assert value is not None and 0.0 <= value <= 1.0


@settings(deadline=None)
@given(st.text(st.sampled_from("ab .A1"), max_size=30), st.text(st.sampled_from("ab .A1"), max_size=30))
def test_rouge_agrees_with_its_library_on_latin_texts(text: str, reference: str) -> None:
    expected = RougeScorer(["rougeL", "rouge2"]).score(reference, text)
    assert FUNCTIONS["rouge_l"](text, reference) == pytest.approx(expected["rougeL"].fmeasure)
    assert FUNCTIONS["rouge_2"](text, reference) == pytest.approx(expected["rouge2"].fmeasure)


@settings(deadline=None, max_examples=50)
@given(st.sampled_from(WORDNET_FREE), st.text(max_size=40), st.text(max_size=40))
def test_all_values_lie_between_zero_and_one(metric: str, text: str, reference: str) -> None:
    assert 0.0 <= FUNCTIONS[metric](text, reference) <= 1.0 + 1e-12


def test_a_text_that_is_too_long_to_compare_is_a_failure() -> None:
    failed = grade(similarity("rouge_l"), "a" * (MAX_CHARS + 1), {"answer": "a"}).failure
    assert failed and (failed.cause, failed.message) == (
        "size",
        "texts of 100,001 and 1 characters; rouge_l compares at most 100,000",
    )


def test_an_absent_variable_counts_as_in_other_graders() -> None:
    assert grade(similarity("bleu", input="{{sample.output_json.a}}"), "x", {"answer": "4"}).value == 0.0
    failed = grade(similarity("bleu"), "x").failure
    assert failed and failed.cause == "variable"


# METEOR, whose corpus NLTK looks up when it is imported: in processes of their own.

METEOR = """
import sys
from grading import grade
from strop.errors import RewardError
grader = {"type": "text_similarity", "evaluation_metric": "meteor",
          "input": "{{sample.output_text}}", "reference": "{{item.answer}}"}
try:
    print(grade(grader, sys.argv[1], {"answer": sys.argv[2]}).value)
except RewardError as error:
    print(error.message, error.param)
"""


def meteor(corpora: Path, text: str, reference: str) -> str:
    env = os.environ | {"NLTK_DATA": str(corpora), "HOME": str(corpora)}
    env["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])
    command = [sys.executable, "-c", METEOR, text, reference]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout.strip()


def test_meteor_without_its_corpus_is_refused_with_what_to_install(tmp_path: Path) -> None:
    message = meteor(tmp_path, "a", "a")
    assert message.startswith("reward 'score': meteor needs NLTK's corpus wordnet")
    assert "`python -m nltk.downloader wordnet`" in message
    assert message.endswith("rewards.source")


def small_wordnet(folder: Path) -> None:
    """A WordNet in which only `car` and `auto` mean something, namely the same."""
    folder.mkdir(parents=True)
    for kind in ("noun", "verb", "adj", "adv"):
        for name in (f"index.{kind}", f"data.{kind}", f"{kind}.exc"):
            (folder / name).write_text("")
    (folder / "lexnames").write_text("00\tnoun.artifact\t1\n")
    (folder / "cntlist.rev").write_text("")
    (folder / "index.sense").write_text("")
    (folder / "data.noun").write_text("00000000 00 n 02 car 0 auto 0 000 | a motor vehicle  \n")
    index = "car n 1 0 1 0 00000000  \nauto n 1 0 1 0 00000000  \n"
    (folder / "index.noun").write_text(index)


def test_meteor_counts_synonyms_and_the_order_of_words(tmp_path: Path) -> None:
    small_wordnet(tmp_path / "corpora" / "wordnet")
    # All words match, in one chunk of two: 1 - 0.5 * (1 / 2)^3.
    assert float(meteor(tmp_path, "the auto", "the car")) == pytest.approx(0.9375)
    # Both words match, in two chunks: 1 - 0.5 * (2 / 2)^3.
    assert float(meteor(tmp_path, "auto the", "the car")) == pytest.approx(0.5)
