"""Replays a whole search over recorded runs in simulated time: the real search's code on a simulated machine.

A trial's step times come from a recorded run of the same settings, from a random position on, and its quality
from a recorded run with a seed of its own. If the table has a drift, runs of equal settings are equally fast
except for the drift, which continues from trial to trial.
"""

import bisect
import heapq
import itertools
import math
import random
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import optuna

from autotune.core.measurement import Measurement, Slice
from autotune.core.record_names import RATE, STANDS_FOR
from autotune.core.settings import LEARNING_RATE, Config, Key, settings_key
from autotune.core.trial import Outcome, Status, Trial, TrialKind
from autotune.judging.decisions import confirm, objective, racing, stopping
from autotune.judging.measurement import curves
from autotune.searcher.ports import Environment, Listener, SearchOptions
from autotune.searcher.search import Search
from autotune.trials.progress import Progress
from autotune.trials.setup import TIMES_TO_TARGET
from lab.replay.table import Point, Run, Table

_RECORDS = 1000  # of a trial: longer ones have longer records
_ASKED_EVERY_S = 1.0  # interval at which a running trial is compared with the threshold: that of its reports


@dataclass(frozen=True)
class Simulated:
    """A simulated trial: outcome, measurement, and duration in seconds."""

    outcome: Outcome
    measurement: Measurement
    seconds: float


@dataclass(frozen=True)
class Moment:
    """The state of a search after a trial: simulated seconds, trials begun, the recommendation."""

    seconds: float
    trials: int
    best: Config | None


@dataclass(frozen=True)
class Result:
    """A replayed search: its recommendations over time, its trials, and its final claim."""

    moments: tuple[Moment, ...]
    trials: tuple[Trial, ...]
    winner: Config
    claims_gain: bool
    seconds: float


# A simulation that yields seconds, is sent thresholds, and returns how the trial ends.
Running = Generator[float, stopping.Threshold | None, Simulated]

# When it comes, of which trial, when that began, and its simulation; with the end, if this is it.
Event = tuple[float, int, float, Running, Simulated | None]


def _advance(running: Running, threshold: stopping.Threshold | None) -> float | Simulated:
    """Returns the seconds at which a trial asks for the threshold again, or how it ends."""
    try:
        return running.send(threshold)
    except StopIteration as end:
        simulated: Simulated = end.value
        return simulated


class _Steps:
    """A run's steps, each as samples and seconds, repeated endlessly from step `begin` on."""

    def __init__(self, steps: Sequence[tuple[int, float]], scale: float, begin: int) -> None:
        ordered = [*steps[begin:], *steps[:begin]]
        self._samples = [0, *itertools.accumulate(samples for samples, _ in ordered)]
        self._seconds = [0.0, *itertools.accumulate(seconds * scale for _, seconds in ordered)]
        self._taken = 0

    def take(self, samples: int) -> tuple[int, int, float]:
        """Takes the next step, and more up to `samples`; returns their number, samples and seconds."""
        length, before = len(self._samples) - 1, self._taken
        times, rest = divmod(int(self._sum(self._samples, before)) + samples, self._samples[-1])
        self._taken = max(before + 1, times * length + bisect.bisect_left(self._samples, rest))
        more_samples, more_s = (
            self._sum(sums, self._taken) - self._sum(sums, before) for sums in (self._samples, self._seconds)
        )
        return self._taken - before, int(more_samples), more_s

    @staticmethod
    def _sum(sums: Sequence[float], steps: int) -> float:
        """Returns the sum over the first `steps` steps, given the sums over one cycle."""
        times, rest = divmod(steps, len(sums) - 1)
        return times * sums[-1] + sums[rest]


