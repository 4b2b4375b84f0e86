"""Compares search rules by searches over recorded whole trainings, in simulated time.

    python benchmarks/bench_lengths.py [nanogpt|r2gen] [--seeds 50] [--minutes 36] [--deviation 0.03]
        [--evaluations 4] [--rules now "batches before rates" ...]

Every search is the real one - heuristics, sampler, screening, stopping, races, confirmation - with the space
of `nanogpt.yaml`, or the batch, rate and length of the demonstration's; only the trainings are simulated.
Recorded in `tables/nanogpt-alone.jsonl` and `tables/r2gen-alone.jsonl`: the final scores of trainings with
three batches, three or four rates and two lengths, many with two or three seeds, and the seconds per step by
batch. Assumed: between and beyond them the score is linear in the logarithms of rate, length and batch, with
BLEU-4 at most 1; seeds add normal noise as large as in the table, or `--deviation`; a trial's speed has an
interval of 1%, and varies by 1.5% between trials and by 3% between the turns of a race. With several
evaluations, those before the end have the score of a shorter training, as if the rate were constant.

Prints for each rule how many searches confirm a winner, its true speedup, how often it delivers less than
promised, and the simulated minutes and trials to the end.
"""

import argparse
import itertools
import json
import math
import random
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import optuna
from optuna.distributions import FloatDistribution
from optuna.samplers import TPESampler

from autotune.core.measurement import Evaluation, Measurement, Schedule, Slice, Throughput
from autotune.core.settings import LEARNING_RATE, LENGTH, MICRO_BATCH, Config, settings_key
from autotune.core.trial import Outcome, Status, Trial, TrialKind
from autotune.judging.decisions import confirm, objective, planning, racing, stopping
from autotune.searcher import heuristics
from autotune.searcher.ports import Environment, Listener, SearchOptions
from autotune.searcher.search import Search
from autotune.space import distributions, spaces
from autotune.space.space import Space

HERE = Path(__file__).parent
SHARES = (0.25, 1.0)  # of the recipe's length, for plain Ray Tune
ASHA_RUNGS, ASHA_CUT = (1, 4), 75  # of eight evaluations: a quarter goes on
START_S, EVALUATION_S, STEPS_SEEN, ASKED_AFTER_S = 5.0, 2.5, 200, 8.0
UNRECORDED = {"accumulation_steps", "precision", "num_workers", "channels_last"}  # knobs of the demonstration
SPEED_APART, HALF_WIDTH, TURN_APART = 0.015, 0.01, 0.03


