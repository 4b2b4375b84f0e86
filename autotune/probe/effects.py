"""Chooses the values with which options are tried, and judges whether a run shows their effect. Pure."""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from autotune.core import settings
from autotune.core.settings import Setting
from autotune.probe import options
from autotune.probe.options import Option
from autotune.probe.watching import Watched, WatchedStep

_EQUAL = 1e-6  # relative difference of rates and losses of equal runs
_COMPARED = 6  # first steps

_ROLES = (
    *(settings.MICRO_BATCH, settings.ACCUMULATION, settings.LEARNING_RATE, settings.WORKERS),
    *(settings.PREFETCH, settings.SEED, settings.PRECISION, settings.COMPILE),
)
# Arguments of a framework's trainer that are settings, and their defaults.
_OF_LIGHTNING: Mapping[str, Setting] = {
    "max_epochs": None,
    "max_steps": None,
    "precision": "32-true",
    "accumulate_grad_batches": 1,
}
_OF_TRANSFORMERS = (
    *("per_device_train_batch_size", "gradient_accumulation_steps", "learning_rate", "num_train_epochs"),
    *("max_steps", "warmup_steps", "dataloader_num_workers", "seed"),
)
# Words for precisions by the tuner's names; a script uses the row that has its value, or its choices.
_WORDS: Sequence[Mapping[str, Setting]] = (
    {"fp32": "fp32", "bf16": "bf16", "fp16": "fp16"},
    {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"},
    {"fp32": "no", "bf16": "bf16", "fp16": "fp16"},
    {"fp32": "32-true", "bf16": "bf16-mixed", "fp16": "16-mixed"},
    {"fp32": "32", "bf16": "bf16", "fp16": "16"},
)
_DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}


@dataclass(frozen=True)
class Candidate:
    """An option that may be a knob, and the value with which it is tried."""

    role: str
    option: Option
    tried: Setting  # in the tuner's names; None: nothing to try
    words: Mapping[str, Setting]  # the script's words by the tuner's names, for a precision

    @property
    def value(self) -> Setting:
        """The value that is tried, in the script's words."""
        return self.words.get(str(self.tried), self.tried)


def candidates(known: Sequence[Option], seen: Watched) -> list[Candidate]:
    """Returns the options that have a known role, each with a value other than the user's."""
    by_role = ((role, options.role_of(known, role)) for role in _ROLES)
    tried = (_candidate(role, option, seen) for role, option in by_role if option is not None)
    return [one for one in tried if one is not None]


def _candidate(role: str, option: Option, seen: Watched) -> Candidate | None:
    value = option.value
    if role == settings.PRECISION:
        rows = (w for w in _WORDS if value in w.values() or len({*w.values()} & {*option.choices}) > 1)
        if (words := next(rows, None)) is None or option.is_switch:
            return None
        is_trainers = option.is_inside or bool(option.by_value)
        if is_trainers and words is _WORDS[0] and seen.device == "cuda":
            words = {**words, "tf32": "tf32"}
        is_wide = words.get("fp32") == value or value not in words.values()
        return Candidate(role, option, "bf16" if is_wide else "fp32", words)
    tried: Setting = None
    if role == settings.COMPILE:
        other = value is not True if isinstance(value, bool) else None
        tried = "default" if option.is_inside else other
    elif role == settings.LEARNING_RATE:
        tried = 2 * float(value) if options.is_number(value) and value else None
    elif not isinstance(value, int) or isinstance(value, bool):
        return None
    elif role in (settings.MICRO_BATCH, settings.ACCUMULATION):
        tried = 2 * value if value > 0 else None
    elif role == settings.WORKERS:  # some loaders refuse to have none
        tried = value - 1 if value > 1 else value + 1
    elif role == settings.SEED or seen.loader.get("num_workers"):  # a prefetch factor needs workers
        tried = value + 1
    return None if tried is None else Candidate(role, option, tried, {})


def inside(seen: Watched) -> list[Option]:
    """Returns the arguments of a script's loader, optimizer, trainer and model that the hook can replace."""
    framework, arguments = seen.trainer.get("framework"), seen.trainer.get("arguments", {})
    given: dict[str, Setting] = {}
    if framework == "transformers":
        given = {f"trainer.{name}": arguments.get(name) for name in _OF_TRANSFORMERS}
        given["trainer.precision"] = next((one for one in ("bf16", "fp16") if arguments.get(one)), "fp32")
    else:
        given |= {f"loader.{name}": seen.loader.get(name) for name in ("batch_size", "num_workers")}
        given["optimizer.lr"] = max(seen.steps[0].rates, default=None)
    if framework == "lightning":
        given |= {f"trainer.{name}": arguments.get(name, usual) for name, usual in _OF_LIGHTNING.items()}
    if not seen.trainer and seen.device == "cuda":  # where they pay off
        given["model.precision"] = "fp32" if seen.steps[0].dtype == "float32" else None
        given["model.compile"] = None if seen.compiled else "off"
    return [Option(name, "", value) for name, value in given.items() if value is not None]


