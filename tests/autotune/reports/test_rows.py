"""Every trial as a row, and what was not started."""

from dataclasses import replace

import pytest

from autotune.compare.results import Model
from autotune.core.passed_over import PassedOver, Refused
from autotune.core.trial import Evaluation, Failure, Measurement, Outcome, Status, Throughput
from autotune.judging.history import History
from autotune.reports import marks, rows
from autotune.space.space import Objective

from .searched import GIB, confirmed, trial


def test_every_trial_is_told_by_what_it_is_there_for(space):
    trials = [*confirmed(space), trial(space, 10, 20, 0.2, ablation_of=1), trial(space, 11, 5, 0.1)]
    found = rows.rows(History(trials, space), winner=1)
    kinds = ["baseline", "winner", "repeat", "race", *["repeat"] * 6, "ablation", "trial"]
    assert [row.kind for row in found] == kinds
    assert [row.repeats for row in found] == [None, None, 0, None, 0, 1, 0, 1, 0, 1, None, None]
    assert [row.number for row in found] == list(range(12))
    assert rows.rows(History(trials[:1], space), winner=0)[0].kind == "baseline"


def test_who_keeps_the_quality_is_known_of_whole_trials_alone(space):
    trials = [
        trial(space, 0, 10, 0.2),
        trial(space, 1, 20, 0.19),
        trial(space, 2, 20, 0.18),
        trial(space, 3, 20, 0.3, status="stopped"),
        trial(space, 4, None, None, failure="oom"),
    ]
    assert History(trials, space).least_quality == pytest.approx(0.19)
    assert [row.keeps_quality for row in rows.rows(History(trials, space), None)] == [
        True,
        True,
        False,
        None,
        None,
    ]
    assert rows.rows(History(trials[1:2], space), None)[0].keeps_quality is None, (
        "the baseline's is not known yet"
    )


def test_for_a_target_who_has_reached_it_keeps_the_quality(space):
    goal = space.model_copy(update={"objective": Objective(select="same-quality", target=0.15)})
    trials = [trial(space, 0, 10, 0.2), trial(space, 1, 20, 0.14)]
    assert History(trials, goal).least_quality == 0.15
    assert [row.keeps_quality for row in rows.rows(History(trials, goal), None)] == [True, False]


def test_the_figures_of_a_row_are_the_trials_own(space):
    shown = trial(space, 0, 10, 0.2, peak=2 * GIB, shared=True, telemetry={"gpu_throttled": 0.9})
    (row,) = rows.rows(History([shown], space), None)
    assert (row.throughput.low, row.throughput.value, row.throughput.high) == (9.9, 10, 10.1)
    assert (row.peak_memory_bytes, row.memory_share, row.shared, row.throttled) == (2 * GIB, 0.25, True, True)
    assert (row.status, row.failure, row.on_front) == ("completed", None, True)
    busy = {"others_cpu_percent": 50.0, "allowed_cpus": 2.0}
    (row,) = rows.rows(
        History([trial(space, 0, 10, 0.2, telemetry=busy, memory_is_rising=True)], space), None
    )
    assert (row.memory_is_rising, row.disturbed, row.shared) == (True, True, False)
    (failed,) = rows.rows(History([trial(space, 0, None, None, failure="oom")], space), None)
    assert (failed.status, failed.failure, failed.reason, failed.throughput) == (
        "failed",
        "oom",
        "as made",
        None,
    )
    (running,) = rows.rows(History([replace(shown, outcome=None)], space), None)
    assert (running.status, running.reason) == ("", "")


def test_the_front_is_that_of_the_trials_that_can_win(space):
    found = rows.rows(History([*confirmed(space), trial(space, 9, 99, 0.9, ablation_of=1)], space), 1)
    assert [row.number for row in found if row.on_front] == [1]


@pytest.mark.parametrize(
    ("rest", "saved_s"),
    [
        ({"status": "stopped", "samples": 5_000, "seconds": 10.0}, 30.0),
        ({"status": "stopped", "samples": 0, "seconds": 10.0}, 0.0),
        ({"status": "stopped", "samples": 25_000, "seconds": 10.0}, 0.0),
        ({"status": "stopped", "samples": 5_000, "ablation_of": 1}, 0.0),
        ({"status": "completed", "samples": 5_000}, 0.0),
        ({"failure": "oom", "samples": 5_000}, 0.0),
    ],
)
def test_stopping_saves_the_rest_of_a_trial_at_its_own_pace(space, rest, saved_s):
    (row,) = rows.rows(History([trial(space, 1, 20, 0.1, **rest)], space), None)
    assert row.saved_s == pytest.approx(saved_s)


@pytest.fixture
def ended(space):
    """Two trials that ran out of memory in 2 and 4 s, one that was stopped after 20 s, one whole one."""
    return [
        trial(space, 0, 10, 0.2, seconds=100.0),
        trial(space, 1, None, None, failure="oom", seconds=2.0, micro_batch_size=64),
        trial(space, 2, None, None, failure="oom", seconds=4.0, micro_batch_size=32),
        trial(space, 3, 8, 0.1, status="stopped", seconds=20.0),
    ]


def config(space, **changes):
    return space.baseline_config | changes


