"""Decides which precision to take: the fastest whose models keep the baseline's quality. Pure.

Models are judged like the runs of a search, by `judging.decisions.quality`: the spread over seeds counts, and
so does the sampling error of the test split. One seed of each decides nothing.
"""

import statistics
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Self

from autotune.compare import results
from autotune.compare.results import BASELINE, Model, Runs
from autotune.core.measurement import Evaluation, Measurement
from autotune.core.trial import Trial
from autotune.display import words
from autotune.judging.decisions import objective, quality
from autotune.judging.decisions.history import History
from autotune.judging.decisions.quality import KeptQuality, Noise, QualityAnswer
from autotune.judging.measurement import estimates
from autotune.judging.measurement.estimates import Figure
from autotune.space.sections import Objective

_SEEDS_TO_BEGIN_WITH = 3  # if the spread of equal models is unknown


@dataclass(frozen=True)
class ModelResult:
    """The models of one label compared with the baseline's."""

    label: str
    throughput: Figure | None  # mean over seeds
    factor: Figure | None  # of the baseline's throughput
    seeds: int
    answer: QualityAnswer
    shown: str  # the qualities in words
    seeds_needed: int | None = None  # of both, to decide; None if more seeds would not


@dataclass(frozen=True)
class ComparisonVerdict:
    """The result of a comparison.

    If any model has a score on the test split, those without one are not judged; the sentence names them.
    """

    label: str | None  # to take; None if undecided
    sentence: str
    standings: tuple[ModelResult, ...] = ()  # of the judged labels, the fastest first


def search_noise(history: History) -> Noise | None:
    """Returns the noise of the search's own equal runs; None if it has run nothing twice."""
    return quality.noise([history.runs_of(trial.number) for trial in history.searched])


def verdict(runs: Runs, goal: Objective, elsewhere: Noise | None = None) -> ComparisonVerdict | None:
    """Returns which of the compared models to take; None if there is only the baseline.

    `elsewhere` is the noise of equal runs in the search: it only predicts the number of seeds needed.
    """
    if len(runs) < 2:
        return None
    trained = _filter(runs, lambda model: model.completed)
    if BASELINE not in trained:
        return ComparisonVerdict(None, "Not decided: the baseline's model was not trained to its end.")
    on_test = _on_test(goal)
    scored = _filter(trained, lambda model: on_test.quality in model.scores)
    tested = bool(scored)
    goal = on_test if tested else goal
    if tested and BASELINE not in scored:
        return ComparisonVerdict(None, "Not decided: the baseline's model could not be scored.")
    judged = scored or trained
    sides = {label: _Side.from_models(models, goal, tested=tested) for label, models in judged.items()}
    baseline = sides[BASELINE]
    if why_not := _no_quality(baseline.runs, goal):
        return ComparisonVerdict(None, f"Not decided: of the baseline {why_not}; train longer.")
    not_judged = _not_judged(runs, trained, sides)
    if len(sides) < 2:
        return ComparisonVerdict(
            None, " ".join(["Not decided: only the baseline could be judged.", *not_judged])
        )
    standings = _standings(sides, goal, elsewhere)
    where = "on the test split" if tested else "at the end of the training"
    keeps = f"{quality.keeps(goal)} {where}"
    return ComparisonVerdict(_best_label(standings), _sentence(standings, keeps, not_judged), standings)


@dataclass(frozen=True)
class _Side:
    """The models of a label as runs to be judged, and their throughput; a higher quality is better."""

    runs: Sequence[Trial]
    throughput: Figure | None

    @classmethod
    def from_models(cls, models: Sequence[Model], goal: Objective, *, tested: bool) -> Self:
        """Takes the quality from the test split if `tested`, else from the end of the training."""
        runs = [
            Trial(n, model.config, model.outcome, _scored(model, goal) if tested else model.training)
            for n, model in enumerate(models)
        ]
        return cls(runs, results.throughput(models))

    @property
    def quality(self) -> float:
        return statistics.fmean(quality.qualities(self.runs) or [0.0])


def _on_test(goal: Objective) -> Objective:
    """Returns `goal` with the name that its quality has on the test split."""
    name = results.on_test(goal.quality)
    return goal.model_copy(update={"quality": name, "minimize": name if goal.minimize else None})


def _filter(runs: Runs, are: Callable[[Model], bool]) -> Runs:
    """Returns the models that pass `are`, by label, without the labels that have none."""
    passing = {label: [model for model in models if are(model)] for label, models in runs.items()}
    return {label: models for label, models in passing.items() if models}


def _not_judged(runs: Runs, trained: Runs, judged: Collection[str]) -> list[str]:
    """Returns sentences that name the labels without a model to judge."""
    left = {
        "Could not be scored": [label for label in trained if label not in judged],
        "Not trained to the end": [label for label in runs if label not in trained],
    }
    return [f"{why}: {', '.join(labels)}." for why, labels in left.items() if labels]


def _scored(model: Model, goal: Objective) -> Measurement:
    """Returns a model's score on the test split as the measurement of a run."""
    chance = model.scores.get(f"{goal.quality}_chance")
    point = Evaluation(
        model.samples,
        0.0,
        goal.turned(model.scores[goal.quality]),
        None if chance is None else goal.turned(chance),
        model.collapsed,
    )
    items = tuple(goal.turned(item) for item in model.items.get(goal.quality, ()))
    return Measurement(quality=point.quality, curve=(point,), items=items)


def _no_quality(runs: Sequence[Trial], goal: Objective) -> str | None:
    """Returns why a run has no quality to compare; None if all have one, or any quality will do."""
    if goal.takes_any_quality:
        return None
    return next((why for run in runs if (why := objective.no_quality(run.measurement, goal))), None)


