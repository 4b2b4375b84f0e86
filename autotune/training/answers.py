"""What to do about the end of an attempt: to resume, with what changed, or to end the training. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from autotune.core.settings import ACCUMULATION, MICRO_BATCH, Setting
from autotune.core.trial import Failure, Outcome, Status
from autotune.training import halving

_FIRST_WAIT_S, _LONGEST_WAIT_S = 2.0, 300.0


@dataclass(frozen=True)
class GoOn:
    """The training is resumed from its checkpoint, after a while, with `changes` to its settings."""

    wait_s: float
    text: str
    changes: Mapping[str, Setting]


@dataclass(frozen=True)
class Tried:
    """How often in a row the training was resumed without getting any further."""

    times: int = 0
    samples: int = 0

    def after(self, samples: int) -> "Tried":
        """Once more, with the training at `samples`: a training that got further begins to count anew."""
        return Tried(1 if samples > self.samples else self.times + 1, max(samples, self.samples))


def answer(outcome: Outcome, settings: Mapping[str, Setting], tried: Tried, most: int) -> GoOn | None:
    """How to resume after an attempt that ended so; None where that is the end.

    It is resumed `most` times without getting any further. An attempt that ran out of its own memory is not
    repeated as it was. One that ran out of the machine's is, because other programs may have held it; only
    when that does not help is less memory needed.
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
