"""Whether a training outlasts its memory, by how a trial's peak has grown. Pure."""

from autotune.core.trial import Measurement
from autotune.judging import trends
from autotune.judging.trends import Full

_FAR = 100  # times what a trial has trained: the longest that a training of unknown length may be


def full_at(shown: Measurement, training_samples: int | None) -> Full | None:
    """After how many samples a training like the trial has filled its memory; None where that is not certain.

    What it may take is the trial's limit; where that has none, what the machine had left. A training whose
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
    """What was left at the trial's peak, None where that is not known."""
    if shown.memory_limit_bytes and shown.peak_memory_bytes is not None:
        return max(0.0, shown.memory_limit_bytes - shown.peak_memory_bytes)
    return shown.telemetry.get("host_memory_free_bytes")
