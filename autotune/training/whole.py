"""Runs a whole training, resumed after faults, to its end, and compares it with its session's promise."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, replace

from autotune.core.settings import ACCUMULATION, MICRO_BATCH, Setting
from autotune.core.trial import Failure, Outcome, Status
from autotune.judging.accounts import promise
from autotune.judging.accounts.promise import PromiseAnswer
from autotune.storage.identity import read_verdict
from autotune.storage.layout import TrainingDir
from autotune.storage.records import read_records
from autotune.training import events, messages, plan
from autotune.training.events import Kind, TrainingEvent
from autotune.training.plan import TrainingPlan
from autotune.training.screen import TrainingScreen
from autotune.training.watch import MicroBatch, Notice, TrainingStatus, Watch, describe_smaller
from autotune.trials import attempt
from autotune.trials.fork_server import ForkServer
from autotune.trials.order import Order
from autotune.trials.progress import Progress
from autotune.trials.report import TrialReport
from autotune.trials.setup import TrainingSetup

_LOOK_S = 0.1
_FIRST_WAIT_S, _LONGEST_WAIT_S = 2.0, 300.0
_ANSWERS = {
    PromiseAnswer.HELD: "As promised",
    PromiseAnswer.BROKEN: "Not as promised",
    PromiseAnswer.UNDECIDED: "Not decided yet",
}


@dataclass(frozen=True)
class GoOn:
    """The decision to resume from the checkpoint after `wait_s`, with `changes` to the settings."""

    wait_s: float
    text: str
    changes: Mapping[str, Setting]


class Whole:
    """Trains as planned in `place`, whose lock must be held.

    `screen` gets messages for users, `follow` every report. Events are written next to the records, changed
    settings into the plan. On a full disk neither is written, because that must not end the training.
    """

    def __init__(
        self,
        training: TrainingSetup,
        planned: TrainingPlan,
        place: TrainingDir,
        *,
        screen: TrainingScreen,
        follow: Callable[[TrialReport], None],
    ) -> None:
        self._training, self._plan, self._place = training, planned, place
        self._epoch = training.space.training.samples_per_epoch
        self._screen, self._follow = screen, follow
        self._micro_batch = MicroBatch({**planned.settings, **planned.changes})
        self._watch = self._new_watch()
        for record in read_records(place):
            self._micro_batch.hear(record)
        self._status = TrainingStatus(planned, self._epoch).with_records(read_records(place))

    def run(self, *, retries: int, is_stopping: Callable[[], bool]) -> TrialReport:
        """Runs the training and returns its last report, with the outcome.

        Once `is_stopping` is True, the workload may still write its checkpoint, and the outcome is
        INTERRUPTED unless the training has ended.
        """
        begun = Kind.CONTINUED if self._place.records_file.exists() else Kind.BEGUN
        self._add_event(begun, messages.begun(self._plan))
        last = self._attempts(retries, is_stopping)
        is_interrupted = last.outcome is None or last.outcome.status is Status.INTERRUPTED
        self._add_event(Kind.STOPPED if is_interrupted else Kind.ENDED, self._describe_end(last))
        return last

    def _attempts(self, retries: int, is_stopping: Callable[[], bool]) -> TrialReport:
        server, changes = ForkServer(self._training.workload.preload), dict[str, Setting]()
        times, furthest = 0, 0  # attempts in a row without progress, and the most samples so far
        while True:
            order = self._order(changes)
            with closing(attempt.reports(order, server, is_stopping)) as reports:
                for last in reports:
                    self._hear(last)
            outcome = last.outcome or Outcome(Status.INTERRUPTED)
            times = 1 if last.samples > furthest else times + 1
            furthest = max(furthest, last.samples)
            resumption = decide(outcome, order.settings, times, retries)
            if resumption is None:
                return last
            if not is_stopping():
                self._note_resumption(last, resumption)
                changes |= resumption.changes
                if resumption.changes:
                    times = 0  # the smaller micro-batch has not been tried yet
                _sleep(resumption.wait_s, is_stopping)
            if is_stopping():  # whatever ended the attempt, it can be resumed later
                return replace(last, outcome=Outcome(Status.INTERRUPTED, reason=outcome.reason))

    def _order(self, changes: Mapping[str, Setting]) -> Order:
        """Returns the order of the next attempt, with all `changes` of settings that recovery has made."""
        if changes:
            self._plan = replace(self._plan, changes={**self._plan.changes, **changes})
            self._micro_batch = MicroBatch({**self._plan.settings, **self._plan.changes})
            with suppress(OSError):
                plan.write(self._place, self._plan)
            self._status = replace(self._status, plan=self._plan)
        return self._training.whole_training({**self._plan.config, **self._plan.changes}, self._place)

    def _describe_end(self, last: TrialReport) -> str:
        return messages.ended(last.outcome or Outcome(Status.INTERRUPTED), last.measurement, self._plan)

    def _new_watch(self) -> Watch:
        return Watch(self._plan.metric, samples=self._plan.samples, epoch=self._epoch)

    def _note_resumption(self, last: TrialReport, how: GoOn) -> None:
        """Reports a resumption, and begins a new watch, because another process trains from here on."""
        self._watch = self._new_watch()
        self._add_event(
            Kind.HALVED if how.changes else Kind.RETRIED, f"{self._describe_end(last)}; {how.text}"
        )

    def _add_event(self, kind: Kind, text: str) -> None:
        with suppress(OSError):
            events.write(
                self._place.events_file, TrainingEvent(time.time(), self._status.furthest, kind, text)
            )
        self._screen.say(text)

    def _hear(self, report: TrialReport) -> None:
        self._follow(report)
        halved = [text for record in report.records if (text := self._micro_batch.hear(record))]
        if halved:
            self._watch = self._new_watch()  # speed and memory change with the micro-batch
        news = [*(Notice(Kind.HALVED, text) for text in halved), *self._watch.hear(report)]
        self._status = self._status.after(report, self._watch)
        for kind, text in news:
            self._add_event(kind, text)
        for record in report.records:
            if self._plan.metric.name in record:
                self._screen.say(messages.evaluation(record, self._plan))
        if report.outcome is None:
            self._screen.update(self._status)


def decide(outcome: Outcome, settings: Mapping[str, Setting], times: int, most: int) -> GoOn | None:
    """Decides how to resume after an attempt with `outcome`; None if the training is over.

    It is the attempt number `times` in a row without progress; `most` of them are resumed. An attempt that
    ran out of its own memory is resumed with smaller micro-batches, unless their size is odd or unknown. If
    the machine ran out of memory, other programs may have used it: the attempt is repeated unchanged first.
    """
    if outcome.status is Status.COMPLETED or outcome.failure is Failure.DIVERGED:
        return None
    is_used_up = times > most
    if outcome.failure is Failure.OOM and (outcome.shortage is None or is_used_up):
        size, accumulated = settings.get(MICRO_BATCH), settings.get(ACCUMULATION)
        if not isinstance(size, int) or not isinstance(accumulated, int) or size < 2 or size % 2:
            return None
        smaller = {MICRO_BATCH: size // 2, ACCUMULATION: 2 * accumulated}
        text = f"continues with {describe_smaller(size // 2, size, size * accumulated)}"
        return GoOn(0.0, text, smaller)
    may_succeed = outcome.is_passing or outcome.failure in {Failure.TIMEOUT, Failure.OOM}
    if is_used_up or not (may_succeed or outcome.status is Status.INTERRUPTED):
        return None
    wait_s = min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2.0 ** max(0, times - 1))
    return GoOn(wait_s, "continues from its checkpoint", {})


def _sleep(seconds: float, is_stopping: Callable[[], bool]) -> None:
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s and not is_stopping():
        time.sleep(_LOOK_S)


def is_done(place: TrainingDir) -> bool:
    verdict = read_verdict(place)
    return verdict is not None and verdict[0].status is Status.COMPLETED


def promise_lines(place: TrainingDir) -> Iterator[str]:
    """Yields a line for each promised figure, and possible reasons; raises InputError for a corrupt plan."""
    planned = plan.read(place)
    if planned is None or (promised := planned.promise) is None:
        return
    progress = Progress(planned.metric, {**planned.settings, **planned.changes})
    for record in read_records(place):
        progress.count(record)
    outcome, measured, ended = None, progress.measurement(), read_verdict(place)
    if ended and ended[1].samples == measured.samples:  # only its last process knows the memory limit
        outcome, measured = ended
    measured = replace(measured, device=measured.device or planned.device)
    checks = promise.check(promised, measured, planned.goal, planned.metric.unit)
    answer = _ANSWERS[promise.overall(checks, outcome)]
    yield f"{answer}, compared with trial {promised.trial} of session {promised.session}"
    yield from (f"- {check.what} {check.answer}: {check.text}" for check in checks)
    observed = [e.text for e in events.read(place.events_file) if e.kind in {Kind.DRIFT, Kind.LEAK}]
    yield from (f"- during the training: {text}" for text in [*messages.contention(measured), *observed])
