"""Compares rules that choose, after a short trial, the settings that win a whole training.

    python benchmarks/bench_final.py [--draws 400] [--keep 0.95] [--baseline 0] [TABLE ...]

The tables hold whole trainings over a grid of settings, with at least two seeds. Each draw uses one seed of
every configuration as its trial and the others as the truth. A rule's choice is judged by the truth: the
seconds of training until the baseline's final quality (the mean of its last five evaluations) and until its
final loss, as multiples of the quickest configuration's; how often the recording never reaches that; and how
much of the baseline's final quality is lost after as many samples, and after as many seconds. The rules:

  keep        the fastest whose quality after the trial's samples is at least `keep` of the baseline's then
  quality     the first to reach, and stay above, `keep` of the baseline's quality at the trial's end;
              candidates may use more samples than the baseline, but not more seconds
  loss        the same by the loss on held-out data
  same        the fastest with the baseline's effective batch and learning rate

A table's last line is the best possible choice.
"""

import argparse
import itertools
import math
import random
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from autotune.core.settings import Config
from autotune.judging.measurement import curves
from lab.replay import recording
from lab.replay.scoring import Truth
from lab.replay.table import Run, Table

TABLES = Path(__file__).parent / "tables"
SHARES = (0.05, 0.1, 0.2, 0.4, 1.0)  # a trial's share of the whole training's samples
WHOLE = {"final-shapes": 20_000}  # samples of the baseline's whole training, if more were recorded
_SMOOTHED = 2  # evaluations averaged in a trial
_FINAL = 5  # evaluations averaged for the final value


class Seen(NamedTuple):
    """An evaluation; in all figures higher is better."""

    samples: float
    seconds: float
    quality: float
    loss: float


Curve = Sequence[Seen]
Figure = Callable[[Seen], float]


@dataclass(frozen=True)
class Training:
    """A configuration and its whole trainings, one per seed."""

    name: str
    is_same: bool  # trains as the baseline does
    runs: tuple[Curve, ...]


def quality(seen: Seen) -> float:
    return seen.quality


def loss(seen: Seen) -> float:
    return seen.loss


def smoothed(curve: Curve, width: int) -> list[Seen]:
    """Returns running means over `width` evaluations, placed at their mean; over all if there are fewer."""
    width = max(1, min(width, len(curve)))
    windows = (curve[i : i + width] for i in range(len(curve) - width + 1))
    return [Seen(*(statistics.fmean(values) for values in zip(*w, strict=True))) for w in windows]


def within_samples(curve: Curve, samples: float) -> Curve:
    """Returns `curve` up to its first evaluation after `samples`, as a trial of that length sees it."""
    upto = next((i for i, seen in enumerate(curve) if seen.samples >= samples), len(curve))
    return curve[: upto + 1]


def within_seconds(curve: Curve, seconds: float) -> Curve:
    return [seen for seen in curve if seen.seconds <= seconds * (1 + 1e-9)]


def seconds_to(curve: Curve, figure: Figure, target: float) -> float:
    """Returns the interpolated seconds until `figure` reaches `target` and stays there; else infinity."""
    below = [i for i, seen in enumerate(curve) if figure(seen) < target]
    if not below:
        return curve[0].seconds if curve else math.inf
    last = below[-1]
    if last == len(curve) - 1:
        return math.inf
    before, after = curve[last], curve[last + 1]
    share = (target - figure(before)) / (figure(after) - figure(before))
    return before.seconds + share * (after.seconds - before.seconds)


def fastest_that_keeps(trials: Sequence[Curve], samples: float, keep: float) -> int:
    """Rule `keep`: returns the index of its choice in `trials`; 0, the baseline's, if it chooses none."""
    ends = [within_samples(curve, samples)[-1].quality for curve in trials]
    least = curves.least(keep, ends[0])
    candidates = [i for i, end in enumerate(ends) if i == 0 or end >= least]
    return max(candidates, key=lambda i: _speed(trials[i]))


def first_there(trials: Sequence[Curve], samples: float, keep: float, figure: Figure) -> int:
    """Rules `quality` and `loss`."""
    baseline = within_samples(trials[0], samples)
    target = curves.least(keep, figure(smoothed(baseline, _SMOOTHED)[-1]))
    within = (smoothed(within_seconds(curve, baseline[-1].seconds), _SMOOTHED) for curve in trials)
    reached = [seconds_to(curve, figure, target) for curve in within]
    return min(range(len(trials)), key=lambda i: reached[i])


