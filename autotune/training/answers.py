"""What to do about the end of an attempt: to go on, with what changed, or to leave it at that. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from autotune.core.settings import ACCUMULATION, MICRO_BATCH, Setting
from autotune.core.trial import Failure, Outcome, Status
from autotune.training import halving

_FIRST_WAIT_S, _LONGEST_WAIT_S = 2.0, 300.0


@dataclass(frozen=True)
class GoOn:
    """The training goes on from its checkpoint, after a while, with `changes` to its settings."""

    wait_s: float
    text: str
    changes: Mapping[str, Setting]


@dataclass(frozen=True)
class Tried:
    """How often in a row the training was gone on with, and has come no further since."""

    times: int = 0
    samples: int = 0

    def after(self, samples: int) -> "Tried":
        """Once more, the training having come to `samples`: who comes further begins to count anew."""
        return Tried(1 if samples > self.samples else self.times + 1, max(samples, self.samples))


def answer(outcome: Outcome, settings: Mapping[str, Setting], tried: Tried, most: int) -> GoOn | None:
    """How to go on after an attempt that ended so; None where that is the end.

    It is gone on with `most` times without having come any further. What ran out of memory of its own is not
    tried again as it was. What ran out of the machine's is, because others may have had that; only when it
    has not helped is less memory needed.
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
    """Whether another attempt may: this one was ended from outside, hung, or met a passing fault."""
    was_ended = outcome.status is Status.INTERRUPTED
    return was_ended or outcome.is_passing or outcome.failure in {Failure.TIMEOUT, Failure.OOM}


def _wait_s(times: int) -> float:
    return min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2.0 ** max(0, times - 1))


def _smaller(settings: Mapping[str, Setting]) -> GoOn | None:
    """Half of the micro-batch, and twice as many of them in a step; None where that cannot be done."""
    size, accumulated = settings.get(MICRO_BATCH), settings.get(ACCUMULATION)
    if not isinstance(size, int) or not isinstance(accumulated, int) or size < 2 or size % 2:
        return None
    halved, doubled = size // 2, 2 * accumulated
    text = f"goes on with micro-batches of {halving.instead(halved, size, size * accumulated)}"
    return GoOn(0.0, text, {MICRO_BATCH: halved, ACCUMULATION: doubled})
