"""Bodies of the requests that a model process takes: OpenAI's, with extensions named as in vLLM.

What would change the answer and is not supported is refused by name; what changes nothing
(`user`, `store`, `service_tier` …) is accepted. The server's API reads chat requests with the
same classes before it passes them on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from strop.errors import InvalidRequest
from strop.http.bodies import Body, Metadata
from strop.serve.generate import Conversation, GenerateRequest
from strop.serve.messages import check_tools, read_messages

Json = dict[str, Any]

MAX_COUNT = 128
MAX_TOP_LOGPROBS = 20
_NO_THOUGHT = ("none", "minimal", "low")
_DEFAULT_TEXT_TOKENS = 16  # OpenAI's, for text completions


class StreamOptions(Body):
    """`stream_options`"""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None
    continuous_usage_stats: bool | None = Field(None, description="Usage so far in every chunk.")


class SamplingBody(Body):
    """What chat and text completions have in common."""

    model: str = Field(min_length=1, description="A name that GET /v1/models lists.")
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, gt=0, le=1)
    n: int | None = Field(None, ge=1, le=MAX_COUNT)
    stop: str | Annotated[list[Annotated[str, Field(min_length=1)]], Field(max_length=16)] | None = None
    max_tokens: int | None = Field(None, ge=1)
    seed: int | None = Field(None, ge=-(2**63), lt=2**63)
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    return_token_ids: bool | None = Field(None, description="Answer with the token ids of prompt and completions.")
    user: str | None = Field(None, description="Without effect.")
    frequency_penalty: float | None = Field(None, description="Only 0.")
    logit_bias: Any = Field(None, description="Not supported.")
    presence_penalty: float | None = Field(None, description="Only 0.")

    def check(self) -> None:
        """Refuse what cannot be done. Raises InvalidRequest with the field as `param`."""
        for name, (neutral, reason) in _NEUTRAL.items():
            value = getattr(self, name, None)
            if value is not None and not neutral(value):
                raise InvalidRequest(f"{name}: {reason}", param=name)
        if self.stream_options is not None and not self.stream:
            raise InvalidRequest("stream_options: needs stream = true", param="stream_options")

    def _request(self, prompt: Conversation | str | tuple[int, ...], **settings: Any) -> GenerateRequest:
        stop = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())
        return GenerateRequest(
            model=self.model,
            prompt=prompt,
            n=self.n or 1,
            temperature=1.0 if self.temperature is None else self.temperature,
            top_p=1.0 if self.top_p is None else self.top_p,
            stop=tuple(text for text in stop if text),
            seed=self.seed,
            token_ids=bool(self.return_token_ids),
            **settings,
        )


class ChatBody(SamplingBody):
    """`POST /v1/chat/completions`"""

    messages: list[Json] = Field(min_length=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    max_tokens: int | None = Field(None, ge=1, description="Older name of max_completion_tokens.")
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=MAX_TOP_LOGPROBS)
    tools: list[Json] | None = Field(None, description="Given to the chat template.")
    tool_choice: Any = Field(None, description="auto or none.")
    parallel_tool_calls: bool | None = None
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    chat_template_kwargs: Json | None = Field(None, description="Options for the chat template.")
    add_generation_prompt: bool | None = Field(None, description="false: without the opening of the answer.")
    # Without effect on the answer.
    metadata: Metadata | None = None
    prediction: Any = None
    prompt_cache_key: str | None = None
    prompt_cache_options: Any = None
    prompt_cache_retention: str | None = None
    safety_identifier: str | None = None
    service_tier: str | None = None
    store: bool | None = None
    # Refused unless they ask for what happens anyway.
    audio: Any = None
    function_call: Any = None
    functions: Any = None
    modalities: Any = None
    moderation: Any = None
    response_format: Any = None
    verbosity: Any = None
    web_search_options: Any = None

    def check(self) -> None:
        """Refuse what cannot be done. Raises InvalidRequest with the field as `param`."""
        super().check()
        if self.top_logprobs and not self.logprobs:
            raise InvalidRequest("top_logprobs: needs logprobs = true", param="top_logprobs")
        if self.tools and self.parallel_tool_calls is False:
            raise InvalidRequest(
                "parallel_tool_calls: calls cannot be held to one; leave it out", param="parallel_tool_calls"
            )
        if self.tool_choice not in (None, "auto", "none"):
            raise InvalidRequest("tool_choice: auto and none are supported; no call can be forced", param="tool_choice")
        check_tools(self.tools or ())
        read_messages(self.messages)

    def request(self) -> GenerateRequest:
        """The request in the model process's own form. Raises InvalidRequest as `check` does."""
        self.check()
        conversation = Conversation(
            messages=read_messages(self.messages),
            tools=() if self.tool_choice == "none" else tuple(self.tools or ()),
            template=self._template(),
            add_generation_prompt=self.add_generation_prompt is not False,
        )
        return self._request(
            conversation,
            max_tokens=self.max_completion_tokens or self.max_tokens,
            logprobs=bool(self.logprobs),
            top_logprobs=self.top_logprobs or 0,
        )

    def _template(self) -> Json:
        """Options for the chat template. A template that does not know one ignores it."""
        options: Json = {}
        if self.reasoning_effort is not None:
            thinks = self.reasoning_effort not in _NO_THOUGHT
            options = {"reasoning_effort": self.reasoning_effort, "enable_thinking": thinks}
        return {**options, **(self.chat_template_kwargs or {})}


