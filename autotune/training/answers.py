"""What to do about the end of an attempt: to go on, with what changed, or to leave it at that. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from autotune.core.settings import ACCUMULATION, MICRO_BATCH, Setting
from autotune.core.trial import Failure, Outcome, Status

# Faults that the same training need not have again: of the links between GPUs, of a kernel's launch, of a
# disk or network behind the data, of one of the loader's workers.
_TRANSIENT = re.compile(
    r"\bNCCL\b[^\n]*\b([Ee]rror|timed? ?out)|nccl(System|Remote|Internal|UnhandledCuda)Error"
    r"|collective operation timeout"
    r"|CUDA error: (unspecified launch failure|the launch timed out|unknown error|uncorrectable ECC error)"
    r"|CUBLAS_STATUS_EXECUTION_FAILED|CUDNN_STATUS_EXECUTION_FAILED"
    r"|DataLoader worker \(pid[^)]*\) (exited unexpectedly|is killed by signal)"
    r"|DataLoader timed out"
    r"|Input/output error|Stale file handle|Transport endpoint is not connected|Remote I/O error"
    r"|Connection (reset|refused|aborted|timed out)|Connection broken|Remote end closed connection"
    r"|Temporary failure in name resolution|Read timed out|Network is unreachable"
)
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
    tried again as it was, what ran out of the machine's is: others may have had that.
    """
    if outcome.status is Status.COMPLETED or outcome.failure is Failure.DIVERGED:
        return None
    if outcome.failure is Failure.OOM and outcome.shortage is None:
        return _smaller(settings)
    if tried.times > most or not _is_transient(outcome):
        return None
    return GoOn(_wait_s(tried.times), "goes on from its checkpoint", {})


def _is_transient(outcome: Outcome) -> bool:
    """Whether another attempt may come further: it was ended from outside, hung, or met a passing fault."""
    if outcome.status is Status.INTERRUPTED or outcome.failure is Failure.TIMEOUT:
        return True
    return outcome.failure is Failure.OOM or _TRANSIENT.search(outcome.reason) is not None


def _wait_s(times: int) -> float:
    return min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2.0 ** max(0, times - 1))


def _smaller(settings: Mapping[str, Setting]) -> GoOn | None:
    """Half of the micro-batch, and twice as many of them in a step; None where that cannot be done."""
    size, accumulated = settings.get(MICRO_BATCH), settings.get(ACCUMULATION)
    if not isinstance(size, int) or not isinstance(accumulated, int) or size < 2 or size % 2:
        return None
    halved, doubled = size // 2, 2 * accumulated
    same = "the same effective batch; statistics of batch norms are of smaller batches"
    text = f"goes on with micro-batches of {halved}x{doubled} instead of {size}x{accumulated}: {same}"
    return GoOn(0.0, text, {MICRO_BATCH: halved, ACCUMULATION: doubled})
