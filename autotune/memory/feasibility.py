"""Decides which configurations fit in memory, judged by the trials so far."""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TypeVar

from autotune.core import units
from autotune.core.settings import COMMON, MICRO_BATCH, Config, Knowledge
from autotune.core.trial import Trial, TrialKind
from autotune.memory import memory_needs
from autotune.memory.memory_needs import Label, Need, need_of
from autotune.memory.memory_peaks import Peak, Peaks, Prediction

_Key = TypeVar("_Key")


class MemoryModel:
    """Predicts which configurations fit in memory, from the trials so far.

    An observed out-of-memory is a hard border. Below it, peaks are predicted from measured ones. Without
    peaks or a limit, sizes grow by one step at a time, up to the smallest expected need that has failed.
    """

    def __init__(
        self,
        trials: Iterable[Trial],
        *,
        fraction: float = 1.0,
        limit_bytes: int | None = None,
        known: Knowledge = COMMON,
        margin: float | None = None,
    ) -> None:
        """`limit_bytes`: the next trial's limit, of which it may use `fraction`; None: the smallest known.

        An out-of-memory under a smaller limit says nothing about the next trial. `margin`: without peaks,
        only needs below this share of the smallest failed one are worth trying, even if larger ones have
        fitted. None: failures below a need that has fitted do not count.
        """
        trials, self._known = list(trials), known
        limits = [t.measurement.memory_limit_bytes for t in trials if t.measurement.memory_limit_bytes]
        self._limit_bytes = limit_bytes or min(limits, default=None)
        self._allowed_bytes = self._limit_bytes and fraction * self._limit_bytes
        is_capped = any(t.measurement.peak_reserved_bytes for t in trials)  # on a GPU, every trial is
        self._fails_at_bytes = self._allowed_bytes if is_capped else self._limit_bytes
        self._failed: dict[frozenset[Label], list[tuple[Need, Trial]]] = defaultdict(list)
        single = [t for t in trials if t.kind is not TrialKind.RACE]
        needs = [(t.cached(("need", known), partial(need_of, t.config, known)), t) for t in single]
        failed = [(need, t) for need, t in needs if t.out_of_memory and self._had_as_much(t)]
        for need, trial in failed:
            self._failed[need.group].append((need, trial))
        ran = [(need, t) for need, t in needs if t.ended_well]
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
        fits_up_to = max(map(_expected, largest), default=0.0)
        failed_at = [_expected(need) for need, trial in failed if not _counts_loading(trial)]
        if margin is not None:
            failed_at, fits_up_to = [margin * size for size in failed_at], 0.0
        self._fails_from = min((size for size in failed_at if size > fits_up_to), default=math.inf)

    def predict(self, config: Config) -> Prediction | None:
        """Returns the expected peak memory of `config`; None without micro-batches, or a measured peak."""
        if self._peaks is None or MICRO_BATCH not in config:
            return None
        return self._peaks.predict(need_of(config, self._known))

    def is_known_to_fit(self, config: Config) -> bool:
        """Returns True if a trial that needed no less memory has fitted."""
        return self._is_known_to_fit(need_of(config, self._known))

    def explain_misfit(self, config: Config) -> str | None:
        """Returns the reason that `config` is not worth starting, None if it may fit."""
        need = need_of(config, self._known)
        if failed := self._dominating(config, need):
            return f"needs no less memory than trial {failed.number}, which ran out of it"
        peak = self.predict(config)
        if peak is None or not self._allowed_bytes or self._is_known_to_fit(need):
            return None
        if peak.low_bytes <= self._allowed_bytes:
            return None
        expected, allowed = map(units.format_bytes, (peak.expected_bytes, self._allowed_bytes))
        ends = units.format_bytes_interval(peak.low_bytes, peak.high_bytes, expected)
        return f"predicted to need {expected} ({ends}) of {allowed}"

    def largest_worth_trying(self, config: Config, sizes: Sequence[int]) -> int:
        """Returns the micro-batch of `config`, or the largest of `sizes` below it that is likely to fit.

        If none is, returns the smallest; `sizes` are ascending.
        """
        wanted = need_of(config, self._known)
        for size in sorted((s for s in sizes if s <= wanted.micro_batch_size), reverse=True):
            need = wanted._replace(micro_batch_size=size)
            if self._dominating(config, need):
                continue
            if self._is_known_to_fit(need) or self._is_worth(need, sizes):
                return size
        return sizes[0]

    def _is_worth(self, need: Need, sizes: Sequence[int]) -> bool:
        """Returns True if a size is likely to fit, or cheap enough to try."""
        # One step beyond what has fitted only has to be expected to fit: failures are cheap there.
        near = need.micro_batch_size <= self._step(need, sizes)
        if self._peaks and self._fails_at_bytes and self._allowed_bytes:
            prediction = self._peaks.predict(need)
            return prediction.expected_bytes <= self._allowed_bytes and (
                near or prediction.high_bytes <= self._fails_at_bytes
            )
        return near and _expected(need) < self._fails_from

    def _step(self, need: Need, sizes: Sequence[int]) -> float:
        """Returns the first of `sizes` above those expected to need no more memory than has fitted."""
        per_sample = memory_needs.per_sample(need)
        if per_sample not in self._reach:
            fitted = [size * min(1.0, ratio / per_sample) for ratio, size in self._fitted_at.items()]
            self._reach[per_sample] = max(fitted, default=0.0)
        return min((s for s in sizes if s > self._reach[per_sample]), default=sizes[-1])

    def _is_known_to_fit(self, need: Need) -> bool:
        return any(
            self._fitted.get((need.group, recomputes, accumulates), 0.0) >= need.micro_batch_size
            for recomputes in {False, need.recomputes}
            for accumulates in {True, need.accumulates}
        )

    def _dominating(self, config: Config, need: Need) -> Trial | None:
        """Returns a trial that ran out of memory and needed no more than `config`; None without one.

        If the whole machine ran out of memory, the loader's settings must not be lower either.
        """
        for failed_need, trial in self._failed.get(need.group, ()):
            loads_no_less = not _counts_loading(trial) or all(
                memory_needs.number(config, name, 0) >= memory_needs.number(trial.config, name, 0)
                for name in self._known.of_loader
            )
            if loads_no_less and memory_needs.needs_no_less(need, failed_need):
                return trial
        return None

    def _had_as_much(self, trial: Trial) -> bool:
        """Returns True if `trial` had no less memory (its cap, if any) than the next trial may take."""
        limit, cap = trial.measurement.memory_limit_bytes, trial.measurement.memory_cap_bytes
        if cap and self._allowed_bytes:
            return cap >= int(self._allowed_bytes)
        return not limit or not self._limit_bytes or limit >= self._limit_bytes

    def _has_fitted(self, trial: Trial) -> bool:
        """Returns True if a trial that ran would also fit in the memory of the next trial."""
        peak = trial.measurement.peak_memory_bytes
        if peak and self._allowed_bytes:
            return peak <= self._allowed_bytes
        limit = trial.measurement.memory_limit_bytes
        return not limit or not self._limit_bytes or limit <= self._limit_bytes


def _counts_loading(trial: Trial) -> bool:
    return trial.outcome is not None and trial.outcome.shortage is not None


def _expected(need: Need) -> float:
    """Returns the expected need of a micro-batch's samples, which is comparable across groups."""
    return need.micro_batch_size * memory_needs.per_sample(need)


def _largest(pairs: Iterable[tuple[_Key, float]]) -> dict[_Key, float]:
    largest: dict[_Key, float] = {}
    for key, size in pairs:
        largest[key] = max(size, largest.get(key, 0.0))
    return largest
