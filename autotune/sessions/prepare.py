"""Completes a search space from the user's options, and fits it to this machine."""

import math
import os
import sysconfig
from collections.abc import Collection, Mapping
from copy import deepcopy
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from typing import Any

from pydantic import ValidationError

from autotune.core import secrecy, units
from autotune.core.errors import InputError
from autotune.core.settings import Setting
from autotune.core.trial import Trial, TrialKind
from autotune.sessions import option_values
from autotune.space import checks, configurations, spaces
from autotune.space.knobs import Distribution, Knob
from autotune.space.machine import Machine, fit_to
from autotune.space.sections import Budget
from autotune.space.space import Space
from autotune.storage import provenance
from autotune.storage.store import StoredSession
from autotune.system.telemetry import Hardware
from autotune.workloads import registry
from autotune.workloads.base import Workload

_IN_PLACE_OF = {"keep": "within", "within": "keep"}  # mutually exclusive
_LOOKS = 4  # longest trial in multiples of samples_per_trial, if the training's length is unknown

GivenSpace = Path | Mapping[str, Any]  # a file, or the content of one


def source_of(given: GivenSpace) -> str:
    """Returns the name of a search space for messages."""
    return str(given) if isinstance(given, Path) else "given"


def read_space(given: GivenSpace, overrides: Mapping[str, Mapping[str, Any]]) -> Space:
    """Returns the search space in `given`, with values replaced by the `overrides` of each section."""
    source, directory = source_of(given), given.parent if isinstance(given, Path) else Path.cwd()
    if isinstance(given, Path):
        values = spaces.parse_mapping(_text(given), f"search space {source}")
    else:
        values = deepcopy(dict(given))
    secrecy.refuse_secrets(values, f"search space {source}")
    if "workload" in values:
        values["workload"] = registry.with_absolute_paths(values["workload"], directory)
    for section, changes in overrides.items():
        given = {name: value for name, value in changes.items() if value is not None}
        if given and isinstance(own := values.setdefault(section, {}), dict):
            kept = {name: value for name, value in own.items() if _IN_PLACE_OF.get(name) not in given}
            values[section] = kept | given
    return spaces.from_values(values, source)


def settings_file(file: Path, given_to: str) -> dict[str, Setting]:
    """Returns the settings in a YAML file; errors name the option or command that it was `given_to`."""
    values = spaces.parse_mapping(_text(file), f"{given_to} {file}")
    secrecy.refuse_secrets(values, f"{given_to} {file}")
    return values


def settings(
    workload: Workload,
    space: Space,
    model: str | None,
    baseline: Path | None,
    data: Path | None,
    *,
    skip_bad_samples: bool = False,
) -> dict[str, Setting]:
    """Returns the baseline settings from the command line.

    --data overrides --baseline, which overrides --model. Raises InputError for an option whose setting
    neither the workload nor the baseline has.
    """
    given: dict[str, Setting] = {}
    if model is not None:
        if not workload.models:
            raise InputError(f"--model: {workload.entry_point} has no models to choose from, got {model!r}")
        option_values.one_of("--model", model, tuple(workload.models))
        given |= workload.models[model]
    if baseline is not None:
        given |= settings_file(baseline, "--baseline")
    options: dict[str, Setting] = {} if data is None else {"data": str(data)}
    secrecy.refuse_secrets(options, "command line")
    options |= {"skip_bad_samples": True} if skip_bad_samples else {}
    known = {*space.baseline, *map(space.naming.name, given)}
    for name in options:
        if name not in known and not workload.takes(name):
            raise InputError(
                f"--{name.replace('_', '-')}: must be a setting of the workload or of the baseline; "
                f"neither {workload.entry_point} nor the baseline has {name}"
            )
    return given | options


def without(space: Space, names: Collection[str]) -> Space:
    kept = {name: value for name, value in space.baseline.items() if name not in names}
    return space.model_copy(update={"baseline": kept})


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise InputError(f"{file}: must be text in UTF-8") from None
    except OSError as error:
        raise InputError(f"{file}: cannot be read: {error.strerror}") from None


def complete(
    space: Space, settings: Mapping[str, Setting], workload: Workload, machine: Machine, source: str
) -> tuple[Space, list[str]]:
    """Returns `space` with its whole baseline and without values that cannot run here, and notes on that.

    Raises InputError if the baseline, its data or a knob is invalid.
    """
    baseline = whole_baseline(space, settings, workload)
    workload.require_unit(space.unit)
    goal = space.objective
    workload.require_comparable(space.knobs, goal.quality, minimize=goal.minimize is not None)
    knobs = _as_taken(space, baseline, workload, source)
    facts = {
        "samples": space.training.samples or workload.training_samples(baseline),
        "samples_per_epoch": space.training.samples_per_epoch or workload.samples_per_epoch(baseline),
    }
    training = space.training.model_copy(update=facts)
    budget = _open_ended(space.budget, training.samples)
    changes = {"baseline": baseline, "knobs": knobs, "budget": budget, "training": training}
    whole = spaces.complete(space.model_copy(update=changes), source)
    fitted, dropped = fit_to(whole, machine)
    notes = workload.check(configurations.for_workload(fitted, fitted.baseline))
    return fitted, [*notes, *_planned(fitted), *_uncounted(fitted), *dropped]


