"""The row of every trial."""

from dataclasses import replace

import pytest

from autotune.core.trial import Repeat, StoppedFor
from autotune.display import rows
from autotune.judging.decisions.history import History
from autotune.reports import marks
from autotune.space.space import Objective
from tests.autotune.reports.searched import GIB, confirmed, trial


def test_the_kind_of_a_row_is_the_purpose_of_its_trial(space):
    trials = [*confirmed(space), trial(space, 10, 20, 0.2, ablation_of=1), trial(space, 11, 5, 0.1)]
    found = rows.rows(History(trials, space), winner=1)
    kinds = ["baseline", "winner", "repeat", "race", *["repeat"] * 6, "ablation", "trial"]
    assert [row.kind for row in found] == kinds
    assert [row.repeats for row in found] == [None, None, 0, None, 0, 1, 0, 1, 0, 1, None, None]
    assert [row.number for row in found] == list(range(12))
    assert rows.rows(History(trials[:1], space), winner=0)[0].kind == "baseline"


def test_keeping_the_quality_is_known_only_of_completed_trials(space):
    trials = [
        trial(space, 0, 10, 0.2),
        trial(space, 1, 20, 0.19),
        trial(space, 2, 20, 0.18),
        trial(space, 3, 20, 0.3, status="stopped"),
        trial(space, 4, None, None, failure="oom"),
    ]
    assert History(trials, space).least_quality == pytest.approx(0.19)
    found = rows.rows(History(trials, space), None)
    assert [row.keeps_quality for row in found] == [True, True, False, None, None]
    (unknown,) = rows.rows(History(trials[1:2], space), None)
    assert unknown.keeps_quality is None, "the baseline's quality is not known yet"


def test_reaching_the_target_keeps_the_quality(space):
    history = History(
        [trial(space, 0, 10, 0.2), trial(space, 1, 20, 0.14)], space.revised(objective={"target": 0.15})
    )
    assert history.least_quality == 0.15
    assert [row.keeps_quality for row in rows.rows(history, None)] == [True, False]


def test_the_figures_of_a_row_are_the_trials_own(space):
    def row(made):
        (found,) = rows.rows(History([made], space), None)
        return found

    hot = trial(space, 0, 10, 0.2, peak=2 * GIB, shared=True, telemetry={"gpu_throttled": 0.9})
    found = row(hot)
    assert (found.throughput.low, found.throughput.value, found.throughput.high) == (9.9, 10, 10.1)
    assert (found.peak_memory_bytes, found.memory_share) == (2 * GIB, 0.25)
    assert (found.shared, found.throttled, found.on_front) == (True, True, True)
    assert (found.status, found.failure) == ("completed", None)
    busy = {"others_cpu_percent": 50.0, "allowed_cpus": 2.0}
    found = row(trial(space, 0, 10, 0.2, telemetry=busy, memory_is_rising=True))
    assert (found.memory_is_rising, found.disturbed, found.shared) == (True, True, False)
    failed = row(trial(space, 0, None, None, failure="oom"))
    assert (failed.status, failed.failure, failed.throughput) == ("failed", "oom", None)
    assert failed.reason == "as made"
    running = row(replace(hot, outcome=None))
    assert (running.status, running.reason) == ("", "")


def test_the_front_is_that_of_the_trials_that_can_win(space):
    found = rows.rows(History([*confirmed(space), trial(space, 9, 99, 0.9, ablation_of=1)], space), 1)
    assert [row.number for row in found if row.on_front] == [1]


def test_a_row_names_the_broken_constraint(space):
    constrained = space.revised(objective={"constraints": {"rouge_l": ">= 0.2"}})
    trials = [trial(space, n, 10.0 * n + 10, 0.2, scores={"rouge_l": 0.3 - n / 5}) for n in (0, 1)]
    kept, broken = rows.rows(History(trials, constrained), None)
    assert (kept.reason, kept.breaks_constraint) == ("", False)
    assert marks.trial(broken).label == "completed, breaks a constraint"
    assert (broken.reason, broken.breaks_constraint) == ("rouge_l is 0.1, and must be >= 0.2", True)


def test_rows_have_the_users_sign(space):
    goal = Objective(minimize="val_loss", within=0.02, select="same-quality")
    trials = [trial(space, 0, 10, -2.0), trial(space, 1, 20, -2.01), trial(space, 2, 20, -2.03)]
    found = rows.rows(History(trials, space.model_copy(update={"objective": goal})), None)
    assert [row.quality for row in found] == [2.0, 2.01, 2.03]
    assert [row.keeps_quality for row in found] == [True, True, False]
    assert [p.quality for p in found[2].curve] == [1.015, 2.03]


def test_equal_reasons_to_stop_have_equal_words(space):
    """The stored reasons contain figures, so that no two are equal and a count would be meaningless."""
    stopped = rows.row(trial(space, 1, 20, 0.3, status="stopped"), History([trial(space, 0, 10, 0.2)], space))
    assert replace(stopped, stopped_for="slow").why == "another is certainly faster"
    assert replace(stopped, stopped_for=None).why == stopped.reason
    assert all(replace(stopped, stopped_for=kind.value).why for kind in StoppedFor)


def test_the_row_of_a_repeat_shows_its_own_run(space):
    first = trial(space, 1, 30, 0.2, num_workers=4, peak=100)
    again = trial(space, 2, 50, 0.3, num_workers=4, peak=150, repeat=Repeat(1, 1))
    history = History([trial(space, 0, 10, 0.2), first, again], space)
    shown = rows.rows(history, None)[1:]
    assert [row.throughput.value for row in shown] == pytest.approx([40, 50])
    assert [row.quality for row in shown] == [history.quality(first).value, 0.3]
    assert [row.peak_memory_bytes for row in shown] == [150, 150]
    assert [row.run.quality for row in shown] == pytest.approx([0.2, 0.3])
