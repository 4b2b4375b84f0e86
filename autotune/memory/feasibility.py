"""What fits in memory, as far as the trials so far show it."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeVar

from autotune.core import units
from autotune.core.settings import COMMON, MICRO_BATCH, Config, Knowledge
from autotune.core.trial import Trial, TrialKind
from autotune.memory import memory_needs
from autotune.memory.memory_border import Border
from autotune.memory.memory_needs import Label, Need
from autotune.memory.memory_peaks import Peak, Peaks, Prediction

__all__ = ["MemoryModel", "Prediction", "dominating"]

# Below that chance of fitting a larger size is left alone: a failure costs a trial, and the next smaller size
# is little slower.
_LEAST_CHANCE = 0.3

_Key = TypeVar("_Key")


def dominating(config: Config, trials: Iterable[Trial], known: Knowledge = COMMON) -> Trial | None:
    """The trial whose out-of-memory shows that `config` cannot fit either, None if none does.

    It takes no less memory than a trial that failed when every setting that moves memory is the same, or is
    known to move it up: a micro-batch that is no smaller, accumulation, no activation checkpointing. Where
    the whole machine ran out of memory, what the loader's workers take counts as well.
    """
    need, found = memory_needs.of(config, known), (_failed(trial, known) for trial in trials)
    return next((f.trial for f in found if f and _no_less(config, need, f, known)), None)


class MemoryModel:
    """What fits in memory, as far as the trials so far show it.

    An observed out-of-memory is a hard border. Short of it the peaks of trials predict others, and where no
    peaks or no limit are known, the sizes that fitted and those that did not say where the border is likely.
    """

    def __init__(
        self,
        trials: Iterable[Trial],
        *,
        fraction: float = 1.0,
        limit_bytes: int | None = None,
        known: Knowledge = COMMON,
    ) -> None:
        """`limit_bytes` is the coming trial's, of which it may take `fraction`; none: the smallest known.

        Out-of-memory under a smaller limit than the coming trial's says nothing about it.
        """
        trials, self._known = list(trials), known
        limits = [t.measurement.memory_limit_bytes for t in trials if t.measurement.memory_limit_bytes]
        self._limit_bytes = limit_bytes or min(limits, default=None)
        self._allowed_bytes = self._limit_bytes and fraction * self._limit_bytes
        is_capped = any(t.measurement.peak_reserved_bytes for t in trials)  # as every trial is on a GPU
        self._fails_at_bytes = self._allowed_bytes if is_capped else self._limit_bytes
        self._failed: dict[frozenset[Label], list[_Failed]] = {}
        failed = [f for t in trials if (f := _failed(t, known)) and self._is_as_tight(f.trial)]
        for found in failed:
            self._failed.setdefault(found.need.group, []).append(found)
        ran = [(memory_needs.of(t.config, known), t) for t in trials if t.ended_well]
        peaks = [
            Peak(need, peak, t.measurement.memory_is_rising)
            for need, t in ran
            if (peak := t.measurement.peak_memory_bytes)
        ]
        self._peaks = Peaks(peaks) if peaks else None
        fitted = [need for need, t in ran if self._has_fitted(t)]
        self._fitted = _largest(((n.group, n.recomputes, n.accumulates), n.micro_batch_size) for n in fitted)
        largest = [Need(*key, size) for key, size in self._fitted.items()]
        self._fitted_at = _largest((memory_needs.per_sample(n), n.micro_batch_size) for n in largest)
        self._reach: dict[float, float] = {}
        tried = [(need, True) for need in largest]
        tried += [(f.need, False) for f in failed if not f.counts_loading]
        needs_border = tried and not (self._peaks and self._limit_bytes)
        self._border = Border(tried) if needs_border else None

    def predict(self, config: Config) -> Prediction | None:
        """The peak memory that `config` is expected to need.

        None as long as no trial has shown its own, and for a workload without micro-batches.
        """
        if self._peaks is None or MICRO_BATCH not in config:
            return None
        return self._peaks.predict(memory_needs.of(config, self._known))

    def why_unfit(self, config: Config) -> str | None:
        """Why `config` is not worth starting, None if it may fit."""
        need = memory_needs.of(config, self._known)
        if failed := self._dominating(config, need):
            return f"needs no less memory than trial {failed.number}, which ran out of it"
        found = self.predict(config)
        if found is None or not self._allowed_bytes or self._is_known_to_fit(need):
            return None
        return _told(found, self._allowed_bytes) if found.low_bytes > self._allowed_bytes else None

    def largest_worth_trying(self, config: Config, sizes: Sequence[int]) -> int:
        """The micro-batch to run instead of the one in `config`: the same where it is likely to fit.

        Else the largest smaller one of `sizes` (ascending) that is, or the smallest of all.
        """
        wanted = memory_needs.of(config, self._known)
        for size in sorted((s for s in sizes if s <= wanted.micro_batch_size), reverse=True):
            need = wanted._replace(micro_batch_size=size)
            if self._dominating(config, need):
                continue
            if self._is_known_to_fit(need) or self._is_worth(need, sizes):
                return size
        return sizes[0]

    def _is_worth(self, need: Need, sizes: Sequence[int]) -> bool:
        """Whether a size may be recommended in all likelihood, or shows without much risk that it may not.

        A step beyond what has fitted may fail, but more of it must be expected to fit than not: growth is
        quick while it is cheap. A larger step is worth it where the peaks rule out a failure.
        """
        near = need.micro_batch_size <= self._step(need, sizes)
        if self._peaks and self._fails_at_bytes and self._allowed_bytes:
            found = self._peaks.predict(need)
            return found.expected_bytes <= self._allowed_bytes and (
                near or found.high_bytes <= self._fails_at_bytes
            )
        return near and self._border is not None and self._border.chance(need) >= _LEAST_CHANCE

    def _step(self, need: Need, sizes: Sequence[int]) -> float:
        """The next of `sizes` above the largest that is expected to need no more than has fitted."""
        each = memory_needs.per_sample(need)
        if each not in self._reach:
            self._reach[each] = max(
                (size * min(1.0, ratio / each) for ratio, size in self._fitted_at.items()), default=0.0
            )
        return min((s for s in sizes if s > self._reach[each]), default=sizes[-1])

    def _is_known_to_fit(self, need: Need) -> bool:
        """Whether a trial that needed no less has fitted."""
        return any(
            self._fitted.get((need.group, recomputes, accumulates), 0.0) >= need.micro_batch_size
            for recomputes in {False, need.recomputes}
            for accumulates in {True, need.accumulates}
        )

    def _dominating(self, config: Config, need: Need) -> Trial | None:
        found = self._failed.get(need.group, ())
        return next((f.trial for f in found if _no_less(config, need, f, self._known)), None)

    def _is_as_tight(self, trial: Trial) -> bool:
        """Whether what `trial` ran out of was no less than the coming one may take; a cap is what it had."""
        limit, cap = trial.measurement.memory_limit_bytes, trial.measurement.memory_cap_bytes
        if cap and self._allowed_bytes:
            return cap >= int(self._allowed_bytes)
        return not limit or not self._limit_bytes or limit >= self._limit_bytes

    def _has_fitted(self, trial: Trial) -> bool:
        """Whether a trial that ran would fit again, into what the coming trial may take."""
        peak = trial.measurement.peak_memory_bytes
        if peak and self._allowed_bytes:
            return peak <= self._allowed_bytes
        limit = trial.measurement.memory_limit_bytes
        return not limit or not self._limit_bytes or limit <= self._limit_bytes


class _Failed(NamedTuple):
    """A trial that ran out of memory, and whether loader's workers took a part in it."""

    trial: Trial
    need: Need
    counts_loading: bool