def fastest_of_same(trainings: Sequence[Training], trials: Sequence[Curve]) -> int:
    """Rule `same`."""
    same = [i for i, training in enumerate(trainings) if training.is_same]
    return max(same, key=lambda i: _speed(trials[i]))


def _speed(curve: Curve) -> float:
    return curve[-1].samples / curve[-1].seconds


def pick(
    rule: str, trainings: Sequence[Training], trials: Sequence[Curve], samples: float, keep: float
) -> int:
    """Returns the index that `rule` chooses from the trials of `trainings`, the baseline first."""
    if rule == "keep":
        return fastest_that_keeps(trials, samples, keep)
    if rule == "same":
        return fastest_of_same(trainings, trials)
    return first_there(trials, samples, keep, quality if rule == "quality" else loss)


RULES = ("keep", "quality", "loss", "same")


class Ending(NamedTuple):
    """A configuration's seconds to the baseline's final figures, and its loss of final quality.

    The loss is measured after the baseline's samples, and after its seconds.
    """

    to_quality_s: float
    to_loss_s: float
    given_up: float
    given_up_s: float


def endings(truths: Sequence[Curve], samples: float) -> list[Ending]:
    """Returns the true endings, the baseline's first, whose whole training has `samples`."""
    baseline = within_samples(truths[0], samples)
    end = smoothed(baseline, _FINAL)[-1]
    return [
        Ending(
            _first_s(smoothed(curve, _FINAL), quality, end.quality),
            _first_s(smoothed(curve, _FINAL), loss, end.loss),
            end.quality - smoothed(within_samples(curve, samples), _FINAL)[-1].quality,
            end.quality - smoothed(within_seconds(curve, baseline[-1].seconds), _FINAL)[-1].quality,
        )
        for curve in truths
    ]


def _first_s(curve: Curve, figure: Figure, target: float) -> float:
    """Returns the seconds until `figure` first reaches `target`: a training keeps its best checkpoint."""
    upto = next((i for i, seen in enumerate(curve) if figure(seen) >= target), None)
    return math.inf if upto is None else seconds_to(curve[: upto + 1], figure, target)


class Draw(NamedTuple):
    """The runs used as the trial and as the truth of every configuration."""

    trials: list[Curve]
    truths: list[Curve]


def draw(trainings: Sequence[Training], rng: random.Random) -> Draw:
    """Draws one seed per configuration for its trial; the mean of the others is the truth."""
    trials: list[Sequence[Seen]] = []
    truths: list[Sequence[Seen]] = []
    for training in trainings:
        place = rng.randrange(len(training.runs))
        others = [run for i, run in enumerate(training.runs) if i != place]
        trials.append(training.runs[place])
        truths.append(
            [Seen(*map(statistics.fmean, zip(*seen, strict=True))) for seen in zip(*others, strict=True)]
        )
    return Draw(trials, truths)


class Held(NamedTuple):
    """One choice compared with the truth: times are multiples of the quickest configuration's."""

    is_baseline: bool
    to_quality: float
    to_loss: float
    given_up: float
    given_up_s: float


def hold(chosen: int, truth: Sequence[Ending]) -> Held:
    best_quality = min(ending.to_quality_s for ending in truth)
    best_loss = min(ending.to_loss_s for ending in truth)
    to_quality_s, to_loss_s, *given_up = truth[chosen]
    return Held(chosen == 0, to_quality_s / best_quality, to_loss_s / best_loss, *given_up)


def line(name: str, held: Sequence[Held]) -> str:
    """Formats the figures of one rule under `HEADING`."""
    nothing, to_quality, to_loss, *given_up = zip(*held, strict=True)
    lost = "  ".join(f"{statistics.fmean(up):+8.4f} ± {statistics.pstdev(up):.4f}" for up in given_up)
    return f"{name:14} {statistics.fmean(nothing):7.0%} {_times(to_quality)} {_times(to_loss)}  {lost}"


