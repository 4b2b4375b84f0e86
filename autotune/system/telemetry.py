"""The hardware of this machine, and its use by a running trial, from psutil and NVML, without torch."""

import logging
import os
import platform
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import psutil

from autotune.core import units
from autotune.system import cgroup, devices, nvml
from autotune.system.cgroup import GroupMemory
from autotune.system.devices import Device
from autotune.system.nvml import Gpu
from autotune.system.others import Others

logger = logging.getLogger(__name__)

# Summarised by their maximum; energy only grows, so that its maximum is the total.
_PEAKS = {
    "host_rss_bytes",
    "children_uss_bytes",
    "host_memory_percent",
    "host_memory_used_bytes",
    "gpu_memory_used_bytes",
    "gpu_energy_j",
}
_LOWS = {"host_memory_free_bytes", "gpu_memory_free_bytes"}  # summarised by their minimum


def cpu_model() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()


@dataclass(frozen=True)
class Hardware:
    """The hardware that this process may use: its share of CPUs and memory, and the visible GPUs."""

    cpus: int
    host_memory_bytes: int
    gpus: tuple[Gpu, ...]
    driver: str | None
    refused: tuple[Device, ...] = ()  # visible devices that NVML cannot fully query
    cpu_model: str = field(default_factory=cpu_model)
    nodes: int = 1  # of a cluster: each has these CPUs and this memory, and together they have these GPUs

    @property
    def device(self) -> str:
        """The names of the GPUs, or the CPU model if there are none."""
        return ", ".join(sorted({gpu.name for gpu in self.gpus})) or self.cpu_model

    @property
    def device_bytes(self) -> int | None:
        """The memory of the smallest GPU, the most that a trial can count on; None without GPUs."""
        return min((gpu.memory_bytes for gpu in self.gpus), default=None)

    @property
    def free_device_bytes(self) -> int | None:
        """The smallest free memory of any GPU; None without GPUs."""
        return min((gpu.free_bytes for gpu in self.gpus), default=None)

    @property
    def description(self) -> str:
        counted = Counter(f"{gpu.name} ({units.format_bytes(gpu.memory_bytes)})" for gpu in self.gpus)
        names = [name if n == 1 else f"{n} x {name}" for name, n in counted.items()]
        cpus = "1 CPU" if self.cpus == 1 else f"{self.cpus} CPUs"
        cpus = f"{self.nodes} nodes of {cpus}" if self.nodes > 1 else cpus
        return ", ".join([*(names or ["no GPU"]), cpus, units.format_bytes(self.host_memory_bytes)])


def hardware() -> Hardware:
    """Returns the hardware within affinity, container limits and CUDA_VISIBLE_DEVICES."""
    cpus = len(os.sched_getaffinity(0))
    if quota := cgroup.cpu_quota():
        cpus = min(cpus, max(1, int(quota)))
    memory_bytes = psutil.virtual_memory().total
    if limit := cgroup.memory():
        memory_bytes = min(memory_bytes, limit.limit_bytes)
    if hung := devices.hung_driver():
        return Hardware(cpus, memory_bytes, (), None, (hung,))
    visible = devices.list_visible(_visible())
    gpus = tuple(gpu for device in visible if (gpu := device.gpu))
    refused = tuple(device for device in visible if device.gpu is None)
    return Hardware(cpus, memory_bytes, gpus, nvml.driver(), refused)


def device() -> str:
    """Returns the names of the visible GPUs, or the CPU model if there are none."""
    return ", ".join(one.name or one.label for one in devices.list_visible(_visible())) or cpu_model()


def _visible() -> str | None:
    return os.environ.get(devices.VISIBLE)


class Telemetry:
    """Samples a process, its descendants and the visible GPUs while the context is open; raises nothing.

    Processes: `cpu_percent` (100: one CPU busy), `host_rss_bytes` (shared pages count once per process),
    `children_uss_bytes` (unshared memory of the descendants, without mapped files).
    Machine: `host_memory_percent`, `host_memory_used_bytes`, `host_memory_free_bytes`, relative to the limit
    of a container if that is closer; and the figures of `others.Others`, for processes not below `search`.
    GPUs: the figures of `nvml.combine`, and `gpu_energy_j`, the total energy since the start.
    Figures that are not available are left out.
    """

    def __init__(self, pid: int, interval_s: float = 1.0, search: psutil.Process | None = None) -> None:
        self._pid = pid
        self._search = search
        self._interval_s = interval_s
        self._series = _Series()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="telemetry", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(5.0)  # NVML can hang on a GPU that fell off the bus

    def latest(self) -> dict[str, float]:
        """Returns the newest sample, {} before the first."""
        with self._lock:
            return dict(self._series.latest)

    def summary(self) -> dict[str, float]:
        """Returns means over time; the peak of used memory, the least free memory, and the total energy."""
        with self._lock:
            return dict(self._series.summary)

    def _run(self) -> None:
        try:
            with devices.opened() as visible:
                gpus = _Gpus(visible)
                processes, others = _Processes(self._pid), Others(self._search)
                begun_s = before_s = time.monotonic()
                is_last = False
                while True:
                    now_s = time.monotonic()
                    elapsed_s, before_s = now_s - before_s, now_s
                    values = {**others.sample(), **_machine()}
                    values |= processes.sample(elapsed_s, others.below)
                    values |= gpus.sample(elapsed_s, {process.pid for process in others.below})
                    with self._lock:
                        self._series.add(values, elapsed_s)
                    if is_last:
                        return
                    is_last = self._stop.wait(pause_s(now_s - begun_s, self._interval_s))
        except Exception:
            logger.exception("telemetry of process %d ended early; the trial continues", self._pid)


