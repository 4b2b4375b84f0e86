"""Parses and checks values of command-line options."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from autotune.core import units
from autotune.core.errors import InputError
from autotune.core.settings import LARGEST_INT
from autotune.space.knobs import explain_error
from autotune.space.sections import PROMISES, Budget, Limits, Objective
from autotune.system.telemetry import Hardware

_T = TypeVar("_T")
_SECTIONS: dict[str, type[BaseModel]] = {"budget": Budget, "objective": Objective, "limits": Limits}


def one_of(option: str, value: str, allowed: tuple[str, ...]) -> None:
    """Raises InputError if the value of an option is not `allowed`."""
    if value not in allowed:
        raise InputError(f"{option}: must be one of {', '.join(allowed)}, got {value!r}")


def duration_s(option: str, text: str | None) -> float | None:
    """Returns an option's duration in seconds, None if not given; raises InputError that names the option."""
    return _parsed(option, text, units.seconds)


def size_bytes(option: str, text: str | None) -> int | None:
    """Returns an option's size in bytes, None if not given; raises InputError that names the option."""
    return _parsed(option, text, units.size_bytes)


def _parsed(option: str, text: str | None, parse: Callable[[str], _T]) -> _T | None:
    try:
        return None if text is None else parse(text)
    except InputError as error:
        raise InputError(f"{option}: {error}") from None


def samples(given: str | None) -> dict[str, Any]:
    """Returns the budget values of --samples: a number, or `auto`."""
    if given == "auto":
        return {"until_learnt": True}
    if given is None:
        return {}
    count = units.parse_whole(given)
    if count is None or not 1 <= count <= LARGEST_INT:
        raise InputError(f"--samples: must be a whole number above 0, or auto, got {units.quote(given)}")
    return {"samples_per_trial": count}


def select(promise: str | None, rule: str | None) -> str | None:
    """Returns the rule for the winner from --promise or --select; None if neither is given."""
    if promise is None:
        return rule
    one_of("--promise", promise, PROMISES)
    if rule not in {None, promise}:
        raise InputError(f"--promise {promise}: means --select {promise}, got --select {rule}")
    return promise


def gpus_per_trial(asked: float | None, hardware: Hardware) -> float:
    """Returns the GPUs of a trial, by default one if there is one; raises InputError if impossible."""
    available = len(hardware.gpus)
    if asked is None:
        return float(min(1, available))
    if not 0 <= asked <= available or (asked > 1 and asked != int(asked)):
        allowed = (
            f"must be 0 to 1, or a whole number up to {available}"
            if available
            else "must be 0, because there is no GPU here"
        )
        raise InputError(f"--gpus-per-trial: {allowed}, got {asked:g}")
    alone = [gpu for gpu in hardware.gpus if gpu.exclusive]
    if 0 < asked < 1 and alone:
        rule = f"must be a whole number, because {alone[0].label} is in exclusive compute mode"
        raise InputError(
            f"--gpus-per-trial: {rule}, got {asked:g}; nvidia-smi --compute-mode=0 ends that mode"
        )
    return asked


def cpus_per_trial(asked: int | None, hardware: Hardware) -> int | None:
    if asked is not None and asked > hardware.cpus:
        raise InputError(
            f"--cpus-per-trial: must be at most the {hardware.cpus} CPUs of this machine, got {asked}"
        )
    return asked


def require_options(overrides: Mapping[str, Mapping[str, Any]], called: Mapping[str, str]) -> None:
    """Raises InputError with the names of the options whose values violate the rules of their section.

    `called` names the options that differ from their values' names, such as --promise for `select`.
    """
    mistakes = []
    for section, given in overrides.items():
        model, values = _SECTIONS[section], {name: one for name, one in given.items() if one is not None}
        try:
            model.model_validate(values)
        except ValidationError as error:
            for one in error.errors():
                names = map(str, one["loc"][:1] or values)
                options = ", ".join(called.get(name, f"--{name.replace('_', '-')}") for name in names)
                mistakes.append(f"{options}: {explain_error(one, model)}")
    if mistakes:
        raise InputError("; ".join(mistakes))
