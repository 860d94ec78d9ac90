"""`/settings`: the theme, providers, secrets, keys, and the machine."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from nicegui import ui

from strop import __version__
from strop.errors import StropError
from strop.services import keys, secrets, system
from strop.services.keys import Key
from strop.services.numbers import size
from strop.services.secrets import Secret
from strop.web.context import services
from strop.web.forms import radio
from strop.web.providers import ProviderSection
from strop.web.theme import (
    THEMES,
    button,
    choose_theme,
    chosen_theme,
    confirm,
    facts,
    failed,
    page,
    since,
    tag,
    tag_text,
    text,
)

Draw = Callable[[], Awaitable[None]]


@ui.page("/settings")
async def settings_page() -> None:
    """What this server knows and may do."""
    with page("Settings", "Settings"):
        tag_text("h1", "Settings")
        _appearance()
        await ProviderSection().draw()
        await _secrets()
        await _keys()
        await _system()


def _appearance() -> None:
    with tag("section", "s-card", 'aria-labelledby="theme"'):
        tag_text("h2", "Theme", props='id="theme"')
        with tag("div", "s-row", 'role="radiogroup" aria-labelledby="theme"'):
            for theme in THEMES:
                radio("theme", theme.name, theme == chosen_theme(), partial(_set_theme, theme.name))


def _set_theme(name: str) -> None:
    choose_theme(name)
    ui.navigate.reload()


async def _secrets() -> None:
    with tag("section", "s-card", 'aria-labelledby="secrets"'):
        tag_text("h2", "Secrets", props='id="secrets"')
        text(
            "Environment variables for reward functions and judges. They are stored encrypted, passed only to rewards "
            "that list them, and never shown again.",
            "s-muted",
        )
        box = tag("div")

        async def draw() -> None:
            found = await secrets.list_all(services())
            box.clear()
            with box:
                _secret_table(found, draw)

        await draw()
        with tag("div", "s-row"):
            name = ui.input("Name, such as OPENAI_API_KEY").props("outlined dense").classes("s-grow")
            value = ui.input("Value", password=True).props('outlined dense autocomplete="off"').classes("s-grow")

            async def save() -> None:
                try:
                    await secrets.store(services(), name.value or "", value.value or "")
                except StropError as error:
                    failed(error.message)
                    return
                name.value = value.value = ""
                await draw()

            button("Save", save, "primary")


def _secret_table(found: list[Secret], draw: Draw) -> None:
    if not found:
        tag_text("p", "No secrets yet.", "s-muted")
        return
    with tag("div", "s-table-wrap"), tag("table", "s-table"), tag("tbody"):
        for secret in found:
            with tag("tr"):
                tag_text("td", secret.name, "mono")
                with tag("td"):
                    since(secret.updated_at)
                with tag("td"):
                    button("Delete", lambda secret=secret: _delete_secret(secret, draw))


async def _delete_secret(secret: Secret, draw: Draw) -> None:
    if await confirm(f"Delete {secret.name}?", "Jobs whose rewards use it will fail.", "Delete"):
        try:
            await secrets.delete(services(), secret.name)
        except StropError as error:
            failed(error.message)
        await draw()


async def _keys() -> None:
    with tag("section", "s-card", 'aria-labelledby="keys"'):
        tag_text("h2", "API keys", props='id="keys"')
        local = services().settings.loopback
        text(
            "This server accepts connections from this machine only and requires no key."
            if local
            else "Every request requires a key.",
            "s-muted",
        )
        box = tag("div")

        async def draw() -> None:
            found = await keys.list_all(services())
            box.clear()
            with box:
                _key_table(found, draw)

        await draw()
        with tag("div", "s-row"):
            name = ui.input("Key name").props("outlined dense").classes("s-grow")

            async def create() -> None:
                try:
                    made = await keys.create(services(), name.value or "")
                except StropError as error:
                    failed(error.message)
                    return
                name.value = ""
                await draw()
                _show_key(made.key)

            button("Create", create, "primary")


def _show_key(shown: str) -> None:
    with ui.dialog() as dialog, tag("div", "s-dialog"):
        tag_text("h2", "New API key")
        text("Copy the key now. It is not shown again.")
        tag_text("pre", shown, "s-note mono")
        with tag("div", "s-row"):
            button("Copy", lambda: ui.clipboard.write(shown), "primary")
            button("Close", dialog.close)
    dialog.on("hide", dialog.delete)
    dialog.open()


def _key_table(found: list[Key], draw: Draw) -> None:
    alive = [key for key in found if key.revoked_at is None]
    if not alive:
        tag_text("p", "No API keys yet.", "s-muted")
        return
    with tag("div", "s-table-wrap"), tag("table", "s-table"):
        with tag("thead"), tag("tr"):
            for title in ("Name", "Key", "Created", "Last used", ""):
                tag_text("th", title)
        with tag("tbody"):
            for key in alive:
                with tag("tr"):
                    tag_text("td", key.name)
                    tag_text("td", f"{key.prefix}…", "mono")
                    with tag("td"):
                        since(key.created_at)
                    with tag("td"):
                        since(key.last_used_at) if key.last_used_at else text("never", "s-muted")
                    with tag("td"):
                        button("Revoke", lambda key=key: _revoke(key, draw))


async def _revoke(key: Key, draw: Draw) -> None:
    if await confirm(f"Revoke {key.name}?", "Clients that use this key lose access immediately.", "Revoke"):
        try:
            await keys.revoke(services(), key.id)
        except StropError as error:
            failed(error.message)
        await draw()


async def _system() -> None:
    found = await system.get(services())
    with tag("section", "s-card", 'aria-labelledby="system"'):
        tag_text("h2", "System", props='id="system"')
        pairs = [("strop", __version__), ("Data folder", found.data_folder)]
        for device in found.devices:
            memory = f"{size(device.memory_used_bytes)} of {size(device.memory_bytes)} used"
            pairs.append((device.id, f"{device.name}, {memory}"))
        facts((*pairs, *found.versions.items()))
