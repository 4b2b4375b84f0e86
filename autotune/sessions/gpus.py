"""Finds the GPUs that NVML lists and torch can compute on, and a remedy for each of the others."""

import json
import math
import os
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from autotune.core import units
from autotune.core.errors import InputError
from autotune.core.settings import Setting
from autotune.core.shell import pip_install
from autotune.sessions import option_values, prepare
from autotune.space.machine import Machine
from autotune.system import devices, nvml, telemetry
from autotune.system.devices import Device
from autotune.system.node_kinds import Cluster
from autotune.system.nvml import Gpu
from autotune.system.telemetry import Hardware

_TIMEOUT_S = 120.0
_LOCALLY = "https://pytorch.org/get-started/locally has the command"
# The last build for GPUs before compute capability 7.5.
_OLDER_BUILD = "--force-reinstall 'torch<2.15' --index-url https://download.pytorch.org/whl/cu126"
_NO_KERNELS = "no kernel image"  # CUDA's error for a GPU that the torch build does not support


@dataclass(frozen=True)
class Fault:
    what: str
    remedy: str


_HUNG = Fault("it was not asked, because it would wait for the driver", "see the driver")


@dataclass(frozen=True)
class Torch:
    """Facts about torch and the devices that it sees, as printed by `torch_check`."""

    version: str
    cuda: str | None
    kernels: Sequence[str] = ()
    triton: bool = False
    devices: Sequence[Mapping[str, Any]] = ()
    fault: str | None = None

    @property
    def build(self) -> str:
        return f"{self.version}, {f'CUDA {self.cuda}' if self.cuda else 'CPU build'}"


@dataclass(frozen=True)
class DeviceVerdict:
    label: str
    gpu: Gpu | None = None
    fault: Fault | None = None  # excludes it from trials
    fails: Mapping[str, str] = field(default_factory=dict)  # reasons, by unusable precision
    seen: Mapping[str, Any] | None = None  # torch's facts about it


@dataclass(frozen=True)
class Look:
    torch: Torch | Fault
    verdicts: tuple[DeviceVerdict, ...] = ()

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        return tuple(one.gpu for one in self.verdicts if one.gpu and not one.fault)

    @property
    def notes(self) -> tuple[str, ...]:
        """One line per fault, with all devices that have it."""
        labels: dict[Fault, list[str]] = {}
        for one in self.verdicts:
            if one.fault:
                labels.setdefault(one.fault, []).append(one.label)
        return tuple(
            f"{', '.join(named)} {'are' if len(named) > 1 else 'is'} left out: {fault.what}; {fault.remedy}"
            for fault, named in labels.items()
        )


@dataclass(frozen=True)
class Usable:
    hardware: Hardware
    machine: Machine
    gpus_per_trial: float
    notes: tuple[str, ...] = ()
    is_checked: bool = False  # trials use GPUs, and torch has checked them
    cluster: Cluster | None = None  # of which this is the hardware


def usable(asked: float | None) -> Usable:
    """Returns the hardware for trials of `asked` GPUs each, and hides all other GPUs from this process.

    Raises InputError if there are GPUs but none is usable, unless `asked` is 0.
    """
    found, look = telemetry.hardware(), None
    if asked != 0 and (found.gpus or found.refused or nvml.is_hidden()):
        look = look_at(found)
        if devices.VISIBLE not in os.environ:
            look = _without_crowded(look, math.ceil(asked or 1))
        found = replace(found, gpus=_require_some(look))
    count = option_values.gpus_per_trial(asked, found)
    here = found if count else replace(found, gpus=())
    if look is None or not count:
        return Usable(here, machine(here, look), count, _of_amd() if asked is None else ())
    devices.number_by_bus(os.environ)
    # By default, CUDA shows one MIG slice at most, and no device if one is lost.
    is_named = bool(found.refused) or any(gpu.uuid.startswith("MIG-") for gpu in found.gpus)
    if is_named or len(look.gpus) < len(look.verdicts):
        devices.restrict_to(os.environ, look.gpus)
    notes = (*look.notes, *_crowding(look.gpus))
    kinds = list(dict.fromkeys(gpu.name for gpu in look.gpus))
    if len(kinds) > 1:
        unlike = f"{' and '.join(kinds)}: figures of one are not compared with those of another"
        one_kind = f"to search on one kind, name its GPUs in {devices.VISIBLE}"
        notes += (f"{unlike}, and trials have the memory of the smallest; {one_kind}",)
    return Usable(here, machine(here, look), count, notes, is_checked=True)


