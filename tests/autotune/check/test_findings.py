"""What a search would see, from the records of short runs."""

from dataclasses import replace

import pytest

from autotune.check.findings import Checked, Observed, Resumed, Run, findings, largest_difference, resumed
from autotune.core.measurement import Measurement, Throughput
from autotune.core.trial import Failure, Outcome, Status
from autotune.space import spaces

SPACE = spaces.parse(
    """
    workload: linear:fit
    baseline: {micro_batch_size: 8}
    knobs: {micro_batch_size: {choice: [8, 16, 32, 64]}}
    objective: {quality: r2}
    budget: {trials: 6, samples_per_trial: 100, repeats: 3}
    """,
    "test",
)
MEASURED = Measurement(
    throughput=Throughput(16.0, 0.5, 40, 20.0), peak_memory_bytes=2**30, memory_limit_bytes=4 * 2**30
)


def records(*, steps=9, every=5, begun_s=100.0, start_s=2.0, first=8, curve=0.5):
    """Returns records: a step of 8 samples takes 0.5 s, and an evaluation after `every` steps takes 1 s."""
    found, at_s, samples = [{"attempt": 1.0, "clock_s": begun_s}], begun_s + start_s, first - 8
    for number in range(1, steps + 1):
        samples += 8
        found.append({"at_s": at_s, "samples": samples, "train_loss": curve / number})
        at_s += 0.5
        if number % every == 0:
            at_s += 0.5
            found.append({"at_s": at_s, "samples": samples, "r2": curve + number})
            at_s += 0.5
    return found


def test_figures_are_computed_from_records():
    found = Observed(records(), "r2")
    assert (found.start_s, found.steps, found.step_samples) == (2.0, 9, 8)
    assert (found.samples, found.seconds) == (72, 5.0)
    assert found.evaluations == [(40, 5.5)]
    assert (found.every, found.evaluation_s) == (40, 1.0)
    assert found.evaluating_share == pytest.approx(0.2)


def test_doubtful_steps_are_reported():
    note = {"at_s": 200.0, "samples": 80, "note": "4 of 16 are counted"}
    assert rows(run=Run([*records(), note]))["steps"].detail.endswith("; 4 of 16 are counted")


def test_without_records_figures_are_unknown():
    found = Observed([], "r2")
    assert (found.start_s, found.steps, found.every, found.evaluation_s) == (None, 0, None, None)


def test_an_evaluation_that_is_nan_does_not_count():
    found = Observed([*records(), {"at_s": 200.0, "samples": 72, "r2": float("nan")}], "r2")
    assert found.evaluations == [(40, 5.5)]


def test_runs_are_compared_at_equal_numbers_of_samples():
    one = records()
    assert largest_difference(one, records(steps=20), "r2") == 0.0
    assert largest_difference(one, records(curve=0.75), "r2") == 0.25
    assert largest_difference(one, records(steps=3, curve=0.75), "r2") == 0.25  # by the steps' loss
    assert largest_difference(one, [], "r2") is None


def test_a_resumed_run_continues_or_starts_anew():
    continued = [*records(), *records(first=48, begun_s=200.0)]
    restarted = [*records(), *records(begun_s=200.0)]
    assert resumed(continued) == Resumed(72, 48)
    assert resumed(restarted) == Resumed(72, None)
    assert resumed(records()) is None
    assert resumed([*records(), {"attempt": 2.0, "clock_s": 200.0}]) is None


def checked(**changes):
    run = Run(records(), Outcome(Status.COMPLETED), MEASURED)
    complete = Checked(
        SPACE,
        run,
        slots=2,
        again=0.0,
        other=0.25,
        resumed=Resumed(72, 48),
    )
    return replace(complete, **changes)


def rows(**changes):
    return {row.name: row for row in findings(checked(**changes))}


def test_the_figures_that_a_search_would_see_are_listed():
    assert [name for name, row in rows().items() if not row.ok] == []
    assert {name: row.detail for name, row in rows().items()} == {
        "starts": "training was under way after 2 s",
        "steps": "9 in 5 s, 8 samples each",
        "speed": "16 ± 0.5 samples/s, over 40 steps after the warm-up",
        "memory": "1.0 GiB of 4.0 GiB at its peak",
        "evaluations": "one every 40 samples, 1 s each, 20% of the time; a trial of 100 has 3",
        "quality": "r2 5.5 after 40 samples",
        "seed": "the same seed gives the same curve, another seed differs by 0.25",
        "resume": "stopped after 72 samples, it continued at 48",
        # 120 samples at 16 a second, 2 s to start and 3 s of evaluations; 4 configurations, 2 at a time
        "a search": "4 trials of 12s: up to 25s, and up to 1m 15s more to confirm the winner",
    }
    assert checked().is_ready


@pytest.mark.parametrize(
    ("name", "changes", "detail"),
    [
        ("seed", {"other": 0.0}, "ignored"),
        ("seed", {"again": None}, "not checked"),
        ("resume", {"resumed": Resumed(72, None)}, "it started from the beginning"),
        ("resume", {"resumed": None}, "not checked"),
        ("speed", {"run": Run(records(), None, Measurement())}, "not known"),
        ("memory", {"run": Run(records(), None, Measurement())}, "not measured"),
        ("evaluations", {"run": Run(records(every=99), None, MEASURED)}, "none within 72 samples"),
        ("evaluations", {"run": Run(records(steps=30, every=15), None, MEASURED)}, "has 1"),
        ("quality", {"run": Run(records(every=99), None, MEASURED)}, "no number was found for r2"),
        ("starts", {"run": Run()}, "no training step"),
    ],
)
def test_everything_missing_is_reported_with_a_remedy(name, changes, detail):
    row = rows(**changes)[name]
    assert not row.ok
    assert detail in row.detail
    assert row.remedy


def test_one_evaluation_is_enough_for_a_space_that_asks_for_one():
    run = Run(records(steps=30, every=15), None, MEASURED)
    assert rows(run=run, space=SPACE.revised(budget={"evaluations_per_trial": 1}))["evaluations"].ok


def test_the_recommended_time_is_that_of_six_first_evaluations():
    # a start takes 2 s, and 40 samples at 72 samples in 5 s
    assert rows(again=None)["seed"].remedy == "check for longer, such as --time 1m"
    slow = Run(records(start_s=100.0), None, MEASURED)
    assert rows(again=None, run=slow)["seed"].remedy == "check for longer, such as --time 11m"


def test_runs_that_differ_with_the_same_seed_show_their_noise():
    assert rows(again=0.1)["seed"].ok


def test_a_trial_that_lost_its_gpu_says_so():
    outcome = Outcome(Status.INTERRUPTED, reason="torch cannot use the trial's GPU")
    (row,) = rows(run=Run([], outcome)).values()
    assert (row.name, row.detail) == (
        "starts",
        "the trial was interrupted: torch cannot use the trial's GPU",
    )


def test_only_the_failure_of_a_failed_trial_is_reported():
    outcome = Outcome(Status.FAILED, Failure.ERROR, "ValueError: no such file")
    failed = {"run": Run([], outcome, log=("Traceback", "ValueError: no such file"))}
    (row,) = rows(**failed).values()
    assert row.name == "starts"
    assert "ValueError: no such file" in row.detail
    assert not checked(**failed).is_ready


def test_a_time_limit_is_reported():
    space = SPACE.revised(budget={"time": 60.0, "repeats": 0})
    assert rows(space=space)["a search"].detail == "4 trials of 12s: up to 25s; it ends after 1m 00s"
