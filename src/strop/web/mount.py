"""Puts the pages on the API's application."""

from __future__ import annotations

from pathlib import Path

from fastapi import FastAPI
from nicegui import app as pages
from nicegui import ui
from nicegui.storage import Storage

from strop.services.container import Services
from strop.web.context import provide
from strop.web.login import add_login
from strop.web.pages import (
    dataset,
    datasets,
    deployments,
    experiment,
    gallery,
    jobs,
    new_job,
    playground,
    reward,
    rewards,
    settings,
)
from strop.web.pages.evaluations import board, detail, new

STATIC = Path(__file__).parent / "static"
PAGES = (
    jobs,
    new_job,
    experiment,
    datasets,
    dataset,
    rewards,
    reward,
    deployments,
    playground,
    settings,
    gallery,
    board,
    new,
    detail,
)
"""Imported so that their pages are known."""
_RECONNECT_S = 60.0


def mount(app: FastAPI, services: Services, storage_secret: str) -> None:
    """Serve the pages at `/`, beside the API. `storage_secret` signs the cookie that keeps the theme."""
    provide(services)
    if not services.settings.loopback:
        add_login(app, services)
    Storage.path = services.folder.path / "ui"
    pages.add_static_files("/ui/static", STATIC)
    ui.add_head_html(
        '<link rel="stylesheet" href="/ui/static/tokens.css">'
        '<script type="module" src="/ui/static/keys.js"></script>'
        '<script type="module" src="/ui/static/editor.js"></script>',
        shared=True,
    )
    pages.config.quasar_config["loadingBar"]["skipHijack"] = True  # uploads show their own progress
    ui.run_with(
        app,
        title="strop",
        language="en-US",
        tailwind=False,
        reconnect_timeout=_RECONNECT_S,
        storage_secret=storage_secret,
        show_welcome_message=False,
    )
