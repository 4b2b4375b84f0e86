"""Predicts the largest micro-batch of a configuration that fits a GPU of another size. Pure.

Only memory is predicted, with the model that the search uses; speed on another device is not known.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from autotune.core import units
from autotune.core.settings import ACCUMULATION, LARGEST_BATCH, LEARNING_RATE, MICRO_BATCH, Config, Setting
from autotune.core.trial import Trial
from autotune.judging.decisions.history import History
from autotune.memory import room
from autotune.memory.feasibility import MemoryModel
from autotune.memory.memory_peaks import Prediction
from autotune.space.knobs import ScaledLearningRate
from autotune.space.space import Space

SIZES_BYTES = tuple(gib * 2**30 for gib in (8, 12, 16, 24, 48, 80))  # of GPUs in use


@dataclass(frozen=True)
class Fit:
    """The configuration to run with `memory_bytes` of memory: the largest micro-batch that is sure to fit."""

    memory_bytes: int
    allowed_bytes: int
    config: Config | None = None  # with fitting accumulation and learning rate; None if there is a `reason`
    effective_batch_size: int | None = None
    keeps_batch: bool = False  # the effective batch is the measured one; otherwise the quality is unknown
    peak: Prediction | None = None
    reason: str = ""  # why nothing fits, or why that is unknown


@dataclass(frozen=True)
class MemoryForecast:
    """The fit of a trial's configuration into memories of other sizes."""

    trial: int
    config: Config
    is_of_gpu: bool  # peaks are those of tensors on the GPU, else of processes on the host
    memory_fraction: float  # share of the memory that a peak may take
    is_rising: bool  # the trial's own peak still grew when it ended
    fits: tuple[Fit, ...]


def forecast(trial: Trial, history: History, sizes_bytes: Sequence[int] = SIZES_BYTES) -> MemoryForecast:
    """Returns how the configuration of `trial` fits into memories of these sizes."""
    unknown = _explain_unknown(trial, history)
    candidates = [] if unknown else list(_candidates(trial.config, history.space))
    fits = [_fit(size, trial, candidates, history) for size in sizes_bytes]
    return MemoryForecast(
        trial.number,
        trial.config,
        _is_of_gpu(history),
        history.space.limits.memory_fraction,
        history.memory(trial).memory_is_rising,
        tuple(replace(fit, reason=unknown) for fit in fits) if unknown else tuple(fits),
    )


def _is_of_gpu(history: History) -> bool:
    return any(trial.measurement.peak_reserved_bytes for trial in history.trials)


def _explain_unknown(trial: Trial, history: History) -> str:
    """Returns the reason that no peak can be predicted; empty if it can."""
    if MICRO_BATCH not in trial.config:
        return f"not known: {MICRO_BATCH} is no knob, so no trial shows what another one needs"
    peaks = [t for t in history.trials if t.ended_well and t.measurement.peak_memory_bytes]
    sizes = {t.config[MICRO_BATCH] for t in peaks if MICRO_BATCH in t.config}
    if len(sizes) > 1:  # a line through one point has any slope
        return ""
    if not sizes:
        return "not known: no trial has shown its peak memory"
    return f"not known: the peak memory was measured with only one {MICRO_BATCH}, {sizes.pop()}"


def _fit(memory_bytes: int, trial: Trial, candidates: Iterable[Config], history: History) -> Fit:
    """Returns the first of the `candidates` that fits; they are ordered from the largest."""
    space, fraction = history.space, history.space.limits.memory_fraction
    limit_bytes = memory_bytes
    if _is_of_gpu(history):
        limit_bytes = room.limit_bytes(memory_bytes, room.context_bytes(history.trials), fraction)
    model = MemoryModel(history.trials, fraction=fraction, limit_bytes=limit_bytes, known=space.known)
    none = Fit(memory_bytes, int(fraction * limit_bytes))
    for config in candidates:
        peak, misfit = model.predict(config), model.explain_misfit(config)
        if peak is None:  # not reached: `_explain_unknown` requires a peak
            continue
        if misfit:
            none = replace(none, reason=f"nothing fits: {MICRO_BATCH} {config[MICRO_BATCH]} {misfit}")
        elif peak.high_bytes > none.allowed_bytes:
            ends = (peak.low_bytes, peak.high_bytes, none.allowed_bytes)
            low, high, allowed = map(units.format_bytes, ends)
            may_need = f"{MICRO_BATCH} {config[MICRO_BATCH]} may need {low} to {high}"
            none = replace(none, reason=f"not known: {may_need}, and {allowed} is allowed")
        else:
            size = space.effective_batch_size(config)
            keeps = size == space.effective_batch_size(trial.config)
            return Fit(memory_bytes, none.allowed_bytes, config, size, keeps, peak)
    return none


def _candidates(config: Config, space: Space) -> Iterator[Config]:
    """Yields `config` with every micro-batch that its effective batch allows, the largest first."""
    knob = space.drawn_knobs[MICRO_BATCH].drawn_from
    sizes = {int(value or 1) for value in (*(knob.choice or knob.bounds), config[MICRO_BATCH])}
    powers = {2**n for n in range(LARGEST_BATCH.bit_length())}
    # Powers of two as well, except between the values of a choice.
    beyond = {size for size in powers if not knob.choice or not min(sizes) <= size <= max(sizes)}
    for size in sorted(sizes | beyond, reverse=True):
        resized = _resized(config, space, size)
        if resized is not None and (size == config[MICRO_BATCH] or space.violation(resized) is None):
            yield resized


def _resized(config: Config, space: Space, size: int) -> dict[str, Setting] | None:
    """Returns `config` with another micro-batch, and the accumulation that keeps its effective batch.

    A micro-batch above the effective batch raises that, and with it a scaled learning rate. None if a smaller
    one does not divide the effective batch.
    """
    effective, resized = space.effective_batch_size(config), {**config, MICRO_BATCH: size}
    if ACCUMULATION in space.baseline:
        at_once = space.effective_batch_size({**resized, ACCUMULATION: 1})
        if at_once < effective and effective % at_once:
            return None
        resized[ACCUMULATION] = max(1, effective // at_once)
    if isinstance(space.knobs.get(LEARNING_RATE), ScaledLearningRate):
        ratio = space.effective_batch_size(resized) / effective
        resized[LEARNING_RATE] = float(f"{float(config[LEARNING_RATE] or 0) * math.sqrt(ratio):.4g}")
    return resized
