"""The API over given services, served for real on a port of its own, in a thread of the test."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn
from openai import OpenAI

from strop.api.app import create_app
from strop.data.rows import count_rows
from strop.jobs.evaluations import EvaluationQueue
from strop.jobs.job import JobQueue
from strop.jobs.kind import Kind, Tools
from strop.jobs.short import Lengths, LengthsQueue, Trial, TrialQueue
from strop.jobs.supervisor import Supervisor
from strop.serve.supervisor import EngineProcess
from strop.services.container import Services, Settings
from strop.services.deployments import Deployments
from strop.store.datafolder import DataFolder
from strop.store.db import open_database
from strop.store.ingest import Ingester
from strop.store.keys import KeyStore
from strop.store.secrets import SecretStore
from strop.store.uploads import FileStore


@contextmanager
def services(folder: Path, url: str | None = None, **others: Any) -> Iterator[Services]:
    """The services of a data folder, of which only short tasks run by themselves; `others` are added."""
    data = DataFolder.open(folder)
    database = open_database(url, data.path)
    jobs = JobQueue(database)
    engine = EngineProcess(data.engine_socket, data.path / "engine.log")
    values: dict[str, Any] = {
        "files": FileStore(database, data, count_rows),
        "jobs": jobs,
        "evaluations": EvaluationQueue(database, data),
        "trials": TrialQueue(database, data),
        "lengths": LengthsQueue(database, data),
        "ingester": Ingester(database, data.path),
        "secrets": SecretStore(database, data.secret_key),
        "keys": KeyStore(database),
        "deployments": Deployments(jobs, data, engine),
        "engine": engine,
        "settings": Settings(),
        **others,
    }
    tools = Tools(database, data, values["secrets"], values["ingester"])
    kinds: dict[str, Kind] = {"trial": Trial(tools), "lengths": Lengths(tools)}
    supervisor = Supervisor(tools, kinds)
    supervisor.start()
    try:
        yield Services(database=database, folder=data, **values)
    finally:
        supervisor.close()
        database.close()


@contextmanager
def served(given: Services) -> Iterator[str]:
    """The base URL, `/v1` included."""
    with socket.socket(proto=socket.IPPROTO_TCP) as listener:  # as `strop.app` makes it: answers are sent at once
        listener.bind(("127.0.0.1", 0))
        settings = uvicorn.Config(create_app(given), log_level="error", lifespan="off", timeout_graceful_shutdown=1)
        server = uvicorn.Server(settings)
        thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        finally:
            server.should_exit = True
            thread.join(30)


@contextmanager
def connected(given: Services, **settings: Any) -> Iterator[OpenAI]:
    """OpenAI's own client, with nothing changed but its address."""
    with (
        served(given) as url,
        OpenAI(base_url=url, api_key="any", **{"max_retries": 0, "timeout": 30, **settings}) as client,
    ):
        yield client
