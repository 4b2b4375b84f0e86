"""One search, whoever executes its trials: what runs next, what came out, when it is over."""

import math
import random
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Protocol

import optuna

from autotune import ablation, confirm, failures, heuristics, objective, pilot, stopping
from autotune import sampler as samplers
from autotune import study as record
from autotune.losses import Losses
from autotune.reported import Report
from autotune.sampler import Sampler
from autotune.screening import Screening
from autotune.settings import Config
from autotune.space import Space
from autotune.stopping import Threshold
from autotune.study import Plan
from autotune.trial import Failure, Measurement, Outcome, PassedOver, Repeat, Status, Trial

Verdict = tuple[Outcome, Measurement]

_BEST_BEFORE = 2  # configurations of an earlier session that are tried first
_MOST_FOR_CONFIRMING = 0.5  # of a time limit


class Listener(Protocol):
    """Who is told what happens: the terminal."""

    def note(self, text: str) -> None: ...
    def started(self, trial: Trial) -> None: ...
    def progress(self, trial: Trial, report: Report) -> None: ...
    def ended(self, trial: Trial) -> None: ...


class Silent:
    """Listens to a search and says nothing."""

    def note(self, text: str) -> None: ...
    def started(self, trial: Trial) -> None: ...
    def progress(self, trial: Trial, report: Report) -> None: ...
    def ended(self, trial: Trial) -> None: ...


