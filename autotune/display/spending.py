"""The time that the user's training spends outside of its steps, in words next to the answer. Pure."""

from collections.abc import Iterator

from autotune.core.trial import Trial
from autotune.judging.accounts import overhead
from autotune.judging.accounts.overhead import Spent
from autotune.judging.decisions import confirm
from autotune.judging.decisions.history import History
from autotune.space import following

_WORTH_TELLING, _WORTH_CHANGING = 0.01, 0.05  # shares of a training


def lines(history: History) -> list[str]:
    """Returns how much of the recommended training goes to evaluations and pauses, a line each.

    Nothing where that is not known, or is little.
    """
    found = confirm.recommended(history)
    ours = overhead.spent(found[0], history) if found else None
    return list(_told(found[0], ours, history)) if found and ours else []


def _told(trial: Trial, ours: Spent, history: History) -> Iterator[str]:
    whose = f"the training with trial {trial.number}'s settings" if trial.number else "the training"
    if (share := ours.evaluations) is not None and share >= _WORTH_TELLING:
        more = f"{_beside(trial, history)}{_saving(share, trial, history)}"
        yield f"Evaluation is about {share:.0%} of {whose}{more}."
    if ours.pauses >= _WORTH_TELLING:
        yield f"Regular pauses, such as for checkpoints, are about {ours.pauses:.0%} of {whose}."


def _beside(trial: Trial, history: History) -> str:
    """`, 12% of the baseline's`, whose steps take longer."""
    theirs = overhead.spent(history.of(0), history) if trial.number else None
    share = theirs.evaluations if theirs else None
    return "" if share is None else f", {share:.0%} of the baseline's"


def _saving(share: float, trial: Trial, history: History) -> str:
    """Says what half as many evaluations would save; nothing if that is little or searched."""
    space = history.space
    if share < _WORTH_CHANGING or space.interval_setting in space.knobs:
        return ""
    half, known = f"{share / 2:.0%}", following.evaluation_interval(space, trial.config)
    if known is None or (isinstance(known[1], float) and 2 * known[1] > 1):  # more than an epoch, or than all
        return f": half as many would save about {half}"
    name, value = known
    return f": {name} {2 * value} instead of {value} would save about {half}"
