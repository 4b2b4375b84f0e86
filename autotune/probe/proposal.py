"""Writes a search space from the findings of a probe. Pure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from autotune.core.settings import ACCUMULATION, COMPILE, LENGTH, MICRO_BATCH, PROCESSES, SEED, Setting
from autotune.probe import options
from autotune.probe.effects import Candidate
from autotune.probe.options import Option
from autotune.probe.scores import Score
from autotune.space.naming import nest

_PRECISIONS = ("fp32", "tf32", "bf16")  # fp16 needs a scaler of gradients that a script may not have


@dataclass(frozen=True)
class ProbeResult:
    """The findings of a probe, from which a search space is written."""

    words: tuple[str, ...]  # its command line
    directory: str
    python: str | None
    environment: Mapping[str, str]
    kind: str  # of the workload
    score: Score
    minimize: bool
    knobs: tuple[Candidate, ...] = ()  # options that showed an effect
    length: tuple[str, tuple[Option, ...]] | None = None  # steps or epochs, and the options that count them
    every: Option | None = None  # between evaluations
    followers: tuple[Option, ...] = ()  # rates that follow the learning rate
    batch: int | None = None  # samples of a process's step; None if they are unknown
    samples_per_epoch: int | None = None
    training_s: float | None = None  # how long the user's training takes here, as far as it is known
    samples: int | None = None  # of the user's training, if its length may change
    trial_samples: int | None = None  # of a trial, if that is a miniature of the training
    cpus: int = 1
    shares_batch: bool = False  # the batch size is that of all processes together


def space(found: ProbeResult) -> dict[str, Any]:
    """Returns the search space as nested values."""
    knobs = [one for one in found.knobs if one.role != SEED]
    values: dict[str, Any] = {"workload": _workload(found)}
    roles = {one.role: one.option.placeholder for one in found.knobs if one.role != one.option.placeholder}
    if roles:
        values["roles"] = roles
    if words := {one.role: spelt for one in knobs if (spelt := _words(one))}:
        values["values"] = words
    if found.every is not None:
        values["evaluate_every"] = found.every.placeholder
    if found.followers:
        values["follow_learning_rate"] = [one.placeholder for one in found.followers]
    values["baseline"] = _baseline(found)
    values["knobs"] = {one.option.placeholder: _knob(one, found) for one in knobs}
    if found.length is not None:
        unit, counted = found.length
        values["knobs"][LENGTH] = {unit: [one.placeholder for one in counted]}
    if found.samples_per_epoch and found.length and found.length[0] == "epochs":
        values["training"] = {"samples_per_epoch": found.samples_per_epoch}
    values["objective"] = {"minimize" if found.minimize else "maximize": found.score.name}
    values["budget"] = {
        "trials": 40,
        **({"samples_per_trial": found.trial_samples} if found.trial_samples else {}),
        **({"evaluations_per_trial": 1} if found.every else {}),
    }
    return values


def _workload(found: ProbeResult) -> dict[str, Any]:
    run, flags = list(found.words), dict[str, Any]()
    by_file: dict[str, dict[str, str]] = {}
    compiles = [one.option for one in found.knobs if one.role == COMPILE]
    for option in _used(found):
        placeholder = f"{{{option.placeholder}}}"
        if option.file:
            by_file.setdefault(option.file, {})[option.name] = placeholder
        elif option.by_value:
            flags[option.placeholder] = dict(option.by_value)
        elif option.is_switch:
            run = options.put(run, option, None)
            flags[option.placeholder] = {"default" if option in compiles else "true": option.form}
        elif not option.is_inside:
            run = options.put(run, option, placeholder)
    files = {}
    for number, (file, given) in enumerate(by_file.items()):
        name = f"config_file{number or ''}"
        files[name] = {"base": file, "set": given}
        filled = f"{{{name}}}"
        run = [w.removesuffix(file) + filled if w.rpartition("=")[2] == file else w for w in run]
    workload: dict[str, Any] = {"kind": found.kind, "run": options.line(run), "directory": found.directory}
    if found.python:
        workload["python"] = found.python
    if found.environment:
        workload["environment"] = dict(found.environment)
    if flags:
        workload["flags"] = flags
    if files:
        workload["files"] = files
    if found.score.kind != "reported":
        workload |= {found.score.kind: found.score.place} if found.score.kind else {}
        workload["quality"] = {found.score.name: found.score.pattern}
    if not any(one.role == SEED for one in found.knobs):
        workload["seed"] = "hook"
    workload["view"] = True
    return workload


def _used(found: ProbeResult) -> list[Option]:
    """Returns the options that become settings, each once."""
    counted = found.length[1] if found.length else ()
    used = [one.option for one in found.knobs] + list(counted) + list(found.followers)
    return options.known([*used, *([found.every] if found.every else [])])


def _words(one: Candidate) -> dict[str, Setting]:
    """Returns the script's words for the tuner's values of a knob; none if they need no translation."""
    if one.option.is_inside or one.option.by_value:
        return {}
    if one.role == COMPILE:
        return {} if one.option.is_switch else {"off": False, "default": True}
    return {name: word for name, word in one.words.items() if name in _PRECISIONS or word == one.option.value}


def _baseline(found: ProbeResult) -> dict[str, Any]:
    by_option = {one.option: one for one in found.knobs}
    values: dict[str, Any] = {}
    inside: dict[str, Setting] = {}
    for option in _used(found):
        value = _own(by_option.get(option), option)
        if option.is_inside:
            inside[option.name] = value
        else:
            values[option.placeholder] = value
    by_role = {one.role: one.option.value for one in found.knobs}
    if MICRO_BATCH not in by_role:  # steps are counted by it, and rates scaled
        values[MICRO_BATCH] = max(1, (found.batch or 1) // int(by_role.get(ACCUMULATION) or 1))
    return values | nest(inside) | ({PROCESSES: 1} if found.shares_batch else {})


def _own(candidate: Candidate | None, option: Option) -> Setting:
    """Returns the user's value of an option, in the tuner's words."""
    if candidate is None:
        return option.value
    if candidate.role == COMPILE and not option.is_inside:
        return "default" if option.value else "off"
    named = {word: name for name, word in candidate.words.items()}
    has_words = bool(candidate.words) and not option.is_inside  # a framework has its own
    return named.get(option.value, "fp32") if has_words else option.value


def _knob(one: Candidate, found: ProbeResult) -> dict[str, Any]:
    value: Any = one.option.value
    own, cpus = _own(one, one.option), found.cpus
    words = [w if one.option.is_inside else name for name in _PRECISIONS if (w := one.words.get(name))]
    match one.role:
        case "learning_rate":
            return {"scale": "sqrt"}
        case "micro_batch_size":
            return {"choice": sorted({max(1, value // 2), value, 2 * value, 4 * value})}
        case "accumulation_steps":
            parts = {value // by for by in (4, 2) if value % by == 0}
            return {"choice": sorted({*parts, value, 2 * value})}
        case "num_workers":
            none = [0] if one.tried == 0 else []
            return {"choice": sorted({*none, value, *(n for n in (1, 2, 4, 8) if n <= cpus)})}
        case "prefetch_factor":
            return {"choice": sorted({value or 2, 2, 4})}
        case "precision":
            return {"choice": list(dict.fromkeys([own, *words]))}
    return {"choice": ["off", "default"]}


def text(found: ProbeResult, notes: Sequence[str]) -> str:
    """Returns the search space as YAML, with `notes` as comments at its top."""
    lines = [f"# {note}" for note in notes]
    for name, value in space(found).items():
        if isinstance(value, dict) and value:
            lines += [f"{name}:", *(f"  {_inline(key)}: {_inline(one)}" for key, one in value.items())]
        else:
            lines.append(f"{name}: {_inline(value)}")
    return "\n".join(lines) + "\n"


def _inline(value: Any) -> str:
    """Returns a value in YAML's flow style, on one line."""
    dumped: str = yaml.safe_dump(
        value, default_flow_style=True, width=math.inf, allow_unicode=True, sort_keys=False
    )
    return dumped.removesuffix("...\n").strip()
