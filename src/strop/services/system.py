"""Hardware and software of the server, and its isolation of reward functions."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Literal

import psutil
from pydantic import BaseModel, Field

from strop import __version__
from strop.services import machine
from strop.services.container import Services
from strop.services.threads import in_thread


class Device(BaseModel):
    """Something to train on."""

    id: str = Field(description="As torch names it: cpu, cuda:0 …")
    name: str
    memory_bytes: int
    memory_used_bytes: int
    utilization: float | None = Field(description="Share of the time that it is busy.")


class Disk(BaseModel):
    """The disk that the data folder lies on."""

    total_bytes: int
    free_bytes: int


class Isolation(BaseModel):
    """What code of rewards can do to this machine."""

    tier: str
    enforced: list[str]
    not_enforced: list[str]


class System(BaseModel):
    """The machine, and the server on it."""

    object: Literal["strop.system"] = "strop.system"
    version: str
    versions: dict[str, str] = Field(description="Of Python, the system and packages.")
    uptime_s: float
    devices: list[Device]
    memory_bytes: int
    memory_available_bytes: int
    disk: Disk
    data_folder: str
    database: str = Field(description="sqlite or postgresql.")
    isolation: Isolation


# What `rewards.sandbox.ProcessGroup` and the runner inside it do, in words.
_PROCESS = Isolation(
    tier="process",
    enforced=[
        "a process and a session of its own, ended with the run",
        "a clean environment: only the secrets that the reward names",
        "limits on time, memory, file size and open files",
    ],
    not_enforced=["reading files of this user", "the network", "the number of processes"],
)


@in_thread
def get(services: Services) -> System:
    """Devices, memory, disk, versions, and how rewards are isolated."""
    memory = psutil.virtual_memory()
    disk = psutil.disk_usage(str(services.folder.path))
    return System(
        version=__version__,
        versions=machine.versions(),
        uptime_s=time.time() - psutil.Process().create_time(),
        devices=[Device(**asdict(device)) for device in machine.devices()],
        memory_bytes=memory.total,
        memory_available_bytes=memory.available,
        disk=Disk(total_bytes=disk.total, free_bytes=disk.free),
        data_folder=str(services.folder.path),
        database=services.database.dialect,
        isolation=_PROCESS,
    )
