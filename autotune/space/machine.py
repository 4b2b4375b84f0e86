"""What this machine can run of a search space."""

from dataclasses import dataclass

from autotune.core.errors import InputError
from autotune.core.settings import COMMON, Knowledge, Setting
from autotune.space.knobs import Distribution
from autotune.space.space import Space


@dataclass(frozen=True)
class Machine:
    """What decides which settings can run here: facts only, so that the rules below are pure."""

    cpus: int
    compute_capability: tuple[int, int] | None = None  # None: no CUDA device
    has_torchao: bool = False
    has_compiler: bool = True


def why_not(name: str, value: Setting, machine: Machine, known: Knowledge = COMMON) -> str | None:
    """Why the search should not try the setting on this machine, None if it may."""
    if reason := why_impossible(name, value, machine, known):
        return reason
    if known[name].at_most_cpus and isinstance(value, int) and value > machine.cpus:
        return f"this machine has {machine.cpus} CPUs"
    if known[name].needs_for(value).is_for_cuda and machine.compute_capability is None:
        return "is for CUDA devices"
    return None


def why_impossible(name: str, value: Setting, machine: Machine, known: Knowledge = COMMON) -> str | None:
    """Why this machine cannot run the setting at all, None if it can."""
    needs, capability = known[name].needs_for(value), machine.compute_capability
    if needs.cuda and capability is None:
        return "needs a CUDA device"
    if needs.compute_capability and capability and capability < needs.compute_capability:
        return f"needs compute capability {'.'.join(map(str, needs.compute_capability))}"
    if needs.torchao and not machine.has_torchao:
        return "needs torchao: pip install 'autotune-r2gen[fp8]'"
    if needs.compiler and not machine.has_compiler:
        return "needs a C++ compiler"
    return None


def fit_to(space: Space, machine: Machine) -> tuple[Space, list[str]]:
    """`space` without what this machine cannot run, and a line for each value dropped.

    Raises InputError when the baseline itself cannot run here.
    """
    refused = {n: why_impossible(n, v, machine, space.known) for n, v in space.baseline.items()}
    if mistakes := [f"baseline {n} {space.baseline[n]!r} {why}" for n, why in refused.items() if why]:
        raise InputError(f"this machine cannot run the baseline: {'; '.join(mistakes)}")
    knobs, dropped = {}, []
    for name, knob in space.knobs.items():
        kept = knob
        if isinstance(knob, Distribution) and knob.choice:
            today = space.baseline[name]  # stays, wise or not: the search starts from it
            judged = [
                (v, None if v == today else why_not(name, v, machine, space.known)) for v in knob.choice
            ]
            dropped += [f"{name} {value}: dropped, {why}" for value, why in judged if why]
            values = tuple(value for value, why in judged if not why)
            if not values:
                continue  # nothing left to choose: the setting stays the baseline's
            kept = Distribution(choice=values)
        knobs[name] = kept
    return space.model_copy(update={"knobs": knobs}), dropped
