import pytest

from autotune import view
from autotune.workloads import Workload


@pytest.fixture
def workload():
    return Workload("some.module:fit")


def test_a_configuration_in_short():
    config = {"micro_batch_size": 16, "accumulation_steps": 2, "precision": "bf16", "num_workers": 2}
    assert view.knobs(config | {"learning_rate": 1.234e-4}) == "16x2 bf16 workers 2 lr 0.00012"
    assert view.knobs({"x": True, "y": False, "z": 0}) == "x z 0"


def test_control_characters_never_reach_the_terminal():
    assert view.printable("a\x1b[2Jb\r\nc\u202e") == "a [2Jb  c "
    assert "\x1b" not in view.knobs({"name": "\x1b[31mred"})


def test_trials_are_counted_by_how_they_ended(make_trial):
    trials = [make_trial(0, 1, 1), make_trial(1, failure="oom"), make_trial(2, failure="error")]
    assert view.counts(trials) == "3 trials: 1 completed, 1 out of memory, 1 failed otherwise"


def test_the_summary_states_the_factor_both_qualities_and_what_to_run(make_trial, space, workload, tmp_path):
    trials = [make_trial(0, 20, 0.16), make_trial(1, 60, 0.155), make_trial(2, 90, 0.1)]
    text = "\n".join(view.summary(trials, space, workload, tmp_path / "s"))
    assert "Best: trial 1" in text
    assert "3.00x the baseline's throughput (60.0 against 20.0 samples/s)" in text
    assert "bleu_4 0.1550 against 0.1600" in text
    assert f"python -m autotune export {tmp_path / 's'} -o best.yaml" in text


def test_the_summary_claims_nothing_when_the_baseline_is_best(make_trial, space, workload, tmp_path):
    trials = [make_trial(0, 20, 0.16), make_trial(1, 60, 0.1)]
    text = "\n".join(view.summary(trials, space, workload, tmp_path))
    assert "The baseline is the best so far (20.0 samples/s, bleu_4 0.1600)" in text
    assert "x the baseline's" not in text


def test_without_a_baseline_there_is_no_result(make_trial, space, workload, tmp_path):
    text = "\n".join(view.summary([make_trial(0, failure="oom")], space, workload, tmp_path))
    assert "No result: the baseline has not completed." in text


def test_the_front_lists_every_trial_that_none_beats(make_trial, space, workload, tmp_path):
    trials = [
        make_trial(0, 20, 0.16),
        make_trial(1, 60, 0.155),
        make_trial(2, 90, 0.1),
        make_trial(3, 50, 0.1),
    ]
    text = "\n".join(view.summary(trials, space, workload, tmp_path, "pareto"))
    assert [f"trial {n}:" in text.partition("Best:")[0] for n in range(4)] == [True, True, True, False]


def test_the_time_left_is_the_mean_of_the_trials_so_far(make_trial):
    assert view.remaining_time([], 4, 1) is None
    assert view.remaining_time([make_trial(0, 1, 1), make_trial(1, 1, 1)], 6, 2) == 20
