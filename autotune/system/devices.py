"""Lists NVIDIA devices by NVML, and what is in use on them; none without a driver. Raises nothing."""

import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import psutil
import pynvml

from autotune.system import nvml
from autotune.system.nvml import Gpu

_NO_DEVICE = {"", "-1", "NoDevFiles"}  # values of CUDA_VISIBLE_DEVICES for no device; the last is Slurm's

_ANSWER_S = 20.0  # a driver that takes longer hangs, as it does after some faults of a GPU
_ASK = "import os; from autotune.system import devices; devices.list_visible(os.environ.get(devices.VISIBLE))"
_abandoned: list[subprocess.Popen[str]] = []  # kept, because collecting one that still runs is a warning

_hanging: threading.Thread | None = None

VISIBLE = "CUDA_VISIBLE_DEVICES"
HUNG = f"it has not answered within {_ANSWER_S:.0f} s: dmesg may show an Xid error"
DRIVER = "NVIDIA driver"  # the label of the device that stands for it if it refuses altogether


@dataclass(frozen=True)
class Device:
    """A visible device; a MIG slice is a device of its own."""

    label: str  # with nvidia-smi's number
    uuid: str | None = None
    name: str | None = None
    gpu: Gpu | None = None  # None if NVML cannot fully query it
    refused: str | None = None  # the driver's reason for that


@dataclass(frozen=True)
class _OpenDevice:
    """A device while NVML is open."""

    label: str
    handle: Any = None  # NVML's
    uuid: str | None = None
    parent: Any = None  # the handle of the device that a slice is a part of
    refused: str | None = None  # why there is no handle


