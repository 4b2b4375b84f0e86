"""What a running trial reports every second: to the search, the screen and the trackers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from autotune.core.trial import Measurement, Outcome
from autotune.trials.progress import Phase


@dataclass(frozen=True)
class Report:
    """A trial at one moment, after `elapsed_s` seconds of all its attempts; with an `outcome` its last one.

    `measurement` is what it has shown so far: the few figures that are shown while it runs, all of them in
    the end. `records` are those that have come since the report before, thinned out, `telemetry` is the
    newest sample. A `note` is for people, about what trials are run in: every one may have it.
    """

    number: int
    phase: Phase
    elapsed_s: float
    measurement: Measurement = field(default_factory=Measurement)
    records: tuple[Mapping[str, Any], ...] = ()
    telemetry: Mapping[str, float] = field(default_factory=dict)
    outcome: Outcome | None = None
    note: str = ""

    @property
    def samples(self) -> int:
        """How far it has come; a race has trained what is in its slices."""
        return self.measurement.samples or sum(one.samples for one in self.measurement.slices)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as Ray wants a result."""
        return {
            "number": self.number,
            "phase": str(self.phase),
            "elapsed_s": self.elapsed_s,
            "measurement": self.measurement.to_dict(),
            "records": [dict(record) for record in self.records],
            "telemetry": dict(self.telemetry),
            "outcome": self.outcome.to_dict() if self.outcome else None,
            "note": self.note,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The report whose `to_dict` gave `values`, to which Ray has added some of its own."""
        return cls(
            number=values["number"],
            phase=Phase(values["phase"]),
            elapsed_s=values["elapsed_s"],
            measurement=Measurement.from_dict(values["measurement"]),
            records=tuple(values["records"]),
            telemetry=values["telemetry"],
            outcome=Outcome.from_dict(values["outcome"]) if values["outcome"] else None,
            note=values["note"],
        )
