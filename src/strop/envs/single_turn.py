"""The plainest environment: the model answers once."""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import fmean

from strop.types import Chat, Completion, Group, Message, Rollout, Row, Sampler, SamplingParams, Step


class SingleTurn:
    """An `Environment` in which each rollout is one completion of the prompt."""

    def __init__(self, chat: Chat, sampler: Sampler) -> None:
        self._chat = chat
        self._sampler = sampler

    async def play(self, row: Row, count: int, params: SamplingParams) -> Group:
        """`count` answers to a row's prompt, not scored yet."""
        prompt_ids = self._chat.prompt_ids(row)
        started = time.perf_counter()
        completions = await self._sampler.sample(prompt_ids, count, params)
        seconds = time.perf_counter() - started
        rollouts = [self._rollout(index, done, params.stop, seconds) for index, done in enumerate(completions)]
        return Group(row, prompt_ids, tuple(rollouts))

    def _rollout(self, index: int, completion: Completion, stop: Sequence[str], seconds: float) -> Rollout:
        text = cut_at_stop(self._chat.text(completion.token_ids_T), stop)
        return Rollout(
            index=index,
            messages=(Message("assistant", text),),
            steps=(Step(text),),
            token_ids_T=completion.token_ids_T,
            sampled_mask_T=(True,) * len(completion.token_ids_T),
            sampler_logprobs_T=completion.logprobs_T,
            entropy=fmean(completion.entropies_T),
            stop_reason=completion.stop_reason,
            timing={"sample": seconds},
        )


def cut_at_stop(text: str, stop: Sequence[str]) -> str:
    """The text before the first stop string. Scored and shown; the ids keep what was sampled."""
    ends = [position for string in stop if (position := text.find(string)) >= 0]
    return text[: min(ends)] if ends else text
