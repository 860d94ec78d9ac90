"""`text_similarity`: how alike two texts are."""

from __future__ import annotations

import asyncio
import time
from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator

from strop.rewards.graders.fields import TemplateText, fault
from strop.rewards.graders.grade import Grade, Part, Settings, Values, absent
from strop.rewards.graders.grader import Grader
from strop.rewards.graders.template import Absent
from strop.types import Failure, Json

MAX_CHARS = 100_000
"""Of each text: a comparison of longer ones takes seconds."""

Metric = Literal[
    "fuzzy_match", "bleu", "gleu", "meteor", "rouge_1", "rouge_2", "rouge_3", "rouge_4", "rouge_5", "rouge_l"
]
METRICS: tuple[str, ...] = get_args(Metric)
COSINE = (
    "cosine is refused: it compares embeddings, which needs an embedding model, and OpenAI offers it in evals only, "
    f"not for fine-tuning; use one of {', '.join(METRICS)}"
)


def _no_cosine(metric: Json) -> Json:
    if metric == "cosine":
        raise fault(COSINE)
    return metric


class TextSimilarity(Grader):
    """The metric of two texts, from 0 to 1."""

    type: Literal["text_similarity"]
    input: TemplateText
    reference: TemplateText
    evaluation_metric: Annotated[Metric, BeforeValidator(_no_cosine)]

    def part(self, settings: Settings) -> Part:
        """Compare in threads, with functions that need the extra `graders`."""
        return _SimilarityPart(self, settings, settings.load("strop.rewards.graders.text_metrics", self.type))


class _SimilarityPart:
    def __init__(self, grader: TextSimilarity, settings: Settings, metrics: Any) -> None:
        self._grader = grader
        self._settings = settings
        self._metrics = metrics

    async def start(self) -> None:
        """Raises RewardError if the metric needs a corpus that is not here."""
        if self._grader.evaluation_metric == "meteor":
            try:
                await asyncio.to_thread(self._metrics.load_wordnet)
            except LookupError as error:
                raise self._settings.refusal(str(error.args[0])) from None

    async def grade(self, sample: Values, item: Values, seed: int) -> Grade:
        """Grade one sample, in a thread: a long text would hold up everything else."""
        metric = self._grader.evaluation_metric
        try:
            text = self._grader.input.render(sample, item)
            reference = self._grader.reference.render(sample, item)
        except Absent as error:
            return absent(error, 0.0)
        if max(len(text), len(reference)) > MAX_CHARS:
            found = f"texts of {len(text):,} and {len(reference):,} characters"
            return Grade(failure=Failure("size", f"{found}; {metric} compares at most {MAX_CHARS:,}"))
        started = time.monotonic()
        value = await asyncio.to_thread(self._metrics.METRICS[metric], text, reference)
        return Grade(value, seconds=time.monotonic() - started)

    async def close(self) -> None:
        """Nothing to do."""
