"""From what the engine draws to the events of a request."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from models import save_tokenizer
from strop.errors import Unavailable
from strop.policy.engine_thread import Drawn, Progress
from strop.policy.tool_calls import DEFAULT_FORMAT
from strop.serve.called import CallText
from strop.serve.generate import Conversation, Delta, Done, Event, Finished, GenerateRequest, Started
from strop.serve.generation import Generation
from strop.serve.vocabulary import Vocabulary
from strop.types import StopReason

PROMPT = (5, 6, 7)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> PreTrainedTokenizerBase:
    folder = tmp_path_factory.mktemp("tokenizer")
    save_tokenizer(Path(folder))
    return AutoTokenizer.from_pretrained(folder)


def events(tokenizer: PreTrainedTokenizerBase, text: str, request: GenerateRequest, calls: bool = False) -> list[Event]:
    """Those of a completion that says a text and ends its turn, token by token."""

    def decode(ids: Sequence[int]) -> str:
        return str(tokenizer.decode(ids, skip_special_tokens=not calls))

    vocabulary = Vocabulary(tokenizer)
    new_calls = (lambda: CallText(DEFAULT_FORMAT, (), vocabulary.special)) if calls else None
    generation = Generation(request, PROMPT, decode, vocabulary, new_calls)
    ids = [*tokenizer(text, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
    found: list[Event] = []
    for place, number in enumerate(ids):
        ended = ((0, StopReason.STOP),) if place == len(ids) - 1 else ()
        found += generation.events(Progress((Drawn(0, number, -0.5, ()),), ended, bool(ended)))
    return found


def ask(**settings: bool) -> GenerateRequest:
    return GenerateRequest("tiny", Conversation(()), **settings)  # type: ignore[arg-type]


def test_events_come_in_their_order_and_count_every_token(tokenizer: PreTrainedTokenizerBase) -> None:
    first, *deltas, finished, done = events(tokenizer, "the sea", ask())
    count = len(tokenizer("the sea", add_special_tokens=False)["input_ids"]) + 1
    assert first == Started(PROMPT)
    assert "".join(delta.text for delta in deltas if isinstance(delta, Delta)) == "the sea"
    assert finished == Finished(0, "stop", count)
    assert done == Done(3, count)


def test_exact_ids_hold_the_end_of_the_turn_and_have_a_token_each(tokenizer: PreTrainedTokenizerBase) -> None:
    found = [
        event for event in events(tokenizer, "the €", ask(token_ids=True, logprobs=True)) if isinstance(event, Delta)
    ]
    ids = [number for delta in found for number in delta.ids]
    assert ids == [*tokenizer("the €", add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
    assert [token.id for delta in found for token in delta.tokens] == ids
    assert "".join(delta.text for delta in found) == "the €"


def test_tool_calls_end_a_completion_and_are_no_text(tokenizer: PreTrainedTokenizerBase) -> None:
    said = 'Hm. <tool_call>{"name": "look", "arguments": {"at": "sea"}}</tool_call>'
    found = events(tokenizer, said, ask(), calls=True)
    assert "".join(event.text for event in found if isinstance(event, Delta)) == "Hm. "
    (finished,) = (event for event in found if isinstance(event, Finished))
    assert (finished.finish_reason, finished.content) == ("tool_calls", "Hm.")
    (call,) = finished.tool_calls
    assert (call.name, json.loads(call.arguments)) == ("look", {"at": "sea"})


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (torch.OutOfMemoryError("x"), "memory does not suffice"),
        (MemoryError(), "memory does not suffice"),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate"), "memory does not suffice"),
        (torch.AcceleratorError("device-side assert"), "the model process failed: device-side assert"),
    ],
)
def test_faults_of_the_machine_can_be_tried_again_later(
    tokenizer: PreTrainedTokenizerBase, error: Exception, says: str
) -> None:
    generation = Generation(ask(), PROMPT, str, Vocabulary(tokenizer))
    with pytest.raises(Unavailable, match=says):
        list(generation.events(Progress(done=True, error=error)))


def test_other_errors_stay_what_they_are(tokenizer: PreTrainedTokenizerBase) -> None:
    generation = Generation(ask(), PROMPT, str, Vocabulary(tokenizer))
    with pytest.raises(RuntimeError, match="shape"):
        list(generation.events(Progress(done=True, error=RuntimeError("shape"))))
