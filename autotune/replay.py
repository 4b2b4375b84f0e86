"""A whole search over recorded runs, in simulated time: the search's own code, with a table for a machine.

What is simulated is the machine alone. A trial's step times are those of a recorded run of the same settings,
taken from a random place on, its quality that of a recorded run with a seed of its own.
"""

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import optuna

from autotune import confirm, objective, stopping
from autotune.progress import Progress
from autotune.search import Search, Silent
from autotune.space import Space
from autotune.table import Run, Table
from autotune.trial import Config, Measurement, Outcome, Status, Trial

_ASKED_EVERY_S = 1.0  # how often a running trial is held against the bar: as often as it reports


@dataclass(frozen=True)
class Simulated:
    """How a trial went: its outcome, what it showed, and the seconds that it took."""

    outcome: Outcome
    measurement: Measurement
    seconds: float


@dataclass(frozen=True)
class Moment:
    """Where a search stood when a trial had ended: simulated seconds, trials begun, the recommendation."""

    seconds: float
    trials: int
    best: Config | None


@dataclass(frozen=True)
class Result:
    """A replayed search: how its recommendation developed, its trials, what it claims in the end."""

    moments: tuple[Moment, ...]
    trials: tuple[Trial, ...]
    winner: Config
    claims_gain: bool
    seconds: float


class Machine:
    """Runs trials out of a table. `seed` decides which recorded run stands for which trial's."""

    def __init__(self, table: Table, seed: int, *, everything_is: Config | None = None) -> None:
        """With `everything_is`, every configuration runs as that one does: an A/A search."""
        self._table, self._rng = table, random.Random(seed)
        self._everything_is = everything_is

    def run(self, trial: Trial, bar: stopping.Bar | None) -> Simulated:
        """`trial` from its start to its end, or to where `bar` stops it; raises KeyError if not recorded."""
        space = self._table.space
        config = self._everything_is or trial.config
        timed, curves = self._table.timed(config), self._table.qualities(config)
        if not timed:
            raise KeyError(f"no timed run of {dict(config)}")
        run = self._rng.choice(timed)
        if run.outcome.status is not Status.COMPLETED:
            shown = Measurement(memory_limit_bytes=run.memory_limit_bytes)
            return Simulated(run.outcome, shown, run.start_s + sum(run.step_s))
        if not curves:
            raise KeyError(f"no quality of {dict(config)}")
        curve = self._rng.choice(curves)
        progress, asked_s, at_s = Progress(space.objective.quality, space.settings(config)), 0.0, 0.0
        for record in self._records(run, curve, space):
            progress.count(record)
            at_s = record["at_s"]
            if bar is not None and at_s - asked_s >= _ASKED_EVERY_S:
                asked_s = at_s
                if reason := stopping.why_stop(progress.measurement(), bar):
                    return Simulated(Outcome(Status.STOPPED, reason=reason), self._shown(progress, run), at_s)
            target = space.objective.target
            if target is not None and progress.quality is not None and progress.quality >= target:
                break
        return Simulated(Outcome(Status.COMPLETED), self._shown(progress, run), at_s)

    @staticmethod
    def _shown(progress: Progress, run: Run) -> Measurement:
        return replace(
            progress.measurement(),
            peak_memory_bytes=run.peak_memory_bytes,
            peak_allocated_bytes=run.peak_allocated_bytes,
            memory_limit_bytes=run.memory_limit_bytes,
        )

    def _records(self, run: Run, curve: Run, space: Space) -> Iterator[Mapping[str, Any]]:
        """What the workload would yield, and when."""
        steps = list(zip(run.step_samples, run.step_s, strict=True))
        place = self._rng.randrange(len(steps))
        endless = itertools.islice(itertools.cycle(steps), place, None)
        pauses = [seconds for _, seconds, _ in run.evaluations]
        samples = space.effective_batch_size(run.config)
        at_s = run.start_s
        yield {"samples": samples, "at_s": at_s}
        for (due, _, quality), pause_s in zip(curve.evaluations, pauses, strict=False):
            while samples < due:
                count, seconds = next(endless)
                samples, at_s = samples + count, at_s + seconds
                yield {"samples": samples, "at_s": at_s}
            at_s += pause_s
            yield {"samples": samples, "at_s": at_s, space.objective.quality: quality}


def ours(
    table: Table,
    seed: int,
    trials: int,
    *,
    everything_is: Config | None = None,
    earlier: Sequence[Trial] = (),
) -> Result:
    """This project's search over `table`: the sampler, the stopping and the confirming of the real one.

    `earlier` trials are those of another session that is learnt from.
    """
    space = table.space.model_copy(
        update={"budget": table.space.budget.model_copy(update={"trials": trials})}
    )
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(directions=["maximize", "maximize"])
    machine, clock = Machine(table, seed, everything_is=everything_is), _Clock()
    search = Search(
        space,
        study,
        Silent(),
        seed=seed,
        memory_limit_bytes=memory_limit(table),
        earlier=[t for t in earlier if t.searched],
        explain=False,  # what is measured is the time until a winner is confirmed
        clock=clock.now,
    )
    moments: list[Moment] = []
    while (trial := search.next()) is not None:
        is_searched = trial.number > 0 and trial.searched
        simulated = machine.run(trial, search.bar if is_searched else None)
        clock.seconds += simulated.seconds
        search.end(trial.number, simulated.outcome, simulated.measurement)
        if not confirm.is_alone(trial):
            best = objective.winner(search.trials(), space.objective, space.limits.memory_fraction)
            moments.append(Moment(clock.seconds, len(search.trials()), best.config if best else None))
    found = confirm.confirmed(search.trials(), space)
    winner = found[0].config if found else space.baseline_config
    return Result(tuple(moments), tuple(search.trials()), winner, found is not None, clock.seconds)


def memory_limit(table: Table) -> int | None:
    """What a run of `table` was allowed, or what the machine had where nothing limited it."""
    limits = [run.memory_limit_bytes for run in table.timed(table.space.baseline_config)]
    return next((limit for limit in limits if limit), table.header.provenance.get("host_memory_bytes"))


class _Clock:
    """Simulated seconds."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> float:
        return self.seconds
