"""`/playground`: one prompt to a few models side by side."""

from __future__ import annotations

from typing import Any

from nicegui import ui

from strop.errors import StropError
from strop.services import models, rollouts
from strop.web.components import Chat
from strop.web.context import Address, services
from strop.web.theme import page, tag_text

MOST_MODELS = 4


@ui.page("/playground")
async def playground_page() -> None:
    """A chat with up to four models; a rollout's prompt may come along."""
    address = Address.of_page()
    wanted = ui.context.client.request.query_params.getlist("model")[:MOST_MODELS]
    with page("Playground", "Playground"):
        tag_text("h1", "Playground")
        messages: list[dict[str, Any]] = []
        if rollout := address.values.get("rollout"):
            try:
                messages = await rollouts.prompt_messages(services(), rollout)
            except StropError as error:
                tag_text("p", error.message, "s-error")
        names = await models.chat_names(services())
        unknown = [name for name in wanted if name not in names]
        Chat(
            [*names, *unknown],
            wanted,
            messages,
            _settings(address),
            on_changed=lambda state: _keep(address, state),
        )


def _settings(address: Address) -> dict[str, Any]:
    found: dict[str, Any] = address.view("system")
    for name, kind in (("temperature", float), ("limit", int)):
        try:
            found[name] = kind(address.values[name])
        except (KeyError, ValueError):
            continue
    return found


def _keep(address: Address, state: dict[str, Any]) -> None:
    """Models and settings stand in the address; several models under one name do too."""
    names = {"model": state["models"], "system": state["system"]}
    address.set({**names, "temperature": state["temperature"], "limit": state["limit"]})
