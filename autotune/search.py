"""One search, whoever executes its trials: what runs next, what came out, when it is over."""

import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import optuna

from autotune import attempt, objective, sampler
from autotune import study as record
from autotune.attempt import Order
from autotune.space import Space
from autotune.store import Session
from autotune.study import Plan
from autotune.trial import Failure, Measurement, Outcome, Status, Trial
from autotune.workloads import Workload

_EVALUATIONS_PER_TRIAL = 2


class Listener(Protocol):
    """Who is told what happens: the terminal."""

    def started(self, trial: Trial) -> None: ...
    def progress(self, trial: Trial, report: Mapping[str, Any]) -> None: ...
    def ended(self, trial: Trial) -> None: ...


class Search:
    """The bookkeeping of a search. Every change is in the study before anybody else hears of it."""

    def __init__(
        self, session: Session, space: Space, workload: Workload, study: optuna.Study, listener: Listener
    ) -> None:
        self.session, self.space = session, space
        self.options = session.options()
        self.stopping: str | None = None  # why no further trial is started
        self.fault: str | None = (
            None  # of the machine, and not of a trial: what must be mended before going on
        )
        self._workload, self._listener, self._study = workload, listener, study
        self._plan = record.plan(study) or Plan(space.budget.trials, space.budget.time)
        self._begun = time.monotonic()
        self._started_at: dict[int, float] = {}
        self._running: dict[int, Trial] = {}
        self._reports: dict[int, Mapping[str, Any]] = {}
        self._losses: Counter[int] = Counter()
        self._waiting = deque(self._recover())
        self._started = len(self.trials())
        known = len(study.get_trials(deepcopy=False))
        study.sampler = sampler.make(self.options.seed + known)  # the same seed would suggest the same again

    def _recover(self) -> list[Trial]:
        """The trials that a killed process was running, but for those whose verdict was already written."""
        interrupted = []
        for trial in record.recover(self._study, self.space.limits.memory_fraction):
            verdict = attempt.read_verdict(self.session.trial_dir(trial.number))
            if verdict is None:
                interrupted.append(trial)
            else:
                self._record(replace(trial, outcome=verdict[0], measurement=verdict[1]))
        return interrupted

    def trials(self) -> list[Trial]:
        """Every trial so far, running ones included."""
        return record.trials(self._study)

    @property
    def remaining(self) -> int:
        """Trials that are still to end."""
        return self._plan.trials - self._started + len(self._waiting) + len(self._running)

    def is_over(self) -> bool:
        """Whether running trials, too, are to be stopped."""
        if self._plan.time_s is not None and self._spent_s() > self._plan.time_s:
            self.stop("the time is up")
        return self.stopping is not None and self.stopping != _EXHAUSTED

    def _spent_s(self) -> float:
        return self._plan.spent_s + time.monotonic() - self._begun

    def stop(self, reason: str) -> None:
        """Starts nothing more, for `reason`. The first reason stays."""
        self.stopping = self.stopping or reason

    def next(self) -> Trial | None:
        """The next trial to run, None when there is none: an interrupted one, the baseline, a suggestion."""
        if self.is_over():
            return None
        trial = self._waiting.popleft() if self._waiting else self._ask()
        if trial is not None:
            self._running[trial.number] = trial
            self._started_at[trial.number] = time.monotonic()
            self._listener.started(trial)
        return trial

    def _ask(self) -> Trial | None:
        if self._started >= self._plan.trials or self.stopping:
            return None
        if self._started == 0:
            trial: Trial | None = sampler.ask_baseline(self._study, self.space)
        else:
            trial = sampler.ask(self._study, self.space, self.trials(), self.options.seed + self._started)
        if trial is None:
            self.stop(_EXHAUSTED)
        self._started += trial is not None
        return trial

    def order(self, trial: Trial, device_memory_bytes: int | None) -> Order:
        """What a supervisor needs to run `trial` on a device with so much memory."""
        samples, options = self.space.budget.samples_per_trial, self.options
        fraction = gpu_memory_fraction(options.gpus_per_trial, device_memory_bytes)
        return Order(
            number=trial.number,
            entry_point=self._workload.entry_point,
            settings=self._workload.for_trial(
                self.space.settings(trial.config), samples, _EVALUATIONS_PER_TRIAL
            ),
            directory=str(self.session.trial_dir(trial.number)),
            quality=self.space.objective.quality,
            samples=samples,
            memory_limit_bytes=options.memory_limit_bytes,
            gpu_memory_fraction=fraction,
            device_memory_bytes=int(device_memory_bytes * (fraction or 1)) if device_memory_bytes else None,
            stall_timeout_s=options.stall_timeout_s,
            shared=fraction is not None,
        )

    def progress(self, number: int, report: Mapping[str, Any]) -> None:
        """A running trial's latest figures; its end, when the report has an outcome."""
        trial = self._running.get(number)
        if trial is None:
            return
        self._reports[number] = report
        self._listener.progress(trial, report)
        if "outcome" in report:
            outcome = Outcome.from_dict(report["outcome"])
            if outcome.status is Status.INTERRUPTED:
                self._interrupt(trial, outcome)
            else:
                self.end(number, outcome, Measurement.from_dict(report["measurement"]))

    def _interrupt(self, trial: Trial, outcome: Outcome) -> None:
        """What stopped `trial` would stop the next one, too: both wait until the search is resumed."""
        self._waiting.append(self._running.pop(trial.number))
        self._listener.ended(replace(trial, outcome=outcome))
        self.fault = self.fault or outcome.reason
        self.stop(self.fault)

    def end(self, number: int, outcome: Outcome, measurement: Measurement) -> None:
        """A trial has ended; saying so again changes nothing."""
        trial = self._running.pop(number, None)
        if trial is None:
            return
        seconds = time.monotonic() - self._started_at.pop(number)
        ended = replace(trial, outcome=outcome, measurement=measurement, seconds=seconds)
        self._record(ended)
        self._listener.ended(ended)
        if number == 0 and not ended.completed:
            self.stop(f"the baseline itself {outcome.status}: {outcome.reason}")

    def _record(self, trial: Trial) -> None:
        record.end(self._study, trial, self.space.limits.memory_fraction)
        record.set_plan(self._study, replace(self._plan, spent_s=self._spent_s()))

    def lose(self, number: int, reason: str, *, out_of_memory: bool = False) -> None:
        """A trial's supervisor is gone without a word. A verdict that was written counts; else it runs again.

        It is given up when it was killed for the machine's memory, and the second time in any case: what
        takes its supervisor along twice would do it for ever.
        """
        if (verdict := attempt.read_verdict(self.session.trial_dir(number))) is not None:
            self.end(number, *verdict)
        elif out_of_memory:
            self.end(number, Outcome(Status.FAILED, Failure.OOM, reason), Measurement())
        elif self._losses[number] >= 1:
            self.end(number, Outcome(Status.FAILED, Failure.LOST, reason), Measurement())
        elif number in self._running:
            self._losses[number] += 1
            self._waiting.append(self._running.pop(number))

    def running(self) -> Sequence[Trial]:
        return list(self._running.values())

    @property
    def preload(self) -> tuple[str, ...]:
        """What the trials' fork server imports."""
        return self._workload.preload

    def host_memory_bytes(self, number: int) -> float:
        """What a running trial was last seen to hold of the host's memory."""
        return float(self._reports.get(number, {}).get("telemetry", {}).get("host_rss_bytes", 0))

    def winner(self) -> Trial | None:
        return objective.winner(self.trials(), self.space.objective, self.space.limits.memory_fraction)


def gpu_memory_fraction(gpus: float, device_memory_bytes: int | None) -> float | None:
    """The share of a GPU's memory that a trial's tensors may take; None where it has the GPU to itself.

    Every process holds a CUDA context besides, which the cap does not count and the neighbours need room for.
    """
    if not 0 < gpus < 1 or not device_memory_bytes:
        return None
    return max(gpus / 2, gpus - _CUDA_CONTEXT_BYTES / device_memory_bytes)


_CUDA_CONTEXT_BYTES = 600 * 2**20  # kernels and cuBLAS workspace; an estimate, not measured
_EXHAUSTED = "every configuration of the space was tried, or is known not to fit"
