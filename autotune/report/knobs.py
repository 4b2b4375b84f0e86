"""What the knobs do: to memory, to speed and quality, from the baseline to the winner. Pure."""

import math
import warnings
from collections.abc import Sequence

import optuna
from optuna.importance import PedAnovaImportanceEvaluator
from optuna.trial import create_trial

from autotune.core.settings import MICRO_BATCH, PRECISION, Config
from autotune.core.trial import Status
from autotune.judging import ablation
from autotune.judging.history import History
from autotune.memory.feasibility import MemoryModel
from autotune.report import estimates
from autotune.report.model import Predicted, Step
from autotune.space import distributions
from autotune.space.space import Space

_FEWEST_TRIALS = 4
_FEWEST_AT_THE_TOP = 5  # below that PED-ANOVA is told to be unstable
_TOP_SHARES = (0.1, 0.5)
_ENDED = {Status.COMPLETED, Status.STOPPED}


def predicted(config: Config, history: History, memory_limit_bytes: int | None) -> tuple[Predicted, ...]:
    """Peak memory with each precision and micro-batch to choose from, at the other settings of `config`."""
    space, fraction = history.space, history.space.limits.memory_fraction
    model = MemoryModel(history.trials, fraction=fraction, limit_bytes=memory_limit_bytes, known=space.known)
    knob = space.knobs.get(PRECISION)
    precisions = (knob.drawn_from.choice if knob else None) or ()
    configs: list[Config] = [{**config, PRECISION: precision} for precision in precisions] or [config]
    found = [_predicted(model, chosen, space) for chosen in configs]
    return tuple(p for p in found if p.micro_batch_size)


def _predicted(model: MemoryModel, config: Config, space: Space) -> Predicted:
    told = [(size, model.predict({**config, MICRO_BATCH: size})) for size in space.micro_batch_sizes]
    known = [(size, found) for size, found in told if found is not None]
    return Predicted(
        precision=str(space.settings(config).get(PRECISION, "")),
        micro_batch_size=tuple(size for size, _ in known),
        peak_bytes=tuple(found.expected_bytes for _, found in known),
        low_bytes=tuple(found.low_bytes for _, found in known),
        high_bytes=tuple(found.high_bytes for _, found in known),
    )


def steps(history: History) -> tuple[Step, ...]:
    """The ablation from the baseline to the confirmed winner, one knob at a time."""
    return tuple(
        Step(
            knob=step.knob,
            before=step.before,
            after=step.after,
            trial=step.trial.number if step.trial else None,
            throughput=estimates.speed([step.throughput] if step.throughput else []),
            factor=step.factor,
            reason=step.reason or ("" if step.trial else "not measured yet"),
        )
        for step in ablation.steps(history)
    )


def importance(history: History) -> dict[str, dict[str, float]]:
    """Which knobs decide about throughput and about quality: shares that sum to 1, the largest first.

    Of trials that were stopped the throughput counts, too. An objective of which too little is known, or that
    is the same everywhere, is left out.
    """
    space, baseline = history.space, history.baseline
    ended = [
        t
        for t in history.searched
        if t.outcome is not None
        and t.outcome.status in _ENDED
        and space.contains(t.config)
        and (baseline is None or t.measurement.origin == baseline.measurement.origin)
    ]
    known = {
        "throughput": [(t.config, t.samples_per_s) for t in ended],
        space.objective.quality: [(t.config, t.quality) for t in ended if t.completed],
    }
    shares = {
        name: _shares([(c, v) for c, v in found if v is not None and math.isfinite(v)], space)
        for name, found in known.items()
    }
    return {name: found for name, found in shares.items() if found}


def _shares(found: Sequence[tuple[Config, float]], space: Space) -> dict[str, float]:
    """What each knob does for being among the best: PED-ANOVA (Watanabe et al., 2023), among what was tried.

    The best are a tenth of the trials; of few trials more, so that there are some.
    """
    if len(found) < _FEWEST_TRIALS or len({value for _, value in found}) < 2:
        return {}
    low, high = _TOP_SHARES
    evaluator = PedAnovaImportanceEvaluator(
        target_quantile=min(high, max(low, _FEWEST_AT_THE_TOP / len(found)))
    )
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    drawn = distributions.distributions(space)
    with warnings.catch_warnings(action="ignore"):  # that the result may say little, and is experimental
        study = optuna.create_study(direction="maximize")
        study.add_trials(
            [
                create_trial(value=value, params=distributions.parameters(config, space), distributions=drawn)
                for config, value in found
            ]
        )
        told = optuna.importance.get_param_importances(study, evaluator=evaluator, normalize=False)
    names = dict(zip(drawn, space.knobs, strict=True))
    total = math.fsum(told.values())
    return {names[name]: value / total for name, value in told.items()} if total > 0 else {}
