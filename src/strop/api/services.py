"""What the routes work with: one object, put together by `strop.app` or by a test."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from strop.store.db import Database

MiB = 1024 * 1024


@dataclass(frozen=True)
class Settings:
    """How a server was told to behave."""

    loopback: bool = True
    """Only this machine reaches the server: no key is needed, foreign pages are refused."""
    requests_per_minute: int = 600
    """For each key; what is over is answered with 429."""
    max_body_bytes: int = 4 * MiB
    """Largest body of a request."""
    max_upload_bytes: int = 512 * MiB
    """Largest body of an upload."""


@dataclass(frozen=True)
class Services:
    """Everything that a route may call. A test gives what its routes need."""

    database: Database
    folder: Any  # store.datafolder.DataFolder
    """The data folder, with `path`."""
    files: Any  # store.uploads.FileStore
    jobs: Any  # jobs.queue.JobQueue
    ingester: Any  # store.ingest.Ingester
    secrets: Any  # store.secrets.SecretStore
    keys: Any  # store.keys.KeyStore
    deployments: Any  # serve.deployments.Deployments
    engine: Any  # serve.supervisor.EngineProcess
    settings: Settings = field(default_factory=Settings)
