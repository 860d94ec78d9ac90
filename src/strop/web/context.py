"""What pages work with: the services of the server, and the state that stands in the address."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from nicegui import app, ui

from strop.services.container import Services


def provide(services: Services) -> None:
    """Make the services of a server known to its pages."""
    app.state.services = services


def services() -> Services:
    """The services of the server that shows the page."""
    return app.state.services  # type: ignore[no-any-return]


class Address:
    """The query of a page's address: every view has a link, and reload and back lose nothing."""

    def __init__(self, path: str, known: Mapping[str, str]) -> None:
        self._path = path
        self.values: dict[str, Any] = dict(known)

    @classmethod
    def of_page(cls) -> Address:
        """The address that the page was asked for by."""
        request = ui.context.client.request
        return cls(request.url.path, request.query_params)

    def set(self, values: Mapping[str, Any], *, push: bool = False) -> None:
        """Change values; empty ones go, a list stands there once for each entry.

        `push` leaves a place to come back to.
        """
        for name, value in values.items():
            if value is None or value is False or value == "":
                self.values.pop(name, None)
            else:
                self.values[name] = value if isinstance(value, list) else str(value)
        query = urlencode(self.values, doseq=True)
        (ui.navigate.history.push if push else ui.navigate.history.replace)(self._path + (f"?{query}" if query else ""))

    def view(self, *names: str) -> dict[str, str]:
        """Those of the named values that stand in the address."""
        return {name: self.values[name] for name in names if name in self.values}
