"""The rows of compared models. Pure."""

from collections.abc import Sequence
from dataclasses import replace

from autotune.compare import results
from autotune.compare.results import Model, Runs
from autotune.judging.decisions import objective, quality
from autotune.reports.model import Compared
from autotune.space.sections import Objective


def compared(runs: Runs, goal: Objective) -> tuple[Compared, ...]:
    """Returns a row for every label that was compared."""
    return tuple(
        replace(_compared(model, runs[label], goal), beside_fp32=results.beside_fp32(model, runs))
        for label, model in results.first(runs).items()
    )


def _compared(model: Model, models: Sequence[Model], goal: Objective) -> Compared:
    """Returns the results of the `models` of a label; figures that are not means are those of `model`."""
    done, training = [each for each in models if each.completed], model.training
    return Compared(
        label=model.label,
        config=model.config,
        status=model.outcome.status.value,
        reason=model.outcome.reason,
        trial=model.trial,
        samples=model.samples,
        throughput=results.throughput(done),
        training_peak_bytes=training.peak_memory_bytes,
        training_memory_is_rising=training.memory_is_rising,
        scores=results.mean_scores(done),
        reports_per_s=objective.mean([m.reports_per_s for m in done if m.reports_per_s is not None]),
        writing_peak_bytes=model.peak_memory_bytes,
        curve=quality.curve_in_users_sign(training.curve, goal),
        seeds=len(done),
        steps=model.steps,
        checkpoint_bytes=model.checkpoint_bytes,
        parameters=model.parameters,
    )
