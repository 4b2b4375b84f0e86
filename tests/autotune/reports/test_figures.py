"""A session as one report: what it is put together from, and whether its search has ended."""

from dataclasses import replace

import pytest

from autotune.compare.results import Found, Model
from autotune.core.measurement import Measurement
from autotune.core.rejected_suggestion import RejectedFor, RejectedSuggestion
from autotune.core.trial import Outcome, Status
from autotune.judging.decisions.history import History
from autotune.reports import figures
from autotune.storage.study_file import Plan

from . import searched
from .searched import GIB, trial


@pytest.fixture
def known(space):
    return searched.known(space)


def test_a_report_says_what_was_searched_for_and_how(known):
    report = figures.report(known)
    assert (report.session, report.created, report.state) == ("runs/s", "2026-11-21", "ended")
    assert (report.quality, report.keep, report.select, report.target) == (
        "bleu_4",
        0.95,
        "same-quality",
        None,
    )
    assert (report.samples_per_trial, report.planned, report.seconds) == (20_000, 40, 900.0)
    assert (report.memory_fraction, report.memory_limit_bytes) == (0.85, 8 * GIB)
    assert report.answer.verdict == "confirmed"
    assert report.answer.best.full_training_s == 60_000 / report.answer.best.throughput.value
    assert report.least_quality == pytest.approx(0.95 * report.answer.baseline.quality.value)
    assert [row.kind for row in report.trials[:3]] == ["baseline", "winner", "repeat"]
    assert [p.precision for p in report.predicted] == ["fp32", "tf32", "bf16", "fp16", "fp8"]
    assert [step.knob for step in report.ablation] == ["micro_batch_size", "precision"]


def test_what_is_not_known_is_left_out_and_a_limit_that_was_asked_for_stands_in(known):
    running = replace(
        trial(known.history.space, 0, None, None), outcome=None, measurement=Measurement(), seconds=7.0
    )
    history = History([running], known.history.space)
    begun = replace(known, state="running", history=history, plan=Plan(40, None), provenance={})
    report = figures.report(begun)
    assert (report.answer.verdict, report.answer.commands, report.created) == ("none", (), "")
    assert (report.memory_limit_bytes, report.seconds, report.least_quality) == (GIB, 7.0, None)
    assert (report.predicted, report.ablation, report.compared, report.own) == ((), (), (), None)
    assert report.skipped == ()


def test_provenance_is_all_but_the_space_and_says_how_was_measured(known):
    space = known.history.space
    more = [trial(space, 9, 20, 0.2, shared=True), trial(space, 10, None, None)]
    history = History([*known.history.trials, *more], space)
    found = figures.report(replace(known, history=history)).provenance
    assert "space" not in found
    assert (found["seed"], found["seeds"]) == (0, [0, 1, 2, 3, 4])
    assert (found["measured_alone"], found["measured_beside_others"]) == (9, 1)
    assert (found["options"]["wandb"], found["options"]["memory_limit_bytes"]) == ("off", GIB)


def test_compared_models_are_in_it(known):
    models = {n: (Model(n, {}, Outcome(Status.COMPLETED), Measurement(), 100),) for n in ("baseline", "bf16")}
    report = figures.report(replace(known, compared=Found(models)))
    assert [model.label for model in report.compared] == ["baseline", "bf16"]


def test_what_was_passed_over_is_in_it(known):
    config = known.history.space.baseline_config | {"num_workers": 0}
    passed = [RejectedSuggestion(config, RejectedFor.SPEED, "is as fast as trial 1, which keeps the quality")]
    (found,) = figures.report(replace(known, passed_over=passed)).skipped
    assert found.count == 1


@pytest.mark.parametrize(
    ("changes", "command"),
    [
        ({"state": "running"}, ""),
        ({"state": "interrupted"}, "python -m autotune resume runs/s"),
        ({}, "python -m autotune resume runs/s --trials 20"),
        ({"plan": Plan(40, 900.0, spent_s=901.0)}, "python -m autotune resume runs/s --time 5m"),
        ({"plan": Plan(40, 900.0, spent_s=400.0)}, "python -m autotune resume runs/s --trials 20"),
    ],
)
def test_what_runs_more_of_a_search_is_a_command_that_does(known, changes, command):
    assert figures.report(replace(known, **changes)).going_on == command


def test_without_its_baseline_nothing_of_a_search_can_be_run(known):
    space = known.history.space
    failed = replace(trial(space, 0, None, None), outcome=Outcome(Status.FAILED, reason="as made"))
    assert figures.report(replace(known, history=History([failed], space))).going_on == ""
