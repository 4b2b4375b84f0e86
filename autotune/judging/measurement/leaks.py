"""Whether a training outlasts its memory, by how a trial's peak has grown. Pure."""

from autotune.core.measurement import Measurement
from autotune.judging.measurement import trends
from autotune.judging.measurement.trends import Full

_FAR = 100  # times what a trial has trained: the longest that a training of unknown length may be


def full_at(shown: Measurement, training_samples: int | None) -> Full | None:
    """Returns after how many samples a training like the trial has filled its memory; None if not certain.

    It may take the trial's limit or, without one, what the machine had left. A training whose
    length is not known is taken to be of a hundred trials.
    """
    slope, left_bytes = shown.memory_slope, _left_bytes(shown)
    if slope is None or left_bytes is None:
        return None
    total = training_samples or _FAR * shown.samples
    if not trends.will_fill(slope, 0, left_bytes, shown.samples, total):
        return None
    return trends.full_at(slope, 0, left_bytes, shown.samples)


def _left_bytes(shown: Measurement) -> float | None:
    """Returns what was left at the trial's peak, None if that is not known."""
    if shown.memory_limit_bytes and shown.peak_memory_bytes is not None:
        return max(0.0, shown.memory_limit_bytes - shown.peak_memory_bytes)
    return shown.telemetry.get("host_memory_free_bytes")
