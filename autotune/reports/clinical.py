"""What compared models wrote: their clinical findings, and studies to look at. Pure functions."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from autotune.compare import results, texts
from autotune.compare.results import Model, Runs, Written, beside_fp32, mean_scores, throughput
from autotune.judging import quality
from autotune.judging.objective import mean
from autotune.reports.model import Compared, Finding, Findings, Sample
from autotune.space.sections import Objective

_HIGHER_IS_BETTER = Objective()


def compared(
    runs: Runs,
    written: Mapping[str, Sequence[Written]],
    goal: Objective = _HIGHER_IS_BETTER,
) -> tuple[Compared, ...]:
    """Every label that was compared, with the findings of what its first model wrote; both by label."""
    return tuple(
        replace(
            _compared(model, runs[label], written.get(label, ()), goal),
            beside_fp32=beside_fp32(model, runs),
        )
        for label, model in results.first(runs).items()
    )


def _compared(model: Model, models: Sequence[Model], written: Sequence[Written], goal: Objective) -> Compared:
    """The results of the `models` of a label; what does not cover all of them is of this `model`."""
    done, training = [each for each in models if each.completed], model.training
    return Compared(
        label=model.label,
        config=model.config,
        status=model.outcome.status.value,
        reason=model.outcome.reason,
        trial=model.trial,
        samples=model.samples,
        throughput=throughput(done),
        training_peak_bytes=training.peak_memory_bytes,
        training_memory_is_rising=training.memory_is_rising,
        scores=mean_scores(done),
        reports_per_s=mean([m.reports_per_s for m in done if m.reports_per_s is not None]),
        writing_peak_bytes=model.peak_memory_bytes,
        curve=quality.shown_curve(training.curve, goal),
        findings=findings(written),
        seeds=len(done),
        steps=model.steps,
        checkpoint_bytes=model.checkpoint_bytes,
        parameters=model.parameters,
        texts=texts.of(written),
    )


def findings(written: Iterable[Written]) -> Findings | None:
    """How what the reports assert agrees with their references; None where nothing is labelled.

    Precision, recall and F1 are micro-averaged: every finding of every study counts alike.
    """
    pairs = [(set(w.found), set(w.true)) for w in written if w.found is not None and w.true is not None]
    if not pairs:
        return None
    agreed = Counter(name for found, true in pairs for name in found & true)
    missed = Counter(name for found, true in pairs for name in true - found)
    invented = Counter(name for found, true in pairs for name in found - true)
    names = sorted({*agreed, *missed, *invented}, key=lambda n: (-agreed[n] - missed[n], n))
    both, only_there, only_here = agreed.total(), missed.total(), invented.total()
    return Findings(
        precision=_share(both, both + only_here),
        recall=_share(both, both + only_there),
        f1=_share(2 * both, 2 * both + only_there + only_here),
        each=tuple(Finding(name, agreed[name], missed[name], invented[name]) for name in names),
    )


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def samples(written: Mapping[str, Sequence[Written]], count: int) -> tuple[Sample, ...]:
    """`count` studies of the test split, and what each model wrote, by label.

    They are those in the middle of as many equal parts of the split, in the split's own order: neither chosen
    nor left to chance. Only studies that every model has count; models that wrote nothing do not.
    """
    by_model = {label: {w.id: w for w in reports} for label, reports in written.items() if reports}
    if not by_model:
        return ()
    first, *others = by_model.values()
    common = [study for study in first if all(study in other for other in others)]
    count = min(count, len(common))
    chosen = [common[(2 * part + 1) * len(common) // (2 * count)] for part in range(count)]
    return tuple(
        Sample(
            id=study,
            images=first[study].images,
            reference=first[study].reference,
            true=first[study].true,
            written={label: reports[study] for label, reports in by_model.items()},
        )
        for study in chosen
    )
