"""A PostgreSQL server for the tests, and fresh databases of both kinds."""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import psycopg

from strop.store.db import open_database

_TEMPLATE = "strop_template"


class PostgresServer:
    """A server of its own for one test session: a Unix socket in a temporary folder, no network."""

    def __init__(self, programs: Path) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="strop-pg-", dir="/tmp"))  # the path of a socket must be short
        self._numbers = itertools.count()
        user = _unprivileged_user()
        if user is not None:
            shutil.chown(self._folder, user)
        data, log = self._folder / "data", self._folder / "log"
        flags = ["--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C", "--no-sync"]
        subprocess.run(
            [programs / "initdb", *flags, data],
            user=user,
            cwd=self._folder,
            check=True,
            capture_output=True,
            text=True,
        )
        settings = {"listen_addresses": "", "unix_socket_directories": str(self._folder), "fsync": "off"}
        options = [f"--{name}={value}" for name, value in settings.items()]
        with open(log, "wb") as output:
            self._process = subprocess.Popen(
                [programs / "postgres", "-D", data, *options],
                user=user,
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        self._wait(log)
        self._run(f"CREATE DATABASE {_TEMPLATE}")
        open_database(self.url(_TEMPLATE), self._folder).close()  # migrated once: copies are quicker

    def url(self, name: str) -> str:
        """The address of a database."""
        return f"postgresql://postgres@/{name}?host={self._folder}"

    def create(self, migrated: bool = True) -> str:
        """The address of a fresh database: with strop's tables, or empty."""
        name = f"test_{next(self._numbers)}"
        self._run(f"CREATE DATABASE {name} TEMPLATE {_TEMPLATE if migrated else 'template0'}")
        return self.url(name)

    def drop(self, url: str) -> None:
        """Remove a database, whoever is connected to it."""
        name = url.partition("?")[0].rpartition("/")[2]
        self._run(f"DROP DATABASE {name} WITH (FORCE)")

    def stop(self) -> None:
        """End the server and remove its files."""
        self._process.send_signal(signal.SIGQUIT)  # immediate shutdown
        self._process.wait()
        shutil.rmtree(self._folder)

    def _wait(self, log: Path) -> None:
        deadline = time.monotonic() + 60
        while True:
            try:
                psycopg.connect(self.url("postgres")).close()
                return
            except psycopg.OperationalError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"PostgreSQL does not start:\n{log.read_text()}") from None
                time.sleep(0.05)

    def _run(self, statement: str) -> None:
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(statement.encode())


def find_postgres() -> Path | None:
    """The folder of PostgreSQL's server programs, the newest where there are several."""
    found = shutil.which("initdb")
    places = [Path(found).resolve().parent] if found else []
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: float(path.parent.name), reverse=True)
    return next((place for place in places if (place / "postgres").exists() and (place / "initdb").exists()), None)


def _unprivileged_user() -> str | None:
    """Whom to run the server as, where root runs the tests: PostgreSQL refuses to be root."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return next(name for name in ("postgres", "nobody") if name in names)
