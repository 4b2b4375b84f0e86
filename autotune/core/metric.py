"""The metric of a training: its quality, and how its work is counted. Pure."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Metric:
    """Names and units of a training's records. Their values have the workload's sign, not the tuner's."""

    name: str  # key of the quality in a record, which marks it as an evaluation
    minimize: bool = False  # lower is better
    unit: str = "samples"  # key under which records count their samples
    counts_evaluations: bool = False  # evaluations are part of the speed
    samples_per_evaluation: int | None = None  # in the user's own training; None: as in the trial

    def turned(self, value: float) -> float:
        """Converts a quality between the user's sign and the tuner's sign."""
        return turned(value, minimize=self.minimize)


def turned(value: float, *, minimize: bool) -> float:
    """Negates `value` if lower is better, so that higher is better; converts in both directions."""
    return 0.0 - value if minimize else value  # -value would show -0.0000
