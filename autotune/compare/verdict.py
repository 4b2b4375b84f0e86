"""Decides which precision to take: the fastest whose models keep the baseline's quality. Pure.

Models are judged like the runs of a search, by `judging.decisions.quality`: the spread over seeds counts, and
so does the sampling error of the test split. One seed of each decides nothing.
"""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from autotune.compare import results
from autotune.compare.results import BASELINE, Model, Runs
from autotune.core.measurement import Evaluation, Measurement
from autotune.core.trial import Trial
from autotune.display import words
from autotune.judging.decisions import objective, quality
from autotune.judging.decisions.quality import Noise, QualityAnswer
from autotune.judging.measurement import estimates
from autotune.judging.measurement.estimates import Figure
from autotune.space.sections import Objective

_SEEDS_TO_BEGIN_WITH = 3  # if the spread of equal models is unknown


@dataclass(frozen=True)
class ModelResult:
    """The models of one label, compared with the models of the baseline."""

    label: str
    throughput: Figure | None  # mean over seeds
    factor: Figure | None  # of the baseline's throughput
    seeds: int
    answer: QualityAnswer
    shown: str  # the qualities in words
    seeds_needed: int | None = None  # of both, to decide; None if more seeds would not


@dataclass(frozen=True)
class ComparisonVerdict:
    label: str | None  # to take; None if undecided
    sentence: str  # names labels not judged: those without a score on the test split, if others have one
    standings: tuple[ModelResult, ...] = ()  # of the judged labels, the fastest first


def verdict(runs: Runs, goal: Objective, elsewhere: Noise | None = None) -> ComparisonVerdict | None:
    """Returns which of the compared models to take; None if there is only the baseline.

    `elsewhere` is the noise of equal runs in the search: it only predicts the number of seeds needed.
    """
    if len(runs) < 2:
        return None
    trained = _filter(runs, lambda model: model.completed)
    if BASELINE not in trained:
        return ComparisonVerdict(None, "Not decided: the baseline's model was not trained to its end.")
    name = results.name_on_test(goal.quality)
    on_test = goal.model_copy(update={"quality": name, "minimize": name if goal.minimize else None})
    scored = _filter(trained, lambda model: on_test.quality in model.scores)
    if scored and BASELINE not in scored:
        return ComparisonVerdict(None, "Not decided: the baseline's model could not be scored.")
    goal, models = (on_test, scored) if scored else (goal, trained)
    judged = {label: _runs(same, goal, tested=bool(scored)) for label, same in models.items()}
    if why_not := _no_quality(judged[BASELINE], goal):
        return ComparisonVerdict(None, f"Not decided, train the baseline longer: {why_not}.")
    left = {
        "Could not be scored": [label for label in trained if label not in judged],
        "Not trained to the end": [label for label in runs if label not in trained],
    }
    not_judged = [f"{why}: {', '.join(labels)}." for why, labels in left.items() if labels]
    if len(judged) < 2:
        sentence = " ".join(["Not decided: only the baseline could be judged.", *not_judged])
        return ComparisonVerdict(None, sentence)
    speeds = {label: results.throughput(same) for label, same in models.items()}
    noises = quality.noise(list(judged.values())), elsewhere
    standings = [_standing(label, judged, speeds, goal, noises) for label in judged]
    standings.sort(key=lambda one: -one.throughput.value if one.throughput else 0.0)
    where = "on the test split" if scored else "at the end of the training"
    keeps = f"{quality.format_requirement(goal)} {where}"
    return _decide(standings, keeps, not_judged)


def _runs(models: Sequence[Model], goal: Objective, *, tested: bool) -> list[Trial]:
    """Returns models as runs to judge: by the test split if `tested`, else by the end of the training."""
    return [
        Trial(n, model.config, model.outcome, _scored(model, goal) if tested else model.training)
        for n, model in enumerate(models)
    ]


def _filter(runs: Runs, condition: Callable[[Model], bool]) -> Runs:
    passing = {label: [model for model in models if condition(model)] for label, models in runs.items()}
    return {label: models for label, models in passing.items() if models}


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
    """Returns why one of the runs has no quality to compare; None if all have one, or any quality will do."""
    if goal.takes_any_quality:
        return None
    return next((why for run in runs if (why := objective.no_quality(run.measurement, goal))), None)


