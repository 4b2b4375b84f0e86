"""Findings of what models wrote, and the studies that are shown."""

import pytest

from autotune.compare.results import Model, Written
from autotune.core.trial import Evaluation, Failure, Measurement, Outcome, Status, Throughput
from autotune.reports import clinical
from autotune.reports.model import Finding


def wrote(study, found=(), true=()):
    return Written(str(study), (f"{study}.png",), "as it is", "as written", {"bleu_4": 0.1}, found, true)


def test_findings_are_agreed_missed_or_invented():
    reports = [
        wrote(1, found=("cardiomegaly", "effusion"), true=("cardiomegaly",)),
        wrote(2, found=("cardiomegaly",), true=("cardiomegaly", "edema")),
        wrote(3, found=(), true=()),
        wrote(4, found=None, true=("edema",)),
    ]
    found = clinical.findings(reports)
    assert found.each == (
        Finding("cardiomegaly", agreed=2, missed=0, invented=0),
        Finding("edema", agreed=0, missed=1, invented=0),
        Finding("effusion", agreed=0, missed=0, invented=1),
    )
    assert (found.precision, found.recall, found.f1) == (pytest.approx(2 / 3),) * 3


def test_precision_and_recall_are_those_of_all_findings_together():
    found = clinical.findings([wrote(1, found=("a", "b", "c", "d"), true=("a", "e"))])
    assert (found.precision, found.recall, found.f1) == (1 / 4, 1 / 2, pytest.approx(1 / 3))


def test_what_has_no_findings_has_no_precision_and_what_no_labels_has_no_findings():
    silent = clinical.findings([wrote(1, found=(), true=("a",))])
    assert (silent.precision, silent.recall, silent.f1) == (None, 0.0, 0.0)
    assert clinical.findings([wrote(1)]).f1 is None
    assert clinical.findings([wrote(1, found=None, true=None)]) is None
    assert clinical.findings([]) is None


def test_samples_are_spread_over_the_split_and_the_same_every_time():
    split = {"baseline": [wrote(n) for n in range(100)], "bf16": [wrote(n) for n in reversed(range(100))]}
    chosen = clinical.samples(split, 5)
    assert [s.id for s in chosen] == ["10", "30", "50", "70", "90"]
    assert chosen == clinical.samples(split, 5)
    assert chosen[0].written == {"baseline": wrote(10), "bf16": wrote(10)}
    assert chosen[0].images == ("10.png",)


def test_samples_are_studies_that_every_model_has_as_many_as_there_are():
    split = {"baseline": [wrote(n) for n in range(10)], "bf16": [wrote(n) for n in (3, 5)], "fp16": []}
    assert [s.id for s in clinical.samples(split, 5)] == ["3", "5"]
    assert clinical.samples(split, 0) == ()
    assert clinical.samples({}, 5) == ()
    assert clinical.samples({"baseline": []}, 5) == ()


def test_a_compared_model_has_the_figures_of_its_training_and_of_its_writing():
    curve = (Evaluation(100, 2.0, 0.1),)
    training = Measurement(throughput=Throughput(50.0, 1.0, 40, 9.0), peak_memory_bytes=7, curve=curve)
    model = Model("bf16", {"a": 1}, Outcome(Status.COMPLETED), training, 100, 4, {"bleu_4": 0.2}, 3.5, 9)
    broken = Model("fp8", {"a": 2}, Outcome(Status.FAILED, Failure.ERROR, "no fp8"), Measurement(), 0)
    first, second = clinical.compared(
        {"bf16": (model,), "fp8": (broken,)}, {"bf16": [wrote(1, ("a",), ("a",))]}
    )
    assert (first.label, first.status, first.trial, first.samples) == ("bf16", "completed", 4, 100)
    assert (first.throughput.low, first.throughput.high, first.training_peak_bytes) == (49.0, 51.0, 7)
    assert (first.scores, first.reports_per_s, first.writing_peak_bytes) == ({"bleu_4": 0.2}, 3.5, 9)
    assert (first.curve, first.findings.f1) == (curve, 1.0)
    assert (second.status, second.reason, second.throughput, second.findings) == (
        "failed",
        "no fp8",
        None,
        None,
    )
