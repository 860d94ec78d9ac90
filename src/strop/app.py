"""A server, put together: data folder, database, services, what runs jobs and models, and HTTP.

The order matters. Nothing is written before the folder is ours, nothing is started before
everything that can be refused has been looked at, and what was started is ended in reverse.
Processes that train outlive the server: the next one finds them again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import dataclass
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Protocol

import uvicorn
from fastapi import FastAPI

from strop import __version__
from strop.api.app import create_app
from strop.api.guard import is_loopback
from strop.api.openai.results import ResultFiles
from strop.api.readiness import Readiness
from strop.data.rows import count_rows
from strop.errors import ServerError
from strop.jobs.evaluations import EvaluationQueue
from strop.jobs.job import JobQueue
from strop.jobs.kind import Tools
from strop.jobs.kinds import make_kinds
from strop.jobs.short import LengthsQueue, TrialQueue, purge, sweep
from strop.jobs.states import Limits
from strop.jobs.supervisor import Supervisor
from strop.jobs.task import Task
from strop.serve.supervisor import EngineProcess
from strop.services.container import Services, Settings
from strop.services.deployments import Deployments
from strop.services.shared_device import SharedDevice
from strop.store.datafolder import DataFolder
from strop.store.db import Database, open_database
from strop.store.files import write_atomic
from strop.store.ingest import Ingester
from strop.store.keys import KeyStore
from strop.store.secrets import SecretStore
from strop.store.uploads import FileStore
from strop.web.mount import mount

log = logging.getLogger("strop.server")

_LOG_BYTES = 10 * 1024 * 1024
_GRACE_S = 5
"""Seconds that answers under way get to end in."""
_UPKEEP_S = 2.0


@dataclass(frozen=True)
class Options:
    """How `strop serve` was called."""

    host: str = "127.0.0.1"
    port: int = 8100
    """0 takes a free one."""
    data_dir: Path | None = None
    database_url: str | None = None
    concurrency: int = 1
    """Jobs that run at the same time."""
    max_concurrent: int = 16
    """Completions of one deployment that are decoded at the same time."""
    memory: float | None = None
    """Memory limit of all deployments in GiB; by default most of the device's memory."""
    idle_minutes: float = 30.0
    """After so long without a request a deployment is unloaded; 0 means never."""
    stalled_minutes: float = 30.0
    """A process of a task that writes nothing for so long is ended and started again; 0 means never."""

    @property
    def engine_options(self) -> list[str]:
        """Options of the model process."""
        memory = [] if self.memory is None else ["--memory", str(self.memory)]
        return ["--max-concurrent", str(self.max_concurrent), *memory]

    @property
    def loopback(self) -> bool:
        """Whether only this machine reaches the server."""
        return is_loopback(self.host)


class Server:
    """One server, for one run."""

    def __init__(self, options: Options, ready: Callable[[str], None]) -> None:
        """`ready` is called with the server's URL once it answers."""
        self._options = options
        self._ready = ready

    def run(self) -> None:
        """Serve until SIGTERM or Ctrl-C. ServerError or DatabaseError where that cannot begin."""
        options = self._options
        with ExitStack() as stack:
            folder = DataFolder.open(options.data_dir)
            stack.enter_context(folder.lock())
            stack.enter_context(_logging(folder.log_file))
            database = open_database(options.database_url, folder.path)
            stack.callback(database.close)
            services = _services(folder, database, options)
            _refuse_open_door(services, options)
            listener = stack.enter_context(_bind(options.host, options.port))
            services.files.sweep()
            readiness = Readiness(services.deployments)
            device = SharedDevice(services)
            for worker in _workers(services, options, readiness, device):
                worker.start()
                stack.callback(worker.close)
            asyncio.run(self._serve(services, listener, readiness, device))

    async def _serve(
        self, services: Services, listener: socket.socket, readiness: Readiness, device: SharedDevice
    ) -> None:
        url = f"http://{_shown(self._options.host)}:{listener.getsockname()[1]}"
        app = create_app(services)
        mount(app, services, _cookie_key(services.folder))
        http = _Http(app, lambda: self._announce(services.folder, url))
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, http.end)
        async with AsyncExitStack() as stack:
            for queue in (services.trials, services.lengths):
                stack.callback(queue.close)
            for part in (services.engine, services.deployments):
                await part.start()
                stack.push_async_callback(part.close)
            for bridge in (readiness, device):
                bridge.open()
                stack.callback(bridge.close)
            await http.serve(sockets=[listener])
        log.info("stopped")

    def _announce(self, folder: DataFolder, url: str) -> None:
        folder.announce(url)
        log.info("strop %s answers at %s, data in %s", __version__, url, folder.path)
        self._ready(url)


