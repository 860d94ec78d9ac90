"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

DataDir = Annotated[
    Path | None, typer.Option(help="The server's data folder. Default: $STROP_HOME, or ~/.local/share/strop.")
]
DatabaseUrl = Annotated[
    str | None,
    typer.Option(
        envvar="STROP_DATABASE_URL",
        show_envvar=True,
        help="Database URL. Default: SQLite in the data folder. Pass a URL with a password in the variable, so that "
        "it does not appear in process lists.",
    ),
]
