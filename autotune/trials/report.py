"""The report of a running trial, sent every second or two to the search, the screen and the trackers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import TypeAdapter

from autotune.core.measurement import Measurement
from autotune.core.trial import Outcome
from autotune.trials.progress import Phase


@dataclass(frozen=True)
class TrialReport:
    """The state of a trial or race at one moment; the last report has an `outcome`."""

    number: int
    phase: Phase
    elapsed_s: float  # over all attempts
    measurement: Measurement = field(default_factory=Measurement)  # complete in the last report only
    records: tuple[Mapping[str, Any], ...] = ()  # new since the previous report, thinned out
    telemetry: Mapping[str, float] = field(default_factory=dict)  # the newest sample
    outcome: Outcome | None = None
    note: str = ""  # for the user, about the environment of the trials; may be in every report

    @property
    def samples(self) -> int:
        """The samples trained so far; for a race, over all its slices."""
        return self.measurement.samples or sum(turn.samples for turn in self.measurement.slices)


REPORT = TypeAdapter(TrialReport)  # ignores the keys that Ray adds to a result
