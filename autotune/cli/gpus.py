"""Which GPUs trials can compute on: what NVML says of them, compared with what torch does with them.

A faulty device is left out, and named. `doctor` and every command that trains ask here.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from autotune.cli import option_values, prepare
from autotune.core.errors import InputError
from autotune.core.settings import Setting
from autotune.core.shell import pip_install
from autotune.space.machine import Machine
from autotune.system import devices, nvml, telemetry
from autotune.system.devices import Device
from autotune.system.nvml import Gpu
from autotune.system.telemetry import Hardware

_CHECK = Path(__file__).with_name("torch_check.py")
_TIMEOUT_S = 120.0
_LOCALLY = "https://pytorch.org/get-started/locally has the command"
# The last build for GPUs before compute capability 7.5, and the oldest that it has kernels for.
_OLDER_BUILD = "--force-reinstall 'torch<2.15' --index-url https://download.pytorch.org/whl/cu126"
_OLDEST = (5, 0)
_PLAIN = "fp32"  # what computes in nothing else computes in this
_ON_CPU = "or search on the CPU: --gpus-per-trial 0"


@dataclass(frozen=True)
class Fault:
    """What is wrong, and what to do about it."""

    what: str
    remedy: str


@dataclass(frozen=True)
class Torch:
    """What torch says of itself and of the devices that it sees: the facts of `torch_check`."""

    version: str
    cuda: str | None
    kernels: Sequence[str] = ()
    triton: bool = False
    devices: Sequence[Mapping[str, Any]] = ()
    fault: str | None = None
    cudnn: int | None = None

    @property
    def build(self) -> str:
        return f"{self.version}, {f'CUDA {self.cuda}' if self.cuda else 'CPU build'}"


@dataclass(frozen=True)
class Verdict:
    """A device; a `fault` keeps trials from it, `fails` says of a precision why it cannot be had there."""

    label: str
    gpu: Gpu | None = None
    fault: Fault | None = None
    fails: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Look:
    """What torch made of a machine's GPUs; `pinned` where CUDA would not show just these by itself."""

    torch: Torch | Fault
    verdicts: tuple[Verdict, ...] = ()
    pinned: bool = False

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """Those that trials can compute on."""
        return tuple(one.gpu for one in self.verdicts if one.gpu and not one.fault)

    @property
    def notes(self) -> tuple[str, ...]:
        """A line for each of the others."""
        faults = [(one.label, one.fault) for one in self.verdicts if one.fault]
        return tuple(f"{label} is left out: {fault.what}; {fault.remedy}" for label, fault in faults)

    @property
    def fault(self) -> Fault | None:
        """What keeps torch from all of them."""
        return self.torch if isinstance(self.torch, Fault) else _of_all(self.torch, self.verdicts, self.gpus)


@dataclass(frozen=True)
class Usable:
    """What trials may use of a machine, the GPUs of each, and what the user should know of the rest."""

    hardware: Hardware
    machine: Machine
    gpus_per_trial: float
    notes: tuple[str, ...] = ()
    is_asked: bool = False  # whether torch was asked about the GPUs, and trials use them


def usable(asked: float | None) -> Usable:
    """What trials of `asked` GPUs each may use here: from now on it is all that this process and its own see.

    Raises InputError where there are GPUs and trials can compute on none, unless they are to do without.
    """
    found, look = telemetry.hardware(), None
    if asked != 0 and (found.gpus or found.refused or nvml.is_hidden()):
        look = look_at(found)
        found = replace(found, gpus=_require_some(look))
    count = option_values.gpus_per_trial(asked, found)
    if look is not None and count:
        _show(look)
    here = found if count else replace(found, gpus=())
    is_asked = look is not None and count > 0
    return Usable(here, machine(here, look), count, _notes(look, found) if count else (), is_asked)


def require_script(python: str | None, here: Usable) -> None:
    """Raises InputError if the Python that a script has of its own cannot use the trials' GPUs by its torch.

    It need not have torch.
    """
    if python is None or not here.is_asked or Path(python) == Path(sys.executable):
        return
    look = look_at(here.hardware, python)
    if isinstance(look.torch, Torch):
        _require_some(look, f"{python}: ")


