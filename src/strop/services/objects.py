"""What the objects of services have in common: documented fields, and lists by cursor in OpenAI's form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, Literal, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict


class Answer(BaseModel):
    """An object of an answer. The text under each field describes it in the OpenAPI document too."""

    model_config = ConfigDict(use_attribute_docstrings=True)


class Deleted(Answer):
    """What was deleted."""

    object: str
    id: str
    deleted: Literal[True] = True


class Named(Protocol):
    """What a list holds."""

    @property
    def id(self) -> str:
        """What a cursor names it by."""


Item = TypeVar("Item")


class Page(BaseModel, Generic[Item]):
    """One page of a list."""

    object: Literal["list"] = "list"
    data: list[Item]
    has_more: bool
    first_id: str | None
    last_id: str | None


def page(items: Sequence[Named], limit: int) -> Page[Any]:
    """The page that the first `limit` items make; an item beyond them says that there are more."""
    shown = list(items[:limit])
    return Page(
        data=shown,
        has_more=len(items) > limit,
        first_id=shown[0].id if shown else None,
        last_id=shown[-1].id if shown else None,
    )
