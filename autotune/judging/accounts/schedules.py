"""Determines from trials whether the learning-rate schedule follows the training's length. Pure."""

from autotune.core.common_names import ENDS, EPOCHS, OF_SCHEDULES
from autotune.core.measurement import Schedule
from autotune.core.settings import LENGTH
from autotune.judging.decisions.history import History

# Share of the fall that may be missing at the end of a shorter schedule: one that changes once per epoch ends
# an epoch early, one that is cut at half its length misses about half.
_MAY_MISS = 0.25


def describe(history: History) -> str | None:
    """Returns a sentence about the learning-rate schedule; None if the rate is constant, or it is unknown."""
    baseline = history.baseline
    full = baseline.measurement.schedule if baseline else None
    if baseline is None or full is None or not full.falls:
        return None
    if LENGTH not in history.space.knobs:
        return _cut(full, history)
    most = 0.9 * history.length(baseline)  # longer ones count as equal
    equals = history.trained_alike(baseline.config)
    shorter = next((t for t in equals if t.completed and history.length(t) < most), None)
    short = shorter.measurement.schedule if shorter else None
    if short is None:
        return None
    ends, short_ends = full.last / full.peak, short.last / short.peak
    if short_ends - ends <= _MAY_MISS * (1 - ends):
        return (
            f"The learning rate falls from {full.peak:.3g} to {full.last:.3g}, also in a shorter training: "
            "its schedule follows the length."
        )
    return (
        f"The learning rate falls to {full.last:.3g}, but in a shorter training only to {short.last:.3g}: "
        f"its schedule does not follow the length. Name the setting that ends it in knobs.{LENGTH}."
    )


def _cut(full: Schedule, history: History) -> str:
    """Returns advice for trials that cover only a part of a longer schedule."""
    space = history.space
    paths = {name: space.naming.path(name) for name in space.baseline}
    ends = [path for path in paths.values() if path.rpartition(".")[2] in {*ENDS, *OF_SCHEDULES}]
    epochs = [path for path in paths.values() if path.rpartition(".")[2] in EPOCHS]
    unit, names = ("epochs", epochs) if epochs and not ends else ("steps", ends or ["max_steps"])
    return (
        f"The learning rate falls during the training (from {full.peak:.3g} to {full.last:.3g} in trial 0), "
        "and no knob says how long the training is, so a trial says little about its end. "
        f"Add to the knobs, for example: {LENGTH}: {{{unit}: [{', '.join(names)}]}}"
    )