def _standings(
    sides: Mapping[str, _Side], goal: Objective, elsewhere: Noise | None
) -> tuple[ModelResult, ...]:
    """Returns the standing of every label, the fastest first."""
    noise = quality.noise([side.runs for side in sides.values()])
    standings = [_standing(label, sides, goal, noise, elsewhere) for label in sides]
    return tuple(sorted(standings, key=lambda one: -one.throughput.value if one.throughput else 0.0))


def _standing(
    label: str,
    sides: Mapping[str, _Side],
    goal: Objective,
    noise: Noise | None,
    elsewhere: Noise | None,
) -> ModelResult:
    ours, theirs = sides[label], sides[BASELINE]
    factor = (
        estimates.over(ours.throughput, theirs.throughput) if ours.throughput and theirs.throughput else None
    )
    known = partial(ModelResult, label, ours.throughput, factor, len(ours.runs))
    if label == BASELINE:
        return replace(known(QualityAnswer.KEPT, "what the others are compared with"), factor=Figure(1.0))
    if why_not := _no_quality(ours.runs, goal):
        return known(QualityAnswer.LOST, why_not)
    start = objective.start(theirs.runs[0])
    keep = objective.least_share(goal, theirs.quality, start)
    kept = quality.compare(ours.runs, theirs.runs, keep, noise, start=start)
    if kept is None:
        answer = QualityAnswer.KEPT if goal.takes_any_quality else QualityAnswer.UNDECIDED
        return known(answer, f"its {goal.quality} cannot be compared")
    needed = kept.runs_needed if noise else _first_guess(ours, theirs, keep, elsewhere, start)
    answer = QualityAnswer.KEPT if goal.takes_any_quality else kept.answer
    return known(answer, _quality_text(kept, goal, len(ours.runs), len(theirs.runs)), needed)


def _first_guess(
    ours: _Side, theirs: _Side, keep: float, elsewhere: Noise | None, start: float | None
) -> int:
    """Returns the number of seeds to ask for if no two models differ only in their seed."""
    needed = quality.runs_needed(ours.runs, theirs.runs, keep, elsewhere, start) if elsewhere else None
    return needed or _SEEDS_TO_BEGIN_WITH


def _quality_text(kept: KeptQuality, goal: Objective, ours: int, theirs: int) -> str:
    """Returns e.g. `bleu_4 0.1612 instead of 0.1600, 97% to 104% of what it gains, 3 seeds each`."""
    a, b = (words.score(goal.turned(value)) for value in (kept.quality, kept.reference))
    between = quality.between(kept.share, goal, kept.gain)
    seeds = f"{_seeds(ours)} each" if ours == theirs else f"{_seeds(ours)} against {theirs}"
    return f"{goal.quality} {a} instead of {b}, {between}, {seeds}"


def _seeds(count: int) -> str:
    return f"{count} seed{'s' * (count != 1)}"


def _best_label(standings: Sequence[ModelResult]) -> str | None:
    """Returns the fastest label that keeps the quality; None if a faster one is undecided."""
    first = next(one for one in standings if one.answer is not QualityAnswer.LOST)
    return first.label if first.answer is QualityAnswer.KEPT else None


def _sentence(standings: Sequence[ModelResult], keeps: str, not_judged: Sequence[str]) -> str:
    """Returns the verdict in words: the label to take or the seeds needed, and the labels that lost."""
    first = next(n for n, one in enumerate(standings) if one.answer is not QualityAnswer.LOST)
    taken, rest = standings[first], standings[first + 1 :]
    if taken.answer is QualityAnswer.UNDECIDED:
        parts = [
            f"Not decided: whether {_speed(taken)}, {keeps}: {taken.shown}.",
            _would(taken),
            *_best(rest),
        ]
    elif taken.label == BASELINE:
        that = " that could be judged" if not_judged else ""
        parts = [f"The baseline stays: no faster precision{that} {keeps}."]
    else:
        parts = [f"The fastest precision that {keeps}: {_speed(taken)}; {taken.shown}.", *_equal(taken, rest)]
    lost = "; ".join(f"{_speed(one)}: {one.shown}" for one in standings[:first])
    return " ".join([*parts, *([f"Faster, and lost: {lost}."] if lost else []), *not_judged])


def _speed(one: ModelResult) -> str:
    """Returns e.g. `bf16, 2.13x as fast as the baseline (2.05x to 2.21x)`."""
    if one.factor is None:
        return one.label
    sure = words.factor.interval(one.factor)
    return f"{one.label}, {words.factor(one.factor)} as fast as the baseline{f' ({sure})' if sure else ''}"


def _would(one: ModelResult) -> str:
    if one.seeds_needed is None:
        return "More seeds would not decide it, a larger test split may."
    return f"{_seeds(one.seeds_needed)} each may decide it: compare --seeds {one.seeds_needed}."


def _best(rest: Sequence[ModelResult]) -> list[str]:
    """Names the fastest label that keeps the quality, if a faster one is undecided."""
    known = next(one for one in rest if one.answer is QualityAnswer.KEPT)  # the baseline if no other
    return [] if known.label == BASELINE else [f"Of what is decided the fastest is {_speed(known)}."]


def _equal(taken: ModelResult, rest: Sequence[ModelResult]) -> list[str]:
    """Names the labels that are not significantly slower."""
    low = taken.throughput.low if taken.throughput else None
    names = [
        one.label
        for one in rest
        if one.answer is QualityAnswer.KEPT
        and low is not None
        and one.throughput is not None
        and (one.throughput.high or 0.0) >= low
    ]
    return [f"Not surely slower: {', '.join(names)}."] if names else []
