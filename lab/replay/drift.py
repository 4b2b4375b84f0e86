"""The drift of a machine's speed: recorded second by second, and replayed. Pure."""

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Drift:
    """A machine's speed per interval, relative to its mean; repeats after the last interval.

    Raises ValueError for invalid speeds.
    """

    speeds: tuple[float, ...]
    interval_s: float = 1.0

    def __post_init__(self) -> None:
        if not (self.interval_s > 0 and self.speeds and math.fsum(self.speeds) > 0 <= min(self.speeds)):
            raise ValueError(
                "a drift is the speeds of some intervals, none of them negative, not all of them 0"
            )

    @property
    def length_s(self) -> float:
        return len(self.speeds) * self.interval_s

    @property
    def deviation(self) -> float:
        """Relative standard deviation of the speeds."""
        return statistics.pstdev(self.speeds) / statistics.fmean(self.speeds)

    def seconds(self, work_s: float, at_s: float) -> float:
        """Returns the duration, from `at_s` on, of work that takes `work_s` at the mean speed."""
        place, now, left = int(at_s // self.interval_s), at_s, work_s
        while True:
            speed = self.speeds[place % len(self.speeds)]
            end = (place + 1) * self.interval_s
            done = (end - now) * speed
            if left < done:
                return now + left / speed - at_s
            place, now, left = place + 1, end, left - done


def of_steps(steps: Iterable[tuple[int, float]], interval_s: float = 1.0) -> Drift:
    """Computes the drift of a run from the samples and seconds of its consecutive steps.

    A step's samples are spread evenly over its time; an incomplete last interval is dropped. Raises
    ValueError if there is no complete interval.
    """
    trained: list[float] = []
    now = 0.0
    for samples, seconds in steps:
        end = now + seconds
        while now < end:
            place = len(trained) - 1
            limit = (place + 1) * interval_s
            if now >= limit:
                trained.append(0.0)
                continue
            upto = min(end, limit)
            trained[place] += samples * (upto - now) / seconds
            now = upto
    whole = trained[: int(now // interval_s)]
    mean = statistics.fmean(whole) if whole else 0.0
    return Drift(tuple(round(n / mean, 4) for n in whole) if mean else (), interval_s)
