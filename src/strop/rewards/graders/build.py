"""From the shape of a grader to what runs it."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable, Mapping

from strop.errors import RewardError
from strop.rewards.graders.base import Part, Settings
from strop.rewards.graders.multi import MultiPart
from strop.rewards.graders.shapes import Grader, Multi, Single

# Module and class; each is imported when a grader needs it, for some need packages that a
# base installation lacks.
_PARTS: Mapping[str, tuple[str, str]] = {
    "string_check": ("strop.rewards.graders.string_check", "StringCheckPart"),
    "text_similarity": ("strop.rewards.graders.similarity", "SimilarityPart"),
    "python": ("strop.rewards.graders.python", "PythonPart"),
    "score_model": ("strop.rewards.graders.model", "ScorePart"),
    "label_model": ("strop.rewards.graders.model", "LabelPart"),
}


def build_part(grader: Grader, settings: Settings) -> Part:
    """What runs a grader, not started yet. Raises RewardError if a package is missing."""
    if not isinstance(grader, Multi):
        return _kind(grader, settings.config.name)(grader, settings)
    parts = {}
    for name, part in grader.parts.items():
        config = settings.config.model_copy(update={"name": f"{settings.config.name}.{name}"})
        parts[name] = build_part(part, dataclasses.replace(settings, config=config))
    return MultiPart(parts, grader.formula)


def _kind(grader: Single, reward: str) -> Callable[[Single, Settings], Part]:
    module, name = _PARTS[grader.type]
    try:
        kind: Callable[[Single, Settings], Part] = getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        raise RewardError(
            f"reward {reward!r}: {grader.type} needs the package {error.name}, which is not installed; "
            "run `pip install 'strop[graders]'`",
            param="rewards.source",
        ) from None
    return kind
