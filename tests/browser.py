"""Chromium for the tests of pages: started once for a module, and watched while it shows one."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, expect, sync_playwright

PATIENCE_MS = 60_000  # machines that run tests are busy
expect.set_options(timeout=PATIENCE_MS)
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_ARGUMENTS = (
    "--no-sandbox",  # root runs the tests in containers
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
)
# Answers that a page asks for, expects, and shows: the browser calls every one of them an error.
_EXPECTED = re.compile(r"Failed to load resource: .* status of (400|404|409|413|503)")

# Half way from one colour to the next, a text has a contrast that nobody reads it by. What turns for ever is no change.
_AT_REST = """() => document.getAnimations().every(
  (one) => one.playState !== "running" || one.effect.getComputedTiming().endTime === Infinity)"""


def find_chromium() -> str | None:
    """The browser: $STROP_CHROMIUM, or what the system has."""
    named = os.environ.get("STROP_CHROMIUM")
    return named or next((found for name in _NAMES if (found := shutil.which(name))), None)


@contextmanager
def running(program: str) -> Iterator[Browser]:
    """A browser. Until it is closed, the thread cannot run an event loop of its own."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=_ARGUMENTS)
        yield browser
        browser.close()


@dataclass
class Watched:
    """A page, and what went wrong on it."""

    page: Page
    errors: list[str] = field(default_factory=list)
    """Errors on the console, exceptions, and requests to other servers."""

    @classmethod
    def open(cls, browser: Browser, width: int, scheme: Literal["light", "dark"]) -> Watched:
        """An empty page in a session of its own."""
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        context.set_default_timeout(PATIENCE_MS)
        watched = cls(context.new_page())
        watched.page.on("console", watched._said)
        watched.page.on("pageerror", lambda error: watched.errors.append(str(error)))
        watched.page.on("request", watched._asked)
        return watched

    def _said(self, message: ConsoleMessage) -> None:
        if message.type == "error" and not _EXPECTED.match(message.text):
            self.errors.append(f"{message.text} ({message.location.get('url', '')})")

    def _asked(self, request: Request) -> None:
        if not request.url.startswith(("http://127.0.0.1:", "data:", "blob:")):
            self.errors.append(f"asked for {request.url}")


def violations(page: Page) -> list[str]:
    """Where a page keeps people out, by axe's rules: one entry for each element."""
    page.wait_for_function(_AT_REST)
    found: list[dict[str, Any]] = Axe().run(page).response["violations"]
    return [f"{rule['id']}: {node['html'][:200]} {_why(node)}" for rule in found for node in rule["nodes"]]


def _why(node: dict[str, Any]) -> str:
    return "; ".join(check["message"] for check in (*node["any"], *node["all"], *node["none"]))
