"""The record of a search, with real Optuna, real SQLite, and kills at the worst moment."""

import itertools
import random
from dataclasses import asdict, replace

import pytest
from optuna.trial import TrialState

from autotune.core.measurement import Evaluation, Measurement, Throughput
from autotune.core.trial import Failure, Outcome, RejectedFor, RejectedSuggestion, Repeat, Status, Trial
from autotune.space import configurations
from autotune.space.knobs import KeptBatch
from autotune.space.sections import Objective
from autotune.storage import studies, study_file
from autotune.storage.study_file import SearchPlan

FRACTION = 0.85
COMPLETED = Outcome(Status.COMPLETED)
FIGURES = Measurement(
    throughput=Throughput(61.25, 0.5, 40, 12.0),
    quality=0.16,
    quality_samples=1000,
    curve=(Evaluation(500, 6.0, 0.1), Evaluation(1000, 12.0, 0.16)),
    samples=1000,
    peak_memory_bytes=5,
    peak_reserved_bytes=7,
    context_bytes=3,
    memory_cap_bytes=9,
    memory_limit_bytes=10,
    shared=True,
    device="a device",
    revision="0123",
    scores={"bleu_4": 0.16},
    step_shares={"data_s": 0.1},
    telemetry={"cpu_percent": 190.0},
)


@pytest.fixture
def file(tmp_path):
    return tmp_path / "study.db"


@pytest.fixture
def study(file, space):
    return studies.open_study(file, space)


def test_a_derived_setting_is_kept_like_any_other(file, space):
    kept = {**space.knobs, "accumulation_steps": KeptBatch(keep="effective_batch_size")}
    space = space.model_copy(update={"knobs": kept})
    config = configurations.changed(space, space.baseline_config, {"micro_batch_size": 4})
    assert studies.begin(studies.open_study(file, space), space, config).config == config
    assert studies.can_hold(space, config)


def baseline(study, space):
    return studies.begin(study, space, space.baseline_config)


def ended(trial, outcome=COMPLETED, figures=FIGURES):
    return Trial(trial.number, trial.config, outcome, figures, 33.0, trial.repeat, trial.ablation_of)


def test_a_trial_is_read_back_as_it_was_written(study, space):
    trial = ended(baseline(study, space))
    studies.end(study, trial, FRACTION)
    assert studies.read(study).trials == [trial]


def test_a_repeat_and_rejected_suggestions_are_read_back(study, space):
    baseline(study, space)
    repeat = Repeat(0, 1)
    kinds = {64: RejectedFor.MEMORY, 32: RejectedFor.LIMITS}
    passed = [RejectedSuggestion({"micro_batch_size": size}, kind, "why") for size, kind in kinds.items()]
    again = studies.begin(study, space, space.baseline_config, repeat, passed=passed)
    assert (again.number, again.repeat) == (1, repeat)
    assert studies.read(study).trials[1] == again
    assert studies.read(study).passed_over == passed


def test_an_ablation_step_is_read_back_and_recovered(study, file, space):
    baseline(study, space)
    step = studies.begin(study, space, {**space.baseline_config, "precision": "bf16"}, ablation_of=0)
    assert (step.ablation_of, step.kind) == (0, "step")
    assert studies.recover(studies.open_study(file, space), FRACTION)[1] == step
    studies.end(study, ended(step), FRACTION)
    assert studies.read(study).trials[1] == ended(step)


def test_the_study_has_knobs_and_objectives_under_their_names(study, space):
    config = {**space.baseline_config, "micro_batch_size": 64, "learning_rate": 2.5e-4}
    studies.begin(study, space, config)
    assert study.trials[0].params == config
    assert study.metric_names == ["throughput", "bleu_4"]


def test_every_configuration_is_within_its_distributions(study, space):
    baseline(study, space)
    come_from = study.trials[0].distributions
    for config in itertools.islice(configurations.shuffled(space, random.Random(0)), 300):
        for name, value in config.items():
            assert come_from[name]._contains(come_from[name].to_internal_repr(value)), (name, value)


