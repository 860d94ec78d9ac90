"""The messages that a model grader sends, with templates in them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from strop.endpoints.replies import encodable
from strop.rewards.graders.fields import Shape, TemplateText, fault
from strop.types import Json


class TextBlock(Shape):
    """Words."""

    type: Literal["input_text", "output_text", "text"]
    text: TemplateText

    def render(self, sample: Mapping[str, Json], item: Mapping[str, Json]) -> dict[str, Any]:
        """The block in the form of chat completions. Raises Absent."""
        return {"type": "text", "text": encodable(self.text.render(sample, item))}


class ImageBlock(Shape):
    """A picture by its address or as a data URL."""

    type: Literal["input_image"]
    image_url: TemplateText
    detail: Literal["low", "high", "auto"] = "auto"

    def render(self, sample: Mapping[str, Json], item: Mapping[str, Json]) -> dict[str, Any]:
        """The block in the form of chat completions. Raises Absent."""
        url = encodable(self.image_url.render(sample, item))
        return {"type": "image_url", "image_url": {"url": url, "detail": self.detail}}


class Audio(Shape):
    """Sound, base64."""

    data: TemplateText
    format: Literal["mp3", "wav"]


class AudioBlock(Shape):
    """Sound in a message."""

    type: Literal["input_audio"]
    input_audio: Audio

    def render(self, sample: Mapping[str, Json], item: Mapping[str, Json]) -> dict[str, Any]:
        """The block in the form of chat completions. Raises Absent."""
        data = encodable(self.input_audio.data.render(sample, item))
        return {"type": "input_audio", "input_audio": {"data": data, "format": self.input_audio.format}}


Block = Annotated[TextBlock | ImageBlock | AudioBlock, Field(discriminator="type")]


def _as_blocks(content: Json) -> list[Json]:
    """A text and a single block are lists of one."""
    blocks = content if isinstance(content, list) and content else [content]
    return [{"type": "text", "text": block} if isinstance(block, str) else block for block in blocks]


class MessageTemplate(Shape):
    """One message to a judge."""

    role: Literal["user", "assistant", "system", "developer"]
    type: Literal["message"] = "message"
    content: Annotated[tuple[Block, ...], BeforeValidator(_as_blocks)]

    def render(self, sample: Mapping[str, Json], item: Mapping[str, Json]) -> dict[str, Any]:
        """The message for a chat completion; plain text where it is nothing else. Raises Absent."""
        blocks = [block.render(sample, item) for block in self.content]
        content = blocks[0]["text"] if len(blocks) == 1 and blocks[0]["type"] == "text" else blocks
        # Of compatible servers only OpenAI's own knows the role developer.
        return {"role": "system" if self.role == "developer" else self.role, "content": content}


def _check_messages(value: Json) -> Json:
    if not isinstance(value, list) or not value:
        raise fault("expected a list of messages, each with a role and a content")
    return value


Messages = Annotated[tuple[MessageTemplate, ...], BeforeValidator(_check_messages)]
