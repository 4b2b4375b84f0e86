"""Runs a check's trainings as the tuner's own trials, alone or concurrently, within a time limit."""

import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from autotune.core.errors import printable
from autotune.core.measurement import Measurement
from autotune.core.settings import CHECKPOINTING, COMPILE, MICRO_BATCH, PRECISION, Setting
from autotune.core.trial import Outcome, Status
from autotune.sessions import prepare
from autotune.space import builtin
from autotune.space.machine import Machine
from autotune.space.space import Space
from autotune.storage.layout import TrialDir
from autotune.storage.records import read_records
from autotune.storage.store import Options
from autotune.system import devices
from autotune.system.telemetry import Hardware
from autotune.trials import order as orders
from autotune.trials.attempt import Attempt
from autotune.trials.fork_server import ForkServer
from autotune.trials.order import Order
from autotune.trials.setup import TrainingSetup
from autotune.workloads import registry
from autotune.workloads.base import Workload
from lab.gpu_check import elsewhere, small_trainings

SMALL = small_trainings.__name__
_POLL_S = 0.2
_TOLD = (MICRO_BATCH, PRECISION, COMPILE, CHECKPOINTING)
_LAST_LINES = 40
_BACK_S, _LOOK_S = 20.0, 0.02
_SLACK_BYTES = 64 * 2**20  # normal fluctuation of a desktop's use
_STALL_S = 300.0  # a compilation may take minutes without a record
_GONE = Outcome(Status.INTERRUPTED, reason="it ended without a word")

_OUTCOME = TypeAdapter(Outcome)


@dataclass(frozen=True)
class Ran:
    """A finished trial: its timestamped records, and the tuner's measurement of them."""

    outcome: Outcome | None  # None if time ran out before it ended
    measurement: Measurement = field(default_factory=Measurement)
    records: Sequence[Mapping[str, Any]] = ()

    @property
    def completed(self) -> bool:
        return self.outcome is not None and self.outcome.status is Status.COMPLETED

    @property
    def ending(self) -> str:
        """The trial's outcome and reason, on one line."""
        if self.outcome is None:
            return "its time was over before it had ended"
        return ": ".join(filter(None, (str(self.outcome), self.outcome.reason)))

    @property
    def process_bytes(self) -> int | None:
        """GPU memory of the whole process, None if NVML does not report it."""
        context_bytes, reserved_bytes = self.measurement.context_bytes, self.measurement.peak_reserved_bytes
        return context_bytes + reserved_bytes if context_bytes and reserved_bytes else None


