"""The messages that a model grader sends, with templates in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from strop.endpoints.replies import encodable
from strop.rewards.graders.keys import Keys, refuse
from strop.rewards.graders.template import Template, TemplateError, Variable, parse_template
from strop.types import Json

ROLES = ("user", "assistant", "system", "developer")


@dataclass(frozen=True)
class TextBlock:
    """Words."""

    text: Template

    @property
    def variables(self) -> tuple[Variable, ...]:
        """All that it reads."""
        return self.text.variables

    def render(self, sample: Mapping[str, Json], item: Mapping[str, Json]) -> dict[str, Any]:
        """The block in the form of chat completions. Raises Absent."""
        return {"type": "text", "text": encodable(self.text.render(sample, item))}


@dataclass(frozen=True)
class ImageBlock:
    """A picture by its address or as a data URL."""

    url: Template
    detail: str

    @property
    def variables(self) -> tuple[Variable, ...]:
        """All that it reads."""
        return self.url.variables

    def render(self, sample: Mapping[str, Json], item: Mapping[str, Json]) -> dict[str, Any]:
        """The block in the form of chat completions. Raises Absent."""
        url = encodable(self.url.render(sample, item))
        return {"type": "image_url", "image_url": {"url": url, "detail": self.detail}}


@dataclass(frozen=True)
class AudioBlock:
    """Sound, base64."""

    data: Template
    format: str

    @property
    def variables(self) -> tuple[Variable, ...]:
        """All that it reads."""
        return self.data.variables

    def render(self, sample: Mapping[str, Json], item: Mapping[str, Json]) -> dict[str, Any]:
        """The block in the form of chat completions. Raises Absent."""
        data = encodable(self.data.render(sample, item))
        return {"type": "input_audio", "input_audio": {"data": data, "format": self.format}}


Block = TextBlock | ImageBlock | AudioBlock


@dataclass(frozen=True)
class MessageTemplate:
    """One message to a judge."""

    role: str
    blocks: tuple[Block, ...]

    @property
    def variables(self) -> tuple[Variable, ...]:
        """All that its templates read."""
        return tuple(variable for block in self.blocks for variable in block.variables)

    def render(self, sample: Mapping[str, Json], item: Mapping[str, Json]) -> dict[str, Any]:
        """The message for a chat completion; plain text where it is nothing else. Raises Absent."""
        blocks = [block.render(sample, item) for block in self.blocks]
        content = blocks[0]["text"] if len(blocks) == 1 and blocks[0]["type"] == "text" else blocks
        return {"role": self.role, "content": content}


def read_template(keys: Keys, key: str) -> Template:
    """The template under a key; an empty text is one too. Raises InvalidRequest."""
    text = keys.value(key)
    if not isinstance(text, str):
        raise refuse(keys.at(key), "expected a text")
    try:
        return parse_template(text)
    except TemplateError as error:
        raise refuse(keys.at(key), str(error)) from None


def read_messages(keys: Keys, key: str) -> tuple[MessageTemplate, ...]:
    """The list of messages under a key. Raises InvalidRequest."""
    given, where = keys.value(key), keys.at(key)
    if not isinstance(given, list) or not given:
        raise refuse(where, "expected a list of messages, each with a role and a content")
    return tuple(_message(Keys(entry, f"{where}.{index}")) for index, entry in enumerate(given))


def _message(keys: Keys) -> MessageTemplate:
    role = keys.choice("role", ROLES)
    if keys.has("type"):
        keys.choice("type", ("message",))
    content, where = keys.value("content"), keys.at("content")
    if isinstance(content, str):
        blocks: tuple[Block, ...] = (TextBlock(read_template(keys, "content")),)
    elif isinstance(content, list) and content:
        blocks = tuple(_block(entry, f"{where}.{index}") for index, entry in enumerate(content))
    else:
        blocks = (_block(content, where),)
    keys.finish()
    # Of compatible servers only OpenAI's own knows the role developer.
    return MessageTemplate("system" if role == "developer" else role, blocks)


def _block(value: Json, where: str) -> Block:
    if isinstance(value, str):
        return TextBlock(read_template(Keys({"text": value}, where), "text"))
    keys = Keys(value, where)
    block: Block
    match keys.type:
        case "input_text" | "output_text" | "text":
            block = TextBlock(read_template(keys, "text"))
        case "input_image":
            detail = keys.choice("detail", ("low", "high", "auto"), default="auto")
            block = ImageBlock(read_template(keys, "image_url"), detail)
        case "input_audio":
            audio = Keys(keys.value("input_audio"), keys.at("input_audio"))
            block = AudioBlock(read_template(audio, "data"), audio.choice("format", ("mp3", "wav")))
        case other:
            known = "input_text, output_text, input_image, input_audio"
            raise refuse(keys.at("type"), f"unknown content {other!r}; known are {known}")
    keys.finish()
    return block
