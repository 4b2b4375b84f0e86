"""Restricts a search space to what this machine can run."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from autotune.core.errors import InputError
from autotune.core.settings import COMMON, PRECISION, Knowledge, Setting
from autotune.space.knobs import Distribution
from autotune.space.space import Space

_TRITON_CAPABILITY = (7, 0)  # torch.utils._triton


@dataclass(frozen=True)
class Machine:
    """Facts about a machine that decide which settings can run on it."""

    cpus: int
    compute_capability: tuple[int, int] | None = None  # None: no CUDA device
    has_torchao: bool = False
    has_compiler: bool = True  # C++ compiler, which torch.compile needs on a CPU
    has_triton: bool = True  # needed on a GPU, with a C compiler and Python.h
    has_c_compiler: bool = True
    has_headers: bool = True
    # By precision, the reason that it fails on the GPU although the compute capability suffices.
    fails: Mapping[Setting, str] = field(default_factory=dict)


def explain_unsupported(name: str, value: Setting, machine: Machine, known: Knowledge = COMMON) -> str | None:
    """Returns a reason not to try the setting on this machine, None if it may be tried."""
    if reason := explain_impossible(name, value, machine, known):
        return reason
    if known[name].at_most_cpus and isinstance(value, int) and value > machine.cpus:
        return f"this machine has {machine.cpus} CPUs"
    if known[name].needs_for(value).is_for_cuda and machine.compute_capability is None:
        return "is for CUDA devices"
    return None


def explain_impossible(name: str, value: Setting, machine: Machine, known: Knowledge = COMMON) -> str | None:
    """Returns the reason that this machine cannot run the setting at all, None if it can."""
    needs, capability = known[name].needs_for(value), machine.compute_capability
    if needs.cuda and capability is None:
        return "needs a CUDA device"
    if needs.compute_capability and capability and capability < needs.compute_capability:
        return f"needs compute capability {'.'.join(map(str, needs.compute_capability))}"
    if needs.torchao and not machine.has_torchao:
        return "needs torchao: pip install torchao"
    if needs.compiler and (reason := _explain_uncompiled(machine)):
        return reason
    return machine.fails.get(value) if name == PRECISION else None


def require(what: str, settings: Mapping[str, Setting], machine: Machine, known: Knowledge = COMMON) -> None:
    """Raises InputError that lists all `settings` of `what` which this machine cannot run, if any."""
    refused = {name: explain_impossible(name, value, machine, known) for name, value in settings.items()}
    if mistakes := [f"{name} {settings[name]!r} {why}" for name, why in refused.items() if why]:
        raise InputError(f"this machine cannot run {what}: {'; '.join(mistakes)}")


def _explain_uncompiled(machine: Machine) -> str | None:
    """Returns what torch.compile lacks here: for Inductor on a CPU, for Triton on a GPU; None if nothing."""
    if machine.compute_capability is None:
        return None if machine.has_compiler else "needs a C++ compiler"
    if machine.compute_capability < _TRITON_CAPABILITY:
        return f"needs compute capability {'.'.join(map(str, _TRITON_CAPABILITY))}"
    if not machine.has_triton:
        return "needs triton on a GPU: pip install triton"
    if not machine.has_c_compiler:
        return "needs a C compiler on a GPU"
    return None if machine.has_headers else "needs Python's headers (Python.h) on a GPU"


def fit_to(space: Space, machine: Machine) -> tuple[Space, list[str]]:
    """Drops values that cannot run here, with a line on each; raises InputError if the baseline cannot."""
    require("the baseline", space.baseline, machine, space.known)
    knobs, dropped = {}, []
    for name, knob in space.knobs.items():
        fitted = knob
        if isinstance(knob, Distribution) and knob.choice:
            today = space.baseline[name]  # never dropped: the search starts from it
            judged = [
                (v, None if v == today else explain_unsupported(name, v, machine, space.known))
                for v in knob.choice
            ]
            dropped += [f"{name} {value}: dropped, {why}" for value, why in judged if why]
            values = tuple(value for value, why in judged if not why)
            if not values:
                continue  # nothing left to choose: keeps the baseline's value
            fitted = knob.with_choice(values)
        knobs[name] = fitted
    return space.model_copy(update={"knobs": knobs}), dropped