def of_cluster(found: Hardware, asked: float | None) -> Usable:
    """The same of a cluster's machines, of which NVML alone was asked."""
    count = option_values.gpus_per_trial(asked, found)
    here = found if count else replace(found, gpus=())
    notes = tuple(f"{one.label} of the cluster: {one.refused}" for one in found.refused)
    return Usable(here, machine(here, None), count, notes if count else ())


def _require_some(look: Look, whose: str = "") -> tuple[Gpu, ...]:
    if look.fault:
        raise InputError(f"{whose}torch {look.fault.what}; {look.fault.remedy}; {_ON_CPU}")
    if look.verdicts and not look.gpus:
        raise InputError(f"{whose}no GPU can be used: {'; '.join(look.notes)}; {_ON_CPU}")
    return look.gpus


def _show(look: Look) -> None:
    """Lets CUDA see just the GPUs that can be used, numbered as NVML numbers them."""
    devices.number_alike(os.environ)
    if look.pinned or len(look.gpus) < len(look.verdicts):
        devices.show(os.environ, look.gpus)


def _notes(look: Look | None, found: Hardware) -> tuple[str, ...]:
    if look is None:
        return ()
    order = devices.other_order(found.gpus, os.environ)
    return (*look.notes, *([order] if order else []))


def machine(found: Hardware, look: Look | None) -> Machine:
    """The facts about `found` that decide which settings can run, by what its GPUs were seen to do."""
    known = prepare.machine(found)
    if look is None or isinstance(look.torch, Fault) or not found.gpus:
        return known
    fails: dict[Setting, str] = {
        name: f"fails on {v.label}: {why}"
        for v in look.verdicts
        if not v.fault
        for name, why in v.fails.items()
    }
    return replace(known, fails=fails, has_triton=look.torch.triton)


def look_at(found: Hardware, python: str = sys.executable) -> Look:
    """Asks the torch of `python` about the devices of `found`.

    It is asked about all at once, or about each by name if they are pinned.
    """
    known = [*map(as_device, found.gpus)]
    known += [one for one in found.refused if one.uuid]
    unknown = [Verdict(one.label, fault=_refused(one)) for one in found.refused if not one.uuid]
    pinned = bool(found.refused) or devices.must_be_named(found.gpus, os.environ)
    if pinned and known:
        with ThreadPoolExecutor() as pool:
            answers = list(pool.map(lambda one: ask({devices.VISIBLE: one.uuid or ""}, python), known))
        seen = [matched([one], told)[0] for one, told in zip(known, answers, strict=True)]
    else:
        answers = [ask({}, python)] * max(1, len(known))
        seen = matched(known, answers[0])
    torch = next((told for told in answers if isinstance(told, Torch)), answers[0])
    return Look(torch, (*map(judge, known, answers, seen), *unknown), pinned)


def as_device(gpu: Gpu) -> Device:
    return Device(gpu.label, gpu.uuid, gpu.name, gpu)


def _refused(device: Device) -> Fault:
    return Fault(device.refused or "", "nvidia-smi -L lists the devices, nvidia-smi -q shows their state")


