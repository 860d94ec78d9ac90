"""`strop keys`: manage the API keys of a server.

Only one process may write the database of a data folder. While a server is running, the commands call the server;
otherwise they open the database directly.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Annotated, Any
from urllib.parse import quote

import typer
from rich.table import Column, Table

from strop.cli.console import JsonOption, errors, output, print_json
from strop.cli.options import DatabaseUrl, DataDir
from strop.cli.remote import Remote, server_missing
from strop.store.datafolder import DataFolder
from strop.types import Json

app = typer.Typer(help="Create, list and revoke the server's API keys.", no_args_is_help=True)


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="Name of the key: who or what uses it.")],
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
    as_json: JsonOption = False,
) -> None:
    """Create a key and print it. It is not shown again.

    Example: `strop keys create laptop`
    """
    folder = DataFolder.open(data_dir)
    if url := folder.server_url():
        key = Remote(url).call("POST", "/v1/strop/keys", {"name": name})
    else:
        with _store(folder, database_url) as store:
            made, text = store.create(name)
            key = {**vars(made), "key": text}
    if as_json:
        print_json(key)
    else:
        output.print(key["key"], markup=False, soft_wrap=True)
        errors.print(f"key {key['id']} for {key['name']}; store it now, it is not shown again", markup=False)


@app.command("list")
def list_keys(data_dir: DataDir = None, database_url: DatabaseUrl = None, as_json: JsonOption = False) -> None:
    """List all keys, including revoked ones.

    Example: `strop keys list`
    """
    folder = DataFolder.open(data_dir)
    if url := folder.server_url():
        found = Remote(url).call("GET", "/v1/strop/keys")["data"]
    else:
        with _store(folder, database_url) as store:
            found = [vars(key) for key in store.list()]
    if as_json:
        print_json(found)
    elif not found:
        errors.print("no keys yet; create one with: strop keys create NAME")
    else:
        output.print(_table(found))


@app.command()
def revoke(
    key: Annotated[str, typer.Argument(metavar="KEY_ID", help="Id of the key, as printed by `strop keys list`.")],
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Revoke a key permanently.

    Example: `strop keys revoke key_0123456789abcdef01234567`
    """
    folder = DataFolder.open(data_dir)
    if url := folder.server_url():
        Remote(url).call("DELETE", f"/v1/strop/keys/{quote(key, safe='')}")
    else:
        with _store(folder, database_url) as store:
            store.revoke(key)
    errors.print(f"revoked {key}", markup=False)


@contextmanager
def _store(folder: DataFolder, database_url: str | None) -> Iterator[Any]:
    """Open the key store directly while no server is running."""
    try:
        from strop.store.db import open_database
        from strop.store.keys import KeyStore
    except ModuleNotFoundError as error:
        raise server_missing(error) from None
    os.umask(0o077)  # what this makes is for its user only, as with `strop serve`
    with folder.lock():
        database = open_database(database_url, folder.path)
        try:
            yield KeyStore(database)
        finally:
            database.close()


def _table(found: list[Json]) -> Table:
    table = Table(Column("id", no_wrap=True), "name", "begins with", "made", "last used", "revoked", box=None)
    for key in found:
        times = (_time(key[name]) for name in ("created_at", "last_used_at", "revoked_at"))
        table.add_row(key["id"], key["name"], key["prefix"], *times)
    return table


def _time(seconds: float | None) -> str:
    return "" if seconds is None else datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M")