@dataclass(frozen=True)
class Recipe:
    """A training whose variants were recorded, and the search for a faster one.

    Quality is `sign` times the score, so that higher is better.
    """

    name: str
    space: Path
    score: str
    sign: int
    start: float  # quality of the untrained model
    most: float  # highest quality
    minutes: float  # of a search
    epoch: int | None = None  # samples, if the length counts epochs

    @property
    def rows(self) -> list[dict[str, Any]]:
        lines = (HERE / "tables" / f"{self.name}-alone.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def read_space(self) -> Space:
        """Returns its space with the recorded knobs only."""
        space = spaces.parse(self.space.read_text(), str(self.space))
        training = space.training.model_copy(update={"samples_per_epoch": self.epoch})
        space = spaces.complete(space.model_copy(update={"training": training}), str(self.space))
        knobs = {name: knob for name, knob in space.knobs.items() if name not in UNRECORDED}
        return space.model_copy(update={"knobs": knobs})


RECIPES = {
    # The recipe takes 108 s on one core and 72 s on two, so 67 minutes here equal 45 on two.
    "nanogpt": Recipe("nanogpt", HERE / "nanogpt.yaml", "val_loss", -1, -4.18, math.inf, 67.0),
    "r2gen": Recipe("r2gen", HERE.parent / "search_spaces" / "cpu.yaml", "bleu_4", 1, 0.58, 1.0, 15.0, 256),
}


class Law:
    """Final quality and seconds per sample of any training, interpolated from the recorded ones."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe, self.evaluations = recipe, 1
        cells: dict[tuple[float, float, float], list[float]] = defaultdict(list)
        timed: dict[int, list[float]] = defaultdict(list)
        for row in recipe.rows:
            cells[row["batch"], row["rate"], row["samples"]].append(recipe.sign * row[recipe.score])
            if row.get("threads") == 1:  # pinned to a core of its own, two at a time
                timed[row["batch"]].append(row["steps_s"] / row["samples"])
        several = [found for found in cells.values() if len(found) > 1]
        squares = sum(statistics.variance(found) * (len(found) - 1) for found in several)
        self.deviation = math.sqrt(squares / sum(len(found) - 1 for found in several))
        self._recorded = {cell: statistics.fmean(found) for cell, found in cells.items()}
        self._axes = [sorted({cell[i] for cell in self._whole()}) for i in range(3)]
        self.seconds = {batch: min(found) for batch, found in timed.items()}  # others ran under load

    def _whole(self) -> list[tuple[float, float, float]]:
        """Returns the cells of the largest fully recorded grid."""
        axes = [{cell[i] for cell in self._recorded} for i in range(3)]
        counts = [defaultdict[float, int](int) for _ in axes]
        for cell in self._recorded:
            for i, value in enumerate(cell):
                counts[i][value] += 1
        kept = [{value for value in axis if counts[i][value] >= 6} for i, axis in enumerate(axes)]
        return [cell for cell in itertools.product(*kept) if cell in self._recorded]

    def quality(self, batch: float, rate: float, samples: float) -> float:
        """Interpolates linearly in the logarithms; extrapolates from the two outermost recorded values."""
        sides = [
            _between(axis, value) for axis, value in zip(self._axes, (batch, rate, samples), strict=True)
        ]
        found = sum(
            one_share * two_share * three_share * self._recorded[one, two, three]
            for (one, one_share), (two, two_share), (three, three_share) in itertools.product(*sides)
        )
        return min(found, self.recipe.most)


def _between(axis: Sequence[float], value: float) -> list[tuple[float, float]]:
    """Returns the two recorded values around `value` with their weights."""
    at = min(max(1, int(np.searchsorted(axis, value))), len(axis) - 1)
    low, high = axis[at - 1], axis[at]
    share = math.log(value / low) / math.log(high / low)
    return [(low, 1 - share), (high, share)]


class Trainings:
    """Simulates the trainings of a search by a law; `seed` determines each training's noise."""

    def __init__(self, law: Law, space: Space, seed: int) -> None:
        self._law, self._space, self._rng = law, space, random.Random(seed)

    def _settings(self, config: Config) -> tuple[int, float, int]:
        settings = self._space.settings(config)
        return (
            int(settings[MICRO_BATCH] or 1),
            float(settings[LEARNING_RATE] or 0),
            self._space.samples(config),
        )

    def worth(self, winner: Config | None) -> tuple[float | None, float]:
        """Returns the true speedup of a winner, None if there is none, and the quality that it lacks."""
        baseline, start = self._space.baseline_config, self._law.recipe.start
        if winner is None:
            return None, 0.0
        least = objective.least(self._space.objective, self._law.quality(*self._settings(baseline)), start)
        return self._true_s(baseline) / self._true_s(winner), least - self._law.quality(
            *self._settings(winner)
        )

    def _true_s(self, config: Config) -> float:
        batch, _, samples = self._settings(config)
        return samples * self._law.seconds[batch]

    def run(self, trial: Trial, threshold: stopping.Threshold | None) -> tuple[Outcome, Measurement, float]:
        batch, rate, samples = self._settings(trial.config)
        speed = 1 / self._law.seconds[batch] * math.exp(self._rng.gauss(0, SPEED_APART))
        measurement = Measurement(
            throughput=Throughput(speed, HALF_WIDTH * speed, STEPS_SEEN, STEPS_SEEN * batch / speed),
            start=self._law.recipe.start,
            samples=round(ASKED_AFTER_S * speed),
        )
        beaten = stopping.verdict(measurement, threshold, samples, trial.config) if threshold else None
        if beaten:
            return beaten, measurement, START_S + ASKED_AFTER_S
        for share in range(1, self._law.evaluations + 1):
            measurement = self._evaluated(measurement, trial, samples * share // self._law.evaluations, speed)
            seconds = START_S + measurement.samples / speed + share * EVALUATION_S
            beaten = stopping.verdict(measurement, threshold, samples, trial.config) if threshold else None
            if beaten and share < self._law.evaluations:
                return beaten, measurement, seconds
        schedule = Schedule(rate, rate / 10 if self._law.evaluations == 1 else rate, samples)
        return Outcome(Status.COMPLETED), replace(measurement, schedule=schedule, ended=True), seconds

    def _evaluated(self, measured: Measurement, trial: Trial, samples: int, speed: float) -> Measurement:
        """Returns the measurement with one more evaluation, after so many samples."""
        batch, rate, _ = self._settings(trial.config)
        recipe, true = self._law.recipe, self._law.quality(batch, rate, samples)
        quality = min(true + self._rng.gauss(0, self._law.deviation), recipe.most)
        return replace(
            measured,
            quality=quality,
            quality_samples=samples,
            samples=samples,
            curve=(*measured.curve, Evaluation(samples, samples / speed, quality)),
            scores={recipe.score: recipe.sign * quality},
        )

    def race(self, members: Sequence[Trial]) -> tuple[Outcome, Measurement, float]:
        lengths = {member.number: self._space.samples(member.config) for member in members}
        speeds = {m.number: 1 / self._law.seconds[self._settings(m.config)[0]] for m in members}
        slices: list[Slice] = []
        trainings, took_s = racing.Trainings(slices, lengths), 0.0
        most_s, rounds = racing.most_s(t.seconds for t in members), itertools.count(1)
        for launch in itertools.count(1):
            if took_s >= most_s or not (order := trainings.next_round()):
                break
            start_s = START_S * len(order)
            took_s += start_s
            launched = {n: speeds[n] * math.exp(self._rng.gauss(0, SPEED_APART)) for n in order}
            for count in itertools.count(1):
                turn, seconds = next(rounds), racing.turn_s(start_s, len(launched), most_s)
                for number in order:
                    done = seconds * launched[number] * math.exp(self._rng.gauss(0, TURN_APART))
                    slices.append(Slice(number, turn, round(done), seconds, 20, launch=launch))
                    took_s += seconds
                is_enough = racing.is_enough_of_a_launch(count, count * seconds * len(order), start_s)
                if is_enough or took_s >= most_s or not (order := trainings.next_round()):
                    break
        return Outcome(Status.COMPLETED), Measurement(slices=tuple(slices)), took_s


class Found(NamedTuple):
    """A search's confirmed speedup, None if nothing; the true one; and the simulated minutes."""

    factor: float | None
    lost: float
    minutes: float
    trials: int


def run_search(law: Law, space: Space, seed: int) -> Found:
    is_loss = law.recipe.sign < 0
    study = optuna.create_study(directions=["maximize", "minimize" if is_loss else "maximize"])
    trainings, clock_s = Trainings(law, space, seed), [0.0]
    search = Search(
        space,
        study,
        Listener(),
        SearchOptions(seed=seed, memory_limit_bytes=None, explain=False),
        Environment(clock=lambda: clock_s[0]),
    )
    while (trial := search.next()) is not None:
        if trial.kind is TrialKind.RACE:
            members = [search.history.trial(number) for number in trial.race]
            outcome, shown, seconds = trainings.race(members)
        else:
            is_searched = trial.number > 0 and trial.kind is TrialKind.SEARCHED
            outcome, shown, seconds = trainings.run(trial, search.threshold if is_searched else None)
        clock_s[0] += seconds
        search.end(trial.number, outcome, shown)
    confirmed = confirm.confirmed(search.history)
    factor, lost = trainings.worth(confirmed[0].config if confirmed else None)
    return Found(factor, lost, clock_s[0] / 60, len(search.history.searched))


def plain_ray_tune(law: Law, space: Space, seed: int) -> Found:
    """Searches with plain Ray Tune, as in `against_ray_tune.py`: the quickest good enough training wins.

    OptunaSearch's default sampler under ASHA with its default reduction, over the same knobs. It is told
    the loss that is good enough, from a run of the recipe, and runs nothing again.
    """
    trainings, baseline = Trainings(law, space, seed), space.baseline_config
    study = optuna.create_study(sampler=TPESampler(seed=seed))
    _, shown, clock_s = trainings.run(Trial(0, baseline), None)
    first = shown.quality or 0.0
    good_enough = objective.least(space.objective, first, law.recipe.start)
    rungs: dict[int, list[float]] = defaultdict(list)
    whole: list[tuple[float, Config]] = []
    while clock_s < (space.budget.time or math.inf):
        asked = study.ask({**distributions.distributions(space), LENGTH: FloatDistribution(*SHARES)})
        config = distributions.configuration(asked.params, space)
        config |= {LENGTH: round(asked.params[LENGTH] * space.samples(baseline))}
        _, shown, seconds = trainings.run(Trial(len(study.trials), config), None)
        for number, point in enumerate(shown.curve, start=1):
            if number in ASHA_RUNGS and number < len(shown.curve):
                rungs[number].append(point.quality)
                if point.quality < np.percentile(rungs[number], ASHA_CUT):
                    break
        share = number / len(shown.curve)
        lost = max(0.0, good_enough - point.quality) / (good_enough - law.recipe.start)
        study.tell(asked, seconds * (1 + 10 * lost))
        clock_s += seconds * share
        if share == 1 and not lost:
            whole.append((seconds, config))
    factor, lost = trainings.worth(min(whole, key=itemgetter(0))[1] if whole else None)
    return Found(factor, lost, clock_s / 60, len(study.trials))


class _ByThreeTerms(planning.LengthNeeds):
    """Lengths by a law of three terms in steps and samples (Schaipp 2026, arXiv 2607.01487).

    At equal rates the loss is a + b / steps + c / sqrt(samples), fitted by least squares to every completed
    training. Each setting keeps the residual of its own trainings.
    """

    def samples(self, trial: Trial) -> float | None:
        plain, points = super().samples(trial), self._points
        own = [point for point in points if point[0] == _key(trial)]
        if plain is None or self._quality is None or len({p[2] for p in points}) < 2 or len(points) < 4:
            return plain
        rows = np.array([[1.0, batch / length, length**-0.5] for _, batch, length, _ in points])
        fitted, *_ = np.linalg.lstsq(rows, np.array([loss for *_, loss in points]), rcond=None)
        _, b, c = np.maximum(fitted, 0.0)
        if not own or b + c <= 0:
            return plain
        batch = own[0][1]
        rest = statistics.fmean(loss - b * batch / length - c * length**-0.5 for _, _, length, loss in own)
        low, high = plain / 4, plain * 4
        for _ in range(50):
            middle = math.sqrt(low * high)
            is_enough = rest + b * batch / middle + c * middle**-0.5 <= -self._quality
            low, high = (low, middle) if is_enough else (middle, high)
        return math.sqrt(low * high)

    def __init__(self, trials: Any, space: Space, quality: float | None, slack: float) -> None:
        trials = list(trials)
        super().__init__(trials, space, quality, slack)
        self._points = [
            (_key(t), space.effective_batch_size(t.config), space.samples(t.config), -t.measurement.quality)
            for t in trials
            if t.completed and t.kind is not TrialKind.RACE and t.measurement.quality is not None
        ]


def _key(trial: Trial) -> Any:
    return settings_key(trial.config, {LENGTH})


def _no_proposals(*_: Any) -> Iterator[Config]:
    return iter(())


Rule = Callable[[], AbstractContextManager[Any]]


def _batches_first() -> AbstractContextManager[Any]:
    """Tries larger batches before higher rates."""
    stack, rates, batches = ExitStack(), heuristics.raised_rate, heuristics.larger_batches
    stack.enter_context(mock.patch.object(heuristics, "raised_rate", batches))
    stack.enter_context(mock.patch.object(heuristics, "larger_batches", rates))
    return stack


def _sampler_alone() -> AbstractContextManager[Any]:
    stack = ExitStack()
    for name in ("raised_rate", "larger_batches"):
        stack.enter_context(mock.patch.object(heuristics, name, _no_proposals))
    return stack


RULES: Mapping[str, Rule] = {
    "now": nullcontext,
    "batches before rates": _batches_first,
    "the sampler alone": _sampler_alone,
    "three terms": lambda: mock.patch("autotune.judging.decisions.history.LengthNeeds", _ByThreeTerms),
}


RAY_TUNE = "plain Ray Tune"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("recipe", nargs="?", choices=RECIPES, default="nanogpt")
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--deviation", type=float, help="SD of the score between equal trainings")
    parser.add_argument("--evaluations", type=int, default=1, help="several: at a constant rate")
    parser.add_argument("--rules", nargs="+", choices=[*RULES, RAY_TUNE], default=list(RULES))
    given = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    law = Law(RECIPES[given.recipe])
    law.deviation, law.evaluations = given.deviation or law.deviation, given.evaluations
    space, minutes = law.recipe.read_space(), given.minutes or law.recipe.minutes
    budget = space.budget.model_copy(update={"time": minutes * 60})
    space = space.model_copy(update={"budget": budget})
    print(f"equal trainings differ by {law.deviation:.4f}; seconds a sample by batch: {law.seconds}")
    print("| rule | recommend | faster, median (10% to 90%) | lost too much | minutes | trials |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name in given.rules:
        with RULES.get(name, nullcontext)():
            find = plain_ray_tune if name == RAY_TUNE else run_search
            results = [find(law, space, seed) for seed in range(given.seeds)]
        won = sorted(one.factor for one in results if one.factor is not None)
        speedup = "-"
        if won:
            low, middle, high = (won[round(share * (len(won) - 1))] for share in (0.1, 0.5, 0.9))
            speedup = f"{middle:.2f}x ({low:.2f}x to {high:.2f}x)"
        lost = sum(one.factor is not None and one.lost > 0 for one in results)
        minutes = statistics.median(one.minutes for one in results)
        trials = statistics.median(one.trials for one in results)
        print(
            f"| {name} | {len(won)} of {len(results)} | {speedup} | {lost} | {minutes:.0f} | {trials:.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
