"""A running trial's report passes through Ray unchanged."""

import json
from dataclasses import asdict

from autotune.core.measurement import Evaluation, Measurement, Slice, Throughput
from autotune.core.trial import Failure, Outcome, Status
from autotune.trials.progress import Phase
from autotune.trials.report import REPORT, TrialReport

SHOWN = Measurement(Throughput(61.2, 0.4, 9, 3.0), 0.2, 400, samples=400, curve=(Evaluation(400, 3.0, 0.2),))
OOM = Outcome(Status.FAILED, Failure.OOM, "too big")


def test_it_passes_through_unchanged_whatever_is_added():
    record = {"samples": 400, "bleu_4": 0.2, "at_s": 3.0}
    for outcome in (None, OOM):
        given = TrialReport(
            3, Phase.TRAINING, 9.5, SHOWN, (record,), {"cpu_percent": 50.0}, outcome, "be told"
        )
        carried = json.loads(json.dumps(asdict(given))) | {"training_iteration": 7, "done": False}
        assert REPORT.validate_python(carried) == given


def test_the_samples_of_a_race_are_those_of_its_slices():
    slices = (Slice(0, 1, 40, 1.0, 4), Slice(7, 1, 60, 1.0, 6))
    assert TrialReport(9, Phase.RACING, 2.0, Measurement(slices=slices)).samples == 100
    assert TrialReport(9, Phase.RACING, 2.0, Measurement(samples=100)).samples == 100
    assert TrialReport(9, Phase.START, 0.0).samples == 0
