"""Measures the card itself, to tell a slow GPU from a fault of the search, and describes it by NVML."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pynvml

from autotune.system import devices
from lab.gpu_check import small_trainings
from lab.gpu_check.bench import Bench
from lab.gpu_check.verdicts import Found

_FACTS: dict[str, Callable[[Any], Any]] = {
    "pcie_generation": pynvml.nvmlDeviceGetCurrPcieLinkGeneration,
    "pcie_generation_most": pynvml.nvmlDeviceGetMaxPcieLinkGeneration,
    "pcie_width": pynvml.nvmlDeviceGetCurrPcieLinkWidth,
    "power_limit_w": lambda gpu: pynvml.nvmlDeviceGetEnforcedPowerLimit(gpu) / 1e3,
    "sm_clock_most_mhz": lambda gpu: pynvml.nvmlDeviceGetMaxClockInfo(gpu, pynvml.NVML_CLOCK_SM),
    "memory_clock_most_mhz": lambda gpu: pynvml.nvmlDeviceGetMaxClockInfo(gpu, pynvml.NVML_CLOCK_MEM),
    "ecc": lambda gpu: bool(pynvml.nvmlDeviceGetEccMode(gpu)[0]),
    "persistence": lambda gpu: bool(pynvml.nvmlDeviceGetPersistenceMode(gpu)),
    "processes": lambda gpu: len(pynvml.nvmlDeviceGetComputeRunningProcesses(gpu)),
    "clock_reasons": pynvml.nvmlDeviceGetCurrentClocksEventReasons,  # NVML's bits for what slows it down now
}
_UNITS = {"tflops": "TFLOP/s", "gb_per_s": "GB/s", "us": "us"}


def the_card_itself(bench: Bench) -> Iterator[Found]:
    """Measures matrix products, memory, copies and launches, a few seconds in all."""
    ran = bench.run(bench.small_order("measures", len(small_trainings.MEASURES)))
    figures = {name: value for record in ran.records for name, value in record.items() if _unit(name)}
    told = [
        f"{name.removesuffix('_' + _unit(name))} {value:.3g} {_UNITS[_unit(name)]}"
        for name, value in figures.items()
    ]
    yield Found(
        "the card by itself",
        None if ran.outcome is None else ran.completed,
        ", ".join(told) or ran.ending,
        figures,
    )


def _unit(name: str) -> str:
    return next((unit for unit in _UNITS if name.endswith(f"_{unit}")), "")


def facts() -> list[Mapping[str, Any]]:
    """Returns what NVML reports on each visible GPU's link, power, clocks and users."""
    with devices.opened() as visible:
        return [
            {name: value for name, ask in _FACTS.items() if (value := _asked(ask, gpu)) is not None}
            for gpu in visible
        ]


def _asked(ask: Callable[[Any], Any], gpu: Any) -> Any:
    with suppress(pynvml.NVMLError):
        return ask(gpu)
    return None


def surroundings() -> dict[str, bool]:
    """Returns what stands between this process and the GPU."""
    return {
        "wsl": Path("/dev/dxg").exists(),
        "container": any(map(os.path.exists, ("/.dockerenv", "/run/.containerenv"))),
        "mps": Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"), "control").exists(),  # noqa: S108
    }
