"""The sampler and the study it learns from: real Optuna, real SQLite."""

import pytest
from optuna.trial import TrialState

from autotune import sampler
from autotune import space as spaces
from autotune import study as record
from autotune.feasibility import dominating
from autotune.machine import Machine, fit_to
from autotune.trial import Failure, Measurement, Outcome, Status, Throughput, Trial

FRACTION = 0.85


@pytest.fixture
def study(tmp_path):
    return record.open_study(tmp_path / "study.db", sampler.make(0))


@pytest.fixture
def space(space):
    return fit_to(space, Machine(cpus=8, compute_capability=(9, 0), has_torchao=True))[0]


def toy(trial, memory_gib=24.0):
    """What a GPU might say: throughput saturates with the batch, half precision takes 60% of the memory."""
    batch, half = trial.config["micro_batch_size"], trial.config["precision"] in {"bf16", "fp16", "fp8"}
    if 2 + batch * (0.3 if half else 0.5) > memory_gib:
        return Trial(trial.number, trial.config, Outcome(Status.FAILED, Failure.OOM, "toy"))
    speed = 100 * batch / (batch + 24) * (3 if half else 1)
    figures = Measurement(throughput=Throughput(speed, 1.0, 10, 1.0), quality=0.16)
    return Trial(trial.number, trial.config, Outcome(Status.COMPLETED), figures)


def search(study, space, trials):
    for i in range(trials):
        known = record.trials(study)
        trial = sampler.ask(study, space, known, i) if i else sampler.ask_baseline(study, space)
        if trial is None:
            return
        record.end(study, toy(trial), FRACTION)


def test_trial_0_is_the_baseline(study, space):
    trial = sampler.ask_baseline(study, space)
    assert trial.number == 0
    assert trial.config == {name: space.baseline[name] for name in space.knobs}
    params = study.trials[0].params
    assert params["log2_micro_batch_size"] == 4
    assert params["learning_rate_multiplier"] == 1.0


def test_a_kill_leaves_the_baseline_whole_or_not_there(tmp_path, space):
    study = record.open_study(tmp_path / "study.db", sampler.make(0))
    sampler.ask_baseline(study, space)
    again = record.open_study(tmp_path / "study.db", sampler.make(0))  # as after a kill right now
    assert [(t.number, t.config) for t in record.recover(again, FRACTION)] == [(0, space.baseline_config)]
    assert again.trials[0].params["learning_rate_multiplier"] == 1.0


def test_it_learns_from_out_of_memory_and_finds_the_fast_corner(study, space):
    search(study, space, 40)
    trials = record.trials(study)
    assert len(trials) == 40
    assert sum(t.out_of_memory for t in trials) <= 4
    assert max(t.samples_per_s or 0 for t in trials) >= 0.95 * 300 * 64 / 88


def test_nothing_dominated_by_an_out_of_memory_is_ever_run(study, space):
    search(study, space, 40)
    trials = record.trials(study)
    for number, trial in enumerate(trials):
        assert dominating(trial.config, trials[:number]) is None


def test_every_configuration_keeps_the_limits_and_the_learning_rate_rule(study, space):
    search(study, space, 20)
    for trial in record.trials(study):
        assert 8 <= space.effective_batch_size(trial.config) <= 128
        exact = space.learning_rate(trial.config, 1.0)
        assert 0.499 * exact <= trial.config["learning_rate"] <= 2.001 * exact


def test_what_is_skipped_is_told_infeasible_with_its_reason(study, space):
    search(study, space, 40)
    skipped = record.skipped(study)
    assert skipped
    for trial in skipped:
        assert trial.outcome.reason
        assert study.trials[trial.number].state is TrialState.COMPLETE


