"""The pilot: judges from the baseline's first runs whether qualities can be compared. Pure.

A search runs the baseline twice before anything else. Qualities cannot be compared if the model ignores its
input, or if equal runs differ by more than the rule allows.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from autotune.core.measurement import Evaluation
from autotune.core.settings import MICRO_BATCH
from autotune.core.trial import TrialKind
from autotune.judging.decisions import objective, planning, quality
from autotune.judging.decisions.history import History
from autotune.judging.decisions.quality import Noise
from autotune.judging.measurement import curves
from autotune.space.knobs import Distribution, PlannedLength, ScaledLearningRate
from autotune.space.space import Space

_FURTHER = 4  # times as many samples, recommended if the baseline has learnt nothing
_A_LITTLE_FURTHER = 2  # times as many, recommended if equal runs differ too much
_FALLBACK = " The search continues with settings that leave the training the same and only make it faster."
_LEAST_NOISE = 0.02  # of a quality: two runs cannot show less


@dataclass(frozen=True)
class Pilot:
    """The quality of the baseline's first runs."""

    samples: int
    quality: float
    chance: float | None
    noise: float | None  # SD between equal runs
    why_not: str | None = None  # why qualities cannot be compared
    doubt: str | None = None  # why an equal quality can hardly be told from a lost one

    @property
    def samples_needed(self) -> int:
        """The samples that may be enough, if there is a `why_not` or a `doubt`."""
        return self.samples * (_FURTHER if self.why_not else _A_LITTLE_FURTHER)


def is_wanted(space: Space) -> bool:
    """Returns True if the scatter between equal runs matters, so that the baseline runs twice."""
    goal, budget = space.objective, space.budget
    asks = goal.select != "same-training" and not goal.takes_any_quality
    return asks and budget.repeats > 0 and budget.trials > 1


def is_due(asked: History) -> bool:
    """Returns True if the baseline's second run comes next; it may begin while the first one is running."""
    if planning.is_wanted(asked.space):  # the second run is a shorter one instead
        return False
    has_begun = any(t.kind in (TrialKind.PILOT, TrialKind.SEED) for t in asked.trials)
    is_running = bool(asked.trials) and asked.baseline is None and asked.failed_baseline is None
    may_begin = asked.baseline is not None or (is_running and not asked.space.budget.until_learnt)
    return may_begin and not has_begun and is_wanted(asked.space) and pilot(asked) is None


def pilot(asked: History) -> Pilot | None:
    """Returns the judgement of the baseline's quality, None before its second run has completed."""
    # Later runs of the baseline, which end at the target, must not change the judgement.
    space, runs = asked.space, [t for t in asked.runs_of(0) if t.kind is not TrialKind.SEED]
    if asked.baseline is None:
        return None
    ends = [run.measurement.curve[-1] for run in runs if run.measurement.curve]
    qualities = quality.qualities(runs)
    if not ends or not qualities:
        return None
    noise = quality.noise([runs])
    judged = Pilot(
        samples=ends[0].samples,
        quality=sum(qualities) / len(qualities),
        chance=max((p.chance for p in ends if p.chance is not None), default=None),
        noise=noise.deviation if noise else None,
    )
    why_not = _explain_incomparable(judged, ends, space)
    # If the first run has learnt nothing, a second one would not help.
    if why_not is None and is_wanted(space) and len(runs) < 2 and not planning.is_wanted(space):
        return None
    return replace(judged, why_not=why_not, doubt=_doubt(judged, noise, asked))


def _doubt(judged: Pilot, noise: Noise | None, asked: History) -> str | None:
    """Returns the reason if `keep` needs more precision than the budget's seeds give, else None."""
    space, goal, seeds = asked.space, asked.space.objective, asked.space.budget.repeats
    counts = goal.select == "same-quality" and goal.target is None
    half = quality.half_width(seeds, noise) if noise and seeds and counts else 0.0
    slack = judged.quality - objective.least(goal, judged.quality, asked.start)
    if half <= slack:
        return None
    required = f"keep {goal.keep:g}" if goal.within is None else f"within {goal.within:g}"
    return (
        f"after {judged.samples:,} {space.unit}, {seeds} seeds show {goal.quality} to within {half:.2g}, but "
        f"{required} needs {slack:.2g}"
    )


def _explain_incomparable(judged: Pilot, ends: Sequence[Evaluation], space: Space) -> str | None:
    """Returns the reason that qualities cannot be compared after so few samples, None if they can."""
    goal, after = space.objective, f"after {judged.samples:,} {space.unit}"
    figure = f"{goal.quality} {goal.turned(judged.quality):.4f}"
    collapsed = sum(p.collapsed for p in ends)
    if collapsed:
        runs = " in one of its runs" if collapsed < len(ends) else ""
        return f"{after} the baseline gives the same answer to every input{runs} ({figure})"
    noise = max(judged.noise or 0.0, _LEAST_NOISE * abs(judged.quality))
    clearly = objective.least(goal, judged.quality) - curves.SURE * noise  # not relative to a start
    if judged.chance is None or clearly > judged.chance:
        return None
    better, chance = "below" if goal.minimize else "above", goal.turned(judged.chance)
    return f"{after} the baseline's {figure} is not clearly {better} chance, {chance:.4f}"