def ask(environment: Mapping[str, str], python: str = sys.executable) -> Torch | Fault:
    """What the torch of `python` says if `environment` is added to this process's own; it takes seconds."""
    whole = {
        **os.environ,
        **environment,
        "PYTHONSAFEPATH": "1",
    }  # a json.py in the working directory is not run
    devices.number_alike(whole)
    try:
        done = subprocess.run(  # noqa: S603 - this very Python, or the user's own
            [python, "-"],
            input=_CHECK.read_text(encoding="utf-8"),
            env=whole,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        remedy = "see what keeps the disk or the GPU busy"
        return Fault(f"`import torch` has not ended within {_TIMEOUT_S:.0f} s", remedy)
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        return Fault(f"`import torch` fails: {said[-1]}", pip_install("--force-reinstall torch"))
    return Torch(**json.loads(done.stdout.splitlines()[-1]))


def matched(known: Sequence[Device], told: Torch | Fault) -> list[Mapping[str, Any] | None]:
    """What torch says of each device, by its UUID, or else in turn: of a slice it may know another one."""
    seen = [] if isinstance(told, Fault) else told.devices
    by_uuid = {f"GPU-{one['uuid']}": one for one in seen}
    if any(device.uuid in by_uuid for device in known):
        return [by_uuid.get(device.uuid or "") for device in known]
    return [*seen, *[None] * len(known)][: len(known)]


def judge(device: Device, told: Torch | Fault, seen: Mapping[str, Any] | None) -> Verdict:
    """Whether trials can compute on a device, by what torch has `seen` of it; that fills what NVML lacks."""
    if isinstance(told, Fault):
        return Verdict(device.label, device.gpu, told)
    if seen is None:
        remedy = f"nvidia-smi must show CUDA {told.cuda} or newer: update the driver, or downgrade torch"
        return Verdict(
            device.label, device.gpu, Fault(f"torch {told.build} does not see it{_said(told)}", remedy)
        )
    gpu = device.gpu or _as_seen(device, seen)
    if why := seen["fails"].get(_PLAIN):
        return Verdict(device.label, gpu, _cannot_compute(gpu, told, why))
    return Verdict(device.label, gpu, fails=seen["fails"])


def _as_seen(device: Device, seen: Mapping[str, Any]) -> Gpu:
    major, minor = seen["compute_capability"]
    return Gpu(seen["name"], seen["memory_bytes"], (major, minor), device.uuid or "", label=device.label)


def _said(told: Torch) -> str:
    return f": {told.fault}" if told.fault else ""


def _cannot_compute(gpu: Gpu, told: Torch, why: str) -> Fault:
    if has_kernels(told.kernels, gpu.compute_capability):
        return Fault(
            f"torch {told.build} cannot compute on it: {why}", "see nvidia-smi, and what else uses it"
        )
    shown = ".".join(map(str, gpu.compute_capability))
    has = dict.fromkeys(f"{major}.{minor}" for _, major, minor in map(_target, told.kernels))
    what = f"torch {told.build} has no kernels for compute capability {shown}, only for {', '.join(has)}"
    is_older = _OLDEST <= gpu.compute_capability < min(_target(one)[1:] for one in told.kernels)
    older = f"install an older build, for CUDA 12.6: {pip_install(_OLDER_BUILD)}"
    return Fault(what, older if is_older else f"install a build that has them: {_LOCALLY}")


def has_kernels(kernels: Sequence[str], capability: tuple[int, int]) -> bool:
    """Whether any of torch's architectures runs there: code of its generation, or PTX that is not newer."""
    targets = [_target(one) for one in kernels]
    return any(
        (major, minor) <= capability and (kind == "compute" or major == capability[0])
        for kind, major, minor in targets
    )


def _target(kernel: str) -> tuple[str, int, int]:
    """`sm_86` or `compute_120`, of which the last digit is the minor version; `sm_90a` is a kind of 9.0."""
    kind, _, number = kernel.rstrip("af").partition("_")
    return kind, int(number[:-1]), int(number[-1])


def _of_all(told: Torch, verdicts: Sequence[Verdict], usable: Sequence[Gpu]) -> Fault | None:
    if not verdicts and told.devices:
        what = f"{told.build}: sees {len(told.devices)} GPUs, of which NVML says nothing: {nvml.missing()}"
        return Fault(what, "start the container with NVIDIA_DRIVER_CAPABILITIES=compute,utility")
    known = [one for one in verdicts if one.gpu]
    if not known or usable or told.devices:
        return None
    if not told.cuda:
        return Fault(f"{told.build}: cannot use the GPU", f"install torch's CUDA build: {_LOCALLY}")
    remedy = f"nvidia-smi must show CUDA {told.cuda} or newer: update the driver, or downgrade torch"
    return Fault(f"{told.build}: sees 0 of {len(known)} GPUs{_said(told)}", remedy)
