"""What NVML says of this machine's GPUs. Without an NVIDIA driver there are none, and nothing raises."""

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import psutil
import pynvml

Reading = Mapping[str, float]

# Slowdowns that somebody has to look into. A software power cap is none: under load it is the normal state.
_THROTTLED = (
    pynvml.nvmlClocksEventReasonSwThermalSlowdown
    | pynvml.nvmlClocksEventReasonHwThermalSlowdown
    | pynvml.nvmlClocksEventReasonHwPowerBrakeSlowdown
    | pynvml.nvmlClocksEventReasonHwSlowdown
)

_QUERIES: dict[str, Callable[[Any], float]] = {
    "gpu_utilisation_percent": lambda gpu: pynvml.nvmlDeviceGetUtilizationRates(gpu).gpu,
    "gpu_memory_used_bytes": lambda gpu: pynvml.nvmlDeviceGetMemoryInfo(gpu).used,
    "gpu_temperature_c": lambda gpu: pynvml.nvmlDeviceGetTemperature(gpu, pynvml.NVML_TEMPERATURE_GPU),
    "gpu_power_w": lambda gpu: pynvml.nvmlDeviceGetPowerUsage(gpu) / 1e3,
    "gpu_sm_clock_mhz": lambda gpu: pynvml.nvmlDeviceGetClockInfo(gpu, pynvml.NVML_CLOCK_SM),
    "gpu_throttled": lambda gpu: bool(pynvml.nvmlDeviceGetCurrentClocksEventReasons(gpu) & _THROTTLED),
    "energy_counter_j": lambda gpu: pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu) / 1e3,
}


@dataclass(frozen=True)
class Gpu:
    """A CUDA device. `memory_bytes` is all of it, what the driver keeps for itself included.

    Of that `used_bytes` were in use when the device was asked.
    """

    name: str
    memory_bytes: int
    compute_capability: tuple[int, int]
    uuid: str
    used_bytes: int = 0


@contextmanager
def library() -> Iterator[bool]:
    """Keeps NVML open; False where there is no NVIDIA driver to ask."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        yield False
        return
    try:
        yield True
    finally:
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def missing() -> str | None:
    """Why no GPU can be asked, in the driver's words; None where one can."""
    try:
        pynvml.nvmlInit()
        pynvml.nvmlShutdown()
    except pynvml.NVMLError as error:
        return str(error)
    return None


def driver() -> str | None:
    """The driver's version, None without one."""
    with library() as found:
        return str(pynvml.nvmlSystemGetDriverVersion()) if found else None


def gpus(visible: str | None) -> tuple[Gpu, ...]:
    """The GPUs that CUDA shows under the given CUDA_VISIBLE_DEVICES, in that order.

    A number counts in PCI bus order. So does CUDA's where all cards are alike, or CUDA_DEVICE_ORDER
    is PCI_BUS_ID.
    """
    with library() as found:
        return tuple(_describe(handle) for handle in handles(visible)) if found else ()


def handles(visible: str | None) -> list[Any]:
    """NVML's handles of the visible devices. Only while `library` is open."""
    every = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
    return [
        pynvml.nvmlDeviceGetHandleByUUID(uuid)
        for uuid in select([pynvml.nvmlDeviceGetUUID(handle) for handle in every], visible)
    ]


def select(uuids: Sequence[str], visible: str | None) -> list[str]:
    """What CUDA_VISIBLE_DEVICES leaves of the devices: numbers, UUIDs or prefixes, up to a bad one."""
    if visible is None:
        return list(uuids)
    chosen: list[str] = []
    for entry in (part.strip() for part in visible.split(",")):
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


def read(handle: Any) -> dict[str, float]:
    """A device's figures now, without those that it does not support."""
    values = {}
    for name, query in _QUERIES.items():
        with suppress(pynvml.NVMLError):
            values[name] = float(query(handle))
    return values


def others(handle: Any, own: Collection[int], seconds: float) -> dict[str, float]:
    """`others_gpu_percent`: how busy others than the processes `own` kept a device in the last `seconds`.

    Nothing where the driver does not tell processes apart, or names none of `own` as running there: then it
    may know them by other numbers than this process does, as it does of a container's.
    """
    try:
        running = {process.pid for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)}
        if running.isdisjoint(own):
            return {}
        samples = _process_samples(handle, round((time.time() - seconds) * 1e6))
    except pynvml.NVMLError:
        return {}
    busiest: dict[int, float] = {}
    for sample in samples:
        busiest[sample.pid] = max(float(sample.smUtil), busiest.get(sample.pid, 0.0))
    return {"others_gpu_percent": min(100.0, sum(v for pid, v in busiest.items() if pid not in own))}


def _process_samples(handle: Any, since_us: int) -> Sequence[Any]:
    try:
        found: Sequence[Any] = pynvml.nvmlDeviceGetProcessUtilization(handle, since_us)
    except pynvml.NVMLError_NotFound:  # nobody was busy
        return ()
    return found


def energy_j(before: Reading, after: Reading, seconds: float) -> float | None:
    """What a device used between two readings: its counter's difference, else power times time."""
    if "energy_counter_j" in before and "energy_counter_j" in after:
        return max(0.0, after["energy_counter_j"] - before["energy_counter_j"])
    if "gpu_power_w" in before and "gpu_power_w" in after:
        return seconds * (before["gpu_power_w"] + after["gpu_power_w"]) / 2
    return None


def combine(readings: Sequence[Reading]) -> dict[str, float]:
    """Several devices as one: power is their sum, memory the fullest's, throttled when any is; else means.

    Of what others do it is the device that they use most: the slowest holds all of them up.
    """
    combined = {}
    for name in {*_QUERIES, "others_gpu_percent"} - {"energy_counter_j"}:
        if values := [reading[name] for reading in readings if name in reading]:
            combined[name] = _COMBINED.get(name, _mean)(values)
    return combined


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


_COMBINED: dict[str, Callable[[Sequence[float]], float]] = {
    "gpu_power_w": sum,
    "gpu_memory_used_bytes": max,
    "gpu_throttled": max,
    "others_gpu_percent": max,
}


def _describe(handle: Any) -> Gpu:
    major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
    try:
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
        memory_bytes, used_bytes = int(memory.total), int(memory.used)
    except pynvml.NVMLError_NotSupported:  # an integrated GPU: its memory is the host's
        memory_bytes, used_bytes = psutil.virtual_memory().total, 0
    return Gpu(
        name=str(pynvml.nvmlDeviceGetName(handle)),
        memory_bytes=memory_bytes,
        compute_capability=(int(major), int(minor)),
        uuid=str(pynvml.nvmlDeviceGetUUID(handle)),
        used_bytes=used_bytes,
    )
