"""Checks the records of a workload, adds figures of its process, and sends them to the supervisor."""

import json
import math
import resource
import sys
import time
import weakref
from collections import deque
from collections.abc import Mapping
from typing import Any, BinaryIO

from autotune.core import units
from autotune.core.record_names import COMPILING, FLOPS, OWN, PARAMETERS, QUEUED, STANDS_FOR
from autotune.core.trial import Failure, Outcome, Status
from autotune.inside.messages import Stamped
from autotune.inside.site.autotune_figures import Flops, compilations, host_bytes, trained_parameters
from autotune.inside.site.autotune_wire import plain, unwrapped
from autotune.trials import failures
from autotune.trials.cuda import Cuda
from autotune.trials.order import Order

_clock_s = time.monotonic  # bound here, because a workload may patch time.monotonic


def send(messages: BinaryIO, message: Mapping[str, Any]) -> None:
    messages.write(json.dumps(message, default=plain).encode() + b"\n")
    messages.flush()


class _DivergedError(FloatingPointError):
    """The workload keeps yielding losses that are not finite."""


class RecordSender:
    """Checks the records of a workload, adds figures of the process, and sends them."""

    def __init__(self, order: Order, messages: BinaryIO, gpus: Cuda) -> None:
        self._quality, self._unit = order.metric.name, order.metric.unit
        self._messages, self._gpus, self._host = messages, gpus, HostMemory(order)
        self._records = self._samples = self._non_finite = 0
        self._last_s = _clock_s()
        self._compilations = compilations()
        self._flops = StepFlops()
        self._flops.attach()
        self._held, self._held_s = dict[str, int](), -math.inf  # memory of this process, and when it was read
        self._reported: dict[str, Any] = {}  # memory last reported by the process that trains

    def _check(self, record: object) -> dict[str, Any]:
        """Returns a copy of a record, which must be a mapping that counts its work under the key `unit`."""
        if not isinstance(record, Mapping):
            raise TypeError(f"a record must be a mapping, got {type(record).__name__}")
        yielded = {key: value for key, value in record.items() if key not in OWN}
        plain = {str(key): unwrapped(value) for key, value in yielded.items()}
        what, samples = f"a record's {self._unit}", plain.get(self._unit)
        if not isinstance(samples, int) or isinstance(samples, bool):
            raise TypeError(f"{what} must be an int, got {units.quote(samples)}")
        if not 0 <= samples <= 2**53:  # up to there, a float represents every integer exactly
            raise ValueError(f"{what} must be from 0 to 2**53, got {units.quote(samples)}")
        if samples < self._samples:
            raise ValueError(f"{what} must not decrease, got {samples} after {self._samples}")
        self._samples = plain["samples"] = samples  # readers need not know the unit
        self._records += 1
        loss = plain.get("train_loss")
        # A workload that counts bad steps skips them, and fails by itself if there are too many.
        if isinstance(loss, float) and "bad_steps" not in plain:
            self._non_finite = 0 if math.isfinite(loss) else self._non_finite + 1
            if self._non_finite >= 3:
                at = f"at {samples:,} {self._unit}"
                raise _DivergedError(f"train_loss was {loss} {self._non_finite} times in a row, {at}")
        return plain

    def count_yielded(self, yielded: Mapping[str, Any]) -> None:
        """Counts a record that came now; a stamped one has the time and the figures of another process."""
        self._gpus.open()
        if isinstance(yielded, Stamped):
            if _clock_s() - self._held_s >= 1.0:  # exact enough if another process trains
                self._held, self._held_s = self._memory(), _clock_s()
            figures = self._held
            self._reported |= {name: yielded[name] for name in figures if name in yielded}
            marks = {name: yielded[name] for name in (COMPILING, QUEUED) if name in yielded}
            stands_for = {STANDS_FOR: yielded.steps} if yielded.steps > 1 else {}
            record = {**self._check(yielded), **figures, **self._reported, **marks, **stands_for}
            self._send(yielded.at_s, record)
            return
        is_queued = not self._gpus.has_settled()
        at_s, figures = _clock_s(), self._figures()
        self._send(at_s, {**self._check(yielded), **figures, **({QUEUED: True} if is_queued else {})})

    def count_reported(self, values: Mapping[str, Any], at_s: float, is_queued: bool) -> None:
        """Counts a record reported at `at_s`; `is_queued`: the GPU had not finished the step by then."""
        record = {**self._check(values), **self._figures(at_s)}
        self._send(at_s, record | {QUEUED: True} if is_queued else record)

    def _memory(self) -> dict[str, int]:
        return self._gpus.figures() or self._host.figures()

    def _figures(self, until_s: float = math.inf) -> dict[str, Any]:
        """Returns figures of the process, and of its steps up to `until_s`, without waiting for the GPU."""
        self._gpus.open()
        self._flops.attach()
        before, self._compilations = self._compilations, compilations()
        figures = {**self._memory(), **self._flops.take(until_s)}
        return {**figures, COMPILING: True} if self._compilations != before else figures

    def _send(self, at_s: float, record: dict[str, Any]) -> None:
        """Sends a record; its timestamp is clipped to lie between the previous one and now."""
        if self._quality in record:
            self._gpus.pace.evaluated()
            # Slow to query, but evaluations are rare, and the step after one is not counted.
            if context_bytes := self._gpus.context_bytes():
                record["memory_context_bytes"] = context_bytes
        self._last_s = min(max(at_s, self._last_s), _clock_s())
        send(self._messages, {**record, "at_s": self._last_s})

    def outcome(self, without_records: str, *, is_stopped: bool) -> Outcome:
        if is_stopped:
            return Outcome(Status.STOPPED, reason="was asked to stop")
        if not self._records:
            return failures.failure(Failure.ERROR, without_records)
        return Outcome(Status.COMPLETED)


