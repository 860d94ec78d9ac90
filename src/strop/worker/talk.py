"""Answer messages one by one, token by token, for a person at a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from strop.policy.chat import ChatTemplate
from strop.policy.engine import Engine
from strop.policy.fetch import Say
from strop.types import Message, SamplingParams
from strop.worker.models import load_model


class Talk:
    """A conversation with a loaded model."""

    def __init__(self, model: str, system: str | None, params: SamplingParams, say: Say) -> None:
        policy, self.found = load_model(model, "auto", say)
        self._chat = ChatTemplate(policy.tokenizer, policy.name, {})
        self._engine = Engine(policy, max_concurrent=1)
        self._params = params
        self._messages = [Message("system", system)] if system else []

    def ask(self, text: str) -> Iterator[str]:
        """Pieces of the answer as they come. Question and answer stay in the conversation."""
        self._messages.append(Message("user", text))
        prompt_ids = self._chat.encode(self._chat.render(self._messages, (), "conversation"))
        request = self._engine.submit(prompt_ids, 1, self._params)
        shown = ""
        while not request.done:
            self._engine.step()
            answer = self._chat.text(request.ids[0])
            if not answer.endswith("\ufffd"):  # a character of which not all bytes are there yet
                yield answer[len(shown) :]
                shown = answer
        answer = self._chat.text(request.ids[0])
        yield answer[len(shown) :]
        self._messages.append(Message("assistant", answer))

    def forget(self) -> None:
        """Start over, the system message kept."""
        self._messages = [message for message in self._messages if message.role == "system"]
