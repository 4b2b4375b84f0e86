"""Figures of GPUs in use, from NVML; none without an NVIDIA driver. Raises nothing."""

import re
import statistics
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pynvml

Reading = Mapping[str, float]

_OF_ONE = re.compile(r"^gpu_(\d+)_")
# Errors if there is no driver, as opposed to a faulty one, such as one replaced while running.
NO_DRIVER = (pynvml.NVMLError_LibraryNotFound, pynvml.NVMLError_DriverNotLoaded)
_NODES = ("/dev/nvidiactl", "/dev/dxg")  # the latter exists under WSL, for GPUs of any vendor
# Slowdowns that need attention. A software power cap is not one: it is normal under load.
_THROTTLED = (
    pynvml.nvmlClocksEventReasonSwThermalSlowdown
    | pynvml.nvmlClocksEventReasonHwThermalSlowdown
    | pynvml.nvmlClocksEventReasonHwPowerBrakeSlowdown
    | pynvml.nvmlClocksEventReasonHwSlowdown
)

_QUERIES: dict[str, Callable[[Any], float]] = {
    "gpu_utilisation_percent": lambda gpu: pynvml.nvmlDeviceGetUtilizationRates(gpu).gpu,
    "gpu_memory_used_bytes": lambda gpu: pynvml.nvmlDeviceGetMemoryInfo(gpu).used,
    "gpu_memory_free_bytes": lambda gpu: pynvml.nvmlDeviceGetMemoryInfo(gpu).free,
    "gpu_temperature_c": lambda gpu: pynvml.nvmlDeviceGetTemperature(gpu, pynvml.NVML_TEMPERATURE_GPU),
    "gpu_power_w": lambda gpu: pynvml.nvmlDeviceGetPowerUsage(gpu) / 1e3,
    "gpu_sm_clock_mhz": lambda gpu: pynvml.nvmlDeviceGetClockInfo(gpu, pynvml.NVML_CLOCK_SM),
    "gpu_memory_clock_mhz": lambda gpu: pynvml.nvmlDeviceGetClockInfo(gpu, pynvml.NVML_CLOCK_MEM),
    "gpu_throttled": lambda gpu: bool(pynvml.nvmlDeviceGetCurrentClocksEventReasons(gpu) & _THROTTLED),
    "energy_counter_j": lambda gpu: pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu) / 1e3,
}
_COMBINED: dict[str, Callable[[Sequence[float]], float]] = {  # of several devices; all else is a mean
    "gpu_power_w": sum,
    "gpu_memory_used_bytes": max,
    "gpu_memory_free_bytes": min,
    "gpu_throttled": max,
    "others_gpu_percent": max,  # the slowest device holds up the others
}


@dataclass(frozen=True)
class Gpu:
    name: str
    memory_bytes: int  # all of it, including what the driver reserves
    compute_capability: tuple[int, int]
    uuid: str
    exclusive: bool = False  # admits one process at a time
    label: str = ""  # nvidia-smi's
    used_bytes: int = 0  # when the device was queried

    @property
    def free_bytes(self) -> int:
        return self.memory_bytes - self.used_bytes


@contextmanager
def library() -> Iterator[bool]:
    """Keeps NVML open; yields False if there is no NVIDIA driver to query."""
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


def is_hidden() -> bool:
    """Returns True if a GPU may exist without NVML, as in a container without the driver's tools."""
    return isinstance(error(), NO_DRIVER) and has_node()


def has_node() -> bool:
    """Returns True if the kernel has a driver for a GPU."""
    return any(Path(node).exists() for node in _NODES)


def error() -> pynvml.NVMLError | None:
    """Returns the driver's error if no GPU can be queried, None otherwise."""
    try:
        pynvml.nvmlInit()
        pynvml.nvmlShutdown()
    except pynvml.NVMLError as error:
        return error
    return None


def driver() -> str | None:
    """Returns the driver's version, None without a driver."""
    with library() as is_available, suppress(pynvml.NVMLError):
        return str(pynvml.nvmlSystemGetDriverVersion()) if is_available else None
    return None


def read(handle: Any) -> dict[str, float]:
    """Returns a device's current figures, without those that it does not support."""
    values = {}
    for name, query in _QUERIES.items():
        with suppress(pynvml.NVMLError):
            values[name] = float(query(handle))
    return values


def load_by_others(handle: Any, own: Collection[int], seconds: float) -> dict[str, float]:
    """Returns `others_gpu_percent`, the load by others than `own` in the last `seconds`; {} if unknown."""
    try:
        running = {process.pid for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)}
        if running.isdisjoint(own):  # NVML's process IDs may differ from those here, as in a container
            return {}
        samples = pynvml.nvmlDeviceGetProcessUtilization(handle, round((time.time() - seconds) * 1e6))
    except pynvml.NVMLError_NotFound:  # no process was busy
        samples = ()
    except pynvml.NVMLError:
        return {}
    busiest: dict[int, float] = {}
    for sample in samples:
        busiest[sample.pid] = max(float(sample.smUtil), busiest.get(sample.pid, 0.0))
    return {"others_gpu_percent": min(100.0, sum(v for pid, v in busiest.items() if pid not in own))}


def energy_j(before: Reading, after: Reading, seconds: float) -> float | None:
    """Returns the energy used between two readings, from the counter or else as power times time."""
    if "energy_counter_j" in before and "energy_counter_j" in after:
        return max(0.0, after["energy_counter_j"] - before["energy_counter_j"])
    if "gpu_power_w" in before and "gpu_power_w" in after:
        return seconds * (before["gpu_power_w"] + after["gpu_power_w"]) / 2
    return None


def combine(readings: Sequence[Reading]) -> dict[str, float]:
    """Combines several devices' readings; each also has figures of its own by index: `gpu_0_power_w`."""
    combined = {}
    for name in {*_QUERIES, "others_gpu_percent"} - {"energy_counter_j"}:
        if values := [reading[name] for reading in readings if name in reading]:
            combined[name] = _COMBINED.get(name, statistics.fmean)(values)
    each = {
        f"gpu_{index}_{name.removeprefix('gpu_')}": value
        for index, reading in enumerate(readings)
        for name, value in reading.items()
        if name in _QUERIES and name.startswith("gpu_")
    }
    return combined | (each if len(readings) > 1 else {})


def by_gpu(values: Reading) -> dict[int, dict[str, float]]:
    """Returns the figures of each of several GPUs, by index, under the names of a single GPU."""
    figures: dict[int, dict[str, float]] = {}
    for name, value in values.items():
        if one := _OF_ONE.match(name):
            figures.setdefault(int(one[1]), {})[combined_name(name)] = value
    return dict(sorted(figures.items()))


def combined_name(name: str) -> str:
    """Returns the combined name of one GPU's figure: `gpu_power_w` for `gpu_0_power_w`."""
    return _OF_ONE.sub("gpu_", name)