MEMORY, SPEED = Refused.MEMORY, Refused.SPEED


def test_what_was_not_started_is_told_by_kind_of_reason(space, ended):
    passed = [
        PassedOver(
            config(space, num_workers=0), SPEED, "equal settings read at most 9.1 samples/s; trial 5 has 12.3"
        ),
        PassedOver(
            config(space, num_workers=4),
            SPEED,
            "equal settings read at most 10.4 samples/s; trial 7 has 12.9",
        ),
        PassedOver(
            config(space, micro_batch_size=64), MEMORY, "predicted to need 9.1 GiB (8.7 to 9.5) of 6.8 GiB"
        ),
        PassedOver(
            config(space, micro_batch_size=32), MEMORY, "predicted to need 912 MiB (870 to 950) of 680 MiB"
        ),
        PassedOver(
            config(space, micro_batch_size=64, num_workers=0),
            MEMORY,
            "predicted to need 7.2 GiB (6.9 to 7.6) of 6.8 GiB",
        ),
    ]
    fits, wins = rows.skipped(passed, History(ended, space))
    assert (fits.reason, fits.count) == ("predicted to need … (… to …) of …", 3)
    assert fits.example == passed[2].reason
    assert fits.saved_s == pytest.approx(3 * 3.0), "what trials took that ran out of memory"
    assert wins.reason == "equal settings read at most … samples/s; trial … has …"
    assert wins.saved_s == pytest.approx(2 * 20.0), "what trials took that were stopped"


def test_the_same_suggestion_saves_time_but_once(space, ended):
    passed = [
        PassedOver(
            config(space, micro_batch_size=64), MEMORY, "predicted to need 9.1 GiB (8.7 to 9.5) of 6.8 GiB"
        )
    ] * 5
    (found,) = rows.skipped(passed, History(ended, space))
    assert (found.count, found.saved_s) == (5, pytest.approx(3.0))


def test_what_is_outside_the_limits_has_saved_nothing(space, ended):
    outside = config(space, micro_batch_size=64, accumulation_steps=4)
    (found,) = rows.skipped(
        [PassedOver(outside, Refused.LIMITS, space.violation(outside))], History(ended, space)
    )
    assert (found.reason, found.saved_s) == ("effective batch … is outside […, …]", 0.0)


def test_where_no_trial_was_stopped_all_that_ended_say_how_long_one_takes(space, ended):
    passed = [
        PassedOver(config(space, num_workers=0), SPEED, "is as fast as trial 3, which keeps the quality")
    ]
    (found,) = rows.skipped(passed, History(ended[:3], space))
    assert found.saved_s == pytest.approx(106 / 3)
    assert rows.skipped(passed, History([], space))[0].saved_s == 0.0
    assert rows.skipped([], History(ended, space)) == ()


def test_who_breaks_a_constraint_says_why_and_is_never_the_best_so_far(space):
    goal = space.model_copy(update={"objective": Objective(constraints={"rouge_l": ">= 0.2"})})
    trials = [trial(space, n, 10.0 * n + 10, 0.2, scores={"rouge_l": 0.3 - n / 5}) for n in (0, 1)]
    kept, broken = rows.rows(History(trials, goal), None)
    assert (kept.reason, kept.breaks_constraint) == ("", False)
    assert marks.of(broken).label == "completed, breaks a constraint"
    assert (broken.reason, broken.breaks_constraint) == ("rouge_l is 0.1, and must be >= 0.2", True)


def test_a_row_has_the_users_own_sign_along_its_curve_too(space):
    goal = Objective(minimize="val_loss", within=0.02, select="same-quality")
    losses = History(
        [trial(space, 0, 10, -2.0), trial(space, 1, 20, -2.01), trial(space, 2, 20, -2.03)],
        space.model_copy(update={"objective": goal}),
    )
    found = rows.rows(losses, None)
    assert [row.quality for row in found] == [2.0, 2.01, 2.03]
    assert [row.keeps_quality for row in found] == [True, True, False]
    assert [p.quality for p in found[2].curve] == [1.015, 2.03]


def test_a_compared_model_has_the_figures_of_its_training_and_of_its_writing():
    curve = (Evaluation(100, 2.0, 0.1),)
    training = Measurement(throughput=Throughput(50.0, 1.0, 40, 9.0), peak_memory_bytes=7, curve=curve)
    model = Model("bf16", {"a": 1}, Outcome(Status.COMPLETED), training, 100, 4, {"bleu_4": 0.2}, 3.5, 9)
    broken = Model("fp8", {"a": 2}, Outcome(Status.FAILED, Failure.ERROR, "no fp8"), Measurement(), 0)
    first, second = rows.compared({"bf16": (model,), "fp8": (broken,)}, Objective())
    assert (first.label, first.status, first.trial, first.samples) == ("bf16", "completed", 4, 100)
    assert (first.throughput.low, first.throughput.high, first.training_peak_bytes) == (49.0, 51.0, 7)
    assert (first.scores, first.reports_per_s, first.writing_peak_bytes) == ({"bleu_4": 0.2}, 3.5, 9)
    assert first.curve == curve
    assert (second.status, second.reason, second.throughput) == ("failed", "no fp8", None)
