"""What this machine can run and what is missing, each with the remedy."""

import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

from autotune import nvml, prepare, units
from autotune.machine import PRECISIONS, Machine, why_not
from autotune.telemetry import Hardware, hardware

_PYTHON = (3, 11)
_SHM = Path("/dev/shm")  # noqa: S108 - measured, not written to
_SHM_BYTES = 2**30  # a few prefetched batches for each of a handful of loader workers
_DISK_BYTES = (
    10 * 2**30
)  # the checkpoints of trials that run at the same time, 1.3 GB each with the full model
_TIMEOUT_S = 120.0

# In a process of its own: importing torch takes a second, can crash, and takes GPU memory.
_ASK_TORCH = """
import json, torch
print(json.dumps({
    "version": torch.__version__,
    "cuda": torch.version.cuda,
    "devices": torch.cuda.device_count() if torch.cuda.is_available() else 0,
}))
"""


@dataclass(frozen=True)
class Capability:
    """Something that a search can make use of: whether it is here, and what was found or what to do."""

    name: str
    ok: bool
    detail: str


def examine() -> list[Capability]:
    """All that matters for a search on this machine, in this environment and this directory."""
    found = hardware()
    return [
        _python(),
        torch(found),
        *(_package(name) for name in ("ray", "optuna")),
        _driver(found),
        *_gpus(found),
        *precisions(prepare.machine(found), _cpu_features()),
        Capability("CPUs", True, f"{found.cpus} usable of {psutil.cpu_count()}"),
        Capability("memory", True, f"{units.format_bytes(found.host_memory_bytes)} for this process"),
        space_left("shared memory", _SHM, _SHM_BYTES, "loader workers crash; docker: --shm-size=8g"),
        space_left("disk", Path.cwd(), _DISK_BYTES, "checkpoints may not fit; free some, or work elsewhere"),
        _java(),
        wandb_key(os.environ),
    ]


def _python() -> Capability:
    wanted = ".".join(map(str, _PYTHON))
    ok = sys.version_info >= _PYTHON
    return Capability("Python", ok, platform.python_version() + ("" if ok else f": needs {wanted} or newer"))


def _package(name: str) -> Capability:
    try:
        return Capability(name, True, version(name))
    except PackageNotFoundError:
        return Capability(name, False, f"not installed: pip install {name}")


def _run(*command: str) -> tuple[int, str, str] | None:
    """Exit status, output and errors of a command; None where it cannot be started, or does not end."""
    try:
        done = subprocess.run(  # noqa: S603 - the commands are constants of this module
            command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.returncode, done.stdout, done.stderr


def torch(found: Hardware) -> Capability:
    """Whether torch is here, and can use every GPU that the driver shows."""
    answer = _run(sys.executable, "-c", _ASK_TORCH)
    if answer is None:
        return Capability("torch", False, f"`import torch` has not ended within {_TIMEOUT_S:.0f} s")
    status, output, errors = answer
    if status:
        lines = errors.strip().splitlines() or [f"exit status {status}"]
        return Capability("torch", False, f"`import torch` fails: {lines[-1]}")
    return torch_sees(json.loads(output.splitlines()[-1]), found)


def torch_sees(facts: Mapping[str, Any], found: Hardware) -> Capability:
    """Whether torch can use the GPUs that the driver shows."""
    build = f"CUDA {facts['cuda']}" if facts["cuda"] else "CPU build"
    detail = f"{facts['version']}, {build}"
    if found.gpus and not facts["cuda"]:
        return Capability("torch", False, f"{detail}: cannot use the GPU; install torch's CUDA build")
    if len(found.gpus) != facts["devices"]:
        return Capability("torch", False, f"{detail}: sees {facts['devices']} of {len(found.gpus)} GPUs")
    return Capability("torch", True, detail)


def _driver(found: Hardware) -> Capability:
    if found.driver:
        return Capability("NVIDIA driver", True, found.driver)
    return Capability("NVIDIA driver", False, f"{nvml.missing()}; without it trials run on the CPU")


def _gpus(found: Hardware) -> Iterator[Capability]:
    for index, gpu in enumerate(found.gpus):
        capability = ".".join(map(str, gpu.compute_capability))
        size = units.format_bytes(gpu.memory_bytes)
        yield Capability(f"GPU {index}", True, f"{gpu.name}, {size}, compute capability {capability}")
    if found.driver and not found.gpus:
        hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
        yield Capability("GPU", False, f"none visible: CUDA_VISIBLE_DEVICES is {hidden!r}")


def precisions(machine: Machine, cpu_features: frozenset[str]) -> Iterator[Capability]:
    """Which precisions a trial can train in here, and why it cannot in the others."""
    for precision in PRECISIONS:
        reason = why_not("precision", precision, machine)
        detail = reason or "trials can train in it"
        if precision == "bf16" and machine.compute_capability is None and not reason:
            fast = sorted(cpu_features & {"amx_bf16", "avx512_bf16", "bf16"})
            detail = f"by {', '.join(fast)}" if fast else "slow: this CPU has neither AMX nor AVX512-BF16"
        yield Capability(precision, reason is None, detail)


def _cpu_features() -> frozenset[str]:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return frozenset()
    line = re.search(r"^(?:flags|Features)\s*:(.*)$", text, flags=re.MULTILINE)
    return frozenset(line[1].split()) if line else frozenset()


def space_left(name: str, where: Path, wanted_bytes: int, otherwise: str) -> Capability:
    """Whether the file system that holds `where` has room."""
    try:
        free_bytes = shutil.disk_usage(where).free
    except OSError as error:
        return Capability(name, False, f"{where}: {error.strerror}; {otherwise}")
    detail = f"{units.format_bytes(free_bytes)} free in {where}"
    if free_bytes < wanted_bytes:
        return Capability(name, False, f"{detail}, below {units.format_bytes(wanted_bytes)}: {otherwise}")
    return Capability(name, True, detail)


def _java() -> Capability:
    answer = _run("java", "-version")
    if answer is None or answer[0]:
        what = "not found" if answer is None else "does not start"
        remedy = "METEOR is left out of the scores; install a Java runtime, such as default-jre-headless"
        return Capability("Java", False, f"{what}: {remedy}")
    return Capability("Java", True, f"{(answer[2] or answer[1]).splitlines()[0]}, for METEOR")


def wandb_key(environment: Mapping[str, str]) -> Capability:
    """Whether runs can go online. The key itself is looked at by nobody."""
    if environment.get("WANDB_API_KEY"):
        return Capability("W&B", True, "WANDB_API_KEY is set: runs go online")
    return Capability(
        "W&B", False, "WANDB_API_KEY is not set: runs are kept offline; `wandb sync` uploads them"
    )
