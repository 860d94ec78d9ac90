"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

DataDir = Annotated[
    Path | None, typer.Option(help="Folder of the server's data; by default $STROP_HOME, else ~/.local/share/strop.")
]
DatabaseUrl = Annotated[
    str | None,
    typer.Option(
        envvar="STROP_DATABASE_URL",
        show_envvar=True,
        help="Database; by default SQLite in the data folder. With a password: in the variable, where no list of "
        "processes shows it.",
    ),
]