class HostMemory:
    """Caps the host memory of the process, if the order says so, and measures its peak."""

    def __init__(self, order: Order) -> None:
        self._born_with = host_bytes("VmRSS") - host_bytes("RssFile")
        self._highest = self._peak = 0
        self._data_born_with = host_bytes("VmData") if order.limits.caps_process else None
        if order.limits.host_bytes is not None and order.limits.caps_process:
            limit_memory(host_bytes("VmData") + order.limits.host_bytes)

    def figures(self) -> dict[str, int]:
        # Without the memory just after the fork, and pages of mapped files, which the kernel can reclaim.
        highest = host_bytes("VmHWM")
        if highest > self._highest:  # risen since the last record, with about as many mapped pages as now
            self._highest = highest
            self._peak = max(self._peak, highest - host_bytes("RssFile") - self._born_with)
        if self._data_born_with is not None:  # the cap also counts memory allocated but never touched
            self._peak = max(self._peak, host_bytes("VmData") - self._data_born_with)
        return {"memory_peak_bytes": self._peak}


def limit_memory(limit_bytes: int | None) -> None:
    """Caps the private memory of the process; None lifts the cap."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    is_refused = limit_bytes is not None and hard != resource.RLIM_INFINITY and hard < limit_bytes
    soft = hard if limit_bytes is None or is_refused else limit_bytes
    resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


class StepFlops:
    """Counts the FLOPs of steps. A step ends when one optimizer steps: the first after the first record."""

    def __init__(self) -> None:
        self._flops = Flops()
        # The end of each step since the last record, and its FLOPs by number format.
        self._steps: deque[tuple[float, Mapping[str, int]]] = deque(maxlen=100_000)
        self._has_begun = self._is_attached = False
        self._optimizer: Any = None  # a weak reference
        self._parameters = 0  # trained by the optimizer; 0 once reported
        self._others = 0  # consecutive steps of other optimizers

    def attach(self) -> None:
        """Registers the hook as soon as torch is loaded."""
        optimizers = sys.modules.get("torch.optim.optimizer")
        if not self._is_attached and optimizers is not None:
            optimizers.register_optimizer_step_post_hook(self._end_step)
            self._is_attached = True

    def _end_step(self, optimizer: Any, *_: Any) -> None:
        if not self._has_begun or (self._flops.is_done and not self._steps):
            return
        if self._optimizer is None:
            self._optimizer = weakref.ref(optimizer)
            self._parameters = trained_parameters(optimizer)
        if self._optimizer() is optimizer:
            self._others = 0
            self._steps.append((_clock_s(), self._flops.stepped()))
            return
        self._others += 1
        if self._optimizer() is None or self._others >= 20:
            self._flops.leave()  # counting costs time, and would never end

    def take(self, until_s: float = math.inf) -> Mapping[str, Any]:
        """Returns the FLOPs of the steps up to `until_s` and, only once, the number of trained parameters."""
        self._has_begun, count, step_flops = True, 0, dict[str, int]()
        while self._steps and self._steps[0][0] <= until_s:
            # Steps that were not counted are assumed to take the same FLOPs as the counted one.
            count, step_flops = count + 1, dict(self._steps.popleft()[1]) or step_flops
        figures = {FLOPS: {kind: count * flops for kind, flops in step_flops.items()}} if step_flops else {}
        trained, self._parameters = self._parameters, 0
        return {**figures, PARAMETERS: trained} if trained else figures
