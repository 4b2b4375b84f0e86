"""Proposes roles, baseline and knobs of a first search space from a script's options. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from autotune.core.common_names import ACCELERATES, ENDS, LIGHTNINGS, NAMES, TORCHS
from autotune.core.settings import (
    ACCUMULATION,
    CHECKPOINTING,
    COMPILE,
    LEARNING_RATE,
    MICRO_BATCH,
    PRECISION,
    PREFETCH,
    SEED,
    WORKERS,
    Setting,
)
from autotune.init import names
from autotune.init.options import Option
from autotune.sessions.prepare import UNSAID

ASK = "? "  # prefix of comments that ask the user
_RATE = {"scale": "sqrt", "multiplier": {"loguniform": [0.5, 8.0]}}
_SCALED_BY_ITSELF = {"blr", "base_lr"}
_GUESSES: Mapping[str, Setting] = {
    MICRO_BATCH: 16,
    ACCUMULATION: 1,
    LEARNING_RATE: 1e-3,
    WORKERS: 2,
    PREFETCH: 2,
    SEED: 0,
}
_FORMATS = ("fp32", "bf16", "fp16")
_WORDS: Sequence[tuple[Setting, ...]] = (
    ("fp32", "bf16", "fp16"),
    tuple(TORCHS.values()),
    tuple(LIGHTNINGS.values()),
    tuple(ACCELERATES.values()),
    (32, "bf16", 16),
    ("32", "bf16", "16"),
    ("float", "bfloat16", "half"),
)
_MOST_SAID = 100


@dataclass(frozen=True)
class Proposed:
    """Proposed setting of a search space."""

    name: str  # the user's
    value: Setting  # the tuner's
    form: str = ""  # in the command line
    role: str = ""
    knob: Mapping[str, Any] | None = None
    words: Mapping[str, Setting] = field(default_factory=dict)  # the user's, by the tuner's value
    flags: Mapping[str, str] = field(default_factory=dict)  # instead of `form`, by value
    note: str = ""  # comment


@dataclass(frozen=True)
class Proposal:
    """Proposed settings of a search space, and further parts of its file."""

    settings: tuple[Proposed, ...]
    fixed: tuple[str, ...] = ()  # constant arguments in `run`
    length: tuple[str, ...] = ()  # step counts, first the one that ends the training
    counted_in_steps: tuple[str, ...] = ()  # step counts, if none of them ends the training
    evaluate_every: str | None = None
    notes: tuple[str, ...] = ()  # comments at the top

    @property
    def has_seed(self) -> bool:
        return any(one.role == SEED for one in self.settings)

    @property
    def effective_batch(self) -> int:
        """Samples per optimizer step of the baseline."""
        size = 1
        for one in self.settings:
            if one.role in {MICRO_BATCH, ACCUMULATION} and isinstance(one.value, int):
                size *= max(1, one.value)
        return size


def proposal(options: Sequence[Option], fixed: Sequence[str] = (), *, has_gpu: bool) -> Proposal:
    """Returns the settings to tune, required ones to ask for, and output directories of the script."""
    settings = list[Proposed](_with_roles(options))
    steps = [o for o in options if o.key in names.STEPS and _is_count(o.value)]
    steps.sort(key=lambda one: ENDS.index(one.key) if one.key in ENDS else len(ENDS))
    has_end = bool(steps) and steps[0].key in ENDS
    every = _evaluated(options)
    settings += [Proposed(one.name, one.value, one.form) for one in steps]
    used = {one.name for one in settings}
    if every is not None and every.name not in used:
        value = every.value if _is_count(every.value) else 100
        settings.append(Proposed(every.name, value, every.form, note="computed anew for every trial"))
    settings += list(_device(options, has_gpu=has_gpu))
    places = [one for one in options if {one.key, one.name} & names.PLACES and not one.is_switch]
    taken = (
        {one.name for one in settings}
        | {one.name for one in places}
        | {name for one in settings for name in _switches(one, options)}
    )
    settings += [_asked(one) for one in options if one.required and one.name not in taken]
    return Proposal(
        settings=tuple(settings),
        fixed=(*(one.form.replace("{}", "{workdir}") for one in places), *fixed),
        length=tuple(one.name for one in steps) if has_end else (),
        counted_in_steps=() if has_end else tuple(one.name for one in steps),
        evaluate_every=every.name if every else None,
        notes=tuple(_notes(options, settings)),
    )


def _evaluated(options: Sequence[Option]) -> Option | None:
    """Returns the option for the evaluation interval in steps."""
    by_name = {one.key: one for one in options if not one.is_switch}
    return next((by_name[name] for name in names.EVERY if name in by_name), None)


def _is_count(value: Setting) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 1


def _switches(one: Proposed, options: Sequence[Option]) -> Iterator[str]:
    """Yields the names of options that a setting's flags use."""
    yield from (option.name for option in options if option.form in one.flags.values())


def _asked(option: Option) -> Proposed:
    """Returns a required setting, with a question for its value."""
    description = f": {option.help[:_MOST_SAID]}" if option.help else ""
    return Proposed(option.name, UNSAID, option.form, note=f"{ASK}it has to be given{description}")


