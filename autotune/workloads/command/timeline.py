"""What several sources say of a command, put into the order in which it happened. Pure."""

import heapq
import itertools
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

_ON_ITS_WAY_S, _LATE_S = 0.05, 0.2  # of what was printed or sent, usually and on a busy machine
# What is shorter may be a process that had to wait for a core. Taken for an evaluation, it would have the
# scores a step too early, and a trial that ends with them would miss its end.
_LONG_STEPS, _LONG_S = 10, 0.2
_TOGETHER_S = 0.5  # scores of one evaluation are printed within that


@dataclass(frozen=True)
class Step:
    """An optimizer step: its samples and tokens, None where unknown, and its figures."""

    samples: int | None
    figures: Mapping[str, Any] = field(default_factory=dict)
    tokens: int | None = None


@dataclass(frozen=True)
class SamplesSeen:
    """The samples so far, as the script says."""

    samples: int


@dataclass(frozen=True)
class Scores:
    """What an evaluation has found."""

    scores: Mapping[str, float]


@dataclass(frozen=True)
class Reported:
    """A record that the script has reported by itself."""

    record: Mapping[str, Any]


Happened = Step | SamplesSeen | Scores | Reported


def evaluated_s(now_s: float, steps_s: Sequence[float]) -> float | None:
    """When an evaluation had ended whose scores may be read only now, where steps had ended at `steps_s`.

    On a busy machine a line may be read only after the step that followed it. That step then seems to have
    taken several times as long as others, for the evaluation is in it; many a step of milliseconds seems so
    for other reasons. None: there was no such step shortly before.
    """
    gaps = [(end_s - begin_s, end_s) for begin_s, end_s in itertools.pairwise(steps_s) if end_s <= now_s]
    late = [gap for gap in gaps if gap[1] > now_s - _LATE_S]
    if not late:
        return None
    usual_s = statistics.median(gap_s for gap_s, _ in gaps)
    gap_s, end_s = max(late)
    return end_s - usual_s if gap_s > max(_LONG_STEPS * usual_s, _LONG_S) else None


def known_s(now_s: float, steps_s: Sequence[float]) -> float:
    """Up to which moment all that happened has been received, except what is very late."""
    return now_s - (_LATE_S if evaluated_s(now_s, steps_s) is not None else _ON_ITS_WAY_S)


class Timeline:
    """Takes in what `happened` and when, and gives it out in that order.

    Scores that follow one another within half a second are of one evaluation, at the time of the last.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Happened]] = []
        self._order = itertools.count()
        self._scores: dict[str, float] = {}
        self._scored_s = self._last_s = -math.inf

    def add(self, at_s: float, happened: Happened) -> None:
        heapq.heappush(self._heap, (at_s, next(self._order), happened))

    def until(self, moment_s: float) -> Iterator[tuple[float, Happened]]:
        """What happened up to a moment; its moments never decrease."""
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