def shows(candidate: Candidate, before: Watched, after: Watched, *, is_alone: bool) -> bool:
    """Returns True if `after` shows an effect against `before`; losses count if the candidate `is_alone`."""
    if not before.steps or not after.steps:
        return False
    first, now = before.steps[0], after.steps[0]
    match candidate.role:
        case settings.MICRO_BATCH:
            return _has_doubled(before, after)
        case settings.ACCUMULATION:
            return now.passes == 2 * first.passes
        case settings.LEARNING_RATE:
            return _has_doubled_rate(before.steps, after.steps) or (is_alone and _moves_later(before, after))
        case settings.WORKERS | settings.PREFETCH:
            own, tried = before.loader.get(candidate.role), after.loader.get(candidate.role)
            return bool(own != tried == candidate.tried)
        case settings.PRECISION:
            return now.dtype == _DTYPES.get(str(candidate.tried)) != first.dtype
        case settings.COMPILE:
            return after.compiled != before.compiled
        case settings.SEED:
            return is_alone and not _is_equal(now.loss, first.loss)
    return False


def _has_doubled(before: Watched, after: Watched) -> bool:
    """Returns True if the batch of a pass has doubled, by the loader or by one dimension of the input."""
    if (size := before.loader.get("batch_size")) is not None:
        return bool(after.loader.get("batch_size") == 2 * size)
    one, other = before.steps[0].shape, after.steps[0].shape
    factors = [b / a for a, b in zip(one, other, strict=False) if a]
    return len(one) == len(other) > 0 and sorted(factors) == [1.0] * (len(factors) - 1) + [2.0]


def _has_doubled_rate(before: Sequence[WatchedStep], after: Sequence[WatchedStep]) -> bool:
    """Returns True if the highest rate has doubled in the first step that shows it, as under a warm-up."""
    for one, other in zip(before[:_COMPARED], after[:_COMPARED], strict=False):
        if one.rates and other.rates and max(one.rates) > 0:
            return math.isclose(max(other.rates), 2 * max(one.rates), rel_tol=1e-3)
    return False


def _moves_later(before: Watched, after: Watched) -> bool:
    """Returns True if weights are updated by hand, and only the first loss is the same."""
    losses = [(a.loss, b.loss) for a, b in zip(before.steps, after.steps, strict=False)][:_COMPARED]
    is_by_hand = not before.steps[0].rates
    return is_by_hand and _is_equal(*losses[0]) and not all(_is_equal(*pair) for pair in losses[1:])


def _is_equal(one: float | None, other: float | None) -> bool:
    return one is not None and other is not None and math.isclose(one, other, rel_tol=_EQUAL)


def samples_of_step(seen: Watched) -> int | None:
    """Returns the samples of an optimizer step; None if neither a loader nor the model's input shows them."""
    size = seen.loader.get("batch_size") or next(iter(seen.steps[0].shape), None)
    # The first step of an update by hand is known only after some passes, and has them all.
    return int(size) * seen.steps[:2][-1].passes if size else None


def shares_batch(seen: Watched, launched: int) -> bool:
    """Returns True if each of `launched` processes trains its part of the batch that loader or option say."""
    rows, size = next(iter(seen.steps[0].shape), 0), options.role_of(seen.options, settings.MICRO_BATCH)
    return min(rows, launched) > 1 and rows * launched in {seen.loader.get("batch_size"), size and size.value}


def step_s(seen: Watched) -> float | None:
    """Returns the median seconds of a step, without the first few; None if too few were seen."""
    times = [one.at_s for one in seen.steps[2:]]
    gaps = sorted(b - a for a, b in itertools.pairwise(times))
    return gaps[len(gaps) // 2] if gaps else None


Stop = Callable[[Watched], bool]


def never(_: Watched) -> bool:
    """Returns False: the training runs to its end."""
    return False


def after_steps(count: int) -> Stop:
    """Returns a condition that holds once `count` steps were seen."""
    return lambda seen: len(seen.steps) >= count
