"""Tells from trials whether the learning-rate schedule follows the length of the training. Pure."""

from autotune.core.common_names import ENDS, EPOCHS, OF_SCHEDULES
from autotune.core.measurement import Schedule
from autotune.core.settings import LENGTH
from autotune.judging.decisions.history import History

# Share of the fall that a shorter schedule may lack at its end: one that changes once per epoch ends an epoch
# early, one that is cut at half its length lacks about half.
_LACKING = 0.25
_SHORTER = 0.9  # of the baseline's length: longer ones count as equal


def describe(history: History) -> str | None:
    """Returns a sentence about the learning-rate schedule; None if the rate is constant or not known.

    If lengths are planned, it takes a second training of the baseline's settings at another length.
    """
    baseline = history.baseline
    ours = baseline.measurement.schedule if baseline else None
    if baseline is None or ours is None or not ours.falls:
        return None
    if LENGTH not in history.space.knobs:
        return _cut(ours, history)
    most, equals = _SHORTER * history.length(baseline), history.trained_alike(baseline.config)
    shorter = next((t for t in equals if t.completed and history.length(t) < most), None)
    theirs = shorter.measurement.schedule if shorter else None
    if theirs is None:
        return None
    ends, theirs_ends = ours.last / ours.peak, theirs.last / theirs.peak
    if theirs_ends - ends <= _LACKING * (1 - ends):
        return (
            f"The learning rate falls from {ours.peak:.3g} to {ours.last:.3g}, also in a shorter training: "
            "its schedule follows the length."
        )
    return (
        f"The learning rate falls to {ours.last:.3g}, but in a shorter training only to {theirs.last:.3g}: "
        f"its schedule does not follow the length. Name the setting that ends it in knobs.{LENGTH}."
    )


def _cut(ours: Schedule, history: History) -> str:
    """Returns advice for a trial that is only a part of a longer schedule."""
    space = history.space
    paths = {name: space.naming.path(name) for name in space.baseline}
    known = [path for path in paths.values() if path.rpartition(".")[2] in {*ENDS, *OF_SCHEDULES}]
    epochs = [path for path in paths.values() if path.rpartition(".")[2] in EPOCHS]
    unit, names = ("epochs", epochs) if epochs and not known else ("steps", known or ["max_steps"])
    return (
        f"The learning rate falls during the training (from {ours.peak:.3g} to {ours.last:.3g} in trial 0), "
        "and no knob says how long the training is: a trial is a piece of it, and says little about its end. "
        f"Add to the knobs, for example: {LENGTH}: {{{unit}: [{', '.join(names)}]}}"
    )
