"""The rows of compared models."""

from autotune.compare.results import Model
from autotune.core.measurement import Evaluation, Measurement, Throughput
from autotune.core.trial import Failure, Outcome, Status
from autotune.reports import comparison
from autotune.space.space import Objective


def test_a_compared_model_has_figures_of_training_and_writing():
    curve = (Evaluation(100, 2.0, 0.1),)
    training = Measurement(throughput=Throughput(50.0, 1.0, 40, 9.0), peak_memory_bytes=7, curve=curve)
    model = Model("bf16", {"a": 1}, Outcome(Status.COMPLETED), training, 100, 4, {"bleu_4": 0.2}, 3.5, 9)
    broken = Model("fp8", {"a": 2}, Outcome(Status.FAILED, Failure.ERROR, "no fp8"), Measurement(), 0)
    first, second = comparison.compared({"bf16": (model,), "fp8": (broken,)}, Objective())
    assert (first.label, first.status, first.trial, first.samples) == ("bf16", "completed", 4, 100)
    assert (first.throughput.low, first.throughput.high, first.training_peak_bytes) == (49.0, 51.0, 7)
    assert (first.scores, first.reports_per_s, first.writing_peak_bytes) == ({"bleu_4": 0.2}, 3.5, 9)
    assert first.curve == curve
    assert (second.status, second.reason, second.throughput) == ("failed", "no fp8", None)
