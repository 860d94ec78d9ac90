"""Pages in a real browser, on a real server."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Literal

import pytest
from playwright.sync_api import Browser, Page

from browser import Watched, find_chromium, running


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """A browser that the tests of a module share; with CI_REQUIRE_SERVICES=1 there has to be one."""
    program = find_chromium()
    if program is None:
        problem = "no Chromium here: install it, or set STROP_CHROMIUM to the program"
        if os.environ.get("CI_REQUIRE_SERVICES") == "1":
            pytest.fail(problem)
        pytest.skip(problem)
    with running(program) as browser:
        yield browser


@pytest.fixture
def watched(chromium: Browser) -> Iterator[Callable[..., Watched]]:
    """Opens pages of a session each: `watched(width=390, scheme="dark")`. In the end, whatever went
    wrong on one of them fails the test."""
    opened: list[Watched] = []

    def open_page(width: int = 1280, scheme: Literal["light", "dark"] = "light") -> Watched:
        opened.append(Watched.open(chromium, width, scheme))
        return opened[-1]

    yield open_page
    errors = [error for page in opened for error in page.errors]
    for page in opened:
        page.page.context.close()
    assert errors == []


@pytest.fixture
def page(watched: Callable[..., Watched]) -> Page:
    """One page, of the usual width, light."""
    return watched().page