class _Http(uvicorn.Server):
    """uvicorn, except that it leaves signals and the end of the process to us."""

    def __init__(self, app: FastAPI, started: Callable[[], None]) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                log_config=None,
                lifespan="on",  # the pages need theirs: a failure must not pass for none
                access_log=False,  # ours leaves queries out
                server_header=False,
                timeout_graceful_shutdown=_GRACE_S,
            )
        )
        self._when_started = started

    def end(self) -> None:
        """Let answers under way end; at once when asked again."""
        self.force_exit = self.should_exit
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._when_started()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _Worker(Protocol):
    """A thread of the server."""

    def start(self) -> None:
        """Begin to work."""

    def close(self) -> None:
        """Stop, and wait until that is done."""


class _Upkeep:
    """Background work: ingest runs of other processes, delete expired files."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="strop-upkeep", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        self._thread.join()

    def _loop(self) -> None:
        while not self._closing.wait(_UPKEEP_S):
            try:
                self._services.ingester.discover()
                self._services.ingester.refresh_all()
                self._services.files.purge()
                purge(self._services.database, self._services.folder, time.time())
            except Exception:  # the database is away, or full: that passes
                log.exception("runs and files cannot be looked at")


def _services(folder: DataFolder, database: Database, options: Options) -> Services:
    settings = Settings(loopback=options.loopback)
    jobs = JobQueue(database)
    engine = EngineProcess(folder.engine_socket, folder.path / "engine.log", options.engine_options)
    return Services(
        database=database,
        folder=folder,
        files=FileStore(database, folder, count_rows, settings.max_upload_bytes),
        jobs=jobs,
        evaluations=EvaluationQueue(database, folder),
        trials=TrialQueue(database, folder),
        lengths=LengthsQueue(database, folder),
        ingester=Ingester(database, folder.path),
        secrets=SecretStore(database, folder.secret_key),
        keys=KeyStore(database),
        deployments=Deployments(jobs, folder, engine, options.idle_minutes),
        engine=engine,
        settings=settings,
    )


def _cookie_key(folder: DataFolder) -> str:
    """What signs the cookies of the pages; the same after a restart, so that browsers keep their settings."""
    path = folder.path / "ui" / "cookie.key"
    if not path.is_file():
        path.parent.mkdir(mode=0o700, exist_ok=True)
        write_atomic(path, secrets.token_hex(32))
        path.chmod(0o600)
    return path.read_text(encoding="ascii")


def _workers(services: Services, options: Options, readiness: Readiness, device: SharedDevice) -> Iterator[_Worker]:
    results = ResultFiles(services.database, services.folder, services.files)

    def finished(task: Task) -> None:
        if task.kind == "training":
            results.of(services.jobs.get(task.id))

    services.evaluations.sweep()
    sweep(services.database, services.folder)
    tools = Tools(services.database, services.folder, services.secrets, services.ingester, readiness)
    limits = Limits(stalled_s=options.stalled_minutes * 60)
    at_once = {"training": options.concurrency}
    yield Supervisor(tools, make_kinds(tools), at_once, limits, on_finished=finished, device=device)
    yield _Upkeep(services)


def _refuse_open_door(services: Services, options: Options) -> None:
    """A server that others reach, and no key to tell friend from foe."""
    if not options.loopback and not services.keys.any():
        raise ServerError(
            f"--host {options.host} is reachable from other machines, but there is no API key yet; create one first: "
            "strop keys create NAME"
        )


def _bind(host: str, port: int) -> socket.socket:
    """A bound socket that does not listen yet."""
    if not 0 <= port < 2**16:  # the resolver would take it modulo 65536
        raise ServerError(f"--port {port}: no such port; ports go from 1 to 65535")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        # asyncio sends at once, without waiting 40 ms for more, only where the protocol is named.
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ServerError(f"cannot serve at {_shown(host)}:{port}: {reason}; choose another with --port") from None
    return listener


def _shown(host: str) -> str:
    """A host as a URL on this machine has it."""
    if host in ("0.0.0.0", "::", ""):
        return "127.0.0.1"
    return f"[{host}]" if ":" in host else host


@contextmanager
def _logging(file: Path) -> Iterator[None]:
    """Write what happens to the log file, and warnings to standard error too."""
    plain = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    to_file = RotatingFileHandler(file, maxBytes=_LOG_BYTES, backupCount=3, encoding="utf-8", errors="backslashreplace")
    to_people = logging.StreamHandler(sys.stderr)
    to_people.setLevel(logging.WARNING)
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.INFO)
    for handler in (to_file, to_people):
        handler.setFormatter(plain)
        root.addHandler(handler)
    for chatty in ("httpx", "httpx2", "httpcore", "alembic", "uvicorn"):  # some put whole URLs there
        logging.getLogger(chatty).setLevel(logging.WARNING)
    try:
        yield
    finally:
        root.setLevel(level)
        for handler in (to_file, to_people):
            root.removeHandler(handler)
            with contextlib.suppress(OSError):
                handler.close()
