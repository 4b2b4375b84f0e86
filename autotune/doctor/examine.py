"""Examines what this machine can run and what is missing, with remedies."""

import os
import platform
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil
from rich.table import Table
from rich.text import Text

from autotune.core import secrecy, units
from autotune.core.errors import printable
from autotune.core.settings import COMPILE, PRECISION, PRECISIONS, WORKERS
from autotune.core.shell import pip_install
from autotune.sessions import gpus
from autotune.sessions.gpus import Fault, Look
from autotune.space.machine import Machine, explain_unsupported
from autotune.system import cgroup, nvml
from autotune.system.devices import DRIVER, VISIBLE
from autotune.system.telemetry import Hardware, hardware
from autotune.trials.memory_watch import LOOK_S

_SHM = Path("/dev/shm")  # noqa: S108 - measured, not written to
_SHM_BYTES = 2**30  # a few prefetched batches for each of several loader workers
_DISK_BYTES = 10 * 2**30  # checkpoints of concurrent trials, 1.3 GB each for the full model
_MORE_SHM = f"loader workers may crash: start the container with --shm-size=8g, or search only {WORKERS}: 0"
_MORE_DISK = "checkpoints may not fit: free some space, or use another disk"

# Remedies by what is missing. If anything else is, a search leaves out compiling.
_TO_COMPILE = {
    "C++ compiler": "install one, such as g++, and search again",
    "C compiler": "install one, such as gcc, and search again",
    "Python.h": "install them, such as python3-dev or python3-devel, and search again",
}


@dataclass(frozen=True)
class Capability:
    """Something that a search can use, and whether it is available."""

    name: str
    ok: bool
    detail: str  # finding
    remedy: str = ""  # what to do if it is missing


def examine() -> list[Capability]:
    """Examines this machine, environment and directory for everything that a search uses."""
    here = hardware()
    look = gpus.look_at(here)
    machine = gpus.machine(replace(here, gpus=look.gpus or here.gpus), look)
    return [
        Capability("Python", True, platform.python_version()),
        torch(look),
        *(package(name) for name in ("ray", "optuna", "wandb")),
        *_driver(here),
        *devices(look, here, os.environ.get(VISIBLE)),
        *precisions(machine),
        compiling(machine),
        Capability("CPUs", True, f"{here.cpus} usable of {psutil.cpu_count()}"),
        Capability("memory", True, f"{units.format_bytes(here.host_memory_bytes)} for this process"),
        memory_limit(cgroup.group_for_trials()),
        space_left("shared memory", _SHM, _SHM_BYTES, _MORE_SHM),
        space_left("disk", Path.cwd(), _DISK_BYTES, _MORE_DISK),
        _java(),
        wandb_key(os.environ),
        package("optuna-dashboard", "shows a study: optuna-dashboard sqlite:///SESSION/study.db"),
        package("tensorboard", "shows the curves: tensorboard --logdir SESSION/tensorboard"),
    ]


def package(name: str, use: str = "") -> Capability:
    """Checks for an installed package; `use` describes its purpose."""
    try:
        installed = version(name)
    except PackageNotFoundError:
        return Capability(name, False, f"not installed{use and f', {use}'}", pip_install(name))
    return Capability(name, True, f"{installed}{use and f', {use}'}")


def torch(look: Look) -> Capability:
    if isinstance(look.torch, Fault):
        return Capability("torch", False, look.torch.what, look.torch.remedy)
    return Capability("torch", True, look.torch.build)


def _driver(here: Hardware) -> Iterator[Capability]:
    if here.driver:
        yield Capability(DRIVER, True, here.driver)
    elif not here.refused:  # else it is among the devices
        remedy = "nothing on a CPU; for a GPU, install its driver, or start the container with --gpus all"
        yield Capability(DRIVER, False, str(nvml.error()), remedy)


