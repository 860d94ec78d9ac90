"""The completer of this process: a chat template, a sampler, and the exact ids of each turn."""

from __future__ import annotations

import dataclasses
import time
from statistics import fmean

from strop.errors import ContextOverflow
from strop.policy.chat import ChatTemplate
from strop.policy.model import Policy
from strop.types import Completion, Context, Sampler, SamplingParams, Turn, tokens_after


class LocalCompleter:
    """A `Completer` over a policy in this process. Ids that were sampled are never encoded again."""

    def __init__(self, policy: Policy, chat: ChatTemplate, sampler: Sampler) -> None:
        self._policy = policy
        self._chat = chat
        self._sampler = sampler

    async def complete(self, context: Context, count: int, params: SamplingParams) -> list[Turn]:
        """`count` next turns, sampled together from one prompt.

        A completion gets fewer tokens where the model's positions leave fewer. Raises
        ContextOverflow where they leave none, DataError where the template refuses a message.
        """
        prompt_ids = self._chat.ids_of(context.messages, context.tools, context.where)
        version, started = self._policy.version, time.perf_counter()
        completions = await self._sampler.sample(prompt_ids, count, self._fitted(params, len(prompt_ids)))
        seconds = time.perf_counter() - started
        return [self._turn(context, prompt_ids, done, params, version, seconds) for done in completions]

    def _fitted(self, params: SamplingParams, prompt_tokens: int) -> SamplingParams:
        limit = self._policy.max_length
        room = params.max_tokens if limit is None else min(params.max_tokens, limit - prompt_tokens)
        if room < 1:
            raise ContextOverflow(
                f"the conversation has {prompt_tokens} tokens, and {self._policy.name} has {limit} positions"
            )
        return dataclasses.replace(params, max_tokens=room)

    def _turn(
        self,
        context: Context,
        prompt_ids: tuple[int, ...],
        done: Completion,
        params: SamplingParams,
        version: int,
        seconds: float,
    ) -> Turn:
        return Turn(
            message=self._chat.answer(done.token_ids_T, context.tools, params.stop),
            stop_reason=done.stop_reason,
            length=len(done.token_ids_T),
            tokens=tokens_after(context, prompt_ids, done.token_ids_T, done.logprobs_T),
            entropy=fmean(done.entropies_T) if done.entropies_T else None,
            version=version,
            seconds=seconds,
        )
