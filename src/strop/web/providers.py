"""Providers in the settings: endpoints of others, proven by the list of models that they give."""

from __future__ import annotations

from collections.abc import Sequence

from nicegui import ui
from nicegui.element import Element

from strop.errors import StropError
from strop.services import providers, secrets
from strop.services.providers import NewProvider, Provider
from strop.web.context import services
from strop.web.forms import Complaining, ask, choice_field, text_field
from strop.web.theme import button, confirm, failed, tag, tag_text, text

ADDRESSES = (
    "https://api.openai.com/v1",
    "https://openrouter.ai/api/v1",
    "https://api.together.xyz/v1",
    "https://api.mistral.ai/v1",
    "https://generativelanguage.googleapis.com/v1beta/openai",
    "http://127.0.0.1:8000/v1",
)
"""Offered while an address is typed; nothing is asked before a person says so."""
_SHOWN = 6


class ProviderSection:
    """All providers, each with a check, and a way to add one."""

    def __init__(self) -> None:
        with tag("section", "s-card", 'aria-labelledby="providers"'):
            tag_text("h2", "Providers", props='id="providers"')
            text(
                "OpenAI-compatible endpoints for judges and for evaluating other models. Each provider's API key is "
                "stored as a secret.",
                "s-muted",
            )
            self._box = tag("div")
            with tag("div", "s-row"):
                button("Add provider", lambda: self._edit(None))

    async def draw(self) -> None:
        """Read the providers, and show them."""
        found = await providers.list_all(services())
        self._box.clear()
        with self._box:
            if not found:
                tag_text("p", "No providers yet.", "s-muted")
                return
            with tag("div", "s-table-wrap"), tag("table", "s-table"):
                with tag("thead"), tag("tr"):
                    for title in ("Name", "Base URL", "Key", "Models", ""):
                        tag_text("th", title)
                with tag("tbody"):
                    for provider in found:
                        self._row(provider)

    def _row(self, provider: Provider) -> None:
        with tag("tr"):
            tag_text("td", provider.name)
            tag_text("td", provider.base_url, "mono")
            tag_text("td", provider.api_key_env or "none", "mono" if provider.api_key_env else "s-muted")
            answer = tag("td", "", 'aria-live="polite"')
            with answer:
                text("not checked", "s-muted")
            with tag("td"), tag("div", "s-row"):
                button("Check", lambda: self._check(provider, answer)).props["aria-label"] = f"Check {provider.name}"
                button("Change", lambda: self._edit(provider)).props["aria-label"] = f"Change {provider.name}"
                button("Delete", lambda: self._delete(provider)).props["aria-label"] = f"Delete {provider.name}"

    async def _check(self, provider: Provider, answer: Element) -> None:
        answer.clear()
        with answer:
            text("checking…", "s-muted")
        try:
            models = await providers.models(services(), provider)
        except StropError as error:
            answer.clear()
            with answer:
                tag_text("span", error.message, "s-error", 'role="alert"')
            return
        answer.clear()
        with answer:
            shown = ", ".join(models[:_SHOWN]) + (", …" if len(models) > _SHOWN else "")
            text(f"{len(models)}: {shown}" if models else "reachable; lists no models").props["title"] = "\n".join(
                models
            )

    async def _edit(self, provider: Provider | None) -> None:
        """A form for a new provider, or for a known one."""
        values = {"name": "", "base_url": "", "api_key_env": ""}
        if provider is not None:
            key = provider.api_key_env or ""
            values = {"name": provider.name, "base_url": provider.base_url, "api_key_env": key}

        known = [secret.name for secret in await secrets.list_all(services())]

        def fields() -> dict[str, Complaining]:
            name = text_field("Name", values["name"], lambda given: values.update(name=given), placeholder="openai")
            name.set_enabled(provider is None)
            address = text_field(
                "Base URL",
                values["base_url"],
                lambda given: values.update(base_url=given.strip()),
                hint="Include the path; most end in /v1.",
                placeholder=ADDRESSES[0],
            )
            address.set_autocomplete(list(ADDRESSES))
            options = {"": "none", **{one: one for one in dict.fromkeys([*known, values["api_key_env"]]) if one}}
            key = choice_field(
                "Key",
                options,
                values["api_key_env"],
                lambda given: values.update(api_key_env=given or ""),
                hint="Name of a secret. Add the secret below first.",
            )
            return {"name": name, "base_url": address, "api_key_env": key}

        async def save() -> None:
            body = NewProvider(base_url=values["base_url"], api_key_env=values["api_key_env"] or None)
            await providers.store(services(), values["name"].strip(), body)
            await self.draw()

        await ask("New provider" if provider is None else f"Change {provider.name}", fields, "Save", save)

    async def _delete(self, provider: Provider) -> None:
        question, consequence = (
            f"Delete {provider.name}?",
            "Graders and evaluations that use it keep their base URL. The secret is kept.",
        )
        if await confirm(question, consequence, "Delete"):
            try:
                await providers.delete(services(), provider.name)
            except StropError as error:
                failed(error.message)
            await self.draw()


class ProviderChoice:
    """A model elsewhere, in a form: at a provider, or at an address."""

    def __init__(self, model: ui.input, known: Sequence[Provider]) -> None:
        """`model` is the field of its name: the provider's models are offered there."""
        self._model = model
        self._known = {found.name: found for found in known}
        names = {"": "none: a model of this server", **{name: name for name in self._known}, "/": "another address"}
        choice_field("Provider", names, "", self._choose, hint="An endpoint that serves the model.")
        self._chosen = ""
        self._said = tag("div", "s-small", 'aria-live="polite"')
        with tag("div", "s-row") as other:
            self._url = ui.input("Base URL, including /v1").props("outlined dense").classes("s-grow")
            self._key = ui.input("Secret with the API key").props("outlined dense").classes("s-grow")
        self._other = other
        self._other.set_visibility(False)

    @property
    def value(self) -> dict[str, str | None] | None:
        """What goes beside the model's name into a request; None for a model of this server."""
        if self._chosen == "/":
            return {"base_url": self._url.value or "", "api_key_env": self._key.value or None}
        return {"provider": self._chosen} if self._chosen else None

    async def _choose(self, name: str) -> None:
        self._chosen = name
        self._other.set_visibility(name == "/")
        self._said.clear()
        provider = self._known.get(name)
        if provider is None:
            return
        try:
            models = await providers.models(services(), provider)
        except StropError as error:
            with self._said:
                tag_text("span", error.message, "s-error", 'role="alert"')
            return
        self._model.set_autocomplete(models)
        with self._said:
            text(f"{len(models)} models available; type to search.", "s-muted")