class Machine:
    """Runs trials from a table. `seed` determines which recorded run is used for which trial."""

    def __init__(self, table: Table, seed: int, *, everything_is: Config | None = None) -> None:
        """With `everything_is`, runs every configuration as that one: a comparison of equals (A/A)."""
        self._table, self._rng = table, random.Random(seed)
        self._everything_is = everything_is
        self._left: dict[Key, list[Run]] = {}
        self._offset_s = self._rng.random() * table.drift.length_s if table.drift else 0.0

    def run(
        self,
        trial: Trial,
        threshold: stopping.Threshold | None,
        *,
        members: Sequence[Trial] = (),
        at_s: float = 0.0,
        target: float | None = None,
        until_timed: bool = False,
    ) -> Simulated:
        """Simulates `trial` from `at_s` to its end, to a `target`, or until `threshold` stops it.

        `members` are the trials that a race refers to. Raises KeyError for settings that were not recorded.
        """
        running = self.start(trial, members=members, at_s=at_s, target=target, until_timed=until_timed)
        end = _advance(running, None)
        while isinstance(end, float):
            end = _advance(running, threshold)
        return end

    def start(
        self,
        trial: Trial,
        *,
        members: Sequence[Trial] = (),
        at_s: float = 0.0,
        target: float | None = None,
        until_timed: bool = False,
    ) -> Running:
        """Simulates `trial` as `run` does; yields the seconds so far whenever it asks for the threshold."""
        if trial.kind is TrialKind.RACE:
            return self.race(members, at_s)
        space = self._table.space
        config = self._config(trial)
        run, known = self._rng.choice(self._timed(config)), self._table.qualities(config)
        if run.outcome.status is not Status.COMPLETED:
            measurement = Measurement(memory_limit_bytes=run.memory_limit_bytes)
            return Simulated(run.outcome, measurement, self._takes(run.start_s + sum(run.step_s), at_s))
        if not known:
            raise KeyError(f"no quality of {dict(config)}")
        curve = self._next_seed(config, known)
        progress = Progress(space.metric_of(config), space.settings(config))
        asked_s, seconds, samples = 0.0, 0.0, space.samples(config)
        times = 1 if target is None else TIMES_TO_TARGET
        for record in self._records(run, curve, at_s, times * samples):
            progress.count(record)
            seconds = record["at_s"] - at_s
            if seconds - asked_s >= _ASKED_EVERY_S:
                asked_s = seconds
                if threshold := (yield seconds):
                    shown = replace(progress.measurement(), shared=trial.number in threshold.shared)
                    if beaten := stopping.verdict(shown, threshold, samples, trial.config):
                        return Simulated(beaten, self._shown(progress, run), seconds)
            if target is not None and curves.samples_to_reach(progress.curve, target) is not None:
                break
            if until_timed and progress.has_known_speed():
                break
        return Simulated(Outcome(Status.COMPLETED), self._shown(progress, run), seconds)

    def race(self, members: Sequence[Trial], at_s: float) -> Simulated:
        """Simulates a race of the settings of `members` from `at_s` on, each compared with the first.

        All are launched and take turns, again and again until `racing` has enough data.
        """
        runs = {member.number: self._fit(self._config(member)) for member in members}
        steps = {number: self._steps(run) for number, run in runs.items()}
        slices: list[Slice] = []
        race = racing.Trainings(slices, {m.number: self._table.space.samples(m.config) for m in members})
        now_s, end_s = at_s, at_s + racing.most_s(member.seconds for member in members)
        rounds = itertools.count(1)
        for launch in itertools.count(1):
            if now_s >= end_s or not (order := race.next_round()):
                break
            begun_s = now_s
            for number in order:
                now_s += self._takes(runs[number].start_s, now_s)
            started_s, seconds = now_s, racing.turn_s(now_s - begun_s, len(order), end_s - at_s)
            for count in itertools.count(1):
                turn = next(rounds)
                for number in order:
                    slices.append(self._turn(number, turn, launch, steps[number], now_s, least_s=seconds))
                    now_s += slices[-1].seconds
                is_enough = racing.is_enough_of_a_launch(count, now_s - started_s, started_s - begun_s)
                if is_enough or now_s >= end_s or not (order := race.next_round()):
                    break
        return Simulated(Outcome(Status.COMPLETED), Measurement(slices=tuple(slices)), now_s - at_s)

    def _turn(
        self, number: int, turn: int, launch: int, steps: _Steps, at_s: float, *, least_s: float
    ) -> Slice:
        samples, seconds, done = 0, 0.0, 0
        while seconds < least_s:
            taken, more, work_s = steps.take(1)
            samples, done = samples + more, done + taken
            seconds += self._takes(work_s, at_s + seconds)
        return Slice(number, turn, samples, seconds, done, launch=launch)

    def _next_seed(self, config: Config, known: Sequence[Run]) -> Run:
        """Draws one of the recorded seeds of `config`, without replacement while some are left.

        No two trials of a search share a seed: identical runs would look like a lack of noise.
        """
        key = settings_key(config, self._table.space.known.same_quality)
        if not self._left.get(key):
            self._left[key] = self._rng.sample(known, len(known))
        return self._left[key].pop()

    def _config(self, trial: Trial) -> Config:
        return self._everything_is or trial.config

    def _timed(self, config: Config) -> list[Run]:
        timed = self._table.timed(config)
        if not timed:
            raise KeyError(f"no timed run of {dict(config)}")
        return timed

    def _fit(self, config: Config) -> Run:
        """Draws a recorded run of `config` that completed: a failed one cannot be in a race."""
        fit = [run for run in self._timed(config) if run.outcome.status is Status.COMPLETED]
        if not fit:
            raise KeyError(f"no completed run of {dict(config)}")
        return self._rng.choice(fit)

    def _steps(self, run: Run) -> _Steps:
        """Returns the steps of `run`, repeated endlessly from a random one on.

        With a drift, steps have the mean speed of all runs of the same settings and come in random order: the
        drift during the recording must not look like a difference between the members of a race.
        """
        scale = 1.0
        if self._table.drift is not None:
            fit = [one for one in self._table.timed(run.config) if one.outcome.status is Status.COMPLETED]
            scale = _per_s([run]) / _per_s(fit)
        steps = list(zip(run.step_samples, run.step_s, strict=True))
        if self._table.drift is not None:
            self._rng.shuffle(steps)
        return _Steps(steps, scale, self._rng.randrange(len(steps)))

    def _takes(self, work_s: float, at_s: float) -> float:
        drift = self._table.drift
        return drift.seconds(work_s, self._offset_s + at_s) if drift else work_s

    @staticmethod
    def _shown(progress: Progress, run: Run) -> Measurement:
        return replace(
            progress.measurement(),
            peak_memory_bytes=run.peak_memory_bytes,
            peak_reserved_bytes=run.peak_reserved_bytes,
            memory_limit_bytes=run.memory_limit_bytes,
        )

    def _records(self, run: Run, curve: Run, at_s: float, whole: int) -> Iterator[Mapping[str, Any]]:
        """Yields the records of a trial of `whole` samples, with their times, if started at `at_s`.

        Steps are merged: a trial of hours costs no more than one of minutes.
        """
        space = self._table.space
        every = math.ceil(space.samples(run.config) / _RECORDS)
        steps = self._steps(run)
        samples = space.effective_batch_size(run.config)
        at_s += self._takes(run.start_s, at_s)
        yield {"samples": samples, "at_s": at_s, RATE: run.config[LEARNING_RATE]}  # constant
        for point, pause in zip(curve.evaluations, itertools.cycle(run.evaluations), strict=False):
            while samples < point.samples:
                count, more, work_s = steps.take(min(every, point.samples - samples))
                samples, at_s = samples + more, at_s + self._takes(work_s, at_s)
                yield {"samples": samples, "at_s": at_s, STANDS_FOR: count}
            at_s += self._takes(pause.seconds, at_s)
            yield {"samples": samples, "at_s": at_s} | _scores(point, space.objective.quality)
            if samples >= whole:  # the recorded run may go on
                return


