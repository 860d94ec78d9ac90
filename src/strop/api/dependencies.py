"""Parameters that many routes share."""

from __future__ import annotations

from typing import Annotated, cast

from fastapi import Depends
from starlette.requests import HTTPConnection

from strop.services.container import Services


def _services(connection: HTTPConnection) -> Services:
    return cast(Services, connection.app.state.services)


Provided = Annotated[Services, Depends(_services)]
"""The services of this server: `def route(services: Provided) -> …`."""