def _without_crowded(look: Look, needed: int) -> Look:
    """Returns `look` without GPUs that others fill by more than half, if another has twice as much free."""
    freest_bytes, verdicts = max((gpu.free_bytes for gpu in look.gpus), default=0), []
    for one in look.verdicts:
        fault, gpu = one.fault, one.gpu
        # Every trial is limited to what the fullest GPU has free.
        if gpu and not fault and 2 * gpu.free_bytes < min(gpu.memory_bytes, freest_bytes):
            fault = Fault(_use_by_others(gpu), f"to search on it too, name the GPUs in {devices.VISIBLE}")
        verdicts.append(replace(one, fault=fault))
    rest = replace(look, verdicts=tuple(verdicts))
    return rest if len(rest.gpus) >= needed else look


def _crowding(gpus: Sequence[Gpu]) -> tuple[str, ...]:
    """Returns a note on the fullest of these GPUs, if others fill it by more than half."""
    fullest = min(gpus, key=lambda gpu: gpu.free_bytes, default=None)
    if fullest is None or 2 * fullest.free_bytes >= fullest.memory_bytes:
        return ()
    return (f"{fullest.label}: {_use_by_others(fullest)}, and every trial is limited to what is left",)


def _use_by_others(gpu: Gpu) -> str:
    used, whole = map(units.format_bytes, (gpu.used_bytes, gpu.memory_bytes))
    return f"others use {used} of its {whole}"


def _of_amd() -> tuple[str, ...]:
    with suppress(PackageNotFoundError):
        if "+rocm" in (build := version("torch")):
            return (f"torch {build} is for AMD's GPUs; a search uses only NVIDIA's: trials run on the CPU",)
    return ()


def require_script(python: str | None, here: Usable) -> None:
    """Raises InputError if the torch of a script's own Python, if any, cannot use the trials' GPUs."""
    if python is None or not here.is_checked or Path(python) == Path(sys.executable):
        return
    look = look_at(here.hardware, python)
    if isinstance(look.torch, Torch):
        _require_some(look, f"{python}: ")


def show_one_trial(here: Usable) -> None:
    """Limits this process to the number of GPUs that a trial has."""
    devices.restrict_to(os.environ, here.hardware.gpus[: math.ceil(here.gpus_per_trial)])


def of_cluster(found: Hardware, asked: float | None, cluster: Cluster) -> Usable:
    """Returns the hardware of a cluster for trials of `asked` GPUs each; torch does not check it."""
    most = max(node.gpus for node in cluster.used)  # a trial runs on one node
    count = option_values.gpus_per_trial(asked, replace(found, gpus=found.gpus[:most]))
    here = found if count else replace(found, gpus=())
    of_cluster = (f"{one.label} of the cluster: {one.refused}" for one in found.refused)
    notes = (*of_cluster, *_crowding(found.gpus))
    return Usable(here, machine(here, None), count, notes if count else (), cluster=cluster)


def _require_some(look: Look, whose: str = "") -> tuple[Gpu, ...]:
    if look.verdicts and not look.gpus:
        on_cpu = "or search on the CPU: --gpus-per-trial 0"
        raise InputError(f"{whose}no GPU can be used: {'; '.join(look.notes)}; {on_cpu}")
    return look.gpus


