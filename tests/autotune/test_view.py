from dataclasses import replace

import pytest

from autotune import confirm, view
from autotune.sections import Objective
from autotune.trial import Repeat
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
    trials += [make_trial(3, 1, stopped=True), make_trial(4, 1, 1, repeat=Repeat(0, 1, (0, 3)))]
    assert view.counts([]) == "0 trials: none ended"
    running = replace(make_trial(5), outcome=None)
    assert view.counts([*trials, running], "running") == (
        "5 trials: 1 completed, 1 stopped early, 1 out of memory, 1 failed otherwise, 1 running; 1 repeat"
    )
    assert view.counts([*trials, make_trial(6, 1, way_to=3)]).endswith("; 1 repeat, 1 step of the way")
    steps = [make_trial(number, 1, way_to=3) for number in (6, 7)]
    assert view.counts([trials[0], *steps]) == "1 trials: 1 completed; 2 steps of the way"


def test_the_summary_states_the_factor_both_qualities_and_what_to_run(make_trial, space, workload, tmp_path):
    trials = [make_trial(0, 20, 0.16), make_trial(1, 60, 0.155), make_trial(2, 90, 0.1)]
    text = "\n".join(view.summary(trials, space, workload, tmp_path / "s"))
    assert "Best: trial 1" in text
    assert "3.00x the baseline's throughput (60.0 against 20.0 samples/s)" in text
    assert "bleu_4 0.1550 against 0.1600" in text
    assert "Not confirmed: each was measured once, over 20000 samples." in text
    assert f"python -m autotune export {tmp_path / 's'} -o best.yaml" in text


def test_the_summary_claims_nothing_when_the_baseline_is_best(make_trial, space, workload, tmp_path):
    trials = [make_trial(0, 20, 0.16), make_trial(1, 60, 0.1)]
    text = "\n".join(view.summary(trials, space, workload, tmp_path))
    assert "The baseline is the best so far (20.0 samples/s, bleu_4 0.1600)" in text
    assert "x the baseline's" not in text


def test_without_a_baseline_there_is_no_result(make_trial, space, workload, tmp_path):
    text = "\n".join(view.summary([make_trial(0, failure="oom")], space, workload, tmp_path))
    assert text.startswith("No result: the baseline has not completed")


def test_the_front_lists_every_trial_that_none_beats(make_trial, space, workload, tmp_path):
    trials = [
        make_trial(0, 20, 0.16),
        make_trial(1, 60, 0.155),
        make_trial(2, 90, 0.1),
        make_trial(3, 50, 0.1),
    ]
    front = space.model_copy(update={"objective": Objective(select="pareto")})
    text = "\n".join(view.summary(trials, front, workload, tmp_path))
    assert [f"trial {n}:" in text.partition("Best:")[0] for n in range(4)] == [True, True, True, False]


@pytest.fixture
def confirmed(make_trial):
    """A baseline, a trial that is faster, and three rounds of repeats; `read` is what that trial repeats."""

    def make(**read):
        trials = [make_trial(0, 10, 0.2, half_width=0.1), make_trial(1, 31, 0.2, half_width=0.1, x=1)]
        for number in range(2, 8):
            of, x = number % 2, {"x": 1} if number % 2 else {}
            figures = {"speed": 30 if of else 10, "quality": 0.2, "half_width": 0.1} | (read if of else {})
            trials.append(make_trial(number, **figures, **x, repeat=Repeat(of, number // 2, (0, 1))))
        return trials

    return make


def test_a_confirmed_winner_is_stated_with_its_interval_and_its_pairs(confirmed, space, workload, tmp_path):
    trials = confirmed()
    text = "\n".join(view.summary(trials, space, workload, tmp_path))
    expected = "Confirmed: 3.00x the baseline's throughput (3.00x to 3.00x at 95%, 3 pairs of runs"
    assert expected in text
    assert "measured once" not in text
    assert view.measured(trials[1], trials, space).startswith(expected)
    assert "measured once" in view.measured(trials[1], trials[:2], space)
    assert view.measured(trials[0], trials, space) == "the baseline"


def test_a_winner_that_does_not_hold_is_named_with_the_reason(confirmed, space, workload, tmp_path):
    text = "\n".join(view.summary(confirmed(quality=0.1), space, workload, tmp_path))
    assert "Trial 1 did not hold when it was repeated: bleu_4 0.1000 is below 0.1900." in text
    assert "The baseline is the best so far" in text


def test_a_winner_whose_repeats_are_no_faster_is_named_too(confirmed, space, workload, tmp_path):
    text = "\n".join(view.summary(confirmed(speed=9), space, workload, tmp_path))
    assert "Trial 1 did not hold when it was repeated" in text


def test_without_repeats_nothing_is_said_of_them(make_trial, space, workload, tmp_path):
    chosen = space.model_copy(update={"budget": space.budget.model_copy(update={"repeats": 0})})
    trials = [make_trial(0, 20, 0.16), make_trial(1, 60, 0.155)]
    text = "\n".join(view.summary(trials, chosen, workload, tmp_path))
    assert "Not confirmed" in text
    assert "did not hold" not in text


def test_figures_that_move_and_a_throttled_gpu_are_pointed_out(make_trial, space, workload, tmp_path):
    hot = make_trial(2, 50, 0.2, half_width=0.1, micro_batch_size=4)
    hot = replace(hot, measurement=replace(hot.measurement, telemetry={"gpu_throttled": 0.5}))
    trials = [make_trial(0, 10, 0.2, half_width=0.1), make_trial(1, 12, 0.2, half_width=0.1), hot]
    text = "\n".join(view.summary(trials, space, workload, tmp_path))
    assert "trials 0 and 1 ran the same at speeds 20% apart" in text
    assert "Thermally throttled, and slower for it: trials 2." in text


def test_what_a_trial_runs(make_trial):
    repeat = make_trial(4, 10, 0.2, micro_batch_size=8, repeat=confirm.noise_repeat())
    assert view.name(repeat) == "repeat of 0: 8 fp32"
    assert view.name(make_trial(4, 10, way_to=3)) == "way to 3: 16 fp32"
    assert view.name(make_trial(4, 10, 0.2)) == "16 fp32"