def test_a_space_that_is_exhausted_ends(tmp_path):
    text = "workload: r2gen\nbaseline: {x: 1}\nknobs: {x: {choice: [1, 3, 7]}}"
    space = spaces.complete(spaces.parse(text, "test"), "test")
    study = record.open_study(tmp_path / "study.db", sampler.make(0))
    figures = Measurement(throughput=Throughput(1.0, None, 1, 1.0), quality=1.0)
    seen = []
    trial = sampler.ask_baseline(study, space)
    while trial is not None:
        seen.append(trial.config["x"])
        record.end(study, Trial(trial.number, trial.config, Outcome(Status.COMPLETED), figures), FRACTION)
        trial = sampler.ask(study, space, record.trials(study), len(seen))
    assert sorted(seen) == [1, 3, 7]


def test_a_trial_is_read_back_as_it_was_written(study, space):
    trial = sampler.ask_baseline(study, space)
    figures = Measurement(
        throughput=Throughput(61.25, 0.5, 40, 12.0),
        quality=0.16,
        quality_samples=1000,
        samples=1000,
        peak_memory_bytes=5,
        memory_limit_bytes=10,
        scores={"bleu_4": 0.16},
        step_shares={"data_s": 0.1},
        telemetry={"cpu_percent": 190.0},
    )
    ended = Trial(trial.number, trial.config, Outcome(Status.COMPLETED), figures, 33.0)
    record.end(study, ended, FRACTION)
    assert record.trials(study) == [ended]


def test_ending_a_trial_twice_changes_nothing(study, space):
    trial = sampler.ask_baseline(study, space)
    record.end(study, toy(trial), FRACTION)
    before = study.trials
    record.end(study, Trial(0, trial.config, Outcome(Status.FAILED, Failure.LOST, "late")), FRACTION)
    assert study.trials == before


def test_a_failed_trial_is_told_as_infeasible_and_not_as_failed(study, space):
    trial = sampler.ask_baseline(study, space)
    record.end(study, Trial(0, trial.config, Outcome(Status.FAILED, Failure.OOM, "x")), FRACTION)
    assert study.trials[0].state is TrialState.COMPLETE
    assert study.trials[0].values == [0.0, 0.0]
    assert study.best_trials == []


@pytest.mark.parametrize(
    ("speed", "quality"), [(float("nan"), 0.1), (1.0, float("inf")), (None, 0.1), (1.0, None)]
)
def test_numbers_that_are_none_never_reach_the_sampler(study, space, speed, quality):
    trial = sampler.ask_baseline(study, space)
    throughput = None if speed is None else Throughput(speed, None, 1, 1.0)
    figures = Measurement(throughput=throughput, quality=quality)
    record.end(study, Trial(0, trial.config, Outcome(Status.COMPLETED), figures), FRACTION)
    assert study.trials[0].values == [0.0, 0.0]


def test_a_reopened_study_hands_back_what_was_running(tmp_path, space):
    study = record.open_study(tmp_path / "study.db", sampler.make(0))
    done = sampler.ask_baseline(study, space)
    record.end(study, toy(done), FRACTION)
    running = sampler.ask(study, space, record.trials(study), 1)
    study.ask()  # killed before it had a configuration
    again = record.open_study(tmp_path / "study.db", sampler.make(1))
    interrupted = record.recover(again, FRACTION)
    assert [(t.number, t.config) for t in interrupted] == [(running.number, running.config)]
    assert again.trials[-1].state is TrialState.FAIL


def test_a_reopened_study_finishes_a_trial_whose_outcome_was_written(tmp_path, space):
    study = record.open_study(tmp_path / "study.db", sampler.make(0))
    trial = toy(sampler.ask_baseline(study, space))
    handle = study.trials[0]
    for name, value in (("measurement", trial.measurement.to_dict()), ("outcome", trial.outcome.to_dict())):
        study._storage.set_trial_user_attr(handle._trial_id, name, value)
    again = record.open_study(tmp_path / "study.db", sampler.make(1))
    assert record.recover(again, FRACTION) == []
    assert again.trials[0].state is TrialState.COMPLETE
    assert again.trials[0].values == [trial.samples_per_s, trial.quality]
