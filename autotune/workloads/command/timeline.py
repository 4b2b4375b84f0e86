"""Merges events of a command from several sources into order of time. Pure."""

import heapq
import itertools
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

_ON_ITS_WAY_S, _LATE_S = 0.05, 0.2  # delay of printed or sent events: usual, and on a busy machine
# A shorter gap may be a process waiting for a core. Mistaken for an evaluation, it would date the scores a
# step too early, and a trial that ends with them would miss its end.
_LONG_STEPS, _LONG_S = 10, 0.2
_TOGETHER_S = 0.5  # scores of one evaluation are printed within this time


@dataclass(frozen=True)
class Step:
    """Optimizer step with its figures; samples and tokens are None if unknown."""

    samples: int | None
    figures: Mapping[str, Any] = field(default_factory=dict)
    tokens: int | None = None


@dataclass(frozen=True)
class SamplesSeen:
    """Samples so far, as printed by the script."""

    samples: int


@dataclass(frozen=True)
class Scores:
    """Scores of an evaluation."""

    scores: Mapping[str, float]


@dataclass(frozen=True)
class Reported:
    """Record that the script has reported itself."""

    record: Mapping[str, Any]


Happened = Step | SamplesSeen | Scores | Reported


def evaluated_s(now_s: float, steps_s: Sequence[float]) -> float | None:
    """Returns the end of an evaluation whose scores are read at `now_s`, after steps that ended at `steps_s`.

    On a busy machine, scores may be read only after the next step, which then seems several times as long as
    others because it contains the evaluation. None if no recent step was clearly that long.
    """
    gaps = [(end_s - begin_s, end_s) for begin_s, end_s in itertools.pairwise(steps_s) if end_s <= now_s]
    late = [gap for gap in gaps if gap[1] > now_s - _LATE_S]
    if not late:
        return None
    usual_s = statistics.median(gap_s for gap_s, _ in gaps)
    gap_s, end_s = max(late)
    return end_s - usual_s if gap_s > max(_LONG_STEPS * usual_s, _LONG_S) else None


def known_s(now_s: float, steps_s: Sequence[float]) -> float:
    """Returns the time up to which all events have arrived, except very late ones."""
    return now_s - (_LATE_S if evaluated_s(now_s, steps_s) is not None else _ON_ITS_WAY_S)


class Timeline:
    """Queue of events, released in order of time.

    Scores that follow one another within 0.5 s belong to one evaluation, at the time of the last.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Happened]] = []
        self._order = itertools.count()
        self._scores: dict[str, float] = {}
        self._scored_s = self._last_s = -math.inf

    def add(self, at_s: float, happened: Happened) -> None:
        heapq.heappush(self._heap, (at_s, next(self._order), happened))

    def until(self, moment_s: float) -> Iterator[tuple[float, Happened]]:
        """Yields the events up to a moment; their times never decrease."""
        while self._heap and self._heap[0][0] <= moment_s:
            at_s, _, happened = heapq.heappop(self._heap)
            self._last_s = at_s = max(at_s, self._last_s)
            if isinstance(happened, Scores) and self._is_of_the_same(at_s, happened):
                self._scores.update(happened.scores)
                self._scored_s = at_s
                continue
            yield from self._evaluated()
            if isinstance(happened, Scores):
                self._scores, self._scored_s = dict(happened.scores), at_s
            else:
                yield at_s, happened
        if moment_s > self._scored_s + _TOGETHER_S:
            yield from self._evaluated()

    def _is_of_the_same(self, at_s: float, more: Scores) -> bool:
        return self._scores.keys().isdisjoint(more.scores) and at_s <= self._scored_s + _TOGETHER_S

    def _evaluated(self) -> Iterator[tuple[float, Happened]]:
        if self._scores:
            scores, self._scores = Scores(self._scores), {}
            yield self._scored_s, scores