def whole_baseline(space: Space, settings: Mapping[str, Setting], workload: Workload) -> dict[str, Setting]:
    """Returns the baseline with `settings`, completed by the workload; raises InputError if it is invalid."""
    try:  # settings that are given outside the search space have the user's names
        whole = {**space.baseline, **space.naming.named(settings)}
        space.naming.as_given(whole)
    except ValueError as error:
        raise InputError(f"baseline: {error}") from None
    return workload.complete(whole)


def _planned(space: Space) -> list[str]:
    if space.evaluate_every is None:
        return []
    budget, size = space.budget, space.effective_batch_size({})
    steps = math.ceil(budget.samples_per_trial / size)
    every = configurations.trial_interval(space, space.settings({}))
    path = space.naming.path(space.evaluate_every)
    return [f"a trial of the baseline: {steps} steps of {size} samples, an evaluation every {every} ({path})"]


def _uncounted(space: Space) -> list[str]:
    """Returns notes on evaluations that the speed cannot count: a useless knob, or an unknown interval."""
    name = space.interval_setting
    if not space.objective.counts_evaluations:
        return [f"knob {space.naming.path(name)}: {checks.UNCOUNTED}"] if name and name in space.knobs else []
    if space.samples_per_evaluation({}) is not None:
        return []
    lacking = "objective.speed wall: how often the whole training is evaluated is not known"
    if name is None:
        return [f"{lacking}, so as often as a trial; training.samples_per_evaluation would say it"]
    raise InputError(f"{lacking}; give {name} in the baseline, or training.samples_per_evaluation")


def _open_ended(budget: Budget, training_samples: int | None) -> Budget:
    """Returns `budget` with the upper limit of samples, if trials end once the baseline has learnt."""
    if not budget.until_learnt:
        return budget
    most = max(budget.samples_per_trial, training_samples or _LOOKS * budget.samples_per_trial)
    every = max(1, budget.samples_per_trial // budget.evaluations_per_trial)
    changes = {"samples_per_trial": most, "evaluations_per_trial": max(1, most // every)}
    return budget.model_copy(update=changes)


def _as_taken(
    space: Space, baseline: Mapping[str, Setting], workload: Workload, source: str
) -> dict[str, Knob]:
    """Returns the knobs with values as the workload converts them; raises InputError if it rejects any."""
    knobs, mistakes = dict(space.knobs), []
    for name, knob in space.knobs.items():
        if not isinstance(knob, Distribution):
            continue
        taken = []
        for value in knob.choice or knob.bounds:
            try:
                taken.append(workload.complete({**baseline, name: value}).get(name))
            except InputError as error:  # it would fail a trial hours later
                text = str(error).removeprefix("baseline: ").removeprefix(f"{name}: ")
                mistakes.append(f"knob {name}: {text}")
        if knob.choice and len(taken) == len(knob.choice):
            try:
                knobs[name] = knob.with_choice(taken)
            except ValidationError:
                got = units.quote(list(knob.choice))
                mistakes.append(f"knob {name}: the workload takes several of its values as one, got {got}")
    if mistakes:
        raise InputError(f"search space {source}: {'; '.join(dict.fromkeys(mistakes))}")
    return knobs


def machine(hardware: Hardware) -> Machine:
    return Machine(
        cpus=hardware.cpus,
        compute_capability=min((gpu.compute_capability for gpu in hardware.gpus), default=None),
        has_torchao=find_spec("torchao") is not None,
        has_compiler=any(which(name) for name in ("c++", "g++", "clang++")),
        has_triton=find_spec("triton") is not None,
        # Those that Triton looks for (triton/runtime/build.py).
        has_c_compiler=any(map(which, [os.environ["CC"]] if os.environ.get("CC") else ["gcc", "clang"])),
        has_headers=Path(sysconfig.get_paths()["include"], "Python.h").is_file(),
    )


def warm_start(earlier: StoredSession, now: Mapping[str, Any], places: Collection[str]) -> list[Trial]:
    """Returns the trials of an `earlier` session; raises InputError if they are not comparable with `now`."""
    if why := provenance.warm_start_error(earlier.provenance(), now, places):
        raise InputError(f"--warm-start {earlier.root}: {why}")
    return [t for t in earlier.study().trials if t.kind is TrialKind.SEARCHED]
