"""Values of secret variables, taken out of whatever is kept or shown."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from strop.rewards.reward_function import Outcome
from strop.types import Failure

SECRET_CHARS = 6
"""Shorter values of variables are not taken for secrets: `1` or `true` would be replaced everywhere."""
PUBLIC = frozenset({"HOME", "LANG", "LC_ALL", "PATH", "PYTHONPATH", "TMPDIR", "TZ"})
"""Variables that hold no secret, but whose values stand in every path."""


class Redactor:
    """Replaces the values of variables by `[redacted NAME]` where they appear whole."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        found = [pair for pair in variables.items() if len(pair[1]) >= SECRET_CHARS and pair[0] not in PUBLIC]
        # The longest value first, for it may contain another.
        self._secrets = sorted(found, key=lambda pair: len(pair[1]), reverse=True)

    def text(self, text: str) -> str:
        """The text without secrets."""
        for name, value in self._secrets:
            text = text.replace(value, f"[redacted {name}]")
        return text

    def failure(self, failure: Failure) -> Failure:
        """The failure without secrets."""
        return dataclasses.replace(failure, message=self.text(failure.message), detail=self.text(failure.detail))

    def outcome(self, outcome: Outcome) -> Outcome:
        """The outcome without secrets."""
        failure = outcome.failure and self.failure(outcome.failure)
        return dataclasses.replace(outcome, failure=failure, logs=self.text(outcome.logs))
