"""The token ids of a prompt."""

from __future__ import annotations

import inspect

from transformers import PreTrainedTokenizerBase

from strop.errors import DataError, InvalidRequest
from strop.policy.chat import ChatTemplate
from strop.serve.generate import Conversation, GenerateRequest

# Arguments of the call that renders a template: no options of a template itself.
_RESERVED = frozenset(inspect.signature(PreTrainedTokenizerBase.apply_chat_template).parameters) | {"messages"}


def prompt_ids(request: GenerateRequest, tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
    """Ids of the prompt, up to where the answer begins.

    Raises InvalidRequest where the model's template refuses the messages or drops a part, and for
    ids that the tokenizer does not have.
    """
    prompt = request.prompt
    if isinstance(prompt, Conversation):
        return _rendered(prompt, request.model, tokenizer)
    ids = tuple(tokenizer(prompt)["input_ids"]) if isinstance(prompt, str) else prompt
    if not ids:
        raise InvalidRequest("prompt: no tokens; a completion needs at least one before it", param="prompt")
    if unknown := [number for number in ids if not 0 <= number < len(tokenizer)]:
        raise InvalidRequest(f"prompt: {unknown[0]} is not a token id of {request.model}", param="prompt")
    return ids


def _rendered(prompt: Conversation, model: str, tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
    if reserved := sorted(_RESERVED & prompt.template.keys()):
        message = f"chat_template_kwargs: {reserved[0]} is not an option of a chat template"
        raise InvalidRequest(message, param="chat_template_kwargs")
    options = (
        dict(prompt.template) if prompt.add_generation_prompt else {**prompt.template, "add_generation_prompt": False}
    )
    chat = ChatTemplate(tokenizer, model, options)
    try:
        return chat.ids_of(prompt.messages, prompt.tools, "messages")
    except DataError as error:
        raise InvalidRequest(error.message, param="messages") from error