def _with_roles(options: Sequence[Option]) -> Iterator[Proposed]:
    for role in (MICRO_BATCH, ACCUMULATION, LEARNING_RATE, WORKERS, PREFETCH, SEED):
        if (option := names.role_of([o for o in options if not o.is_switch], role)) is not None:
            yield _number(option, role)
    yield from _precision(options)
    for role, switch in ((COMPILE, _compiled), (CHECKPOINTING, _checkpointed)):
        if (option := names.role_of(options, role)) is not None:
            yield from switch(option)


def _number(option: Option, role: str) -> Proposed:
    """Returns a numeric setting with a knob around its value."""
    known = isinstance(option.value, int | float) and not isinstance(option.value, bool)
    value = option.value if known else _GUESSES[role]
    note = "" if known or role == SEED else f"{ASK}no default was found: say what you train with"
    knob = _knob(role, option.key, value)
    if role == LEARNING_RATE and option.key in _SCALED_BY_ITSELF:
        note = note or f"{ASK}a base rate that the script itself scales with the batch"
    return Proposed(option.name, value, option.form, role, knob, note=note)


def _knob(role: str, key: str, value: Any) -> Mapping[str, Any] | None:
    if role == LEARNING_RATE:
        return {"loguniform": [value / 2, value * 2]} if key in _SCALED_BY_ITSELF else _RATE
    if role == MICRO_BATCH:
        return {"choice": sorted({max(1, value // 2), value, 2 * value, 4 * value})}
    if role == ACCUMULATION:
        parts = [value // by for by in (4, 2) if value % by == 0]
        return {"choice": sorted({*parts, value, *([] if len(parts) > 1 else [2 * value])})}
    if role == WORKERS:
        return {"choice": sorted({0, value, 2, 4, 8})}
    return {"choice": sorted({value, 2, 4})} if role == PREFETCH else None


def _precision(options: Sequence[Option]) -> Iterator[Proposed]:
    """Yields the precision: an option with a word per format, or switches for all but the widest."""
    given = [one for one in options if one.key in NAMES[PRECISION]]
    for one in given:
        words = None if one.is_switch or isinstance(one.value, bool) else _words(one)
        if words is not None:
            ours = {word: name for name, word in words.items()}
            value = ours.get(one.value, _FORMATS[0])
            note = f"{ASK}the script chooses between {_listed(one.choices)}" if one.choices else ""
            differ = {name: word for name, word in words.items() if name != word}
            knob = {"choice": [name for name in _FORMATS if name in words]}
            yield Proposed(one.name, value, one.form, PRECISION, knob, differ, note=note)
            return
    flags = {("bf16" if "bf16" in one.key else "fp16"): one.form for one in given if one.is_switch}
    if flags:
        knob = {"choice": [name for name in _FORMATS if name == _FORMATS[0] or name in flags]}
        guessed = not {"fp16", "bf16"} & {one.key for one in given}
        note = f"{ASK}is {flags.get('fp16')} fp16?" if guessed else ""
        yield Proposed(PRECISION, _FORMATS[0], "", PRECISION, knob, flags=flags, note=note)


def _words(option: Option) -> dict[str, Setting] | None:
    """Returns the option's words for the formats; None if its values are not formats."""
    for words in _WORDS:
        known = [word for word in words if not option.choices or word in option.choices]
        if option.value in known or (option.choices and len(known) > 1):
            return {name: word for name, word in zip(_FORMATS, words, strict=True) if word in known}
    return None


def _listed(values: Sequence[Setting]) -> str:
    return ", ".join(map(str, values))


def _compiled(option: Option) -> Iterator[Proposed]:
    value = "default" if option.value is True else "off"
    plain = Proposed(option.name, value, option.form, COMPILE, {"choice": ["off", "default"]})
    if option.is_switch:
        yield replace(plain, form="", flags={"default": option.form})
    elif isinstance(option.value, bool):
        yield replace(plain, words={"off": False, "default": True})


def _checkpointed(option: Option) -> Iterator[Proposed]:
    plain = Proposed(option.name, option.value is True, option.form, CHECKPOINTING, {"choice": [False, True]})
    if option.is_switch:
        yield replace(plain, form="", flags={"true": option.form})
    elif isinstance(option.value, bool):
        yield plain


def _device(options: Sequence[Option], *, has_gpu: bool) -> Iterator[Proposed]:
    """Yields the CPU as device if there is no GPU but the script's default is one."""
    for one in options:
        wants_gpu = isinstance(one.value, str) and one.value.startswith(("cuda", "gpu"))
        if one.key in names.DEVICE and wants_gpu and not has_gpu:
            yield Proposed(
                one.name, "cpu", one.form, note=f"no GPU was found here; the script's own is {one.value}"
            )


def _notes(options: Sequence[Option], settings: Sequence[Proposed]) -> Iterator[str]:
    """Yields notes on learning rates that are not tuned."""
    taken = {one.name for one in settings}
    for one in options:
        if one.name not in taken and names.is_rate(one) and not one.key.startswith("min"):
            yield f"{ASK}{one.name} is a learning rate, too: it stays {one.value}"