def machine(found: Hardware, look: Look | None) -> Machine:
    """Returns the facts that decide which settings can run, with the precisions that fail on its GPUs."""
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
    """Checks each device of `found` with the torch of `python`, in a process that sees only that one."""
    there = [*(Device(gpu.label, gpu.uuid, gpu.name, gpu) for gpu in found.gpus), *found.refused]
    if any(device.refused == devices.HUNG for device in there):
        return Look(_HUNG, tuple(judge(device, _HUNG) for device in there))
    uuids = [device.uuid for device in there if device.uuid]
    seen_by = [{devices.VISIBLE: uuid} for uuid in uuids] or [{}]
    with ThreadPoolExecutor(4) as pool:  # each imports torch, and takes host memory
        answers = list(pool.map(partial(ask, python=python), seen_by))
    torch = next((told for told in answers if isinstance(told, Torch)), answers[0])
    by_uuid = dict(zip(uuids, answers, strict=False))  # without a UUID there is one answer, for torch
    verdicts = [judge(device, by_uuid[device.uuid] if device.uuid else torch) for device in there]
    if not there and isinstance(torch, Torch) and torch.devices:
        seen = len(torch.devices)
        what = f"torch {torch.build} sees {seen} GPUs, but NVML cannot be read: {nvml.error()}"
        remedy = "start the container with NVIDIA_DRIVER_CAPABILITIES=compute,utility"
        verdicts = [DeviceVerdict("CUDA", fault=Fault(what, remedy))]
    return Look(torch, tuple(verdicts))


def ask(environment: Mapping[str, str], python: str = sys.executable) -> Torch | Fault:
    """Runs `torch_check` in `python`, with `environment` added to the current one; takes seconds."""
    safe = {"PYTHONSAFEPATH": "1"}  # a json.py in the working directory must not be imported
    whole = {**os.environ, **environment, **safe}
    devices.number_by_bus(whole)
    script = Path(__file__).with_name("torch_check.py").read_text(encoding="utf-8")
    done = None
    with suppress(OSError):
        done = devices.run_abandoning([python, "-"], _TIMEOUT_S, script, whole)
    if done is None:
        remedy = "see what keeps the disk or the GPU busy"
        return Fault(f"`import torch` has not ended within {_TIMEOUT_S:.0f} s", remedy)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        return Fault(f"`import torch` fails: {lines[-1]}", pip_install("--force-reinstall torch"))
    return Torch(**json.loads(done.stdout.splitlines()[-1]))


def judge(device: Device, told: Torch | Fault) -> DeviceVerdict:
    """Returns the verdict on a device, from what torch told in a process that sees only this device."""
    if not device.uuid or isinstance(told, Fault) or not told.devices:  # without a UUID torch cannot be asked
        return DeviceVerdict(device.label, device.gpu, _unseen(device, told))
    seen = told.devices[0]
    capability = tuple(seen["compute_capability"])
    # Made of torch's facts if NVML lacks some.
    gpu = device.gpu or Gpu(seen["name"], seen["memory_bytes"], capability, device.uuid, label=device.label)
    fault = None
    if why := seen["fails"].get("fp32"):  # in which every device computes, if it computes at all
        remedy = "see nvidia-smi, and what else uses it"
        if _NO_KERNELS in why:
            build = f"install a build for compute capability {'.'.join(map(str, gpu.compute_capability))}"
            remedy = f"{build}: {_LOCALLY}; for one below 7.5: {pip_install(_OLDER_BUILD)}"
        fault = Fault(f"torch {told.build} cannot compute on it: {why}", remedy)
    return DeviceVerdict(device.label, gpu, fault, seen["fails"], seen)


def _unseen(device: Device, torch: Torch | Fault) -> Fault:
    if device.refused:
        listed = "nvidia-smi -L lists the devices, nvidia-smi -q shows their state"
        return Fault(device.refused, "restart the machine" if device.label == devices.DRIVER else listed)
    if isinstance(torch, Fault):
        return torch
    why = f": {torch.fault}" if torch.fault else ""
    newer = f"nvidia-smi must show CUDA {torch.cuda} or newer: update the driver, or downgrade torch"
    remedy = newer if torch.cuda else f"install torch's CUDA build: {_LOCALLY}"
    return Fault(f"torch {torch.build} does not see it{why}", remedy)
