"""`/deployments`: models that answer under a name."""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable
from urllib.parse import quote

from nicegui import ui

from strop.errors import StropError
from strop.services import models
from strop.services.deployments import Deployment
from strop.services.numbers import size
from strop.web.context import services
from strop.web.theme import badge, button, confirm, failed, page, since, tag, tag_text, text

REFRESH_S = 2.0


@ui.page("/deployments")
async def deployments_page() -> None:
    """All deployments, and a form for another one."""
    with page("Deployments", "Deployments"):
        tag_text("h1", "Deployments")
        text(
            "A deployed model is served at /v1/chat/completions. It is loaded on the first request and unloaded when "
            "idle."
        )
        box = tag("div", "s-column")
        board = Board(box)
        _form(board, await models.servable_names(services()))
        await board.refresh()
        ui.timer(REFRESH_S, board.refresh)


class Board:
    """The table; drawn again when something changed."""

    def __init__(self, box: ui.element) -> None:
        self._box = box
        self._shown: object = None

    async def refresh(self) -> None:
        """Read the deployments."""
        found = await services().deployments.list(limit=200)
        if found == self._shown:
            return
        self._shown = found
        self._box.clear()
        with self._box:
            if not found:
                tag_text("p", "No deployments yet. Choose a model below, or deploy a checkpoint from a run.", "s-empty")
                return
            with tag("div", "s-table-wrap"), tag("table", "s-table"):
                with tag("thead"), tag("tr"):
                    for name in ("Name", "Status", "Memory", "In flight", "Tokens", "Last used", ""):
                        tag_text("th", name)
                with tag("tbody", props="data-list"):
                    for deployment in found:
                        self._row(deployment)

    def _row(self, deployment: Deployment) -> None:
        engine = deployment.engine
        with tag("tr"):
            with tag("td"):
                text(deployment.name, "s-clip mono")
                if deployment.source != deployment.name:
                    text(deployment.source, "s-clip s-small s-muted")
            with tag("td"):
                badge(str(deployment.state))
                if deployment.reason:
                    text(deployment.reason, "s-small s-muted")
            tag_text("td", size(engine.memory_bytes + engine.cache_bytes) if engine else "–", "mono")
            tag_text("td", f"{engine.in_flight} + {engine.queued} waiting" if engine else "–", "mono")
            tag_text("td", f"{deployment.prompt_tokens:,} in, {deployment.completion_tokens:,} out", "mono")
            with tag("td"):
                if deployment.last_used_at is None:
                    text("never", "s-muted")
                else:
                    since(deployment.last_used_at)
            with tag("td"), tag("div", "s-row s-actions"):
                self._actions(deployment)

    def _actions(self, deployment: Deployment) -> None:
        if deployment.state == "loaded":
            self._act("Unload", lambda: services().deployments.unload(deployment.id))
        elif deployment.state != "loading":
            self._act("Load", lambda: services().deployments.load(deployment.id))
        button("Chat", lambda: ui.navigate.to(f"/playground?model={quote(deployment.name)}"))
        button("curl", lambda: _show_command(deployment))
        self._act(
            "Delete", lambda: services().deployments.delete(deployment.id), f"Delete the deployment {deployment.name}?"
        )

    def _act(self, label: str, act: Callable[[], Awaitable[object]], question: str = "") -> None:
        async def pressed() -> None:
            if question and not await confirm(question, "The model's files are kept.", label):
                return
            try:
                await act()
            except StropError as error:
                failed(error.message)
            await self.refresh()

        button(label, pressed)


def _show_command(deployment: Deployment) -> None:
    body = f'{{"model": "{deployment.name}", "messages": [{{"role": "user", "content": "Hello"}}]}}'
    origin = str(ui.context.client.request.base_url).rstrip("/")
    command = f"curl {origin}/v1/chat/completions -H 'Content-Type: application/json' -d {shlex.quote(body)}"
    with ui.dialog() as dialog, tag("div", "s-dialog"):
        tag_text("h2", f"Call {deployment.name}")
        tag_text("pre", command, "s-note mono")
        with tag("div", "s-row"):
            button("Copy", lambda: ui.clipboard.write(command), "primary")
            button("Close", dialog.close)
    dialog.on("hide", dialog.delete)
    dialog.open()


def _form(board: Board, names: list[str]) -> None:
    async def deploy() -> None:
        control.disable()
        try:
            await services().deployments.create(str(source.value or ""), name.value or None, wait=False)
        except StropError as error:
            failed(error.message)
        finally:
            control.enable()
        await board.refresh()

    with tag("section", "s-card", 'aria-label="Deploy a model"'):
        tag_text("h2", "Deploy a model")
        with tag("div", "s-row"):
            source = ui.input("Model, checkpoint id or folder", autocomplete=names).props("outlined dense")
            source.classes("s-grow")
            name = ui.input("Name (optional)").props("outlined dense")
            control = button("Deploy", deploy, "primary")
