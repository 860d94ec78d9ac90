"""Which secrets something gets to see, and a way to set another one on the spot."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nicegui import ui

from strop.services import secrets
from strop.web.context import services
from strop.web.forms import Complaining, ask, choice_field, text_field
from strop.web.theme import button, tag


class SecretsField:
    """Names of secrets, to be chosen from those that the server has."""

    def __init__(self, chosen: Sequence[str], on_change: Callable[[list[str]], object]) -> None:
        self._chosen, self._on_change = chosen, on_change

    async def build(self) -> None:
        """Draw it."""
        chosen = self._chosen
        known = await self._known(chosen)
        with tag("div", "s-fields"), tag("div", "s-row s-top-row"):
            with tag("div", "s-grow"):
                self._field: ui.select = choice_field(
                    "Secrets",
                    known,
                    list(chosen),
                    lambda names: self._on_change(list(names)),
                    hint="Environment variables passed to the reward.",
                    several=True,
                )
            button("New", self._ask).props["aria-label"] = "New secret"

    async def _known(self, chosen: Sequence[str]) -> list[str]:
        return list(dict.fromkeys([*(secret.name for secret in await secrets.list_all(services())), *chosen]))

    async def _ask(self) -> None:
        values = {"name": "", "value": ""}

        def fields() -> dict[str, Complaining]:
            name = text_field("Name", "", lambda text: values.update(name=text), placeholder="OPENAI_API_KEY")
            value = text_field(
                "Value", "", lambda text: values.update(value=text), hint="Stored encrypted and never shown again."
            )
            value.props('type=password autocomplete="off"')
            return {"name": name, "value": value}

        async def save() -> None:
            await secrets.store(services(), values["name"], values["value"])
            chosen = list(dict.fromkeys([*(self._field.value or ()), values["name"]]))
            self._field.set_options({name: name for name in await self._known(chosen)}, value=chosen)

        await ask("New secret", fields, "Save", save)
