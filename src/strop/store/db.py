"""The server's database: SQLite in the data folder by default, or PostgreSQL by URL.

Errors never contain statement parameters, because those may be secrets and errors are logged. Only the server
process writes. With SQLite, a single connection writes and checkpoints the write-ahead log: with several, versions
before 3.51.3 can lose pages (sqlite.org/wal.html#walresetbug).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy import Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError
from sqlalchemy.pool import StaticPool

from strop.errors import DatabaseError

FILE_NAME = "strop.db"
_BUSY_MS = 10_000
_MIGRATIONS = Path(__file__).parent / "migrations"


class Database:
    """Read connections and one write connection. Thread-safe."""

    def __init__(self, reader: Engine, writer: Engine) -> None:
        self._reader = reader
        self._writer = writer
        self._lock = threading.RLock()

    @property
    def dialect(self) -> str:
        """`sqlite` or `postgresql`."""
        return self._reader.dialect.name

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A read-only connection with a consistent snapshot."""
        with self._reader.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def write(self, durable: bool = True) -> Iterator[Connection]:
        """A write transaction, one at a time. An exception rolls it back.

        A committed transaction survives a power failure. `durable = False` is for data that can be read again from
        run folders: it only survives a crash of the process.
        """
        with self._lock, self._writer.connect() as connection:
            if self.dialect == "sqlite":  # which takes this outside of a transaction only
                level = "FULL" if durable else "NORMAL"
                connection.connection.cursor().execute(f"PRAGMA synchronous = {level}")
            with connection.begin():
                if self.dialect == "postgresql" and not durable:
                    connection.exec_driver_sql("SET LOCAL synchronous_commit = off")
                yield connection

    def close(self) -> None:
        """Close every connection."""
        self._reader.dispose()
        self._writer.dispose()


def open_database(url: str | None, folder: Path) -> Database:
    """Open the database and create or migrate its tables. Default: the file in `folder`.

    Raises DatabaseError, without the URL's password, if the database cannot be used.
    """
    try:
        address = make_url(url or f"sqlite:///{folder / FILE_NAME}")
    except ArgumentError:
        raise DatabaseError("invalid database URL; expected postgresql://user@host/name") from None
    shown = address.render_as_string(hide_password=True)
    if address.get_backend_name() not in ("sqlite", "postgresql"):
        raise DatabaseError(f"{shown}: only SQLite and PostgreSQL are supported; expected postgresql://…")
    try:
        return _upgraded(_sqlite(address) if address.get_backend_name() == "sqlite" else _postgresql(address))
    except CommandError as error:
        raise DatabaseError(f"{shown}: created by a newer version of strop, or not by strop: {error}") from None
    except SQLAlchemyError as error:
        reason = error.orig if isinstance(error, DBAPIError) else error
        raise DatabaseError(f"{shown}: {' '.join(str(reason).split())}") from None


def _upgraded(database: Database) -> Database:
    """Migrate the database to the newest tables. Closes it on failure."""
    try:
        with database.write() as connection:
            _upgrade(connection)
    except BaseException:
        database.close()
        raise
    return database


def _sqlite(url: Any) -> Database:
    reader = create_engine(url, pool_size=8, max_overflow=24, hide_parameters=True)
    writer = create_engine(url, poolclass=StaticPool, connect_args={"check_same_thread": False}, hide_parameters=True)
    for engine, readonly in ((reader, True), (writer, False)):
        event.listen(engine, "connect", _sqlite_reader if readonly else _sqlite_writer)
    event.listen(writer, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
    event.listen(reader, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
    with writer.connect():  # makes the file, and turns the log on, before a reader looks
        pass
    return Database(reader, writer)


def _sqlite_writer(connection: Any, record: object) -> None:
    connection.isolation_level = None  # transactions begin where SQLAlchemy says so
    for pragma in (
        "journal_mode = WAL",
        f"busy_timeout = {_BUSY_MS}",
        "foreign_keys = ON",
        "cache_size = -65536",
        "wal_autocheckpoint = 4000",  # pages: while runs are imported, the same ones change again and again
    ):
        connection.execute(f"PRAGMA {pragma}")


def _sqlite_reader(connection: Any, record: object) -> None:
    connection.isolation_level = None
    for pragma in (
        f"busy_timeout = {_BUSY_MS}",
        "query_only = ON",
        "wal_autocheckpoint = 0",
        "cache_size = -8192",
    ):
        connection.execute(f"PRAGMA {pragma}")


def _postgresql(url: Any) -> Database:
    address = url.set(drivername="postgresql+psycopg")
    options: dict[str, Any] = {"pool_pre_ping": True, "hide_parameters": True, "connect_args": {"connect_timeout": 10}}
    reader = create_engine(address, pool_size=8, max_overflow=24, **options)
    writer = create_engine(address, pool_size=1, max_overflow=0, **options)

    @event.listens_for(reader, "begin")
    def _(connection: Connection) -> None:
        connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")

    return Database(reader, writer)


def _upgrade(connection: Connection) -> None:
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
