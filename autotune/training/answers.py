"""Decides if an ended attempt is resumed, and with which changes, or ends the training. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from autotune.core.settings import ACCUMULATION, MICRO_BATCH, Setting
from autotune.core.trial import Failure, Outcome, Status
from autotune.training import halving

_FIRST_WAIT_S, _LONGEST_WAIT_S = 2.0, 300.0


@dataclass(frozen=True)
class GoOn:
    """Decision to resume from the checkpoint after `wait_s`, with `changes` to the settings."""

    wait_s: float
    text: str
    changes: Mapping[str, Setting]


@dataclass(frozen=True)
class Tried:
    """Count of consecutive attempts without progress."""

    times: int = 0
    samples: int = 0

    def after(self, samples: int) -> "Tried":
        """Returns the count after another attempt, ended at `samples`; progress resets it to 1."""
        return Tried(1 if samples > self.samples else self.times + 1, max(samples, self.samples))


def answer(outcome: Outcome, settings: Mapping[str, Setting], tried: Tried, most: int) -> GoOn | None:
    """Returns how to resume after an attempt with `outcome`; None if the training is over.

    Allows `most` resumptions without progress. An attempt that ran out of its own memory is resumed with
    smaller micro-batches. If the machine ran out of memory, other programs may have used it: the attempt is
    repeated unchanged first.
    """
    if outcome.status is Status.COMPLETED or outcome.failure is Failure.DIVERGED:
        return None
    is_used_up = tried.times > most
    if outcome.failure is Failure.OOM and (outcome.shortage is None or is_used_up):
        return _smaller(settings)
    if is_used_up or not _may_come_further(outcome):
        return None
    return GoOn(_wait_s(tried.times), "goes on from its checkpoint", {})


def _may_come_further(outcome: Outcome) -> bool:
    """Returns True if the attempt was interrupted, hung, or met a transient fault."""
    was_ended = outcome.status is Status.INTERRUPTED
    return was_ended or outcome.is_passing or outcome.failure in {Failure.TIMEOUT, Failure.OOM}


def _wait_s(times: int) -> float:
    return min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2.0 ** max(0, times - 1))


def _smaller(settings: Mapping[str, Setting]) -> GoOn | None:
    """Halves the micro-batch and doubles the accumulation steps; None if it is odd or unknown."""
    size, accumulated = settings.get(MICRO_BATCH), settings.get(ACCUMULATION)
    if not isinstance(size, int) or not isinstance(accumulated, int) or size < 2 or size % 2:
        return None
    halved, doubled = size // 2, 2 * accumulated
    text = f"goes on with micro-batches of {halving.instead(halved, size, size * accumulated)}"
    return GoOn(0.0, text, {MICRO_BATCH: halved, ACCUMULATION: doubled})
