"""The body of a chat request, and what the model process is asked for it.

What would change the answer and is not possible here is refused by name; what changes nothing
(`user`, `store`, `service_tier` …) is accepted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from strop.errors import InvalidRequest
from strop.http.bodies import Body, Metadata
from strop.serve.wire import MAX_COUNT, MAX_TOP_LOGPROBS, ChatRequest

Json = dict[str, Any]

_ROLES = {"developer": "system", "system": "system", "user": "user", "assistant": "assistant", "tool": "tool"}
_MESSAGE_KEYS = ("role", "content", "name", "tool_calls", "tool_call_id")
_NO_THOUGHT = ("none", "minimal", "low")


class StreamOptions(Body):
    """`stream_options`"""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class ChatBody(Body):
    """`POST /v1/chat/completions`"""

    model: str = Field(min_length=1, description="A name that GET /v1/models lists.")
    messages: list[Json] = Field(min_length=1)
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, gt=0, le=1)
    n: int | None = Field(None, ge=1, le=MAX_COUNT)
    stop: str | Annotated[list[Annotated[str, Field(min_length=1)]], Field(max_length=16)] | None = None
    max_completion_tokens: int | None = Field(None, ge=1)
    max_tokens: int | None = Field(None, ge=1, description="Older name of max_completion_tokens.")
    seed: int | None = Field(None, ge=-(2**63), lt=2**63)
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=MAX_TOP_LOGPROBS)
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    tools: list[Json] | None = Field(None, description="Given to the chat template; calls come back as text.")
    tool_choice: Any = Field(None, description="auto or none.")
    parallel_tool_calls: bool | None = None
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    chat_template_kwargs: Json | None = Field(None, description="Options for the chat template.")
    # Without effect on the answer.
    metadata: Metadata | None = None
    prediction: Any = None
    prompt_cache_key: str | None = None
    prompt_cache_options: Any = None
    prompt_cache_retention: str | None = None
    safety_identifier: str | None = None
    service_tier: str | None = None
    store: bool | None = None
    user: str | None = None
    # Refused unless they ask for what happens anyway.
    audio: Any = None
    frequency_penalty: float | None = None
    function_call: Any = None
    functions: Any = None
    logit_bias: Any = None
    modalities: Any = None
    moderation: Any = None
    presence_penalty: float | None = None
    response_format: Any = None
    verbosity: Any = None
    web_search_options: Any = None


def wire_request(body: ChatBody, request_id: str) -> ChatRequest:
    """What the model process is asked. InvalidRequest, with the field, for what it cannot do."""
    _refuse(body)
    stop = (body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ())
    return ChatRequest(
        id=request_id,
        model=body.model,
        messages=tuple(_message(index, message) for index, message in enumerate(body.messages)),
        tools=_tools(body),
        template=_template(body),
        n=body.n or 1,
        max_tokens=body.max_completion_tokens or body.max_tokens,
        temperature=1.0 if body.temperature is None else body.temperature,
        top_p=1.0 if body.top_p is None else body.top_p,
        stop=tuple(text for text in stop if text),
        seed=body.seed,
        logprobs=bool(body.logprobs),
        top_logprobs=body.top_logprobs or 0,
    )


# Whether a value asks for nothing special, and why anything else is refused.
_NEUTRAL: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "audio": (lambda value: False, "strop's models speak text only"),
    "frequency_penalty": (lambda value: value == 0, "penalties are not possible; leave it out"),
    "function_call": (lambda value: False, "use tool_choice"),
    "functions": (lambda value: not value, "use tools"),
    "logit_bias": (lambda value: not value, "it is not possible; leave it out"),
    "modalities": (lambda value: value == ["text"], "strop's models speak text only"),
    "moderation": (lambda value: False, "nothing is moderated here; leave it out"),
    "presence_penalty": (lambda value: value == 0, "penalties are not possible; leave it out"),
    "response_format": (
        lambda value: value == {"type": "text"},
        "answers are not constrained to a form; ask for it in the prompt, or train the model with a grader for it",
    ),
    "verbosity": (lambda value: value == "medium", "it is not possible; ask for it in the prompt"),
    "web_search_options": (lambda value: False, "nothing is searched here; leave it out"),
}


def _refuse(body: ChatBody) -> None:
    for name, (neutral, reason) in _NEUTRAL.items():
        value = getattr(body, name)
        if value is not None and not neutral(value):
            raise InvalidRequest(f"{name}: {reason}", param=name)
    if body.top_logprobs and not body.logprobs:
        raise InvalidRequest("top_logprobs: needs logprobs = true", param="top_logprobs")
    if body.stream_options is not None and not body.stream:
        raise InvalidRequest("stream_options: needs stream = true", param="stream_options")
    if body.tools and body.parallel_tool_calls is False:
        raise InvalidRequest(
            "parallel_tool_calls: calls cannot be held to one; leave it out", param="parallel_tool_calls"
        )
    if body.tool_choice not in (None, "auto", "none"):
        raise InvalidRequest("tool_choice: auto and none are possible; no call can be forced", param="tool_choice")


def _tools(body: ChatBody) -> tuple[Json, ...]:
    if body.tool_choice == "none":
        return ()
    for index, tool in enumerate(body.tools or ()):
        function = tool.get("function")
        if (
            tool.get("type") != "function"
            or not isinstance(function, dict)
            or not isinstance(function.get("name"), str)
        ):
            raise InvalidRequest(
                f'tools[{index}]: write {{"type": "function", "function": {{"name": …, "parameters": …}}}}',
                param=f"tools[{index}]",
            )
    return tuple(body.tools or ())


def _template(body: ChatBody) -> Json:
    """Options for the chat template. One that knows them not ignores them."""
    options: Json = {}
    if body.reasoning_effort is not None:
        thinks = body.reasoning_effort not in _NO_THOUGHT
        options = {"reasoning_effort": body.reasoning_effort, "enable_thinking": thinks}
    return {**options, **(body.chat_template_kwargs or {})}


def _message(index: int, message: Json) -> Json:
    """A message with its text as one string, checked."""
    where = f"messages[{index}]"
    role = message.get("role")
    if not isinstance(role, str) or role not in _ROLES:
        known = ", ".join(_ROLES)
        raise InvalidRequest(f"{where}.role is {role!r}; known are {known}", param=f"{where}.role")
    for key, value in message.items():
        if key not in _MESSAGE_KEYS and value not in (None, [], {}):  # answers are sent back with all their nulls
            raise InvalidRequest(f"{where}.{key}: not possible here; remove it", param=f"{where}.{key}")
    made: Json = {"role": _ROLES[role], "content": _content(message.get("content"), f"{where}.content")}
    if message.get("tool_calls"):
        if role != "assistant":
            raise InvalidRequest(f"{where}: only assistant turns have tool_calls", param=f"{where}.tool_calls")
        made["tool_calls"] = [
            _call(call, f"{where}.tool_calls[{number}]") for number, call in _listed(message["tool_calls"], where)
        ]
    for key in ("name", "tool_call_id"):
        if message.get(key) is not None:
            made[key] = _text(message[key], f"{where}.{key}")
    return made


def _listed(value: Any, where: str) -> Iterator[tuple[int, Any]]:
    if not isinstance(value, list):
        raise InvalidRequest(f"{where}.tool_calls is no list", param=f"{where}.tool_calls")
    return enumerate(value)


def _content(content: Any, where: str) -> str:
    if content is None:
        return ""
    if not isinstance(content, list):
        return _text(content, where)
    return "".join(_part(part, f"{where}[{index}]") for index, part in enumerate(content))


def _part(part: Any, where: str) -> str:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind != "text":
        raise InvalidRequest(f"{where}: parts of type {kind!r} are not possible; send text", param=where)
    return _text(part.get("text"), f"{where}.text")


def _call(call: Any, where: str) -> Json:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        raise InvalidRequest(f'{where}: write {{"id": …, "type": "function", "function": {{…}}}}', param=where)
    name, arguments = (_text(function.get(key), f"{where}.function.{key}") for key in ("name", "arguments"))
    identity = _text(call.get("id") or where, f"{where}.id")
    return {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments}}


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise InvalidRequest(f"{where} is no string", param=where)
    return value
