"""Lists by cursor, in OpenAI's form.

`after` is the id of the last item of the page before. `has_more` is always there: OpenAI's
client asks for ever without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Generic, Literal, Protocol, TypeVar

from fastapi import Query
from pydantic import BaseModel


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


After = Annotated[str | None, Query(description="Id of the last item of the page before.")]
Limit = Annotated[int, Query(ge=1, le=1000, description="Items on a page.")]


def page(items: Sequence[Named], limit: int) -> Page[Any]:
    """The page that the first `limit` items make; an item beyond them says that there are more."""
    shown = list(items[:limit])
    return Page(
        data=shown,
        has_more=len(items) > limit,
        first_id=shown[0].id if shown else None,
        last_id=shown[-1].id if shown else None,
    )