@dataclass(frozen=True)
class Bench:
    """A machine under test until `deadline_s` of the monotonic clock."""

    hardware: Hardware
    machine: Machine
    settings: Mapping[str, Setting]  # all of the built-in trainer's, the basis of every training
    directory: Path  # for the output of the trials
    deadline_s: float
    server: ForkServer
    failed: list[dict[str, Any]] = field(default_factory=list)  # endings and last words of failed trials
    trained: list[dict[str, Any]] = field(default_factory=list)  # how each trial went, for programs

    @classmethod
    def for_model(
        cls,
        hardware: Hardware,
        machine: Machine,
        settings: Mapping[str, Setting],
        directory: Path,
        deadline_s: float,
    ) -> "Bench":
        """Returns the bench of this machine for a model with these `settings`."""
        workload = registry.load(registry.BUILTIN)
        whole = workload.complete(settings)
        return cls(hardware, machine, whole, directory, deadline_s, ForkServer([*workload.preload, SMALL]))

    @property
    def left_s(self) -> float:
        return self.deadline_s - time.monotonic()

    def within(self, most_s: float) -> "Bench":
        """Returns the bench for a point that may take `most_s`."""
        return replace(self, deadline_s=min(self.deadline_s, time.monotonic() + most_s))

    @property
    def device(self) -> str:
        return "cuda" if self.hardware.gpus else "cpu"

    @property
    def training_studies(self) -> int:
        """Studies per epoch."""
        samples = registry.load(registry.BUILTIN).training_samples({**self.settings, "epochs": 1})
        return samples or 1

    @property
    def limit_bytes(self) -> int | None:
        """GPU memory limit of a trial with a GPU to itself; None without a GPU."""
        return self._training(Workload(""), 1, 1).gpu_limit_bytes(1.0)

    def order(
        self,
        samples: int,
        changed: Mapping[str, Setting],
        *,
        evaluations: int = 1,
        gpus: float = 1.0,
        watched: bool = False,
    ) -> Order:
        """Returns the order that trains the built-in model for `samples`, with some settings changed."""
        workload = registry.load(registry.BUILTIN)
        if watched:
            workload = replace(workload, entry_point=f"{SMALL}:watched")
        return self._order(workload, samples, evaluations, gpus, changed)

    def small_order(self, name: str, samples: int, step_bytes: int = 0) -> Order:
        """Returns the order that runs one of the `small_trainings`."""
        workload = Workload(f"{SMALL}:{name}")
        return self._order(workload, samples, 1, 1.0, {"device": self.device, "step_bytes": step_bytes})

    def script_order(
        self, run: Sequence[str], batch_size: int, steps: int, after: Sequence[str] = ()
    ) -> Order:
        """Returns the order that runs a command line, with a batch size before what comes `after`."""
        line = shlex.join([*run, "{micro_batch_size}", *after]).replace(
            "'{micro_batch_size}'", "{micro_batch_size}"
        )
        workload = registry.load(
            {"kind": "command", "run": line, "quality": {small_trainings.QUALITY: r"bleu_4 ([\d.]+)"}}
        )
        return self._order(workload, batch_size * steps, 1, 1.0, {MICRO_BATCH: batch_size})

    def _order(
        self,
        workload: Workload,
        samples: int,
        evaluations: int,
        gpus: float,
        changed: Mapping[str, Setting],
    ) -> Order:
        training = self._training(workload, samples, evaluations)
        place = TrialDir(Path(tempfile.mkdtemp(dir=self.directory)))
        order = training.order(changed, place)
        order = training.on_gpu(order, changed, gpus) if gpus < 1 else order
        return replace(order, limits=replace(order.limits, stall_timeout_s=_STALL_S))

    def _training(self, workload: Workload, samples: int, evaluations: int) -> TrainingSetup:
        budget = {"samples_per_trial": samples, "evaluations_per_trial": evaluations}
        space: Space = prepare.read_space(builtin.space_file("gpu"), {"budget": budget})
        space = space.model_copy(update={"baseline": {**space.baseline, **self.settings}})
        gpus = float(bool(self.hardware.gpus))
        return TrainingSetup(space, workload, self.hardware, Options(gpus_per_trial=gpus))

    def run(self, order: Order) -> Ran:
        """Runs a trial to its end, or to the bench's deadline."""
        return self.run_together([order])[0]

    def run_together(self, orders: Sequence[Order]) -> list[Ran]:
        """Runs trials concurrently."""
        attempts = [Attempt(order, self.server) for order in orders]
        outcomes: dict[int, Outcome] = {}
        try:
            while len(outcomes) < len(attempts) and self.left_s > 0:
                for number, attempt in enumerate(attempts):
                    if number not in outcomes and (outcome := attempt.step(_POLL_S).outcome):
                        outcomes[number] = outcome
        finally:
            for attempt in attempts:
                attempt.stop()
        ran = [
            Ran(outcomes.get(n), attempt.measurement(), _records(order))
            for n, (order, attempt) in enumerate(zip(orders, attempts, strict=True))
        ]
        return [self._noted(*each) for each in zip(orders, ran, strict=True)]

    def _noted(self, order: Order, ran: Ran) -> Ran:
        """Returns `ran`, noted for the file of the check; of a trial that did not complete, with its log."""
        if not ran.completed:
            self.failed.append({"ending": ran.ending, "log": last_lines(order.place.log)})
        self.trained.append(_told(order, ran))
        return ran

    def run_until(self, order: Order, meet: Callable[[Mapping[str, Any]], bool]) -> Ran:
        """Runs a trial until `meet`, called with every record, returns true."""
        attempt, is_met = Attempt(order, self.server), False
        outcome: Outcome | None = None
        try:
            while outcome is None and self.left_s > 0:
                report = attempt.step(_POLL_S)
                outcome = report.outcome
                is_met = is_met or any(meet(record) for record in report.records)
        finally:
            attempt.stop()
        return self._noted(order, Ran(outcome, attempt.measurement(), _records(order)))

    def run_elsewhere(self, order: Order, environment: Mapping[str, str]) -> Ran:
        """Runs a trial in a fork server of its own, with `environment` added to the current one."""
        with suppress(subprocess.TimeoutExpired):
            done = subprocess.run(  # noqa: S603 - a constant command line
                [sys.executable, "-P", "-m", elsewhere.__name__, json.dumps(orders.ORDER.dump_python(order))],
                env={**os.environ, **environment},
                capture_output=True,
                text=True,
                timeout=max(1.0, self.left_s),
                check=False,
            )
            lines = done.stdout.splitlines()
            outcome = _OUTCOME.validate_json(lines[-1]) if lines and not done.returncode else _GONE
            return self._noted(order, Ran(outcome, records=_records(order)))
        return self._noted(order, Ran(None))


def _told(order: Order, ran: Ran) -> dict[str, Any]:
    """Returns what a trial was, and where its time went."""
    shown = ran.measurement
    return {
        "workload": registry.label(order.workload),
        "settings": {name: order.settings[name] for name in _TOLD if name in order.settings},
        "ending": ran.ending,
        "samples_per_s": shown.throughput and shown.throughput.samples_per_s,
        "step_shares": shown.step_shares,
        "telemetry": shown.telemetry,
    }


def last_lines(log: Path) -> list[str]:
    """Returns the end of a trial's log, as printable lines."""
    with suppress(OSError):
        return [printable(line) for line in log.read_text("utf-8", "replace").splitlines()[-_LAST_LINES:]]
    return []


def _records(order: Order) -> list[dict[str, Any]]:
    return [record for record in read_records(order.place) if "samples" in record]


def seconds_until_back(used_bytes: int, since_s: float) -> float | None:
    """Returns the seconds from `since_s` (monotonic) until the GPUs use at most `used_bytes`.

    None if they still use more after twenty seconds.
    """
    deadline_s = time.monotonic() + _BACK_S
    while devices.used_bytes() > used_bytes + _SLACK_BYTES:
        if time.monotonic() > deadline_s:
            return None
        time.sleep(_LOOK_S)
    return time.monotonic() - since_s


WITHOUT_GPU = {devices.VISIBLE: "-1"}