class Search:
    """The bookkeeping of a search. Every change is in the study before anybody else hears of it.

    `verdict_of` gives the verdict that a trial has written itself, `publish` puts the threshold where running
    trials read it. `memory_limit_bytes` is what a trial may take, None for no limit that is known. `earlier`
    trials, of another session, are known to the sampler and to the memory model, and to nobody else. To
    `explain` a confirmed winner, what lies between the baseline and it is measured in the end, as far as time
    allows.
    """

    def __init__(
        self,
        space: Space,
        study: optuna.Study,
        listener: Listener,
        *,
        seed: int = 0,
        memory_limit_bytes: int | None = None,
        earlier: Sequence[Trial] = (),
        explain: bool = True,
        verdict_of: Callable[[int], Verdict | None] = lambda _: None,
        publish: Callable[[Threshold], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.space = self.asked = space
        self.stopping: str | None = None  # why no further trial is started
        self.fault: str | None = None  # of the machine, and not of a trial: mend it before going on
        self._listener, self._study = listener, study
        self._verdict_of, self._publish, self._clock = verdict_of, publish, clock
        self._memory_limit_bytes, self._earlier, self._explain = memory_limit_bytes, earlier, explain
        self._plan = record.plan(study) or Plan(space.budget.trials, space.budget.time)
        self._begun = clock()
        self._started_at: dict[int, float] = {}
        self._running: dict[int, Trial] = {}
        self._shared: set[int] = set()
        self._reports: dict[int, Report] = {}
        self._losses = Losses()
        self._is_exhausted = self._has_said = self.is_interrupted = False
        self._turn, self._rng = 0, random.Random(seed)
        known = len(study.get_trials(deepcopy=False))
        self._seed = seed + known  # the same seed would suggest the same again
        self._trials: dict[int, Trial] = {}
        self._waiting = deque(self._recover())
        self._trials = {t.number: t for t in record.trials(study)}
        self.space = pilot.settled(space, self.trials())
        self._sampler = self._informed()
        ranked = objective.ranked(earlier, self.space.objective, space.limits.memory_fraction, space.known)
        self._best_before = [t.config for t in ranked if self.space.contains(t.config)][:_BEST_BEFORE]
        self.threshold = stopping.threshold(self.trials(), self.space)
        publish(self.threshold)

    def _recover(self) -> list[Trial]:
        """The trials that a killed process was running, but for those whose verdict was already written."""
        interrupted = []
        for trial in record.recover(self._study, self.space.limits.memory_fraction):
            verdict = self._verdict_of(trial.number)
            if verdict is None:
                interrupted.append(trial)
                self._shared |= {trial.number} if trial.measurement.shared else set()
            else:
                measurement = replace(verdict[1], shared=trial.measurement.shared)
                self._record(replace(trial, outcome=verdict[0], measurement=measurement))
        return interrupted

    def _informed(self) -> Sampler:
        """A sampler of the space as it is settled, which knows what was found so far, and before."""
        sampler, trials = Sampler(self.space, self._seed), self.trials()
        sampler.learn(self._earlier)
        for trial in (t for t in trials if not t.race):
            sampler.started(trial)
            if trial.outcome is not None:
                sampler.ended(trial, samplers.told(trial, trials, self.space))
        return sampler

    def _settle(self) -> None:
        """Takes in what the pilot has found, once it is done."""
        settled = pilot.settled(self.asked, self.trials())
        if settled != self.space:
            self.space = settled
            self._sampler = self._informed()
        if (said := pilot.said(self.trials(), self.asked)) and not self._has_said:
            self._has_said = True
            self._listener.note(said)

    def trials(self) -> list[Trial]:
        """Every trial so far, running ones, repeats and ablation steps included."""
        return list(self._trials.values())

    @property
    def remaining(self) -> int:
        """Trials that are still to end, as far as that is known."""
        if self._running or self._waiting or not self._is_searched():
            left = 0 if self._is_searched() else self._plan.trials - self._searched()
            return left + len(self._running) + len(self._waiting)
        return int(confirm.next_step(self.trials(), self.space) is not None or self._explained() is not None)

    def _searched(self) -> int:
        return sum(t.searched for t in self.trials())

    def _is_searched(self) -> bool:
        """Whether no further configuration is to be tried; the winner may still have to be confirmed."""
        return (
            self._is_exhausted
            or self._searched() >= self._plan.trials
            or (self._plan.time_s is not None and self._spent_s() + self._confirming_s() > self._plan.time_s)
        )

    def _confirming_s(self) -> float:
        """The time to keep for confirming, half of all at most: what was not searched for need not be
        confirmed.
        """
        most_s = (self._plan.time_s or math.inf) * _MOST_FOR_CONFIRMING
        return min(confirm.most_s(self.trials(), self.space), most_s)

    def is_over(self) -> bool:
        """Whether running trials, too, are to be stopped."""
        if self._plan.time_s is not None and self._spent_s() > self._plan.time_s:
            self.stop("the time is up")
        return self.stopping is not None

    def _spent_s(self) -> float:
        return self._plan.spent_s + self._clock() - self._begun

    def stop(self, reason: str, *, interrupted: bool = False) -> None:
        """Starts nothing more, for `reason`, or because it is `interrupted`. The first reason stays."""
        self.is_interrupted |= interrupted and self.stopping is None
        self.stopping = self.stopping or reason

    @property
    def kept_time(self) -> bool:
        """Whether trials were left out, so that there was time to confirm the winner."""
        return not self._is_exhausted and not self.stopping and self._searched() < self._plan.trials

    @property
    def is_exhausted(self) -> bool:
        """Whether every configuration was tried, or is known not to be worth it."""
        return self._is_exhausted

    def next(self) -> Trial | None:
        """The next trial to run, None when there is none now: ask again when one has ended.

        Interrupted ones first, then the baseline, then suggestions, then what confirms the winner, then what
        explains it.
        """
        if self.is_over() or any(confirm.is_alone(t) for t in self._running.values()):
            return None
        trial = self._next_waiting() if self._waiting else self._begin_next()
        if trial is not None:
            self._running[trial.number] = trial
            self._started_at[trial.number] = self._clock()
            if len(self._running) > 1:
                for number in self._running.keys() - self._shared:
                    record.share(self._study, number)
                self._shared |= self._running.keys()
            self._listener.started(trial)
        return trial

    def _next_waiting(self) -> Trial | None:
        if confirm.is_alone(self._waiting[0]) and self._running:
            return None
        return self._waiting.popleft()

    def _begin_next(self) -> Trial | None:
        trials = self.trials()
        if not trials:
            return self._begin(self.space.baseline_config)
        if self._needs_noise(trials):
            return self._begin(self.space.baseline_config, confirm.noise_repeat())
        if not self._is_searched():
            screen = Screening(self.space, trials, self.threshold, self._memory_limit_bytes, self._earlier)
            config, passed = self._sampler.suggest(screen, self._heuristics(trials))
            if config is not None:
                return self._begin(config, passed=passed)
        if self._running:
            return None  # what it finds may open other configurations, or change who is to be confirmed
        self._is_exhausted = self._is_exhausted or not self._is_searched()
        return self._begin_confirming(trials)

    def _begin_confirming(self, trials: Sequence[Trial]) -> Trial | None:
        """What a claim still needs, and then what explains it."""
        step = confirm.next_step(trials, self.space)
        if isinstance(step, confirm.Race):
            return self._begin(self._trials[step.members[0]].config, race=step.members)
        if step is not None:
            return self._begin(self._trials[step.of].config, step)
        if (explained := self._explained()) is not None:
            config, winner = explained
            return self._begin(config, ablation_of=winner)
        return None

    def _explained(self) -> tuple[Config, int] | None:
        """What is to be measured next to explain the winner, and its number; None where time is short."""
        if not self._explain or self._spent_s() + confirm.trial_s(self.trials()) > (
            self._plan.time_s or math.inf
        ):
            return None
        return ablation.next_step(self.trials(), self.space)

    def _needs_noise(self, trials: Sequence[Trial]) -> bool:
        """Whether the pilot lacks its second run of the baseline."""
        is_first = objective.baseline_of(trials) is not None and not any(t.repeat for t in trials)
        return is_first and pilot.is_wanted(self.asked)

    def _heuristics(self, trials: Sequence[Trial]) -> Iterator[Config]:
        """What to try before the sampler is asked, which has every other turn to itself."""
        space = self.space
        best = objective.winner(trials, space.objective, space.limits.memory_fraction, space.known)
        self._turn += 1
        if best is None:
            return
        yield from self._best_before
        yield from heuristics.larger_batches(best, trials, space)
        if self._turn % 2 == 0:
            yield from heuristics.steps_from(best, space, self._rng)

    def _begin(
        self,
        config: Config,
        repeat: Repeat | None = None,
        *,
        passed: Sequence[PassedOver] = (),
        ablation_of: int | None = None,
        race: Sequence[int] = (),
    ) -> Trial:
        trial = record.begin(
            self._study, self.asked, config, repeat, passed=passed, ablation_of=ablation_of, race=race
        )
        self._trials[trial.number] = trial
        if not race:  # which is of many configurations
            self._sampler.started(trial)
        return trial

    def progress(self, report: Report) -> None:
        """A running trial's latest figures; its end, when the report has an outcome."""
        trial, outcome = self._running.get(report.number), report.outcome
        if trial is None:
            return
        self._reports[trial.number] = report
        self._listener.progress(trial, report)
        if outcome is None:
            return
        if outcome.failure is Failure.LOST:
            self.lose(trial.number, outcome.reason)
        elif outcome.status is Status.INTERRUPTED:
            self._interrupt(trial, outcome)
        else:
            self.end(trial.number, outcome, report.measurement)

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
        ended = replace(
            trial,
            outcome=outcome,
            measurement=replace(measurement, shared=number in self._shared),
            seconds=self._clock() - self._started_at.pop(number),
        )
        self._record(ended)
        trials = self.trials()
        if not ended.race:
            self._sampler.ended(ended, samplers.told(ended, trials, self.space))
        self._settle()
        self.threshold = stopping.threshold(trials, self.space)
        self._publish(self.threshold)
        self._listener.ended(ended)
        if number == 0 and not ended.completed:
            self.stop(f"the baseline itself {outcome.status}: {outcome.reason}")

    def _record(self, trial: Trial) -> None:
        record.end(self._study, trial, self.space.limits.memory_fraction)
        self._trials[trial.number] = trial
        record.set_plan(self._study, replace(self._plan, spent_s=self._spent_s()))

    def lose(self, number: int, reason: str, *, out_of_memory: bool = False) -> None:
        """Something has killed a trial, or its supervisor, without a word. It runs again, or is given up."""
        come_to = self._reports[number].measurement.quality_samples if number in self._reports else 0
        outcome = self._losses.add(number, come_to, reason, out_of_memory=out_of_memory)
        if outcome is None:
            self.put_back(number, reason)
        else:
            self.end(number, *(self._verdict_of(number) or (outcome, Measurement())))

    def put_back(self, number: int, reason: str) -> None:
        """A trial was broken off. A verdict that was written counts; else it goes on from its checkpoint."""
        if (verdict := self._verdict_of(number)) is not None:
            self.end(number, *verdict)
        elif (trial := self._running.pop(number, None)) is not None:
            self._waiting.append(trial)
            self._listener.ended(replace(trial, outcome=failures.lost(reason)))

    def running(self) -> Sequence[Trial]:
        return list(self._running.values())

    def host_memory_bytes(self, number: int) -> float:
        """What a running trial was last seen to hold of the host's memory."""
        return self._reports[number].telemetry.get("host_rss_bytes", 0.0) if number in self._reports else 0.0