def _failed(trial: Trial, known: Knowledge) -> _Failed | None:
    is_race = trial.kind is TrialKind.RACE  # which is of several configurations
    if not trial.out_of_memory or trial.outcome is None or is_race:
        return None
    return _Failed(trial, memory_needs.of(trial.config, known), trial.outcome.shortage is not None)


def _no_less(config: Config, need: Need, failed: _Failed, known: Knowledge) -> bool:
    if not memory_needs.no_less(need, failed.need):
        return False
    return not failed.counts_loading or all(
        memory_needs.number(config, name, 0) >= memory_needs.number(failed.trial.config, name, 0)
        for name in known.of_loader
    )


def _largest(pairs: Iterable[tuple[_Key, float]]) -> dict[_Key, float]:
    largest: dict[_Key, float] = {}
    for key, size in pairs:
        largest[key] = max(size, largest.get(key, 0.0))
    return largest


def _told(found: Prediction, allowed_bytes: float) -> str:
    expected, unit = units.format_bytes(found.expected_bytes).split()
    ends = (units.format_bytes(end).removesuffix(f" {unit}") for end in (found.low_bytes, found.high_bytes))
    return f"predicted to need {expected} {unit} ({' to '.join(ends)}) of {units.format_bytes(allowed_bytes)}"
