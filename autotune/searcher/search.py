"""One search, independent of what executes its trials: decides what runs next, and when it is over."""

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

import optuna

from autotune.core.measurement import Measurement
from autotune.core.trial import Failure, Outcome, Shortage, Status, Trial, TrialKind
from autotune.judging.accounts import schedules
from autotune.judging.decisions import ablation, confirm, pilot, replanning, stopping
from autotune.judging.decisions.confirm import Proposal
from autotune.judging.decisions.history import History
from autotune.judging.decisions.stopping import Threshold
from autotune.searcher.allowance import Allowance, next_trial_pays
from autotune.searcher.ports import Environment, Listener, SearchOptions, Verdict
from autotune.searcher.running import RunningTrials
from autotune.searcher.suggestions import Suggestions
from autotune.space.space import Space
from autotune.storage import studies
from autotune.storage.study_file import SearchPlan
from autotune.trials import failures
from autotune.trials.report import TrialReport

_OTHERS_FIRST = 2  # settings that are tried before the best ones are trained longer
_MOST_KILLS = 3  # in a row, after which a trial is given up
TIME_UP = "the time is up"


class Search:
    """The state of a search. Every change is written to the study before anyone is notified."""

    def __init__(
        self,
        space: Space,
        study: optuna.Study,
        listener: Listener,
        options: SearchOptions = SearchOptions(),
        environment: Environment = Environment(),
    ) -> None:
        self._study, self._listener, self._options, self._environment = study, listener, options, environment
        self._asked, self.history = space, History((), space)  # replaced whenever a trial begins or ends
        self.stopping: str | None = None  # the reason that no further trial starts
        self.fault: str | None = None  # a problem of the machine, to fix before resuming
        self.is_exhausted = False  # no configuration is left that is worth a trial
        self.is_interrupted = self._has_settled = False
        self._without_proposal: History | None = None
        plan = studies.read(study).plan or SearchPlan(space.budget.trials, space.budget.time)
        self._allowance = Allowance(plan, environment.clock)
        self._reports, self._said = dict[int, TrialReport](), set[str]()
        self._kills: dict[int, tuple[int, int]] = {}  # samples at a trial's last evaluation, kills since
        # After a resume the same seed would repeat the suggestions.
        seed = options.seed + len(study.get_trials(deepcopy=False))
        self._waiting = deque(self._recover())
        shared = {trial.number for trial in self._waiting if trial.measurement.shared}
        self._running = RunningTrials(environment.clock, shared)
        self.history = pilot.settled(History(studies.read(study).trials, space))
        self._first = len(self.history.trials)  # of this run
        self._suggestions = Suggestions(self.history, options, seed)
        self._publish(stopping.threshold(self.history))
        self._require_baseline()

    def _require_baseline(self) -> None:
        if (failed := self.history.failed_baseline) and failed.outcome:
            self.stop(f"the baseline itself {failed.outcome.status}: {failed.outcome.reason}")

    def _recover(self) -> list[Trial]:
        """Records a killed process's trials that wrote a verdict; returns those that have to run again."""
        interrupted = []
        for trial in studies.recover(self._study, self.space.limits.memory_fraction):
            verdict = self._environment.verdict_of(trial)
            if verdict is None:
                interrupted.append(trial)
            else:
                measurement = replace(verdict[1], shared=trial.measurement.shared)
                trained_s = max((evaluation.seconds for evaluation in measurement.curve), default=0.0)
                known_s = trained_s + sum(
                    turn.seconds for turn in measurement.slices
                )  # only a race has turns
                self._record(replace(trial, outcome=verdict[0], measurement=measurement, seconds=known_s))
        return interrupted

    @property
    def space(self) -> Space:
        """The space as settled by the pilot."""
        return self.history.space

    @property
    def asked(self) -> History:
        """The history with the space as the user gave it."""
        return History(self.history.trials, self._asked)

    @property
    def plan(self) -> SearchPlan:
        """The time and trials that the search may spend, and the time spent so far."""
        return self._allowance.plan()

    def running(self) -> Sequence[Trial]:
        return self._running.trials()

    def has_failed(self, number: int) -> bool:
        """Returns True if a trial has failed for good; one that will run again has not."""
        outcome = self.history.trial(number).outcome
        return outcome is not None and outcome.status is Status.FAILED

    @property
    def remaining(self) -> int:
        """The number of trials still to end; an estimate, since later results may add some."""
        begun = len(self._running) + len(self._waiting)
        if not self._is_searched():
            return begun + self._allowance.trials_left(len(self.history.searched))
        if begun:
            return begun
        return int(self._next_to_finish() is not None)

    def _is_searched(self) -> bool:
        """Returns True if no further configuration will be tried; the winner may still be unconfirmed."""
        return (
            self.is_exhausted
            or not self._allowance.trials_left(len(self.history.searched))
            or not self._allowance.has_time_to_search(confirm.most_s(self.history))
            or not self.another_pays
            or self.has_plateaued
        )

    @property
    def has_plateaued(self) -> bool:
        """True if trials are left out because the settings tried since the best ones were no better."""
        left = self._allowance.trials_left(len(self.history.searched))
        return left > 0 and confirm.has_plateaued(self.history, self._first)

    @property
    def another_pays(self) -> bool:
        """True if another trial may save more time in later trainings than it costs."""
        return next_trial_pays(self.history)

    @property
    def kept_time(self) -> bool:
        """True, after a search, if planned trials were left out to keep time for confirming the winner."""
        has_ended = self.stopping or self.is_exhausted or self.has_plateaued or not self.another_pays
        return not has_ended and self._allowance.trials_left(len(self.history.searched)) > 0

    def is_over(self) -> bool:
        """Returns True if running trials should be stopped too."""
        if not self._environment.is_in_place():
            self.stop("the session is gone")
        if not self._allowance.has_time_for(0.0):
            self.stop(TIME_UP)
        return self.stopping is not None

    def say(self, text: str | None, *, once: str = "") -> None:
        """Passes a text, if any, to the listener; texts with the same key `once` only the first time."""
        if text and once not in self._said:
            self._said |= {once} - {""}
            self._listener.note(text)

    def stop(self, reason: str, *, interrupted: bool = False) -> None:
        """Starts no further trial, for `reason`; the first reason is kept. `interrupted`: by the user."""
        self.is_interrupted |= interrupted and self.stopping is None
        self.stopping = self.stopping or reason

    def break_off(self, fault: str) -> None:
        """Starts no further trial, because of a fault of the machine that must be fixed before resuming."""
        self.fault = fault
        self.stop(fault)

    def next(self) -> Trial | None:
        """Returns the next trial to run, interrupted ones first; None if there is none until one ends."""
        if self.is_over() or self._running.is_closed:
            return None
        if self._waiting and self._waiting[0].runs_alone and self._running:
            return None
        trial = self._waiting.popleft() if self._waiting else self._next_proposed()
        if trial is not None:
            if note := self._environment.clear(trial):
                self._listener.note(note)
            newly = self._running.begin(trial)
            for number in newly:
                studies.mark_shared(self._study, number)
            if newly:
                self._publish(self.threshold)
            self._listener.started(trial)
        return trial

    def _next_proposed(self) -> Trial | None:
        if self._without_proposal is self.history:
            return None
        proposal, running = self._next_to_search(), self._running.trials()
        if proposal is None and all(trial.kind is TrialKind.SEED for trial in running):
            proposal = self._next_to_finish()
            if running and proposal and not proposal.repeat:  # only repeats run side by side
                proposal = None
        if proposal is None:  # until another trial begins or ends: to ask takes long in an exhausted space
            self._without_proposal = self.history
            return None
        trial = studies.begin(
            self._study,
            self._asked,
            proposal.config,
            proposal.repeat,
            passed=proposal.passed,
            ablation_of=proposal.ablation_of,
            race=proposal.race,
        )
        self.history = self.history.after(trial)
        self._suggestions.started(trial)
        return trial

    def _next_to_search(self) -> Proposal | None:
        """Returns what the search itself runs next, possibly beside other trials."""
        history, baseline = self.history, self.space.baseline_config
        if not history.trials:
            return Proposal(baseline)
        if (shorter := replanning.pilot(history)) is not None:
            return Proposal(shorter)
        if not history.repeats_of(0) and pilot.is_wanted(self._asked) and pilot.is_due(self.asked):
            return Proposal(baseline, confirm.noise_repeat())
        if self._is_searched():
            return None
        if (again := confirm.baseline_repeat(history)) is not None:
            return again
        # The best settings at the length that they need, to know better how long that is.
        is_due = confirm.trials_without_gain(history) >= _OTHERS_FIRST
        if is_due and (longer := replanning.next_config(history)) is not None:
            return Proposal(longer)
        return self._suggestions.next(history, self.threshold, self._allowance.share(history))

    def _next_to_finish(self) -> Proposal | None:
        """Returns what runs once no other configuration is running, or proposed by `_next_to_search`."""
        if (longer := replanning.next_config(self.history)) is not None:
            return Proposal(longer)
        # Nothing was proposed, although trials and time are left.
        self.is_exhausted = self.is_exhausted or not self._is_searched()
        if (step := confirm.next_step(self.history)) is not None:
            return step
        explains = self._options.explain and self._allowance.has_time_for(self.history.trial_s)
        return ablation.next_step(self.history) if explains else None

    def progress(self, report: TrialReport) -> None:
        """Takes in a running trial's latest figures, and its end if the report has an outcome."""
        trial, outcome = self._running.get(report.number), report.outcome
        if trial is None:
            return
        self._reports[trial.number] = report
        self.say(report.note, once="note")
        self._listener.progress(trial, report)
        if outcome is None:
            return
        if outcome.failure is Failure.LOST:
            self.lose(trial.number, outcome.reason)
        elif outcome.status is not Status.INTERRUPTED:
            self.end(trial.number, outcome, report.measurement)
        else:
            self._running.take(trial.number)
            self._waiting.append(trial)
            self._listener.ended(replace(trial, outcome=outcome))
            if self.stopping is None:  # not asked to stop: the same fault would interrupt the next one, too
                self.break_off(outcome.reason)

    def end(self, number: int, outcome: Outcome, measurement: Measurement) -> None:
        """Ends a trial; a second call changes nothing."""
        ended = self._running.end(number, outcome, measurement)
        if ended is None:
            return
        if (last := self._reports.get(number)) is not None:  # it knows of attempts before a resume
            ended = replace(ended, seconds=max(ended.seconds, last.elapsed_s))
        self._record(ended)
        self._suggestions.ended(ended, self.history)
        if ended.original == 0 or not self._has_settled:  # only runs of the baseline change it
            asked = self.asked
            settled = pilot.settled(asked)
            if settled.space != self.space:
                self.history = settled
                self._suggestions.relearn(settled)
            self.say(pilot.describe(asked), once="pilot")
            self._has_settled = True
        self.say(schedules.describe(self.history), once="schedule")
        bar, before = stopping.threshold(self.history), self.threshold.rivals
        # A trial that did not hold is no bar any more for those that were not worth trying beside it.
        self.is_exhausted &= [one.number for one in bar.rivals] == [one.number for one in before]
        self._publish(bar)
        self._listener.ended(ended)
        self._require_baseline()

    def _publish(self, threshold: Threshold) -> None:
        """Tells running trials what to reach, and which of them share the machine."""
        self.threshold = replace(threshold, shared=self._running.shared)
        self._environment.publish(self.threshold)

    def _record(self, trial: Trial) -> None:
        studies.end(self._study, trial, self.space.limits.memory_fraction)
        self.history = self.history.after(trial)
        studies.set_plan(self._study, self._allowance.plan())
        self._environment.settle()

    def lose(self, number: int, reason: str, *, out_of_memory: bool = False) -> None:
        """Handles the death of a trial or its supervisor: the trial runs again, or is given up.

        It is given up if the machine ran out of memory, and after three kills without an evaluation between.
        """
        samples = self._reports[number].measurement.quality_samples if number in self._reports else 0
        before, kills = self._kills.get(number, (0, 0))
        kills = 1 if samples > before else kills + 1
        self._kills[number] = samples, kills
        if out_of_memory:
            outcome = Outcome(Status.FAILED, Failure.OOM, reason, Shortage.MACHINE)
        elif kills >= _MOST_KILLS:
            outcome = Outcome(Status.FAILED, Failure.LOST, f"{reason}; {kills} times in a row")
        else:
            self.put_back(number, reason)
            return
        self.end(number, *(self._verdict_of(number) or (outcome, Measurement())))

    def put_back(self, number: int, reason: str) -> None:
        """Requeues an interrupted trial to resume from its checkpoint, unless it has written its verdict."""
        if (verdict := self._verdict_of(number)) is not None:
            self.end(number, *verdict)
        elif (trial := self._running.take(number)) is not None:
            self._waiting.append(trial)
            self._listener.ended(replace(trial, outcome=failures.lost_attempt(reason)))

    def _verdict_of(self, number: int) -> Verdict | None:
        trial = self._running.get(number)
        return self._environment.verdict_of(trial) if trial else None

    def last_report(self, number: int) -> TrialReport | None:
        """Returns the last report of a trial, None if it has not reported in this run."""
        return self._reports.get(number)
