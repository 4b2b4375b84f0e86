"""The nouns of a search."""

import json
from dataclasses import asdict

import pytest
from pydantic import TypeAdapter

from autotune.core.measurement import Evaluation, Measurement, Slope, Throughput
from autotune.core.trial import Failure, Outcome, Repeat, Shortage, Status, StoppedFor, Trial, TrialKind


def out_of_memory(reason, shortage=None):
    return Outcome(Status.FAILED, Failure.OOM, reason, shortage)


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome(Status.COMPLETED),
        out_of_memory("x"),
        *(out_of_memory("x", kind) for kind in Shortage),
        *(Outcome(Status.STOPPED, reason="x", stopped_for=kind) for kind in StoppedFor),
    ],
    ids=str,
)
def test_an_outcome_survives_json(outcome):
    assert TypeAdapter(Outcome).validate_json(json.dumps(asdict(outcome))) == outcome


def test_a_measurement_survives_json() -> None:
    measurement = Measurement(
        throughput=Throughput(10.0, None, 5, 2.0),
        curve=(Evaluation(8, 1.0, 0.5),),
        memory_slope=Slope(2.0, 1.0, 3.0, is_slowing=True),
    )
    assert TypeAdapter(Measurement).validate_json(json.dumps(asdict(measurement))) == measurement


@pytest.mark.parametrize(
    ("trial", "kind", "runs_alone", "references"),
    [
        (Trial(3, {}), TrialKind.SEARCHED, False, set()),
        (Trial(1, {}, repeat=Repeat(0, 0)), TrialKind.PILOT, False, {0}),
        (Trial(9, {}, repeat=Repeat(3, 1)), TrialKind.SEED, False, {3}),
        (Trial(8, {}, race=(0, 3)), TrialKind.RACE, True, {0, 3}),
        (Trial(9, {}, ablation_of=3), TrialKind.STEP, True, {3}),
    ],
    ids=lambda value: value if isinstance(value, TrialKind) else "",
)
def test_the_kind_of_a_trial_follows_from_its_references(trial, kind, runs_alone, references):
    """Trials that are judged by their speed at the end of a search run alone."""
    assert (trial.kind, trial.runs_alone, trial.references) == (kind, runs_alone, references)