HEADING = (
    f"{'rule, trial':14} {'nothing':>7} {'quality':>9} {'never':>6} {'loss':>9} {'never':>6}  "
    f"{'given up, samples':17}  {'given up, seconds':17}"
)


def _times(values: Iterable[float]) -> str:
    """Returns the mean of the finite values and the share of the others."""
    known = list(values)
    finite = [value for value in known if math.isfinite(value)]
    mean = f"{statistics.fmean(finite):.2f}x" if finite else "-"
    return f"{mean:>9} {1 - len(finite) / len(known):6.0%}"


def trainings_of(table: Table, first: Config) -> list[Training]:
    """Returns the trainings in `table`, the baseline `first`; only those completed with two seeds or more."""
    space, truth = table.space, Truth(table)
    total = space.budget.samples_per_trial
    configs = [first, *(config for config in recording.grid(space) if config != first)]
    trainings = []
    for config in configs:
        runs = [run for run in table.qualities(config) if run.evaluations[-1].samples >= total]
        speed = truth.speed(config)
        if len(runs) > 1 and speed:
            same = space.effective_batch_size(config) == space.effective_batch_size(first)
            same = same and config.get("learning_rate") == first.get("learning_rate")
            name = ", ".join(f"{knob} {value}" for knob, value in config.items())
            trainings.append(Training(name, same, tuple(_curve(run, speed) for run in runs)))
    return trainings


def _curve(run: Run, samples_per_s: float) -> list[Seen]:
    return [
        Seen(p.samples, p.samples / samples_per_s, p.quality, math.nan if p.loss is None else -p.loss)
        for p in run.evaluations
    ]


def rows(trainings: Sequence[Training], samples: float, keep: float, draws: int) -> list[str]:
    """Returns the table's lines: every rule by every trial length, and the best possible choice."""
    rng = random.Random(0)
    drawn = [draw(trainings, rng) for _ in range(draws)]
    truths = [endings(one.truths, samples) for one in drawn]
    lines = []
    for rule, share in itertools.product(RULES, SHARES):
        picks = (pick(rule, trainings, one.trials, share * samples, keep) for one in drawn)
        held = [hold(chosen, truth) for chosen, truth in zip(picks, truths, strict=True)]
        lines.append(line(f"{rule} {share:.0%}", held))
    best = [seconds.index(min(seconds)) for seconds in ([end.to_quality_s for end in t] for t in truths)]
    return [*lines, line("best", [hold(i, t) for i, t in zip(best, truths, strict=True)])]


def standing(trainings: Sequence[Training], samples: float) -> list[str]:
    """Returns a line per configuration: its speed, and its trainings' figures after `samples`."""
    lines = []
    for training in trainings:
        ends = [smoothed(within_samples(run, samples), _FINAL)[-1] for run in training.runs]
        values = ", ".join(f"{end.quality:.4f}" for end in ends)
        losses = ", ".join(f"{-end.loss:.3f}" for end in ends)
        lines.append(f"{training.name:48} {_speed(training.runs[0]):8.1f} samples/s  {values}  loss {losses}")
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints for every table the outcomes of its configurations and the rules' choices."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tables", nargs="*", type=Path)
    parser.add_argument("--draws", type=int, default=400)
    parser.add_argument("--keep", type=float, default=0.95)
    parser.add_argument("--baseline", type=int, default=0, help="which of those listed plays the baseline")
    given = parser.parse_args(arguments)
    for file in given.tables or sorted(TABLES.glob("final-*.jsonl")):
        table = Table.read(file)
        samples = WHOLE.get(file.stem, table.space.budget.samples_per_trial)
        first = recording.grid(table.space)[given.baseline]
        trainings = trainings_of(table, first)
        points = [p for run in table.qualities(first) for p in run.evaluations]
        print(
            f"{file.stem}: the baseline collapsed at {sum(p.collapsed for p in points)} of {len(points)}",
            end=" ",
        )
        print(f"evaluations; {table.space.objective.quality} by chance {points[-1].chance}", flush=True)
        if all(point.collapsed for point in points):
            continue  # no quality to keep or to reach
        lines = rows(trainings, samples, given.keep, given.draws)
        print("\n".join(f"  {one}" for one in [*standing(trainings, samples), HEADING, *lines]), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
