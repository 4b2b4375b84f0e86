"""The report of a session, made from its contents."""

from dataclasses import replace

import pytest

from autotune.compare.results import ComparisonResults, Model
from autotune.core.measurement import Evaluation, Measurement, Throughput
from autotune.core.trial import Failure, Outcome, RejectedFor, RejectedSuggestion, Status
from autotune.judging.decisions.history import History
from autotune.memory.feasibility import MemoryModel
from autotune.reports import figures
from autotune.storage.study_file import SearchPlan

from . import searched
from .searched import GIB, trial


@pytest.fixture
def known(space):
    return searched.known(space)


def test_a_report_says_what_was_searched_for_and_how(known):
    report = figures.report(known)
    assert (report.session, report.created, report.state) == ("runs/s", "2026-11-21", "ended")
    assert (report.quality, report.keep, report.target) == ("bleu_4", 0.95, None)
    assert report.select == "same-quality"
    assert (report.samples_per_trial, report.planned, report.seconds) == (20_000, 40, 900.0)
    assert (report.memory_fraction, report.memory_limit_bytes) == (0.85, 8 * GIB)
    assert report.answer.verdict == "confirmed"
    assert report.answer.best.full_training_s == 60_000 / report.answer.best.throughput.value
    assert report.least_quality == pytest.approx(0.95 * report.answer.baseline.quality.value)
    assert [row.kind for row in report.trials[:3]] == ["baseline", "winner", "repeat"]
    assert [p.precision for p in report.predicted] == ["fp32", "tf32", "bf16", "fp16", "fp8"]
    assert [step.knob for step in report.ablation] == ["micro_batch_size", "precision"]


def test_an_unknown_limit_is_left_out_or_replaced_by_the_requested_one(known):
    first = trial(known.history.space, 0, None, None, seconds=7.0)
    running = replace(first, outcome=None, measurement=Measurement())
    history = History([running], known.history.space)
    begun = replace(known, state="running", history=history, plan=SearchPlan(40, None), provenance={})
    report = figures.report(begun)
    assert (report.answer.verdict, report.answer.commands, report.created) == ("none", (), "")
    assert (report.memory_limit_bytes, report.seconds, report.least_quality) == (GIB, 7.0, None)
    assert (report.predicted, report.ablation, report.compared, report.own) == ((), (), (), None)
    assert report.skipped == ()


def test_provenance_excludes_the_space_and_says_how_it_was_measured(known):
    space = known.history.space
    more = [trial(space, 9, 20, 0.2, shared=True), trial(space, 10, None, None)]
    history = History([*known.history.trials, *more], space)
    found = figures.report(replace(known, history=history)).provenance
    assert "space" not in found
    assert (found["seed"], found["seeds"]) == (0, [0, 1, 2, 3, 4])
    assert (found["measured_alone"], found["measured_beside_others"]) == (9, 1)
    assert (found["options"]["wandb"], found["options"]["memory_limit_bytes"]) == ("off", GIB)


def test_compared_models_are_in_the_report(known):
    models = {n: (Model(n, {}, Outcome(Status.COMPLETED), Measurement(), 100),) for n in ("baseline", "bf16")}
    report = figures.report(replace(known, compared=ComparisonResults(models)))
    assert [model.label for model in report.compared] == ["baseline", "bf16"]


def test_a_compared_model_has_figures_of_training_and_writing(known):
    curve = (Evaluation(100, 2.0, 0.1),)
    training = Measurement(throughput=Throughput(50.0, 1.0, 40, 9.0), peak_memory_bytes=7, curve=curve)
    model = Model("bf16", {"a": 1}, Outcome(Status.COMPLETED), training, 100, 4, {"bleu_4": 0.2}, 3.5, 9)
    broken = Model("fp8", {"a": 2}, Outcome(Status.FAILED, Failure.ERROR, "no fp8"), Measurement(), 0)
    models = {"bf16": (model,), "fp8": (broken,)}
    first, second = figures.report(replace(known, compared=ComparisonResults(models))).compared
    assert (first.label, first.status, first.trial, first.samples) == ("bf16", "completed", 4, 100)
    assert (first.throughput.low, first.throughput.high, first.training_peak_bytes) == (49.0, 51.0, 7)
    assert (first.scores, first.reports_per_s, first.writing_peak_bytes) == ({"bleu_4": 0.2}, 3.5, 9)
    assert first.curve == curve
    assert (second.status, second.reason, second.throughput) == ("failed", "no fp8", None)


