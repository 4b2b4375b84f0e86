"""What is heard of a command from several sides, put into the order in which it happened. Pure."""

import heapq
import itertools
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

LATE_S = 0.2  # after which a line has been read
_LONG_STEPS = 3
_LONG_S = 0.05  # what is shorter may be a process that had to wait for a core
_TOGETHER_S = 0.5  # scores of one evaluation are printed within that


@dataclass(frozen=True)
class Step:
    """An optimizer step: its samples, None where nobody knows, and its figures."""

    samples: int | None
    figures: Mapping[str, Any] = field(default_factory=dict)


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


def printed_s(read_s: float, steps_s: Sequence[float]) -> float:
    """When scores were printed that were read at `read_s`, where steps had ended at `steps_s` by then.

    On a busy machine a line may be read only after the step that followed it. That step then seems to have
    taken several times as long as others, for the evaluation is in it. Many a step of milliseconds seems so
    for other reasons.
    """
    gaps = [(end_s - begin_s, end_s) for begin_s, end_s in itertools.pairwise(steps_s) if end_s <= read_s]
    usual_s = statistics.median(gap_s for gap_s, _ in gaps) if gaps else 0.0
    gap_s, end_s = max((gap for gap in gaps if gap[1] > read_s - LATE_S), default=(0.0, 0.0))
    return end_s - usual_s if gap_s > max(_LONG_STEPS * usual_s, _LONG_S) else read_s


class Timeline:
    """Takes in what `happened` and when; gives it out in that order once all of it must have been heard.

    Scores that follow one another within half a second are of one evaluation, at the time of the last.
    """

    def __init__(self, hold_s: float) -> None:
        self.hold_s = hold_s
        self._heap: list[tuple[float, int, Happened]] = []
        self._order = itertools.count()
        self._scores: dict[str, float] = {}
        self._scored_s = self._last_s = -math.inf

    def add(self, at_s: float, happened: Happened) -> None:
        heapq.heappush(self._heap, (at_s, next(self._order), happened))

    def until(self, now_s: float) -> Iterator[tuple[float, Happened]]:
        """What happened, with moments that never decrease, as far as it is known at `now_s`; inf: all."""
        while self._heap and self._heap[0][0] <= now_s - self.hold_s:
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
        if now_s - self.hold_s > self._scored_s + _TOGETHER_S:
            yield from self._evaluated()

    def _is_of_the_same(self, at_s: float, more: Scores) -> bool:
        return self._scores.keys().isdisjoint(more.scores) and at_s <= self._scored_s + _TOGETHER_S

    def _evaluated(self) -> Iterator[tuple[float, Happened]]:
        if self._scores:
            scores, self._scores = Scores(self._scores), {}
            yield self._scored_s, scores
