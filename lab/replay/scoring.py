"""Scores replayed searches against the table: how soon and how reliably they are right, and the cost."""

import importlib.util
import math
import statistics
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache, cached_property, partial
from pathlib import Path

from autotune.core.measurement import Evaluation, Measurement
from autotune.core.settings import Config, Key, settings_key
from autotune.core.trial import Status, Trial, TrialKind
from autotune.judging.decisions import objective, racing
from autotune.judging.measurement import curves
from autotune.space import configurations
from lab.replay import replay, strategies
from lab.replay.replay import Result
from lab.replay.strategies import Strategy
from lab.replay.table import Table

_OTHER_SEEDS = 10_000


def _warm(table: Table, seed: int, trials: int) -> Result:
    """Runs this project's search, warm-started from another search over the same table."""
    earlier = replay.search(table, seed + _OTHER_SEEDS, trials).trials
    return replay.search(table, seed, trials, earlier=earlier)


def _told_best(table: Table, seed: int, trials: int) -> Result:
    """Tries the best configuration alone, and confirms it: what a search of any strategy costs at least."""
    left = [Truth(table).best_config]
    rules = strategies.Rules(lambda _: left.pop() if left else None)
    return strategies.search(lambda *_: rules, table, seed, trials)


STRATEGIES: dict[str, Strategy] = {"ours": replay.search, **strategies.OTHERS}
TOLD_BEST = "oracle"
# This search told more, or with several trials at a time.
VARIANTS: dict[str, Strategy] = {
    TOLD_BEST: _told_best,
    "warm": _warm,
    **{f"{n} slots": partial(replay.search, slots=n) for n in (4, 16)},
}
PROFILE_TIMES = (1, 2, 4)
_RIGHT = 1 - racing.CLOSE  # of the best merit: a race does not distinguish closer ones


def suits(strategy: str, table: Table) -> bool:
    """Returns False if `strategy` needs SciPy, which is not installed, or a target that the table lacks."""
    if strategy == "gp":
        return importlib.util.find_spec("scipy") is not None
    return strategy != "zeus" or table.space.objective.aim is not None


class Truth:
    """The true figures of every configuration: means over all its recorded runs."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def speed(self, config: Config) -> float:
        """Returns samples per second with `config`; 0 if it fails or exceeds the memory limit."""
        runs, fraction = self._table.timed(config), self._table.space.limits.memory_fraction
        for run in runs:
            over = run.memory_limit_bytes and (run.peak_memory_bytes or 0) > fraction * run.memory_limit_bytes
            if run.outcome.status is not Status.COMPLETED or over:
                return 0.0
        seconds = math.fsum(sum(run.step_s) for run in runs)
        return sum(sum(run.step_samples) for run in runs) / seconds if seconds else 0.0

    def quality(self, config: Config) -> float:
        """Returns the mean final quality of the trials of `config`; higher is better."""
        ends = [curves.end_quality(Measurement(curve=curve)) or 0.0 for curve in self._trials(config)]
        return statistics.fmean(ends) if ends else 0.0

    def _turned(self, quality: float) -> float:
        return self._table.space.objective.turned(quality)

    @cached_property
    def target(self) -> float | None:
        """The quality to reach in the least time, in the tuner's sign; None if speed alone counts.

        Learning rates are constant here, so it is the lowest quality that keeps the baseline's, unless a
        target is given.
        """
        goal, baseline = self._table.space.objective, self._table.space.baseline_config
        if goal.aim is not None or goal.takes_any_quality:
            return goal.aim
        first = Trial(0, baseline, measurement=Measurement(curve=self._trials(baseline)[0]))
        return objective.least(goal, self.quality(baseline), objective.start(first))

    def merit(self, config: Config) -> float:
        """Returns the search's objective: throughput, or the inverse of the mean time to the target.

        A run that never reaches the target counts with its whole length. 0 if most runs do not.
        """
        if self.target is None:
            return self.speed(config)
        runs = self._curves(config)
        needed = [curves.samples_to_reach(curve, self.target) for curve in runs]
        if sum(samples is not None for samples in needed) <= len(needed) / 2:
            return 0.0
        return self.speed(config) / statistics.fmean(
            samples or curve[-1].samples for samples, curve in zip(needed, runs, strict=True)
        )

    def _trials(self, config: Config) -> list[tuple[Evaluation, ...]]:
        """Returns the recorded curves, cut at the first evaluation after a trial's samples."""
        whole = self._table.space.budget.samples_per_trial
        trials = []
        for curve in self._curves(config):
            enough = next((i for i, point in enumerate(curve) if point.samples >= whole), len(curve))
            trials.append(curve[: enough + 1])
        return trials

    def _curves(self, config: Config) -> list[tuple[Evaluation, ...]]:
        return [
            tuple(
                Evaluation(p.samples, p.seconds, self._turned(p.quality), p.chance, p.collapsed)
                for p in run.evaluations
            )
            for run in self._table.qualities(config)
        ]

    @cached_property
    def best(self) -> float:
        """The highest merit."""
        return max(self._known.values())

    @property
    def best_config(self) -> Config:
        return max(self._configs, key=self.merit)

    @property
    def _configs(self) -> list[Config]:
        return [self._table.space.baseline_config, *(configurations.allowed(self._table.space) or [])]

    @cached_property
    def _known(self) -> dict[Key, float]:
        return {settings_key(c, ()): self.merit(c) for c in self._configs}

    def share(self, config: Config) -> float:
        """Returns the share of the best merit that `config` reaches; 0 if it cannot win."""
        return self._known[settings_key(config, ())] / self.best


