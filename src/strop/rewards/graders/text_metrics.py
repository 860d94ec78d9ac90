"""The metrics of `text_similarity`, by RapidFuzz, NLTK and rouge-score.

Needs the extra `graders`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial

from nltk.corpus import wordnet
from nltk.tokenize import wordpunct_tokenize
from nltk.translate.bleu_score import SmoothingFunction, sentence_bleu
from nltk.translate.gleu_score import sentence_gleu
from nltk.translate.meteor_score import single_meteor_score
from rapidfuzz import fuzz
from rapidfuzz.distance import LCSseq
from rouge_score.rouge_scorer import RougeScorer

NEEDS_WORDNET = (
    "meteor needs NLTK's corpus wordnet, which is not part of the package; install it with "
    "`python -m nltk.downloader wordnet`, or name its folder in $NLTK_DATA"
)


def load_wordnet() -> None:
    """Read the corpus of meteor. Raises LookupError, with what to do, where it is missing or damaged."""
    try:
        wordnet.ensure_loaded()
    except LookupError:
        raise LookupError(NEEDS_WORDNET) from None
    except Exception as error:  # Whatever a damaged corpus makes of NLTK's reader.
        why = f"NLTK's corpus wordnet cannot be read ({type(error).__name__}: {error}); reinstall it"
        raise LookupError(why) from None


class Words:
    """rouge-score's own words with letters of all scripts: it would see nothing in a text without Latin ones."""

    def tokenize(self, text: str) -> list[str]:
        """Runs of letters and digits, in small letters."""
        return re.findall(r"[^\W_]+", text.lower())


_WORDS = Words()
_SMOOTHED = SmoothingFunction().method1


def _fuzzy_match(text: str, reference: str) -> float:
    return float(fuzz.ratio(text, reference)) / 100.0


def _bleu(text: str, reference: str) -> float:
    """Without smoothing, a text that shares no four words in a row would have 0."""
    tokens, wanted = wordpunct_tokenize(text), wordpunct_tokenize(reference)
    return float(sentence_bleu([wanted], tokens, smoothing_function=_SMOOTHED, auto_reweigh=True))


def _gleu(text: str, reference: str) -> float:
    return float(sentence_gleu([wordpunct_tokenize(reference)], wordpunct_tokenize(text)))


def _meteor(text: str, reference: str) -> float:
    return float(single_meteor_score(wordpunct_tokenize(reference), wordpunct_tokenize(text)))


def _rouge_n(text: str, reference: str, *, n: int) -> float:
    name = f"rouge{n}"
    return float(RougeScorer([name], tokenizer=_WORDS).score(reference, text)[name].fmeasure)


def _rouge_l(text: str, reference: str) -> float:
    """F-measure of the longest common subsequence; rouge-score's own takes a second for a page of text."""
    tokens, wanted = _WORDS.tokenize(text), _WORDS.tokenize(reference)
    if not tokens or not wanted:
        return 0.0
    return 2.0 * LCSseq.similarity(tokens, wanted) / (len(tokens) + len(wanted))


METRICS: Mapping[str, Callable[[str, str], float]] = {
    "fuzzy_match": _fuzzy_match,
    "bleu": _bleu,
    "gleu": _gleu,
    "meteor": _meteor,
    **{f"rouge_{n}": partial(_rouge_n, n=n) for n in range(1, 6)},
    "rouge_l": _rouge_l,
}
"""Functions of (text, reference)."""