def test_optuna_and_its_dashboard_see_the_violation_of_a_limit(study, space):
    for outcome in (COMPLETED, Outcome(Status.FAILED, Failure.OOM, "x")):
        studies.end(study, ended(baseline(study, space), outcome), FRACTION)
    completed, failed = study.trials
    assert completed.constraints["memory"] == completed.system_attrs["constraints"][0] == 0.5 - FRACTION
    assert failed.constraints["failed (oom)"] == failed.system_attrs["constraints"][0] == 1.0


def test_a_kill_leaves_a_trial_complete_or_absent(study, file, space):
    baseline(study, space)
    again = studies.open_study(file, space)  # as after a kill right now
    assert [(t.number, t.config) for t in studies.recover(again, FRACTION)] == [(0, space.baseline_config)]


def test_ending_a_trial_twice_changes_nothing(study, space):
    trial = baseline(study, space)
    studies.end(study, ended(trial), FRACTION)
    before = study.trials
    studies.end(study, ended(trial, Outcome(Status.FAILED, Failure.LOST, "late")), FRACTION)
    assert study.trials == before


def test_a_trial_that_has_not_ended_cannot_be_ended(study, space):
    with pytest.raises(ValueError, match="trial 0 has not ended"):
        studies.end(study, baseline(study, space), FRACTION)


def test_a_failed_trial_is_told_as_infeasible_and_a_stopped_one_as_pruned(study, space):
    for outcome in (Outcome(Status.FAILED, Failure.OOM, "x"), Outcome(Status.STOPPED, reason="slow")):
        studies.end(study, ended(baseline(study, space), outcome), FRACTION)
    failed, stopped = study.trials
    assert (failed.state, failed.values) == (TrialState.COMPLETE, [0.0, 0.0])
    assert stopped.state is TrialState.PRUNED
    assert study.best_trials == []


@pytest.mark.parametrize(
    ("speed", "quality"), [(float("nan"), 0.1), (1.0, float("inf")), (None, 0.1), (1.0, None)]
)
def test_non_finite_numbers_never_reach_optuna(study, space, speed, quality):
    throughput = None if speed is None else Throughput(speed, None, 1, 1.0)
    figures = Measurement(throughput=throughput, quality=quality)
    studies.end(study, ended(baseline(study, space), figures=figures), FRACTION)
    assert study.trials[0].values == [0.0, 0.0]


def test_a_reopened_study_hands_back_what_was_running(study, file, space):
    studies.end(study, ended(baseline(study, space)), FRACTION)
    running = studies.begin(study, space, {**space.baseline_config, "micro_batch_size": 8})
    again = studies.open_study(file, space)
    assert studies.recover(again, FRACTION) == [running]
    assert again.trials[1].state is TrialState.RUNNING


def test_a_reopened_study_finishes_a_trial_whose_outcome_was_written(study, file, space):
    trial = ended(baseline(study, space))
    handle = study.trials[0]
    for name, value in (("measurement", asdict(trial.measurement)), ("outcome", asdict(trial.outcome))):
        study._storage.set_trial_user_attr(handle._trial_id, name, value)
    again = studies.open_study(file, space)
    assert studies.recover(again, FRACTION) == []
    assert again.trials[0].state is TrialState.COMPLETE
    assert again.trials[0].values == [trial.samples_per_s, trial.quality]


def test_trials_of_other_programs_are_left_alone(study, space):
    study.ask()
    assert studies.read(study).trials == []
    assert studies.recover(study, FRACTION) == []
    assert study.trials[0].state is TrialState.RUNNING


def test_the_plan_is_kept(study, file):
    assert studies.read(study).plan is None
    studies.set_plan(study, SearchPlan(5, 100.0, 3.0))
    assert study_file.load_study(file).plan == SearchPlan(5, 100.0, 3.0)


def test_a_loss_is_minimized_in_the_study_with_its_own_sign(file, space):
    goal = Objective(minimize="val_loss", within=0.02)
    study = studies.open_study(file, lower := space.model_copy(update={"objective": goal}))
    trial = ended(baseline(study, lower), figures=replace(FIGURES, quality=-2.5))
    studies.end(study, trial, FRACTION)
    assert (study.metric_names, study.directions[1].name) == (["throughput", "val_loss"], "MINIMIZE")
    assert study.trials[0].values == [61.25, 2.5]
    assert studies.read(study).trials == [trial], "the record is what was measured, higher is better"
