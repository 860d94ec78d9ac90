"""Validation of user-defined names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import IntegrityError

from strop.errors import Conflict, InvalidRequest

MAX_NAME = 100


def checked_name(name: str, what: str) -> str:
    """The stripped name. Raises InvalidRequest if it is empty, too long or not printable."""
    name = name.strip()
    if not 1 <= len(name) <= MAX_NAME or not name.isprintable():
        raise InvalidRequest(f"{what} needs a name of 1 to {MAX_NAME} printable characters", param="name")
    return name


@contextmanager
def unique_name(name: str) -> Iterator[None]:
    """Convert a uniqueness violation to Conflict."""
    try:
        yield
    except IntegrityError:
        raise Conflict(f"the name {name!r} is taken; choose another one", param="name") from None
