"""How the use of memory has grown in the last process of a training. Pure."""

from collections.abc import Iterator, Mapping, Sequence

from autotune.display.growth import MEMORIES
from autotune.judging import trends
from autotune.reports.training.model import Growth, Point
from autotune.reports.training.series import Attempt


def of(seen: Mapping[str, Sequence[Point]], attempts: Sequence[Attempt]) -> Iterator[Growth]:
    """That of each memory of which enough was seen; a process does not inherit what another one held."""
    from_s = attempts[-1].from_s if attempts else 0.0
    for memory in MEMORIES:
        held = [point for point in seen.get(memory.held, ()) if point.seconds > from_s]
        slope = trends.slope([trends.Point(point.samples, point.value) for point in held])
        if slope is None:
            continue
        free, last = seen.get(memory.free), held[-1]
        is_sure = trends.is_growing(slope)
        full = trends.full_at(slope, 0.0, free[-1].value, last.samples) if free and is_sure else None
        yield Growth(memory.name, slope, full)