def _scores(point: Point, quality: str) -> dict[str, Any]:
    """Returns the recorded fields of an evaluation, besides the samples."""
    known = {"val_loss": point.loss, f"{quality}_chance": point.chance}
    return {quality: point.quality, "collapsed": point.collapsed} | {
        name: value for name, value in known.items() if value is not None
    }


def _per_s(runs: Sequence[Run]) -> float:
    return sum(sum(run.step_samples) for run in runs) / sum(sum(run.step_s) for run in runs)


def search(
    table: Table,
    seed: int,
    trials: int,
    *,
    everything_is: Config | None = None,
    earlier: Sequence[Trial] = (),
    worth_s: float | None = None,
    slots: int = 1,
) -> Result:
    """Runs this project's search over `table`: the real sampler, stopping and confirmation.

    `earlier` holds the trials of another session to warm-start from; `worth_s` sets the budget's `worth`.
    Trials in different `slots` do not slow each other down.
    """
    space = table.space.revised(budget={"trials": trials, "worth": worth_s})
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(directions=["maximize", "maximize"])
    machine, clock = Machine(table, seed, everything_is=everything_is), _Clock()
    search = Search(
        space,
        study,
        Listener(),
        SearchOptions(
            seed=seed,
            memory_limit_bytes=memory_limit(table),
            earlier=[t for t in earlier if t.kind is TrialKind.SEARCHED],
            explain=False,  # the measured time ends when a winner is confirmed
        ),
        Environment(clock=clock.now),
    )
    moments: list[Moment] = []
    events: list[Event] = []
    running = 0
    while True:
        while running < slots and (trial := search.next()) is not None:
            running += 1
            _schedule(
                events, trial.number, clock.seconds, _started(machine, search, trial, clock.seconds), None
            )
        if not events:
            break
        clock.seconds, number, begun_s, simulation, simulated = heapq.heappop(events)
        trial = search.history.trial(number)
        if simulated is None:
            is_searched = number > 0 and trial.kind is TrialKind.SEARCHED
            _schedule(events, number, begun_s, simulation, search.threshold if is_searched else None)
            continue
        running -= 1
        search.end(number, simulated.outcome, simulated.measurement)
        if trial.kind in (TrialKind.SEARCHED, TrialKind.PILOT):
            best = search.history.best
            moments.append(Moment(clock.seconds, len(search.history.trials), best.config if best else None))
    found = confirm.confirmed(search.history)
    winner = found[0].config if found else space.baseline_config
    return Result(tuple(moments), tuple(search.history.trials), winner, found is not None, clock.seconds)


def _started(machine: Machine, search: Search, trial: Trial, at_s: float) -> Running:
    is_pilot = trial.number == 0 or trial.kind is TrialKind.PILOT
    return machine.start(
        trial,
        members=[search.history.trial(number) for number in trial.race],
        at_s=at_s,
        target=None if is_pilot else search.space.objective.aim,
        until_timed=objective.ends_once_timed(trial, search.space.objective),
    )


def _schedule(
    events: list[Event], number: int, begun_s: float, running: Running, threshold: stopping.Threshold | None
) -> None:
    """Adds the next event of a trial to the heap of `events`: when it asks for the threshold, or ends."""
    came = _advance(running, threshold)
    simulated = came if isinstance(came, Simulated) else None
    seconds = came.seconds if isinstance(came, Simulated) else came
    heapq.heappush(events, (begun_s + seconds, number, begun_s, running, simulated))


def memory_limit(table: Table) -> int | None:
    """Returns the memory limit of a run of `table`, or the machine's memory if there was none."""
    limits = [run.memory_limit_bytes for run in table.timed(table.space.baseline_config)]
    return next((limit for limit in limits if limit), table.header.provenance.get("host_memory_bytes"))


class _Clock:
    """Simulated time in seconds."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> float:
        return self.seconds
