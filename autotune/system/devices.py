"""Which NVIDIA devices there are, by NVML. Without a driver there are none, and nothing raises.

Any device may refuse to answer: one that has fallen off the bus, one that this process may not open. It costs
that device alone, which then says why.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import psutil
import pynvml

from autotune.system import nvml
from autotune.system.nvml import Gpu

_EXCLUSIVE = {pynvml.NVML_COMPUTEMODE_EXCLUSIVE_THREAD, pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS}
_NO_DEVICE = {"", "-1", "NoDevFiles"}  # in CUDA_VISIBLE_DEVICES, the last one by Slurm: none is wanted


VISIBLE, ORDER = "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"
_BY_BUS = "PCI_BUS_ID"


@dataclass(frozen=True)
class Device:
    """A visible device, called as nvidia-smi numbers it. A MIG slice is one by itself.

    Where NVML does not tell all of it, there is no `gpu`, and `refused` is why, in the driver's words.
    """

    label: str
    uuid: str | None = None
    name: str | None = None
    gpu: Gpu | None = None
    refused: str | None = None


@dataclass(frozen=True)
class _Found:
    """A device by NVML's handle; without one, what keeps it from being asked. A slice has a `parent`."""

    label: str
    handle: Any = None
    uuid: str | None = None
    parent: Any = None
    refused: str | None = None


def number_alike(environment: MutableMapping[str, str]) -> None:
    """Has CUDA number the GPUs as NVML and nvidia-smi do, by their buses, unless the user has said otherwise.

    By itself it begins with the fastest.
    """
    environment.setdefault(ORDER, _BY_BUS)


def show(environment: MutableMapping[str, str], gpus: Iterable[Gpu]) -> None:
    """Has CUDA show just these GPUs."""
    environment[VISIBLE] = ",".join(gpu.uuid for gpu in gpus)


def other_order(gpus: Collection[Gpu], environment: Mapping[str, str]) -> str | None:
    """What to say of the user's own order of GPUs, where it can be another one than NVML's."""
    order = environment.get(ORDER, _BY_BUS)
    if order == _BY_BUS or len({gpu.name for gpu in gpus}) < 2:
        return None
    return f"{ORDER}={order}: a GPU's number is nvidia-smi's all the same"


def must_be_named(gpus: Collection[Gpu], environment: Mapping[str, str]) -> bool:
    """Whether CUDA needs the GPUs by UUID: it counts in another order, or shows one slice alone."""
    is_divided = any(gpu.uuid.startswith("MIG-") for gpu in gpus)
    return is_divided or other_order(gpus, environment) is not None


def visible(names: str | None) -> tuple[Device, ...]:
    """The devices that CUDA_VISIBLE_DEVICES names, in that order, and what it names that is none.

    A number counts as nvidia-smi does, in the order of PCI buses; so does CUDA where CUDA_DEVICE_ORDER is
    PCI_BUS_ID. CUDA does not count what this process may not open, and shows one MIG slice alone: here all
    slices are devices. A driver at fault is one that refuses.
    """
    with nvml.library() as found:
        if found:
            return tuple(_describe(one) for one in _visible(names))
    fault = nvml.fault() if names is None or names.split(",")[0].strip() not in _NO_DEVICE else None
    return (Device("NVIDIA driver", refused=fault),) if fault else ()


def handles(names: str | None) -> list[Any]:
    """NVML's handles of the visible devices that have one. Only while `library` is open."""
    return [one.handle for one in _visible(names) if one.handle is not None]


def _visible(names: str | None) -> list[_Found]:
    every, forbidden = _every()
    known = {one.uuid or one.label: one for one in every}
    chosen = select(list(known), names)
    found = [part for key in chosen for part in _parts(known.get(key) or _slice_of(key))]
    return found + (forbidden if names is None else _bad_entry(names, len(chosen)))


def _every() -> tuple[list[_Found], list[_Found]]:
    """All devices, and apart from them those that this process may not open, which CUDA does not count."""
    every: list[_Found] = []
    forbidden: list[_Found] = []
    try:
        count = pynvml.nvmlDeviceGetCount()
    except pynvml.NVMLError as error:
        return [_Found("GPUs", refused=str(error))], []
    for index in range(count):
        label = f"GPU {index}"
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            every.append(_Found(label, handle, str(pynvml.nvmlDeviceGetUUID(handle))))
        except pynvml.NVMLError_NoPermission as error:
            forbidden.append(_Found(label, refused=str(error)))
        except pynvml.NVMLError as error:
            every.append(_Found(label, refused=str(error)))
    return every, forbidden


