"""Baseline strategies over the same table: plain samplers that run every suggestion."""

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace

import optuna
from optuna.trial import TrialState

from autotune.core.measurement import Evaluation, Measurement
from autotune.core.trial import Outcome, Status, Trial
from autotune.judging.decisions import confirm, pilot
from autotune.judging.decisions.confirm import Proposal
from autotune.judging.decisions.history import History
from autotune.judging.measurement import curves
from autotune.space import distributions
from lab.replay.replay import Machine, Moment, Result, Simulated
from lab.replay.table import Table

_REDUCTION = 2  # of ASHA's rungs; Ray's default of 4 would leave a single rung of four evaluations


def optuna_search(table: Table, seed: int, trials: int) -> Result:
    """OptunaSearch as in Ray Tune's documentation: default sampler, two metrics, every trial in full.

    A trial that runs out of memory fails. Ray reports that to Optuna, whose samplers ignore failed trials.
    """
    return _search(table, seed, trials, optuna.samplers.TPESampler(seed=seed), directions=2)


def random_search(table: Table, seed: int, trials: int) -> Result:
    """Random search, every trial in full."""
    return _search(table, seed, trials, optuna.samplers.RandomSampler(seed=seed), directions=2)


def asha(table: Table, seed: int, trials: int) -> Result:
    """Random trials under asynchronous successive halving (Li et al., 2020) of a weighted sum.

    The sum weights throughput and quality equally, each relative to the baseline's. At every evaluation whose
    number is a power of two, a trial continues if it is in the better half of all trials there so far.
    """
    rungs: dict[int, list[float]] = defaultdict(list)

    def cut(shown: Measurement, baseline: Measurement) -> int | None:
        for position, point in enumerate(shown.curve[:-1], start=1):
            if math.log(position, _REDUCTION) % 1:
                continue
            score = _weighted(shown, point, baseline)
            rungs[position].append(score)
            better = sorted(rungs[position], reverse=True)[: max(1, len(rungs[position]) // _REDUCTION)]
            if score < better[-1]:
                return position
        return None

    return _search(table, seed, trials, optuna.samplers.RandomSampler(seed=seed), directions=1, cut=cut)


def _weighted(shown: Measurement, point: Evaluation, baseline: Measurement) -> float:
    if not shown.throughput or not baseline.throughput or not baseline.quality:
        return 0.0
    speed = shown.throughput.samples_per_s / baseline.throughput.samples_per_s
    return speed / 2 + curves.share(point.quality, baseline.quality) / 2


def _search(
    table: Table,
    seed: int,
    trials: int,
    suggests: optuna.samplers.BaseSampler,
    *,
    directions: int,
    cut: Callable[[Measurement, Measurement], int | None] | None = None,
) -> Result:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(directions=["maximize"] * directions, sampler=suggests)
    space, machine = table.space, Machine(table, seed)
    known: list[Trial] = []
    moments: list[Moment] = []
    seconds = 0.0
    while len(known) < trials:
        asked = None if not known else study.ask(distributions.distributions(space))
        config = space.baseline_config if asked is None else distributions.configuration(asked.params, space)
        if space.violation(config) is not None and asked is not None:
            study.tell(asked, [0.0] * directions)  # violates the limits: reported as worthless, at no cost
            continue
        trial = Trial(len(known), config)
        simulated = machine.run(trial, None, at_s=seconds)
        if cut and known and (at := cut(simulated.measurement, known[0].measurement)):
            simulated = _cut_off(simulated, at)
        seconds += simulated.seconds
        known.append(_ended(trial, simulated))
        if asked is not None:
            _tell(study, asked, known, directions)
        best = History(known, space).best
        moments.append(Moment(seconds, len(known), best.config if best else None))
    return _confirmed(table, machine, known, moments, seconds)


def _tell(study: optuna.Study, asked: optuna.Trial, known: Sequence[Trial], directions: int) -> None:
    trial = known[-1]
    if trial.outcome is None or trial.outcome.status is Status.FAILED or trial.samples_per_s is None:
        study.tell(asked, state=TrialState.FAIL)
    elif directions == 1:
        point = trial.measurement.curve[-1]
        study.tell(asked, _weighted(trial.measurement, point, known[0].measurement))
    else:
        study.tell(asked, [trial.samples_per_s, trial.quality or 0.0])


def _cut_off(simulated: Simulated, evaluations: int) -> Simulated:
    """Returns the trial as if it had been stopped after so many evaluations."""
    measurement = simulated.measurement
    curve = measurement.curve[:evaluations]
    share = curve[-1].samples / max(1, measurement.samples)
    return Simulated(
        Outcome(Status.STOPPED, reason="below the better half"),
        replace(measurement, curve=curve, quality=curve[-1].quality),
        simulated.seconds * share,
    )


def _ended(trial: Trial, simulated: Simulated) -> Trial:
    return replace(
        trial,
        outcome=simulated.outcome,
        measurement=simulated.measurement,
        seconds=simulated.seconds,
    )


def _confirmed(
    table: Table, machine: Machine, known: list[Trial], moments: list[Moment], seconds: float
) -> Result:
    """Confirms the winner as this project does; the other strategies have no confirmation of their own."""
    history, trials = History(known, table.space), list(known)
    step: Proposal | None = Proposal(table.space.baseline_config, confirm.noise_repeat())
    while step is not None:
        again = Trial(len(trials), step.config, repeat=step.repeat, race=step.race)
        simulated = machine.run(again, None, members=[trials[n] for n in step.race], at_s=seconds)
        seconds += simulated.seconds
        trials.append(_ended(again, simulated))
        history = pilot.settled(History(trials, table.space))
        step = confirm.next_step(history)
    found = confirm.confirmed(history)
    winner = found[0].config if found else table.space.baseline_config
    return Result(tuple(moments), tuple(trials), winner, found is not None, seconds)


OTHERS = {"optuna": optuna_search, "random": random_search, "asha": asha}