def _standing(
    label: str,
    judged: Mapping[str, Sequence[Trial]],
    speeds: Mapping[str, Figure | None],
    goal: Objective,
    noises: tuple[Noise | None, Noise | None],
) -> ModelResult:
    """Returns the verdict on one label; `noises`: between the compared models, and in the search."""
    (noise, elsewhere), ours, theirs = noises, judged[label], judged[BASELINE]
    speed, baseline_speed = speeds[label], speeds[BASELINE]
    factor = estimates.divide(speed, baseline_speed) if speed and baseline_speed else None
    result = partial(ModelResult, label, speed, factor, len(ours))
    if label == BASELINE:
        return replace(result(QualityAnswer.KEPT, "what the others are compared with"), factor=Figure(1.0))
    if why_not := _no_quality(ours, goal):
        return result(QualityAnswer.LOST, why_not)
    start = objective.start(theirs[0])
    baseline_quality = statistics.fmean(quality.qualities(theirs) or [0.0])
    keep = objective.least_share(goal, baseline_quality, start)
    kept = quality.compare(ours, theirs, keep, noise, start=start)
    if kept is None:
        answer = QualityAnswer.KEPT if goal.takes_any_quality else QualityAnswer.UNDECIDED
        return result(answer, f"its {goal.quality} cannot be compared")
    needed = kept.runs_needed
    if not noise:  # no two models differ only in their seed
        guess = quality.runs_needed(ours, theirs, keep, elsewhere, start) if elsewhere else None
        needed = guess or _SEEDS_TO_BEGIN_WITH
    answer = QualityAnswer.KEPT if goal.takes_any_quality else kept.answer
    a, b = (words.score(goal.turned(value)) for value in (kept.quality, kept.reference))
    between = quality.format_share(kept.share, goal, kept.gain)
    against = "each" if len(ours) == len(theirs) else f"against {len(theirs)}"
    seeds = f"{words.plural(len(ours), 'seed')} {against}"
    return result(answer, f"{goal.quality} {a} instead of {b}, {between}, {seeds}", needed)


def _decide(standings: Sequence[ModelResult], keeps: str, not_judged: Sequence[str]) -> ComparisonVerdict:
    """Takes the fastest label that keeps the quality, unless a faster one is undecided."""
    first = next(n for n, one in enumerate(standings) if one.answer is not QualityAnswer.LOST)
    taken, rest = standings[first], standings[first + 1 :]
    label: str | None = taken.label
    if taken.answer is QualityAnswer.UNDECIDED:
        label = None
        sentences = [f"Not decided whether {_speed(taken)}, {keeps}: {taken.shown}."]
        if taken.seeds_needed is None:
            sentences.append("More seeds would not decide it; a larger test split may.")
        else:
            seeds = words.plural(taken.seeds_needed, "seed")
            sentences.append(f"{seeds} each may decide it: compare --seeds {taken.seeds_needed}.")
        decided = next(one for one in rest if one.answer is QualityAnswer.KEPT)  # the baseline if no other
        if decided.label != BASELINE:
            sentences.append(f"The fastest whose quality is decided is {_speed(decided)}.")
    elif taken.label == BASELINE:
        judged = " that could be judged" if not_judged else ""
        sentences = [f"The baseline stays: no faster precision{judged} {keeps}."]
    else:
        sentences = [f"The fastest precision that {keeps} is {_speed(taken)}: {taken.shown}."]
        if equal := [one.label for one in rest if _may_be_as_fast(one, taken)]:
            sentences.append(f"May be as fast: {', '.join(equal)}.")
    if lost := [f"{_speed(one)}, {one.shown}" for one in standings[:first]]:
        sentences.append(f"Faster, but not good enough: {'; '.join(lost)}.")
    return ComparisonVerdict(label, " ".join([*sentences, *not_judged]), tuple(standings))


def _speed(one: ModelResult) -> str:
    """Returns e.g. `bf16, 2.13x as fast as the baseline (2.05x to 2.21x)`."""
    if one.factor is None:
        return one.label
    interval = words.factor.interval(one.factor)
    sure = f" ({interval})" if interval else ""
    return f"{one.label}, {words.factor(one.factor)} as fast as the baseline{sure}"


def _may_be_as_fast(one: ModelResult, taken: ModelResult) -> bool:
    """Returns True if a label that keeps the quality is not significantly slower than the one to take."""
    if one.answer is not QualityAnswer.KEPT or one.throughput is None or taken.throughput is None:
        return False
    return taken.throughput.low is not None and (one.throughput.high or 0.0) >= taken.throughput.low
