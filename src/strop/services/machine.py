"""The machine that the server runs on: devices, memory, disk, versions. Asks no library of models."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil

MiB = 1024 * 1024
_PACKAGES = ("torch", "transformers", "peft", "fastapi", "uvicorn", "sqlalchemy", "vllm", "ray")
_FIELDS = ("index", "name", "memory.total", "memory.used", "utilization.gpu")


@dataclass(frozen=True)
class Device:
    """Something to train on."""

    id: str
    """As torch names it: cpu, cuda:0 …"""
    name: str
    memory_bytes: int
    memory_used_bytes: int
    utilization: float | None
    """Share of the time that it is busy, 0 to 1."""


def devices() -> list[Device]:
    """The processor, and every GPU that NVIDIA's driver shows."""
    memory = psutil.virtual_memory()
    used = memory.total - memory.available
    cpu = Device("cpu", _processor(), memory.total, used, psutil.cpu_percent() / 100)
    return [cpu, *gpus(os.environ.get("PATH", os.defpath))]


def gpus(path: str) -> list[Device]:
    """What `nvidia-smi` tells, where there is one in the search path."""
    program = shutil.which("nvidia-smi", path=path)
    if program is None:
        return []
    command = [program, f"--query-gpu={','.join(_FIELDS)}", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    return [_gpu(line.split(", ")) for line in answer.splitlines()]


def versions() -> dict[str, str]:
    """Python, the system, and the packages that matter and are installed."""
    found = {"python": platform.python_version(), "system": platform.platform(terse=True)}
    for package in _PACKAGES:
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


def _processor() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return f"{line.partition(':')[2].strip()}, {psutil.cpu_count()} cores"
    return f"{platform.machine()}, {psutil.cpu_count()} cores"


def _gpu(fields: list[str]) -> Device:
    index, name, total, used, busy = fields
    utilization = float(busy) / 100 if busy.isdecimal() else None
    return Device(f"cuda:{index}", name, _bytes(total), _bytes(used), utilization)


def _bytes(mebibytes: str) -> int:
    return int(mebibytes) * MiB if mebibytes.isdecimal() else 0