def devices(look: Look, found: Hardware, visible: str | None) -> Iterator[Capability]:
    for one in look.verdicts:
        facts, gpu = [], one.gpu
        if gpu:
            capability = ".".join(map(str, gpu.compute_capability))
            size = units.format_bytes(gpu.memory_bytes)
            facts = [f"{gpu.name}, {size}, compute capability {capability}"]
            facts += ["in exclusive compute mode: no two trials can share it"] if gpu.exclusive else []
        if one.fault:
            facts.append(one.fault.what)
        yield Capability(one.label, not one.fault, "; ".join(facts), one.fault.remedy if one.fault else "")
    if found.driver and not look.verdicts:
        hidden = f"none visible: {VISIBLE} is {visible!r}", f"unset {VISIBLE}"
        without = "the driver finds none", "`lspci` lists those in the machine, and dmesg says what they lack"
        yield Capability("GPU", False, *(without if visible is None else hidden))


def precisions(machine: Machine) -> Iterator[Capability]:
    for precision in PRECISIONS:
        reason = explain_unsupported(PRECISION, precision, machine)
        yield _setting(precision, reason, "trials can train in it")


def compiling(machine: Machine) -> Capability:
    reason = explain_unsupported(COMPILE, "default", machine)
    return _setting("torch.compile", reason, "trials can compile the model")


def _setting(name: str, reason: str | None, usable: str) -> Capability:
    """Returns a setting and a remedy. `reason` says why trials cannot use it; None if they can."""
    if reason is None:
        return Capability(name, True, usable)
    detail, _, missing = reason.partition(": pip install ")
    known = (remedy for what, remedy in _TO_COMPILE.items() if what in detail)
    remedy = pip_install(missing) if missing else next(known, "nothing; a search leaves it out")
    return Capability(name, False, detail, remedy)


def memory_limit(group: Path | None) -> Capability:
    """Checks if the kernel enforces `--memory-limit`, by control groups below `group`, or polling does."""
    if group is not None:
        version = "v2" if cgroup.is_v2(group) else "v1"
        detail = f"enforced by the kernel: a control group ({version}) per trial"
        return Capability("memory limit", True, detail)
    detail = f"checked every {LOOK_S:g} s instead: no control group can be made for a trial"
    remedy = "if systemd runs: systemd-run --user --scope autotune search ..."
    return Capability("memory limit", False, detail, remedy)


def space_left(name: str, where: Path, wanted_bytes: int, remedy: str) -> Capability:
    try:
        free_bytes = shutil.disk_usage(where).free
    except OSError as error:
        return Capability(name, False, f"{where}: {error.strerror}", remedy)
    detail = f"{units.format_bytes(free_bytes)} free in {where}"
    if free_bytes < wanted_bytes:
        return Capability(name, False, f"{detail}, below {units.format_bytes(wanted_bytes)}", remedy)
    return Capability(name, True, detail)


def _java() -> Capability:
    if place := shutil.which("java"):  # what the trainer asks, too
        return Capability("Java", True, f"{place}, for METEOR")
    remedy = "install a Java runtime, such as default-jre-headless"
    return Capability("Java", False, "not found: METEOR is left out of the scores", remedy)


def wandb_key(environment: Mapping[str, str]) -> Capability:
    """Checks if W&B runs go online; the key itself is not verified."""
    if secrecy.wandb_is_online("auto", environment):
        return Capability("W&B online", True, "WANDB_API_KEY is set: runs go online")
    if environment.get("WANDB_API_KEY"):
        mode = environment["WANDB_MODE"]
        return Capability("W&B online", False, f"WANDB_MODE is {mode}: runs are kept offline", "unset it")
    remedy = "set it to log online; `wandb sync` uploads offline runs later"
    return Capability("W&B online", False, "WANDB_API_KEY is not set: runs are kept offline", remedy)


def table(capabilities: Iterable[Capability]) -> Table:
    """Returns a table of one line per capability, and one more for a remedy."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for one in capabilities:
        detail = Text(printable(one.detail))
        if not one.ok:
            detail.append(f"\nto do: {printable(one.remedy)}", style="bold")
        grid.add_row(Text("yes", style="green") if one.ok else Text("no", style="red"), one.name, detail)
    return grid