def number_by_bus(environment: MutableMapping[str, str]) -> None:
    """Makes CUDA number the GPUs by PCI bus, as NVML and Ray do; by default it starts with the fastest."""
    environment["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"


def restrict_to(environment: MutableMapping[str, str], gpus: Iterable[Gpu]) -> None:
    """Makes only these GPUs visible to CUDA."""
    environment[VISIBLE] = ",".join(gpu.uuid for gpu in gpus)


def list_visible(names: str | None) -> tuple[Device, ...]:
    """Returns the devices in `names`, a value of CUDA_VISIBLE_DEVICES, in that order; None: all.

    Numbers are nvidia-smi's. All MIG slices are listed, although CUDA shows only one. An invalid entry, or a
    faulty driver, is listed as a device with `refused`.
    """
    if _hides_all(names):  # then a driver that hangs must not be asked
        return ()
    with nvml.library() as is_available:
        if is_available:
            return tuple(_describe(one) for one in _visible(names))
    error = nvml.error()
    is_faulty = error is not None and not isinstance(error, nvml.NO_DRIVER)
    return (Device(DRIVER, refused=str(error)),) if is_faulty else ()


def _hides_all(names: str | None) -> bool:
    return names is not None and names.split(",")[0].strip() in _NO_DEVICE


@contextmanager
def opened() -> Iterator[list[Any]]:
    """Keeps NVML open; yields the handles of this process's visible devices, none without a driver."""
    names = os.environ.get(VISIBLE)
    if _hides_all(names):
        yield []
        return
    with nvml.library() as is_available:
        yield [one.handle for one in _visible(names) if one.handle is not None] if is_available else []


def hung_driver() -> Device | None:
    """Returns a device with `refused` that stands for a hung driver, None if the driver answers in time."""
    # In a child process, because no signal ends a process that waits for a driver.
    if not nvml.has_node() or run_abandoning([sys.executable, "-P", "-c", _ASK], _ANSWER_S) is not None:
        return None
    return Device(DRIVER, refused=HUNG)


def run_abandoning(
    arguments: Sequence[str], timeout_s: float, text: str = "", environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str] | None:
    """Runs a process with `text` as its input; kills it and returns None after `timeout_s`."""
    pipe = subprocess.PIPE
    process = subprocess.Popen(  # noqa: S603 - this Python, or the user's own
        arguments, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=environment
    )
    try:
        output, errors = process.communicate(text, timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        _abandoned.append(process)  # not waited for: one that waits for a driver may never end
        return None
    return subprocess.CompletedProcess(arguments, process.returncode, output, errors)


def _visible(names: str | None) -> list[_OpenDevice]:
    every, forbidden, count = list[_OpenDevice](), list[_OpenDevice](), 0
    try:
        count = pynvml.nvmlDeviceGetCount()
    except pynvml.NVMLError as error:
        every.append(_OpenDevice("GPUs", refused=str(error)))
    for index in range(count):
        label = f"GPU {index}"
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            every.append(_OpenDevice(label, handle, str(pynvml.nvmlDeviceGetUUID(handle))))
        except pynvml.NVMLError_NoPermission as error:  # this process may not open it, and CUDA skips it
            forbidden.append(_OpenDevice(label, refused=str(error)))
        except pynvml.NVMLError as error:
            every.append(_OpenDevice(label, refused=str(error)))
    chosen = every if names is None else list(_select(names, every))
    return [part for one in chosen for part in _usable_parts(one)] + (forbidden if names is None else [])


def _select(names: str, every: Sequence[_OpenDevice]) -> Iterator[_OpenDevice]:
    """Yields the devices in `names` up to the first invalid entry, as CUDA does."""
    labels = set()
    for entry in (part.strip() for part in names.split(",")):
        one = _find(entry, every)
        if one is None or one.label in labels:
            if entry not in _NO_DEVICE:
                yield _OpenDevice(f"{VISIBLE}={names}", refused=f"{entry} is not one device")
            return
        labels.add(one.label)
        yield one


def _find(entry: str, every: Sequence[_OpenDevice]) -> _OpenDevice | None:
    """Returns the device that `entry` names by number, UUID or a unique prefix of a UUID."""
    if entry.startswith("MIG-"):
        try:
            handle = pynvml.nvmlDeviceGetHandleByUUID(entry)
            parent = pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle)
        except pynvml.NVMLError as error:
            return _OpenDevice(entry, refused=str(error))
        return _OpenDevice(entry, handle, entry, parent=parent)
    if entry.isdecimal():
        matches = every[int(entry) :][:1]
    else:
        matches = [one for one in every if entry and (one.uuid or "").startswith(entry)]
    return matches[0] if len(matches) == 1 else None


def _query(query: Callable[..., Any], handle: Any, otherwise: Any) -> Any:
    try:
        return query(handle)
    except pynvml.NVMLError:
        return otherwise


def _usable_parts(device: _OpenDevice) -> list[_OpenDevice]:
    if device.handle is None or device.parent is not None:
        return [device]
    if not _query(pynvml.nvmlDeviceGetMigMode, device.handle, (0, 0))[0]:
        return [device]
    slices = []
    for index in range(_query(pynvml.nvmlDeviceGetMaxMigDeviceCount, device.handle, 0)):
        with suppress(pynvml.NVMLError):
            handle = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(device.handle, index)
            uuid = str(pynvml.nvmlDeviceGetUUID(handle))
            slices.append(_OpenDevice(f"{device.label} MIG {index}", handle, uuid, parent=device.handle))
    return slices or [replace(device, handle=None, refused="it is in MIG mode, without a slice")]


def _describe(device: _OpenDevice) -> Device:
    if device.handle is None:
        return Device(device.label, device.uuid, refused=device.refused)
    name, parent = None, device.handle if device.parent is None else device.parent
    try:
        name = str(pynvml.nvmlDeviceGetName(device.handle))
        try:
            memory = pynvml.nvmlDeviceGetMemoryInfo(device.handle)
            memory_bytes, used_bytes = int(memory.total), int(memory.used)
        except pynvml.NVMLError_NotSupported:  # integrated: it has the host's memory, the CPUs need a share
            host = psutil.virtual_memory()
            memory_bytes = host.total
            used_bytes = min(host.total, host.total - host.available + host.total // 8)
        major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(parent)
    except pynvml.NVMLError as error:
        return Device(device.label, device.uuid, name, refused=str(error))
    is_exclusive = _query(pynvml.nvmlDeviceGetComputeMode, parent, None) in {
        pynvml.NVML_COMPUTEMODE_EXCLUSIVE_THREAD,
        pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS,
    }
    # With NVIDIA's MPS, the one process on an exclusive GPU is its server.
    mps = Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"))  # noqa: S108 - read only
    exclusive = is_exclusive and not (mps / "control").exists()
    capability = int(major), int(minor)
    gpu = Gpu(name, memory_bytes, capability, device.uuid or "", exclusive, device.label, used_bytes)
    return Device(device.label, device.uuid, name, gpu)


def used_bytes() -> int:
    """Returns the memory in use on all visible GPUs together, 0 if unknown."""
    return sum(_query_all(lambda gpu: [int(pynvml.nvmlDeviceGetMemoryInfo(gpu).used)]))


def held_bytes() -> dict[int, int]:
    """Returns the bytes on visible GPUs by process ID, 0 if unknown; a container may have other IDs."""
    held: Counter[int] = Counter()
    for process in _query_all(pynvml.nvmlDeviceGetComputeRunningProcesses):
        held[process.pid] += process.usedGpuMemory or 0
    return dict(held)


def _query_all(ask: Callable[[Any], list[Any]]) -> list[Any]:
    """Returns the answers for all visible devices; none if the driver refuses, or hangs."""
    global _hanging  # noqa: PLW0603 - one thread at most waits for a driver that hangs
    if _hanging is not None and _hanging.is_alive():
        return []
    answers = SimpleQueue[list[Any]]()

    def query() -> None:
        found = []
        # mismatch: the driver is too old
        with suppress(pynvml.NVMLError, pynvml.NVMLLibraryMismatchError), opened() as visible:
            found = [one for handle in visible for one in ask(handle)]
        answers.put(found)

    # In a thread, because a trial must be killed even if the driver hangs.
    asking = threading.Thread(target=query, name="nvml", daemon=True)
    asking.start()
    with suppress(Empty):
        return answers.get(timeout=_ANSWER_S / 4)
    _hanging = asking
    return []
