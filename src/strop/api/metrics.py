"""Numbers for Prometheus: counted as they happen, or read from the database when they are asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import sqlalchemy as sa
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.types import Scope

from strop import __version__
from strop.api.errors import METHODS
from strop.jobs.task import TaskStatus
from strop.store.db import Database
from strop.store.tables import deployments, rollouts, tasks

_SECONDS = (0.005, 0.02, 0.1, 0.5, 2, 10, 60, 600)


class Metrics:
    """The metrics of one server."""

    def __init__(self, database: Database, paths: Mapping[object, str]) -> None:
        """`paths` gives the template of a route by the function behind it."""
        self._paths = paths
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "strop_requests", "Answers, by route and status.", ("method", "route", "status"), registry=self._registry
        )
        self._seconds = Histogram(
            "strop_request_seconds", "Time to the last byte.", ("route",), buckets=_SECONDS, registry=self._registry
        )
        self._in_flight = Gauge(
            "strop_engine_completions", "Completions of the model process.", ("state",), registry=self._registry
        )
        Gauge("strop_info", "Version.", ("version",), registry=self._registry).labels(__version__).set(1)
        self._registry.register(_Stored(database))

    def observe(self, scope: Scope, status: int, seconds: float) -> None:
        """Count one answer."""
        route = self._paths.get(scope.get("endpoint"))
        method = scope["method"] if scope["method"] in METHODS else "other"  # a client may make names up
        self._requests.labels(method, route or "unknown", str(status)).inc()
        self._seconds.labels(route or "unknown").observe(seconds)

    def set_completions(self, decoding: int, queued: int) -> None:
        """How busy the model process is."""
        self._in_flight.labels("decoding").set(decoding)
        self._in_flight.labels("queued").set(queued)

    def text(self) -> bytes:
        """Everything in Prometheus's text format."""
        return generate_latest(self._registry)


_JOBS = (
    sa.select(tasks.c.status, sa.func.count().label("jobs")).where(tasks.c.kind == "training").group_by(tasks.c.status)
)


class _Stored(Collector):
    """What the database knows."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def collect(self) -> Iterator[Metric]:
        with self._database.read() as connection:
            counts = {row.status: row.jobs for row in connection.execute(_JOBS)}
            ingested = connection.scalar(sa.select(sa.func.max(rollouts.c.seq))) or 0
            usage = connection.execute(
                sa.select(
                    deployments.c.name,
                    deployments.c.requests,
                    deployments.c.prompt_tokens,
                    deployments.c.completion_tokens,
                )
            ).all()
        by_status = GaugeMetricFamily("strop_jobs", "Jobs, by status.", labels=["status"])
        for status in TaskStatus:
            by_status.add_metric([status], counts.get(status, 0))
        yield by_status
        yield CounterMetricFamily("strop_rollouts_ingested", "Rollouts taken into the database.", value=ingested)
        requests = CounterMetricFamily("strop_chat_requests", "Chat requests answered.", labels=["deployment"])
        tokens = CounterMetricFamily("strop_chat_tokens", "Tokens of chats.", labels=["deployment", "kind"])
        for name, count, prompt, completion in usage:
            requests.add_metric([name], count)
            tokens.add_metric([name, "prompt"], prompt)
            tokens.add_metric([name, "completion"], completion)
        yield requests
        yield tokens