def test_rejected_suggestions_are_in_the_report(known):
    slow = RejectedSuggestion(known.history.space.baseline_config, RejectedFor.SPEED, "is as fast as trial 1")
    (found,) = figures.report(replace(known, passed_over=[slow])).skipped
    assert found.count == 1


@pytest.mark.parametrize(
    ("changes", "command"),
    [
        ({"state": "running"}, ""),
        ({"state": "interrupted"}, "python -m autotune resume runs/s"),
        ({}, "python -m autotune resume runs/s --trials 20"),
        ({"plan": SearchPlan(40, 900.0, spent_s=901.0)}, "python -m autotune resume runs/s --time 5m"),
        ({"plan": SearchPlan(40, 900.0, spent_s=400.0)}, "python -m autotune resume runs/s --trials 20"),
    ],
)
def test_a_command_continues_the_search(known, changes, command):
    assert figures.report(replace(known, **changes)).going_on == command


def test_a_search_without_a_baseline_cannot_continue(known):
    space = known.history.space
    failed = replace(trial(space, 0, None, None), outcome=Outcome(Status.FAILED, reason="as made"))
    assert figures.report(replace(known, history=History([failed], space))).going_on == ""


SIZES = (4, 8, 16, 32, 64)


def test_memory_is_predicted_for_every_micro_batch_and_precision_to_choose_from(space):
    trials = [
        trial(space, n, 10, 0.2, micro_batch_size=size, peak=size * GIB // 8) for n, size in enumerate(SIZES)
    ]
    best = trials[2].config | {"num_workers": 8}
    found = figures.predicted(best, History(trials, space), 8 * GIB)
    assert [p.precision for p in found] == ["fp32", "tf32", "bf16", "fp16", "fp8"]
    assert all(p.micro_batch_size == SIZES for p in found)
    expected = MemoryModel(trials, limit_bytes=8 * GIB).predict(best | {"micro_batch_size": 32})
    assert found[0].peak_bytes[3] == expected.expected_bytes
    assert (found[0].low_bytes[3], found[0].high_bytes[3]) == (expected.low_bytes, expected.high_bytes)
    assert found[2].peak_bytes[4] < found[0].peak_bytes[4], "half precision takes less"


def test_without_a_peak_nothing_is_predicted(space):
    history = History([trial(space, 0, 10, 0.2, peak=None)], space)
    assert figures.predicted(space.baseline_config, history, None) == ()


def test_a_fixed_precision_has_one_row_of_peaks(space):
    fixed = space.model_copy(update={"knobs": {n: k for n, k in space.knobs.items() if n != "precision"}})
    config = trial(fixed, 0, 10, 0.2).config
    (found,) = figures.predicted(config, History([trial(fixed, 0, 10, 0.2)], fixed), None)
    assert (found.precision, found.micro_batch_size) == ("", SIZES)


def test_rejected_suggestions_are_grouped_by_reason(space):
    reasons = {
        RejectedFor.SPEED: [
            "by equal settings, at most 9.1 samples/s; trial 5 reaches 12.3",
            "by equal settings, at most 10.4 samples/s; trial 7 reaches 12.9",
        ],
        RejectedFor.MEMORY: [
            "predicted to need 9.1 GiB (8.7 to 9.5) of 6.8 GiB",
            "predicted to need 912 MiB (870 to 950) of 680 MiB",
            "predicted to need 7.2 GiB (6.9 to 7.6) of 6.8 GiB",
        ],
    }
    rejected = [
        RejectedSuggestion(space.baseline_config, kind, reason)
        for kind, group in reasons.items()
        for reason in group
    ]
    memory, speed = figures.skipped(rejected)
    assert (memory.reason, memory.count) == ("predicted to need … (… to …) of …", 3)
    assert memory.example == rejected[2].reason
    assert speed.reason == "by equal settings, at most … samples/s; trial … reaches …"
    assert figures.skipped([]) == ()