def settled(asked: History) -> History:
    """Returns the history with the pilot's settled space in place of the user's, which `asked` has."""
    space = _settled_space(asked)
    return asked if space is asked.space else History(asked.trials, space)


def _settled_space(asked: History) -> Space:
    """Returns the space with the trials' samples, the target or the objective changed as the pilot shows.

    If the learning rate is known not to fall, a training may end anywhere: the quality to keep becomes the
    target. If qualities cannot be compared, the search goes on as `same-training`, which needs none.
    """
    space, goal = asked.space, asked.space.objective
    if space.budget.until_learnt and asked.baseline is not None:
        samples = asked.baseline.measurement.quality_samples
        every = max(1, space.budget.samples_per_trial // space.budget.evaluations_per_trial)
        evaluations = max(1, round(samples / every))
        budget = {"samples_per_trial": samples, "evaluations_per_trial": evaluations, "until_learnt": False}
        space = space.revised(budget=budget)
    if goal.select == "same-training":
        return same_training(space)
    judged = pilot(History(asked.trials, space)) if _depends_on_pilot(space) else None
    if judged is None:
        return space
    if judged.why_not:
        return same_training(space.revised(objective={"select": "same-training", "target": None}))
    schedule = asked.baseline.measurement.schedule if asked.baseline else None
    may_end_anywhere = schedule is not None and not schedule.falls
    # A single evaluation does not show when a target is reached.
    may_end_anywhere &= all(len(run.measurement.curve) > 1 for run in asked.runs_of(0))
    if goal.target is None and not planning.is_wanted(space) and may_end_anywhere:
        target = goal.turned(objective.least(goal, judged.quality, asked.start))
        return space.revised(objective={"target": float(f"{target:.4g}")})
    return space


def _depends_on_pilot(space: Space) -> bool:
    return space.objective.select == "same-quality" and is_wanted(space)


def same_training(space: Space) -> Space:
    """Returns `space` with every knob that changes a training's result fixed to the baseline's value.

    The effective batch and the learning rate stay as in the baseline, whatever the micro-batch.
    """
    knobs = dict(space.knobs)
    for name, knob in space.knobs.items():
        if name in space.known.same_training:
            continue
        if isinstance(knob, ScaledLearningRate):
            knobs[name] = ScaledLearningRate(scale=knob.scale, multiplier=Distribution(choice=(1.0,)))
        elif isinstance(knob, PlannedLength):
            knobs[name] = knob.model_copy(update={"share": (1.0, 1.0)})
        elif isinstance(knob, Distribution):
            knobs[name] = knob.with_choice([space.baseline[name]])
    same = space.model_copy(update={"knobs": knobs})
    if MICRO_BATCH not in space.baseline:
        return same
    size = space.effective_batch_size({})
    return same.revised(limits={"effective_batch_size": (size, size)})


def fallback_reason(asked: History) -> str | None:
    """Returns the reason that a search fell back to `same-training`; None if it did not."""
    judged = pilot(asked) if _depends_on_pilot(asked.space) else None
    return judged.why_not if judged else None


def describe(asked: History) -> str | None:
    """Returns the pilot's findings in a sentence or two; None before it is done, or if there is no pilot."""
    space, goal = asked.space, asked.space.objective
    judged = pilot(asked) if is_wanted(space) else None
    if judged is None:
        return None
    if judged.why_not:
        fallback = _FALLBACK if _depends_on_pilot(space) else ""
        return (
            f"Quality cannot be compared yet: {judged.why_not}.{fallback} To compare quality, try "
            f"--samples {judged.samples_needed} or more, or --samples auto."
        )
    noise = f"; runs with different seeds vary by {judged.noise:.2g}" if judged.noise is not None else ""
    chance = f" (chance {goal.turned(judged.chance):.4f})" if judged.chance is not None else ""
    figure = f"{goal.quality} {goal.turned(judged.quality):.4f}{chance}"
    text = f"The baseline reaches {figure} after {judged.samples:,} {space.unit}"
    target = settled(asked).space.objective.target
    if judged.doubt and target is None:
        text += f". Only a configuration that is clearly better than required can win: {judged.doubt}"
        return f"{text}. Try --samples {judged.samples_needed} or more, or a larger --repeats."
    first = "" if target is None else f" The first configuration to reach {target:g} wins."
    return f"{text}{noise}.{first}"
