"""Lists NVIDIA devices by NVML, none without a driver; nothing raises.

A device that cannot be queried, because it fell off the bus or is not accessible to this process, is listed
with its error, and does not hide the others.
"""

from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import psutil
import pynvml

from autotune.system import nvml
from autotune.system.nvml import Gpu

_EXCLUSIVE = {pynvml.NVML_COMPUTEMODE_EXCLUSIVE_THREAD, pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS}
_NO_DEVICE = {"", "-1", "NoDevFiles"}  # values of CUDA_VISIBLE_DEVICES for no device; the last is Slurm's

VISIBLE = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True)
class Device:
    """A visible device; a MIG slice is a device of its own."""

    label: str  # with nvidia-smi's number
    uuid: str | None = None
    name: str | None = None
    gpu: Gpu | None = None  # None if NVML cannot fully query it
    refused: str | None = None  # why not, in the driver's words


@dataclass(frozen=True)
class _Found:
    """A device while NVML is open."""

    label: str
    handle: Any = None  # NVML's
    uuid: str | None = None
    parent: Any = None  # the handle of the device that a slice is a part of
    refused: str | None = None  # why there is no handle


def number_by_bus(environment: MutableMapping[str, str]) -> None:
    """Makes CUDA number GPUs by PCI bus, as NVML and Ray do; by default it starts with the fastest."""
    environment["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"


def restrict_to(environment: MutableMapping[str, str], gpus: Iterable[Gpu]) -> None:
    """Makes only these GPUs visible to CUDA."""
    environment[VISIBLE] = ",".join(gpu.uuid for gpu in gpus)


def list_visible(names: str | None) -> tuple[Device, ...]:
    """Returns the devices in `names`, a value of CUDA_VISIBLE_DEVICES, in that order; None: all.

    Numbers are those of nvidia-smi, by PCI bus, without devices that this process may not open. All MIG
    slices are listed, although CUDA shows only one. An invalid entry, or a faulty driver, is listed as a
    device that refuses.
    """
    with nvml.library() as is_available:
        if is_available:
            return tuple(_describe(one) for one in _visible(names))
    error, is_asked = nvml.error(), names is None or names.split(",")[0].strip() not in _NO_DEVICE
    is_faulty = error is not None and not isinstance(error, nvml.NO_DRIVER)
    return (Device("NVIDIA driver", refused=str(error)),) if is_faulty and is_asked else ()


def handles(names: str | None) -> list[Any]:
    """Returns the NVML handles of the visible devices that have one, valid while NVML is open."""
    return [one.handle for one in _visible(names) if one.handle is not None]


def _visible(names: str | None) -> list[_Found]:
    every, forbidden = _list_all()
    chosen = every if names is None else list(_select(names, every))
    return [part for one in chosen for part in _usable_parts(one)] + (forbidden if names is None else [])


def _select(names: str, every: Sequence[_Found]) -> Iterator[_Found]:
    """Yields the devices in `names` up to the first invalid entry, as CUDA does."""
    labels = set()
    for entry in (part.strip() for part in names.split(",")):
        one = _find(entry, every)
        if one is None or one.label in labels:
            if entry not in _NO_DEVICE:
                yield _Found(f"{VISIBLE}={names}", refused=f"{entry} is not one device")
            return
        labels.add(one.label)
        yield one


def _find(entry: str, every: Sequence[_Found]) -> _Found | None:
    """Returns the device that `entry` names by number, UUID or a unique prefix of a UUID."""
    if entry.startswith("MIG-"):
        return _slice_of(entry)
    if entry.isdecimal():
        matches = every[int(entry) :][:1]
    else:
        matches = [one for one in every if entry and (one.uuid or "").startswith(entry)]
    return matches[0] if len(matches) == 1 else None


def _list_all() -> tuple[list[_Found], list[_Found]]:
    """Returns all devices, and separately those that this process may not open, which CUDA skips."""
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


def _query(query: Callable[..., Any], handle: Any, otherwise: Any) -> Any:
    """Returns NVML's answer, or `otherwise` if the device does not support the query."""
    try:
        return query(handle)
    except pynvml.NVMLError:
        return otherwise


def _usable_parts(found: _Found) -> list[_Found]:
    """Returns the slices of a device in MIG mode, where only they are usable; otherwise the device."""
    if found.handle is None or found.parent is not None:
        return [found]
    if not _query(pynvml.nvmlDeviceGetMigMode, found.handle, (0, 0))[0]:
        return [found]
    return list(_slices(found)) or [replace(found, handle=None, refused="it is in MIG mode, without a slice")]


def _slices(found: _Found) -> Iterator[_Found]:
    for index in range(_query(pynvml.nvmlDeviceGetMaxMigDeviceCount, found.handle, 0)):
        with suppress(pynvml.NVMLError):
            handle = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(found.handle, index)
            uuid = str(pynvml.nvmlDeviceGetUUID(handle))
            yield _Found(f"{found.label} MIG {index}", handle, uuid, parent=found.handle)


def _slice_of(uuid: str) -> _Found:
    try:
        handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        parent = pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle)
    except pynvml.NVMLError as error:
        return _Found(uuid, refused=str(error))
    return _Found(uuid, handle, uuid, parent=parent)


def _describe(found: _Found) -> Device:
    if found.handle is None:
        return Device(found.label, found.uuid, refused=found.refused)
    name, whole = None, found.handle if found.parent is None else found.parent
    try:
        name = str(pynvml.nvmlDeviceGetName(found.handle))
        memory_bytes, used_bytes = _memory_bytes(found.handle)
        major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(whole)
    except pynvml.NVMLError as error:
        return Device(found.label, found.uuid, name, refused=str(error))
    exclusive = _query(pynvml.nvmlDeviceGetComputeMode, whole, None) in _EXCLUSIVE
    capability = int(major), int(minor)
    gpu = Gpu(name, memory_bytes, capability, found.uuid or "", exclusive, found.label, used_bytes)
    return Device(found.label, found.uuid, name, gpu)


def _memory_bytes(handle: Any) -> tuple[int, int]:
    try:
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
        return int(memory.total), int(memory.used)
    except pynvml.NVMLError_NotSupported:
        return psutil.virtual_memory().total, 0  # an integrated GPU: its memory is the host's
