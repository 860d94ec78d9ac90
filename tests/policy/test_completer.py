"""The completer of this process: exact ids from the first turn to the last."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from models import tiny_policy
from strop.errors import ContextOverflow, DataError
from strop.policy.chat import ChatTemplate
from strop.policy.completer import LocalCompleter
from strop.policy.model import Policy
from strop.types import Completion, Context, Message, SamplingParams, StopReason, Turn

CONTEXT = Context((Message("user", "Say something."),), where="line 1")
PARAMS = SamplingParams(temperature=1.0, max_tokens=8, seed=3)
END = 2


class Scripted:
    """A `Sampler` that draws what it was told to, and remembers how it was asked."""

    def __init__(self, policy: Policy, *texts: str, reason: StopReason = StopReason.STOP) -> None:
        self.asked: list[tuple[tuple[int, ...], int, SamplingParams]] = []
        self._tokenizer = policy.tokenizer
        self._texts = texts
        self._reason = reason

    async def sample(self, prompt_ids: Sequence[int], count: int, params: SamplingParams) -> list[Completion]:
        self.asked.append((tuple(prompt_ids), count, params))
        await asyncio.sleep(0.01)
        return [self._completion(text) for text in self._texts]

    def _completion(self, text: str) -> Completion:
        ids = (*self._tokenizer(text, add_special_tokens=False)["input_ids"], END)
        logprobs, entropies = (-0.5,) * len(ids), tuple(float(place) for place in range(len(ids)))
        return Completion(ids, logprobs, entropies, self._reason)


@pytest.fixture
def policy(tmp_path: Path) -> Policy:
    return tiny_policy("llama", tmp_path)


def completer(policy: Policy, sampler: Scripted) -> LocalCompleter:
    return LocalCompleter(policy, ChatTemplate(policy.tokenizer, "tiny", {}), sampler)


def turns(
    policy: Policy, sampler: Scripted, context: Context = CONTEXT, params: SamplingParams = PARAMS, count: int = 2
) -> list[Turn]:
    return asyncio.run(completer(policy, sampler).complete(context, count, params))


def test_the_sampler_is_asked_once_for_all_turns_of_a_prompt(policy: Policy) -> None:
    sampler = Scripted(policy, "yes", "no")
    prompt = ChatTemplate(policy.tokenizer, "tiny", {}).ids_of(CONTEXT.messages, (), "line 1")
    first, second = turns(policy, sampler)
    assert sampler.asked == [(prompt, 2, PARAMS)]
    assert (first.message, second.message) == (Message("assistant", "yes"), Message("assistant", "no"))


def test_every_id_is_kept_with_its_logprob_behind_the_prompt(policy: Policy) -> None:
    sampler = Scripted(policy, "yes")
    (turn,) = turns(policy, sampler)
    assert turn.tokens is not None
    assert turn.tokens.input_ids_T == sampler.asked[0][0]
    assert policy.decode(turn.tokens.token_ids_T) == "yes"
    assert turn.tokens.token_ids_T[-1] == END
    assert turn.tokens.logprobs_T == (-0.5,) * turn.length
    assert not turn.tokens.new_segment


def test_entropy_is_the_mean_over_the_tokens(policy: Policy) -> None:
    (turn,) = turns(policy, Scripted(policy, "yes"))
    assert turn.entropy == pytest.approx((turn.length - 1) / 2)


@pytest.mark.parametrize("reason", [StopReason.STOP, StopReason.LENGTH])
def test_the_reason_for_the_end_is_passed_on(policy: Policy, reason: StopReason) -> None:
    (turn,) = turns(policy, Scripted(policy, "yes", reason=reason))
    assert turn.stop_reason is reason


def test_the_time_that_sampling_took_is_noted(policy: Policy) -> None:
    (turn,) = turns(policy, Scripted(policy, "yes"))
    assert 0.01 <= turn.seconds < 5


def test_a_turn_says_which_weights_made_it(policy: Policy) -> None:
    policy.version = 7
    assert [turn.version for turn in turns(policy, Scripted(policy, "yes", "no"))] == [7, 7]


def test_text_is_cut_at_a_stop_string_and_ids_are_not(policy: Policy) -> None:
    params = SamplingParams(temperature=1.0, max_tokens=8, stop=("END",))
    (turn,) = turns(policy, Scripted(policy, "yes END maybe"), params=params)
    assert turn.message.content == "yes "
    assert turn.tokens is not None and policy.decode(turn.tokens.token_ids_T) == "yes END maybe"


def following(policy: Policy, first: Turn, answer: str) -> Context:
    """The conversation after a turn, as its message reads `answer`."""
    assert first.tokens is not None
    messages = (*CONTEXT.messages, Message("assistant", answer), Message("user", "And now?"))
    return Context(messages, ids_T=first.tokens.input_ids_T + first.tokens.token_ids_T, where="line 1")


def test_a_later_turn_adds_only_what_stands_between(policy: Policy) -> None:
    sampler = Scripted(policy, "yes")
    (first,) = turns(policy, sampler)
    context = following(policy, first, "yes")
    (second,) = turns(policy, sampler, context)
    assert second.tokens is not None and not second.tokens.new_segment
    assert context.ids_T + second.tokens.input_ids_T == sampler.asked[1][0]
    assert "And now?" in policy.tokenizer.decode(second.tokens.input_ids_T)


def test_a_prompt_that_does_not_extend_the_ids_starts_a_new_segment(policy: Policy) -> None:
    sampler = Scripted(policy, "<think>hm</think>yes")
    (first,) = turns(policy, sampler)
    (second,) = turns(policy, sampler, following(policy, first, "yes"))
    assert second.tokens is not None and second.tokens.new_segment
    assert second.tokens.input_ids_T == sampler.asked[1][0]


def test_a_completion_gets_the_tokens_that_the_positions_leave(policy: Policy) -> None:
    sampler = Scripted(policy, "yes")
    turns(policy, sampler, params=SamplingParams(temperature=1.0, max_tokens=1000))
    ((prompt, _, params),) = sampler.asked
    assert len(prompt) + params.max_tokens == policy.max_length == 512


def test_a_conversation_without_room_for_a_token_is_an_overflow(policy: Policy) -> None:
    long = Context((Message("user", "x" * 600),), where="line 1")
    with pytest.raises(ContextOverflow, match="512 positions"):
        turns(policy, Scripted(policy, "yes"), long)


def test_a_template_that_refuses_a_message_names_the_line(policy: Policy) -> None:
    policy.tokenizer.chat_template = "{{ raise_exception('no system turn') }}"
    with pytest.raises(DataError, match="line 1: the chat template of tiny refuses"):
        turns(policy, Scripted(policy, "yes"))


TOOLS = (
    {
        "type": "function",
        "function": {"name": "add", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}},
    },
)
TOOL_TEMPLATE = (
    "{% for tool in tools or [] %}{{ tool | tojson }}\n{% endfor %}"
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content or '' }}"
    "{% for call in message.tool_calls or [] %}<tool_call>\n"
    '{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}\n</tool_call>'
    "{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""As Qwen's: calls are JSON between tags."""


def tool_turn(policy: Policy, text: str) -> Turn:
    policy.tokenizer.chat_template = TOOL_TEMPLATE
    (turn,) = turns(policy, Scripted(policy, text), Context(CONTEXT.messages, TOOLS, where="line 1"))
    return turn


def test_tool_calls_are_read_where_tools_were_offered(policy: Policy) -> None:
    turn = tool_turn(policy, 'Let me see. <tool_call>\n{"name": "add", "arguments": {"a": 2}}\n</tool_call>')
    assert turn.message.content == "Let me see."
    assert [(call.name, call.arguments) for call in turn.message.tool_calls] == [("add", '{"a": 2}')]


def test_a_call_that_cannot_be_read_stays_in_the_text(policy: Policy) -> None:
    text = '<tool_call>\n{"name": "add", "arguments": {"a": \n</tool_call>'
    assert tool_turn(policy, text).message == Message("assistant", text)


def test_without_tools_the_text_stays_as_it_is(policy: Policy) -> None:
    policy.tokenizer.chat_template = TOOL_TEMPLATE
    text = '<tool_call>\n{"name": "add", "arguments": {"a": 2}}\n</tool_call>'
    (turn,) = turns(policy, Scripted(policy, text))
    assert turn.message == Message("assistant", text)
