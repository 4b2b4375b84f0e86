"""What NVML says of a GPU while it works. Without an NVIDIA driver there is none, and nothing raises."""

import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pynvml

Reading = Mapping[str, float]

_OF_ONE = re.compile(r"^gpu_(\d+)_")
_NO_DRIVER = (pynvml.NVMLError_LibraryNotFound, pynvml.NVMLError_DriverNotLoaded)
_NODES = ("/dev/nvidiactl", "/dev/dxg")  # the second one is Windows' own, under WSL: of any make of GPU

# Slowdowns that need attention. A software power cap is none: under load it is the normal state.
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


@dataclass(frozen=True)
class Gpu:
    """A CUDA device. `memory_bytes` is all of it, what the driver keeps for itself included.

    Of that `used_bytes` were in use when the device was asked. An `exclusive` one has room for one process at
    a time, and `label` is what nvidia-smi calls it.
    """

    name: str
    memory_bytes: int
    compute_capability: tuple[int, int]
    uuid: str
    exclusive: bool = False
    label: str = ""
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
    error = _init_error()
    return None if error is None else str(error)


def fault() -> str | None:
    """What is wrong with a driver that is here, as where it was replaced while the machine ran."""
    return None if isinstance(_init_error(), _NO_DRIVER) else missing()


def is_hidden() -> bool:
    """Whether NVML is lacking where there may be a GPU, as in a container without the driver's tools."""
    return isinstance(_init_error(), _NO_DRIVER) and any(Path(node).exists() for node in _NODES)


def _init_error() -> pynvml.NVMLError | None:
    try:
        pynvml.nvmlInit()
        pynvml.nvmlShutdown()
    except pynvml.NVMLError as error:
        return error
    return None


def driver() -> str | None:
    """The driver's version, None without one."""
    with library() as found, suppress(pynvml.NVMLError):
        return str(pynvml.nvmlSystemGetDriverVersion()) if found else None
    return None


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
    except pynvml.NVMLError_NotFound:  # no process was busy
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

    Of other programs' use it is the device that they use most: the slowest holds all of them up. In addition,
    each of several has its own figures, by its place among them: `gpu_0_power_w`.
    """
    combined = {}
    for name in {*_QUERIES, "others_gpu_percent"} - {"energy_counter_j"}:
        if values := [reading[name] for reading in readings if name in reading]:
            combined[name] = _COMBINED.get(name, _mean)(values)
    return combined | (_apart(readings) if len(readings) > 1 else {})


def _apart(readings: Sequence[Reading]) -> dict[str, float]:
    return {
        f"gpu_{index}_{name.removeprefix('gpu_')}": value
        for index, reading in enumerate(readings)
        for name, value in reading.items()
        if name in _QUERIES and name.startswith("gpu_")
    }


def of_each(values: Reading) -> dict[int, dict[str, float]]:
    """The figures of each of several GPUs, by its place among them, under the names that one alone has."""
    found: dict[int, dict[str, float]] = {}
    for name, value in values.items():
        if one := _OF_ONE.match(name):
            found.setdefault(int(one[1]), {})[of_all(name)] = value
    return dict(sorted(found.items()))


def of_all(name: str) -> str:
    """What a figure of one GPU is called of all of them: `gpu_power_w` of `gpu_0_power_w`."""
    return _OF_ONE.sub("gpu_", name)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


_COMBINED: dict[str, Callable[[Sequence[float]], float]] = {
    "gpu_power_w": sum,
    "gpu_memory_used_bytes": max,
    "gpu_memory_free_bytes": min,
    "gpu_throttled": max,
    "others_gpu_percent": max,
}