@dataclass(frozen=True)
class Score:
    """One replayed search, compared with the truth; seconds are simulated device time."""

    search_s: float | None  # until the recommendation is, and stays, within 5% of the best; None: never
    confirmed_s: float | None  # with the confirmation; None if the winner is not within 5%, which is wrong
    trials: int | None
    whole_s: float
    out_of_memory: int
    lost_s: float  # in trials of settings that could not win: not within 5%, or without the quality
    claims_gain: bool
    regret: float  # share of the best merit that the winner lacks

    @property
    def is_wrong(self) -> bool:
        return self.confirmed_s is None


def score(result: Result, truth: Truth) -> Score:
    """Scores `result`: its cost, and whether it is right."""
    right_from = None
    for moment in result.moments:
        is_right = moment.best is not None and truth.share(moment.best) >= _RIGHT
        right_from = (right_from or moment) if is_right else None
    confirming_s = result.seconds - result.moments[-1].seconds
    reached = truth.share(result.winner)
    lost = (t.seconds for t in result.trials if _cannot_win(t, truth))
    return Score(
        search_s=right_from.seconds if right_from else None,
        confirmed_s=(right_from or result.moments[-1]).seconds + confirming_s if reached >= _RIGHT else None,
        trials=right_from.trials if right_from else None,
        whole_s=result.seconds,
        out_of_memory=sum(t.out_of_memory for t in result.trials),
        lost_s=math.fsum(lost),
        claims_gain=result.claims_gain,
        regret=1 - reached,
    )


def _cannot_win(trial: Trial, truth: Truth) -> bool:
    return trial.kind is TrialKind.SEARCHED and trial.number > 0 and truth.share(trial.config) < _RIGHT


def scores(file: Path, strategies: Sequence[str], seeds: int, trials: int) -> dict[str, list[Score]]:
    """Scores `seeds` replays of each strategy over the table in `file`, on all CPUs."""
    with ProcessPoolExecutor() as pool:
        jobs = {
            name: [pool.submit(_score, file, name, seed, trials) for seed in range(seeds)]
            for name in strategies
        }
        return {name: [job.result() for job in each] for name, each in jobs.items()}


@cache  # of one process
def _read(file: Path) -> tuple[Table, Truth]:
    table = Table.read(file)
    return table, Truth(table)


def _score(file: Path, strategy: str, seed: int, trials: int) -> Score:
    table, truth = _read(file)
    return score((STRATEGIES | VARIANTS)[strategy](table, seed, trials), truth)


def false_claims(file: Path, seeds: int, trials: int) -> int:
    """Counts the searches that claim a gain although every configuration runs as the baseline."""
    with ProcessPoolExecutor() as pool:
        return sum(pool.map(partial(_claims_falsely, file, trials), range(seeds), chunksize=1))


def _claims_falsely(file: Path, trials: int, seed: int) -> bool:
    table, _ = _read(file)
    return replay.search(table, seed, trials, everything_is=table.space.baseline_config).claims_gain


def profiles(confirmed_s: Mapping[str, Mapping[object, float | None]]) -> dict[str, tuple[float, ...]]:
    """Returns each strategy's performance profile (Dolan & Moré, 2002) at `PROFILE_TIMES`.

    `confirmed_s` has the seconds that a strategy took to the confirmed winner in each of its replays, None if
    the winner was wrong. The profile is the share of these replays in which the strategy took at most that
    many times as long as the quickest one.
    """
    least: dict[object, float] = {}
    for seconds in confirmed_s.values():
        for replayed, taken_s in seconds.items():
            least[replayed] = min(least.get(replayed, math.inf), _or_never(taken_s))
    return {
        name: tuple(
            statistics.fmean(
                _or_never(s) <= times * least[replayed] < math.inf for replayed, s in seconds.items()
            )
            for times in PROFILE_TIMES
        )
        for name, seconds in confirmed_s.items()
    }


def _or_never(seconds: float | None) -> float:
    return math.inf if seconds is None else seconds


HEADING = (
    f"{'':8} {'search':>8} {'+confirm':>8} {'trials':>6} {'whole':>8} {'oom':>5} {'lost':>8} wrong regret"
)


def line(strategy: str, found: Sequence[Score]) -> str:
    """Formats a strategy's figures under `HEADING`: medians, the mean out-of-memory count, and counts."""
    return (
        f"{strategy:8} {_seconds([s.search_s for s in found])} {_seconds([s.confirmed_s for s in found])} "
        f"{_median([s.trials for s in found]):6.0f} {_seconds([s.whole_s for s in found])} "
        f"{statistics.fmean(s.out_of_memory for s in found):5.1f} {_seconds([s.lost_s for s in found])} "
        f"{sum(s.is_wrong for s in found):5} {statistics.fmean(s.regret for s in found):6.1%}"
    )


def _seconds(values: Sequence[float | None]) -> str:
    return f"{_median(values):7.0f}s"


def _median(values: Sequence[float | None]) -> float:
    """Returns the median; None counts as infinite."""
    return statistics.median(map(_or_never, values))