class CompletionBody(SamplingBody):
    """`POST /v1/completions`"""

    prompt: str | Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)] = Field(
        description="Text, or the ids of one prompt."
    )
    logprobs: int | None = Field(
        None, ge=0, le=MAX_TOP_LOGPROBS, description="How many of the likeliest tokens to show."
    )
    # Refused unless they ask for what happens anyway.
    best_of: int | None = None
    echo: bool | None = None
    suffix: str | None = None

    def request(self) -> GenerateRequest:
        """The request in the model process's own form. Raises InvalidRequest as `check` does."""
        self.check()
        return self._request(
            self.prompt if isinstance(self.prompt, str) else tuple(self.prompt),
            max_tokens=self.max_tokens or _DEFAULT_TEXT_TOKENS,
            logprobs=self.logprobs is not None,
            top_logprobs=self.logprobs or 0,
        )


class LoadBody(Body):
    """`POST /v1/strop/load`"""

    name: str = Field(min_length=1)
    source: str = Field(min_length=1, description="Catalogue name, hub id, or folder of full weights or an adapter.")


class UnloadBody(Body):
    """`POST /v1/strop/unload`"""

    name: str = Field(min_length=1)


class LoadAdapterBody(Body):
    """`POST /v1/load_lora_adapter`"""

    lora_name: str = Field(min_length=1)
    lora_path: str = Field(min_length=1, description="Folder of the adapter.")
    load_inplace: bool = Field(False, description="Replace the adapter that has the name.")


class UnloadAdapterBody(Body):
    """`POST /v1/unload_lora_adapter`"""

    lora_name: str = Field(min_length=1)


# Whether a value asks for nothing special, and why anything else is refused.
_NEUTRAL: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "audio": (lambda value: False, "strop's models answer with text only"),
    "best_of": (lambda value: value == 1, "it is not supported; ask for n completions"),
    "echo": (lambda value: not value, "it is not supported; leave it out"),
    "frequency_penalty": (lambda value: value == 0, "penalties are not supported; leave it out"),
    "function_call": (lambda value: False, "use tool_choice"),
    "functions": (lambda value: not value, "use tools"),
    "logit_bias": (lambda value: not value, "it is not supported; leave it out"),
    "modalities": (lambda value: value == ["text"], "strop's models answer with text only"),
    "moderation": (lambda value: False, "nothing is moderated here; leave it out"),
    "presence_penalty": (lambda value: value == 0, "penalties are not supported; leave it out"),
    "response_format": (
        lambda value: value == {"type": "text"},
        "answers are not constrained to a form; ask for it in the prompt, or train the model with a grader for it",
    ),
    "suffix": (lambda value: not value, "it is not supported; leave it out"),
    "verbosity": (lambda value: value == "medium", "it is not supported; ask for it in the prompt"),
    "web_search_options": (lambda value: False, "nothing is searched here; leave it out"),
}
