"""How a machine's speed moves while it is used: recorded second by second, and lived through again. Pure."""

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Drift:
    """A machine's speed in each interval, as a share of its mean; after the last one comes the first.

    Raises ValueError for what is none.
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
        """The speeds' relative standard deviation."""
        return statistics.pstdev(self.speeds) / statistics.fmean(self.speeds)

    def seconds(self, work_s: float, at_s: float) -> float:
        """What that takes from the moment `at_s` on which takes `work_s` at the mean speed."""
        place, now, left = int(at_s // self.interval_s), at_s, work_s
        while True:
            speed = self.speeds[place % len(self.speeds)]
            end = (place + 1) * self.interval_s
            done = (end - now) * speed
            if left < done:
                return now + left / speed - at_s
            place, now, left = place + 1, end, left - done


def of_steps(steps: Iterable[tuple[int, float]], interval_s: float = 1.0) -> Drift:
    """The drift of a run of which every step's samples and seconds are given, as if one followed the other.

    A step's samples are spread over its time; what is left after the last whole interval is left out. Raises
    ValueError where there is no whole interval.
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
