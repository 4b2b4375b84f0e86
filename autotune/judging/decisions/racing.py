"""Decides which members of a race stay in it, and when it is over. Pure.

All members of a race stay alive and take short turns: one each per round, in an order that alternates from
round to round. A machine that slows down, or that others use, then affects all of them alike. After some
rounds all are launched anew, because processes with the same settings differ in speed.
"""

from collections.abc import Iterable, Mapping, Sequence

from autotune.core.measurement import Slice
from autotune.judging.measurement import turns
from autotune.judging.measurement.estimates import Figure

WIDTH = 0.1  # of a factor's interval, relative: wider ones are not quoted
_SHORTEST_TURN_S, _LONGEST_TURN_S = 0.25, 1.0  # unless steps are longer
_FEWEST_ROUNDS_SHARE = 0.5  # of a race's time, in which its fewest rounds have to fit
# A race may last as long as some trials, within these bounds.
_LEAST_S, _MOST_S, _TRIALS = 20.0, 400.0, 4
_LONGER = 3  # times as long, until an interval is known
_LAUNCH_ROUNDS, _START_SHARE = 4, 0.5  # rounds of a launch tell less and less; its start costs time, too
EQUAL = 0.02  # a difference that is not worth a search
CLOSE = 0.05  # a difference between two winners that is not worth measuring
# Confidence of a single look at a gain: with a look after every round, errors add up.
LOOK_LEVEL = 0.9995
_DROP_LEVEL = 0.95  # to drop a member: no claim rests on it
_FEWEST_ROUNDS = 12  # with fewer, the rank interval at `LOOK_LEVEL` is infinite


def most_s(trials_s: Iterable[float]) -> float:
    """Returns how long a race may last, given the seconds that its members' trials took."""
    return min(_MOST_S, max(_LEAST_S, _TRIALS * max(trials_s, default=0.0)))


def is_late(taken_s: float, most_s: float, rounds: int, trials_s: float) -> bool:
    """Returns True if a race of `most_s` is over: with slow steps, its fewest rounds may take it longer.

    They may take some times as long as the longest of its members' trials, `trials_s`.
    """
    return taken_s >= (most_s if rounds >= _FEWEST_ROUNDS else max(_LONGER * most_s, _TRIALS * trials_s))


def turn_s(start_s: float, members: int, most_s: float) -> float:
    """Returns the length of a turn in a race of `most_s` whose `members` took `start_s` to start.

    Where starting costs seconds, short turns save little, and less of them counts: a script reports its steps
    in batches, of which the last one is lost when it is suspended. But enough rounds have to fit.
    """
    launches_s = _FEWEST_ROUNDS / _LAUNCH_ROUNDS * start_s
    fits_s = (_FEWEST_ROUNDS_SHARE * most_s - launches_s) / (_FEWEST_ROUNDS * members)
    return max(_SHORTEST_TURN_S, min(_LONGEST_TURN_S, start_s / (_LAUNCH_ROUNDS * members), fits_s))


def is_enough_of_a_launch(rounds: int, rounds_s: float, start_s: float) -> bool:
    """Returns True if the processes of a launch, started in `start_s`, have taken enough turns."""
    return rounds >= _LAUNCH_ROUNDS and rounds_s >= _START_SHARE * start_s


class Trainings:
    """Compares how soon the trainings of a race's members end, by their turns and `lengths` in samples."""

    def __init__(self, slices: Sequence[Slice], lengths: Mapping[int, int]) -> None:
        self._slices, self._lengths = slices, lengths
        self._first, *self._others = lengths

    def ratio(self, number: int, other: int | None = None, level: float = turns.LEVEL) -> Figure | None:
        """Returns how many times sooner the training of `number` ends than `other`'s, or the first's."""
        other = self._first if other is None else other
        speed = turns.ratio(self._slices, number, other, level)
        return speed and speed.scaled(self._lengths[other] / self._lengths[number])

    def next_round(self) -> tuple[int, ...]:
        """Returns the members of the next round in the order of their turns; empty if the race is decided.

        From round 12 on, a member is dropped if its ratio is unknown, if it is certainly less than 2% ahead
        of the first, or if it is certainly behind another.
        The race is decided when only the first is left, or one of the others has certainly won.
        """
        done, others = max((turn.round for turn in self._slices), default=0), self._others
        if done >= _FEWEST_ROUNDS:
            others = [number for number in others if not self._is_beaten(number)]
            if not others or self._is_decided(others):
                return ()
        order = (self._first, *others)
        return order if done % 2 == 0 else order[::-1]

    def _is_beaten(self, number: int) -> bool:
        lead = self.ratio(number, level=_DROP_LEVEL)
        if lead is None or lead.is_below(1 + EQUAL):
            return True
        return any(self.is_behind(number, other) for other in self._others if other != number)

    def is_behind(self, number: int, other: int) -> bool:
        """Returns True if the training of `number` certainly ends later than `other`'s."""
        lead = self.ratio(number, other, _DROP_LEVEL)
        return lead is not None and lead.is_below(1)

    def _is_decided(self, remaining: Sequence[int]) -> bool:
        """Returns True if the soonest is surely ahead, by a quotable factor, and no other 5% ahead of it."""
        best = self.soonest(remaining)
        certain, quoted = self.ratio(best, level=LOOK_LEVEL), self.ratio(best)
        if certain is None or quoted is None or not certain.is_above(1):
            return False
        if quoted.part is None or 2 * quoted.part > WIDTH:
            return False
        rivals = (self.ratio(best, other, _DROP_LEVEL) for other in remaining if other != best)
        return all(rival is not None and rival.is_above(1 - CLOSE) for rival in rivals)

    def soonest(self, numbers: Sequence[int]) -> int:
        """Returns the member of `numbers` whose training ends soonest, among those that raced the first."""
        factors = {n: factor.value for n in numbers if (factor := self.ratio(n))}
        return max(factors, key=lambda n: factors[n]) if factors else numbers[0]