def _parts(found: _Found) -> list[_Found]:
    """The slices of a device in MIG mode, none of which has its memory; any other one itself."""
    if found.handle is None or found.parent is not None or not _is_divided(found.handle):
        return [found]
    return list(_slices(found)) or [replace(found, handle=None, refused="it is in MIG mode, without a slice")]


def _is_divided(handle: Any) -> bool:
    try:
        return bool(pynvml.nvmlDeviceGetMigMode(handle)[0])
    except pynvml.NVMLError:  # it knows nothing of MIG
        return False


def _slices(found: _Found) -> Iterator[_Found]:
    try:
        most = pynvml.nvmlDeviceGetMaxMigDeviceCount(found.handle)
    except pynvml.NVMLError:
        return
    for index in range(most):
        with suppress(pynvml.NVMLError):
            handle = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(found.handle, index)
            uuid = str(pynvml.nvmlDeviceGetUUID(handle))
            yield _Found(f"{found.label} MIG {index}", handle, uuid, parent=found.handle)


def _slice_of(uuid: str) -> _Found:
    """The MIG slice that CUDA_VISIBLE_DEVICES names."""
    try:
        handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        parent = pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle)
    except pynvml.NVMLError as error:
        return _Found(uuid, refused=str(error))
    return _Found(uuid, handle, uuid, parent=parent)


def _bad_entry(names: str, good: int) -> list[_Found]:
    """What CUDA_VISIBLE_DEVICES names after its first `good` entries, and CUDA shows no more."""
    bad = [entry.strip() for entry in names.split(",")][good:]
    if not bad or bad[0] in _NO_DEVICE:
        return []
    return [_Found(f"CUDA_VISIBLE_DEVICES={names}", refused=f"{bad[0]} is not one device")]


def select(uuids: Sequence[str], names: str | None) -> list[str]:
    """What CUDA_VISIBLE_DEVICES leaves of the devices: numbers, UUIDs or prefixes, up to a bad one."""
    if names is None:
        return list(uuids)
    chosen: list[str] = []
    for entry in (part.strip() for part in names.split(",")):
        if entry.isdecimal():
            matches = [uuids[int(entry)]] if int(entry) < len(uuids) else []
        elif entry.startswith("MIG-"):
            matches = [entry]  # a part of a device: not among `uuids`, NVML knows it
        else:
            matches = [uuid for uuid in uuids if entry and uuid.startswith(entry)]
        if len(matches) != 1 or matches[0] in chosen:
            break
        chosen += matches
    return chosen


def _describe(found: _Found) -> Device:
    if found.handle is None:
        return Device(found.label, found.uuid, refused=found.refused)
    name = None
    try:
        name = str(pynvml.nvmlDeviceGetName(found.handle))
        memory_bytes, used_bytes = _memory_bytes(found.handle)
        gpu = Gpu(
            name=name,
            memory_bytes=memory_bytes,
            compute_capability=_compute_capability(found.handle, found.parent),
            uuid=found.uuid or "",
            exclusive=_is_exclusive(found.parent or found.handle),
            label=found.label,
            used_bytes=used_bytes,
        )
    except pynvml.NVMLError as error:
        return Device(found.label, found.uuid, name, refused=str(error))
    return Device(found.label, found.uuid, name, gpu)


def _compute_capability(handle: Any, parent: Any) -> tuple[int, int]:
    """Of a slice it is its parent's, where the driver does not say it of slices."""
    try:
        major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
    except pynvml.NVMLError:
        if parent is None:
            raise
        major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(parent)
    return int(major), int(minor)


def _memory_bytes(handle: Any) -> tuple[int, int]:
    """All of a device's memory, and what of it is in use."""
    try:
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
        return int(memory.total), int(memory.used)
    except pynvml.NVMLError_NotSupported:
        return psutil.virtual_memory().total, 0  # an integrated GPU: its memory is the host's


def _is_exclusive(handle: Any) -> bool:
    try:
        return pynvml.nvmlDeviceGetComputeMode(handle) in _EXCLUSIVE
    except pynvml.NVMLError:
        return False
