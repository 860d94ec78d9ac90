"""Names that people give to things."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import IntegrityError

from strop.errors import Conflict, InvalidRequest

MAX_NAME = 100


def checked_name(name: str, what: str) -> str:
    """The name without blanks around it. InvalidRequest where it is empty, too long or not for one line."""
    name = name.strip()
    if not 1 <= len(name) <= MAX_NAME or not name.isprintable():
        raise InvalidRequest(f"{what} needs a name of 1 to {MAX_NAME} printable characters", param="name")
    return name


@contextmanager
def unique_name(name: str) -> Iterator[None]:
    """Around a change that the database refuses where the name is taken: then Conflict is raised."""
    try:
        yield
    except IntegrityError:
        raise Conflict(f"the name {name!r} is taken; choose another one", param="name") from None
