"""Every page answers, in light, dark and at the width of a phone, and keeps nobody out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from browser import Watched, violations
from server_process import ServerProcess, serving

PAGES = (
    "/",
    "/deployments",
    "/playground",
    "/settings",
    "/gallery",
    "/datasets",
    "/rewards",
    "/evaluations",
    "/evaluate",
    "/jobs/new",
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with serving(tmp_path_factory.mktemp("server") / "data") as started:
        yield started


@pytest.mark.parametrize("look", [{}, {"scheme": "dark"}, {"width": 390}], ids=["light", "dark", "phone"])
@pytest.mark.parametrize("path", PAGES)
def test_a_page_of_an_empty_server(
    path: str, look: dict[str, Any], server: ServerProcess, watched: Callable[..., Watched]
) -> None:
    page = watched(**look).page
    page.goto(server.url + path)
    page.wait_for_load_state("networkidle")
    page.locator("h1").wait_for()
    assert violations(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
