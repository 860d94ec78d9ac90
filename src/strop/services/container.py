"""What the routes work with: one object, put together by `strop.app` or by a test."""

from __future__ import annotations

from dataclasses import dataclass, field

from strop.jobs.evaluations import EvaluationQueue
from strop.jobs.job import JobQueue
from strop.jobs.short import LengthsQueue, TrialQueue
from strop.serve.supervisor import EngineProcess
from strop.services.deployments import Deployments
from strop.store.datafolder import DataFolder
from strop.store.db import Database
from strop.store.ingest import Ingester
from strop.store.keys import KeyStore
from strop.store.secrets import SecretStore
from strop.store.uploads import FileStore

MiB = 1024 * 1024


@dataclass(frozen=True)
class Settings:
    """Settings of a server."""

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
    folder: DataFolder
    files: FileStore
    jobs: JobQueue
    evaluations: EvaluationQueue
    trials: TrialQueue
    lengths: LengthsQueue
    ingester: Ingester
    secrets: SecretStore
    keys: KeyStore
    deployments: Deployments
    engine: EngineProcess
    settings: Settings = field(default_factory=Settings)
