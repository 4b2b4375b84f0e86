"""Which members of a race run on, and when it is decided. Pure.

All members of a race are kept alive, and run in turn for a moment each: once in every round, in an order that
is reversed from round to round. A machine that slows down, or that others use, does so to all of them.
"""

from collections.abc import Iterable, Mapping, Sequence

from autotune.core.measurement import Slice
from autotune.judging.measurement import turns
from autotune.judging.measurement.estimates import Figure

WIDTH = 0.1  # of its interval: to be quoted, a figure needs more than to be faster with confidence
TURN_S = 0.25  # the least that a turn takes
# Of rounds, where the members take turns of a moment: as long as some trials, and within these bounds.
_LEAST_S, _MOST_S, _TRIALS = 8.0, 300.0, 4
EQUAL = 0.02  # a difference that is not worth a search
CLOSE = 0.05  # a difference between two winners that is not worth the time to tell
# Of a single look at a gain: what is looked at after every round is wrong more often than once.
LOOK_LEVEL = 0.9995
_DROP_LEVEL = 0.95  # of a look at which members are not worth more rounds: no claim rests on it
_FEWEST_ROUNDS = 12  # before that the interval of ranks at the level of a look has no ends


def most_s(trials_s: Iterable[float]) -> float:
    """Returns how long a race may last of settings whose trials took so long."""
    return min(_MOST_S, max(_LEAST_S, _TRIALS * max(trials_s, default=0.0)))


class Trainings:
    """Compares when the trainings of a race's members end: by their turns, and their `lengths`.

    The lengths are in samples, by the members' numbers; all others are compared with the first member.
    """

    def __init__(self, slices: Sequence[Slice], lengths: Mapping[int, int]) -> None:
        self._slices, self._lengths = slices, lengths
        self._first, *self._others = lengths

    def ratio(self, number: int, other: int | None = None, level: float = turns.LEVEL) -> Figure | None:
        """Returns how many times sooner the training of `number` ends than `other`'s, or the first's."""
        other = self._first if other is None else other
        found = turns.ratio(self._slices, number, other, level)
        return found and found.scaled(self._lengths[other] / self._lengths[number])

    def runs_on(self) -> tuple[int, ...]:
        """Returns which members run in the next round, in the order of its turns; empty if it is decided.

        One that seems to end no sooner than the first, by 2%, or later than another one, runs no more. The
        race is over when no other is left, or when the soonest ends sooner than the first with confidence, by
        a figure that can be quoted, and none left is sooner than that by 5%.
        """
        done, others = max((one.round for one in self._slices), default=0), self._others
        if done >= _FEWEST_ROUNDS:
            others = [number for number in others if not self._is_beaten(number)]
            if not others or self._is_decided(others):
                return ()
        order = (self._first, *others)
        return order if done % 2 == 0 else order[::-1]

    def _is_beaten(self, number: int) -> bool:
        beside = self.ratio(number, level=_DROP_LEVEL)
        if beside is None or beside.is_below(1 + EQUAL):
            return True
        rivals = (self.ratio(number, other, _DROP_LEVEL) for other in self._others if other != number)
        return any(rival is not None and rival.is_below(1) for rival in rivals)

    def _is_decided(self, left: Sequence[int]) -> bool:
        """Returns True if the soonest that is `left` is surely so, and none is sooner than it by 5%."""
        best = self.soonest(left)
        sure, quoted = self.ratio(best, level=LOOK_LEVEL), self.ratio(best)
        if sure is None or quoted is None or not sure.is_above(1):
            return False
        if quoted.part is None or 2 * quoted.part > WIDTH:
            return False
        rivals = (self.ratio(best, other, _DROP_LEVEL) for other in left if other != best)
        return all(rival is not None and rival.is_above(1 - CLOSE) for rival in rivals)

    def soonest(self, numbers: Sequence[int]) -> int:
        """Returns which of `numbers` ends the soonest, as far as they were in rounds with the first."""
        factors = {n: found.value for n in numbers if (found := self.ratio(n))}
        return max(factors, key=lambda n: factors[n]) if factors else numbers[0]