def pause_s(age_s: float, first_s: float) -> float:
    """Returns the time to the next sample of a process of this age, given the first interval."""
    return min(max(first_s, 0.25 * age_s), 10.0 * first_s)  # a sample takes some ten milliseconds of CPU time


class _Series:
    """The latest of a series of samples, and its summary: time-weighted means, peaks and minima."""

    def __init__(self) -> None:
        self.latest: dict[str, float] = {}
        self.summary: dict[str, float] = {}
        self._seconds: dict[str, float] = defaultdict(float)

    def add(self, values: dict[str, float], seconds: float) -> None:
        self.latest = values
        for name, value in values.items():
            kind, before = nvml.combined_name(name), self.summary.get(name, value)
            total_s = self._seconds[name] + seconds
            if kind in _PEAKS or (not total_s and kind not in _LOWS):
                self.summary[name] = max(value, before)
            elif kind in _LOWS:
                self.summary[name] = min(value, before)
            else:
                self.summary[name] = (before * self._seconds[name] + value * seconds) / total_s
            self._seconds[name] = total_s


class _Processes:
    """A process and its descendants, which may come and go."""

    def __init__(self, pid: int) -> None:
        self._root: psutil.Process | None = None
        self._cpu_s: dict[psutil.Process, float] | None = None
        with suppress(psutil.Error):
            self._root = psutil.Process(pid)

    def sample(self, seconds: float, listed: Sequence[psutil.Process] = ()) -> dict[str, float]:
        """Returns the figures; descendants come from `listed` (parents first) if given, else from /proc."""
        before, self._cpu_s, rss_bytes = self._cpu_s, {}, 0
        for process in _family(self._root, listed) if self._root else ():
            with suppress(psutil.Error):
                times, held_bytes = process.cpu_times(), process.memory_info().rss
                self._cpu_s[process] = times.user + times.system
                rss_bytes += held_bytes
        if not self._cpu_s:
            return {}
        values = {"host_rss_bytes": float(rss_bytes)}
        # Not those just forked: before exec, a process still shows its parent's memory.
        stayed = self._cpu_s.keys() & (before or {}).keys() - {self._root}
        # What they share with no other, without mapped files, which can be reclaimed.
        children_bytes = sum(proc_bytes(process.pid, "smaps_rollup", "Private_Dirty") for process in stayed)
        if children_bytes > 2**20:  # the guard of a trial's process group, a child too, takes less
            values["children_uss_bytes"] = float(children_bytes)
        if before is not None and seconds > 0:
            # A process that is new was born in between, with its clock at 0.
            spent_s = sum(cpu_s - before.get(process, 0.0) for process, cpu_s in self._cpu_s.items())
            values["cpu_percent"] = 100 * max(0.0, spent_s) / seconds
        return values


def _family(root: psutil.Process, listed: Sequence[psutil.Process]) -> list[psutil.Process]:
    """Returns a process and its descendants; scans all processes only if none are `listed`."""
    if not listed:
        with suppress(psutil.Error):
            return [root, *root.children(recursive=True)]
    family = {root.pid: root}
    for process in listed:
        with suppress(psutil.Error):
            if process.ppid() in family:
                family[process.pid] = process
    return list(family.values())


def proc_bytes(pid: int, file: str, *names: str) -> int:
    """Returns the sum of the named kB figures in /proc/`pid`/`file`, in bytes; 0 if the process is gone."""
    with suppress(OSError):
        lines = Path(f"/proc/{pid}/{file}").read_text(errors="replace").splitlines()
        return 1024 * sum(int(line.split()[1]) for line in lines if line.partition(":")[0] in names)
    return 0


def machine_memory(container: Path | None) -> GroupMemory:
    """Returns the memory of the machine and its use, or those of a container's group if it is fuller."""
    machine = psutil.virtual_memory()
    memory = GroupMemory(machine.total, machine.total - machine.available)
    limited = None if container is None else cgroup.memory_of(container)
    return limited if limited and limited.used_share > memory.used_share else memory


def _machine() -> dict[str, float]:
    memory = machine_memory(cgroup.tightest_group())
    return {
        "host_memory_percent": 100 * memory.used_share,
        "host_memory_used_bytes": float(memory.used_bytes),
        "host_memory_free_bytes": float(max(0, memory.limit_bytes - memory.used_bytes)),
    }


class _Gpus:
    """The GPUs of some NVML handles, and their energy since the first sample."""

    def __init__(self, handles: Sequence[Any]) -> None:
        self._handles = handles
        self._before: list[dict[str, float]] | None = None
        self._energy_j: float | None = None

    def sample(self, seconds: float, own: Collection[int]) -> dict[str, float]:
        """Returns the combined figures since the last sample; `own`: IDs of the search's processes."""
        readings = [nvml.read(handle) | nvml.load_by_others(handle, own, seconds) for handle in self._handles]
        for before, after in zip(self._before or [], readings, strict=False):
            used_j = nvml.energy_j(before, after, seconds)
            if used_j is not None:
                self._energy_j = (self._energy_j or 0.0) + used_j
        self._before = readings
        energy = {} if self._energy_j is None else {"gpu_energy_j": self._energy_j}
        return nvml.combine(readings) | energy
