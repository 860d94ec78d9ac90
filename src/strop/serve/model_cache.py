"""Models in memory: a base once, and on it as many adapters as wanted."""

from __future__ import annotations

import gc
import os
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from strop.errors import ModelError, Unavailable
from strop.policy.attention import KvSlab, PrefillLayout
from strop.policy.fetch import Say, resolve
from strop.policy.model import Policy, attach, fast_dtype, load_policy
from strop.policy.weights import base_of, weight_count, whole_folder

GiB = 2**30

# Of all memory of a GPU, and of a machine, which has other things to do.
_SHARE = {"cuda": 0.9, "cpu": 0.6}


@dataclass(frozen=True, eq=False)
class Model:
    """A model in memory."""

    policy: Policy
    folder: str
    """Where its weights came from."""
    base: str | None
    """Folder of the base model that shares its weights."""
    memory_bytes: int
    """Memory of this model alone, in bytes."""
    token_bytes: int
    """Keys and values of one token."""


class ModelCache:
    """Loads and unloads models. For one thread at a time."""

    def __init__(self, device: torch.device, memory_limit: int | None, say: Say) -> None:
        """`memory_limit` in bytes, by default most of the device's. `say` receives messages on slow operations."""
        self.device = device
        self.memory_limit = memory_limit or int(_memory_of(device) * _SHARE[device.type])
        self._dtype = fast_dtype(device)
        self._say = say
        self._bases: dict[str, Model] = {}
        self._used: dict[str, int] = {}
        self.memory_bytes = 0
        """What all models take, each weight counted once."""

    def fetch(self, source: str) -> tuple[Path, Path | None]:
        """Where a model lies, and the base of an adapter, brought here first where they are not. The hub
        is not asked for what is here already. For any thread. ModelError where there is no such model.
        """
        folder = whole_folder(source) or Path(resolve(source, self._say))
        base = base_of(folder)
        return folder, None if base is None else whole_folder(base) or Path(resolve(base, self._say))

    def load(self, name: str, folder: Path, base: Path | None) -> Model:
        """Bring a model that was fetched into memory.

        Raises ModelError where it cannot be loaded, Unavailable where memory does not suffice.
        """
        try:
            return self._base(folder, name) if base is None else self._adapter(folder, name, base)
        except torch.OutOfMemoryError as error:
            self._tidy()
            message = f"{name}: memory does not suffice to load it; unload another model"
            raise Unavailable(message, retry_after=60) from error

    def drop(self, model: Model) -> None:
        """Forget a model; a base stays while an adapter or another name needs it."""
        if model.base is not None:
            self.memory_bytes -= model.memory_bytes
        self._release(model.base or model.folder)
        self._tidy()

    def _base(self, folder: Path, name: str) -> Model:
        key = os.path.realpath(folder)
        if key not in self._bases:
            self._check_room(name, weight_count(folder))
            policy = load_policy(str(folder), name, self.device, self._dtype)
            self._bases[key] = self._made(policy, key, None, _bytes_of(list(policy.model.parameters())))
            self.memory_bytes += self._bases[key].memory_bytes
        self._used[key] = self._used.get(key, 0) + 1
        return self._bases[key]

    def _adapter(self, folder: Path, name: str, base_folder: Path) -> Model:
        if base_of(base_folder) is not None:
            raise ModelError(f"{name}: its base {base_folder} is an adapter itself: not supported", param="model")
        base = self._base(base_folder, base_folder.name)
        try:
            policy = attach(base.policy, str(folder), name)
            own = {id(parameter) for parameter in base.policy.model.parameters()}
            extra = [parameter for parameter in policy.model.parameters() if id(parameter) not in own]
            model = self._made(policy, str(folder), base.folder, _bytes_of(extra))
        except BaseException:
            self._release(base.folder)
            raise
        self.memory_bytes += model.memory_bytes
        return model

    @torch.inference_mode()
    def _made(self, policy: Policy, folder: str, base: str | None, memory_bytes: int) -> Model:
        """Run a token, so that what is made on first use is made, and see what a token takes."""
        slab = KvSlab(1)
        slab.reserve(16)
        ids = torch.zeros(1, 1, dtype=torch.long, device=self.device)
        policy.logits(policy.hidden(ids, PrefillLayout([1], [[0]], slab, self.device)))
        packed = policy.frozen.packed_bytes if base is None else 0
        return Model(policy, folder, base, memory_bytes + packed, slab.memory_bytes // slab.capacity)

    def _check_room(self, name: str, numbers: int) -> None:
        copies = 2 if self.device.type == "cpu" else 1  # packed for the CPU's kernels
        need, free = numbers * self._dtype.itemsize * copies, self.memory_limit - self.memory_bytes
        if need > free:
            raise Unavailable(
                f"{name} needs about {need / GiB:.1f} GiB, {max(free, 0) / GiB:.1f} of "
                f"{self.memory_limit / GiB:.1f} are free; unload another model",
                retry_after=60,
            )

    def _release(self, key: str) -> None:
        self._used[key] -= 1
        if not self._used[key]:
            self.memory_bytes -= self._bases[key].memory_bytes
            del self._used[key], self._bases[key]

    def _tidy(self) -> None:
        gc.collect()  # modules and their parameters refer to each other
        if self.device.type == "cuda":
            torch.cuda.empty_cache()


def _bytes_of(tensors: list[Tensor]) -> int:
    return sum(tensor.nbytes for tensor in tensors)


def _memory_of(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
