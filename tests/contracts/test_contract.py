"""What every kind of workload keeps to, so that nothing else has to know its kind: real processes, no Ray."""

import json
import os
import signal

import pytest

from autotune.core.trial import Failure, Status
from autotune.storage import identity
from autotune.storage.layout import TrialDir
from autotune.storage.records import read_records
from autotune.workloads import registry
from tests.waiting import is_over, wait_for

from .conftest import SETTINGS, finish
from .kinds import KINDS


def steps_of(place):
    """Samples of each step, attempt by attempt."""
    attempts = []
    for record in read_records(TrialDir(place)):
        if "attempt" in record:
            attempts.append([])
        elif "score" not in record:
            attempts[-1].append(record["samples"])
    return attempts


def failed(report, kind, *words):
    assert (report.outcome.status, report.outcome.failure) == (Status.FAILED, kind), report.outcome.reason
    assert "\n" not in report.outcome.reason
    for word in words:
        assert word in report.outcome.reason


def test_records_and_samples_are_exact(run, kind, tmp_path):
    report = run("trains")
    assert report.outcome.status is Status.COMPLETED, report.outcome.reason
    [steps] = steps_of(tmp_path)
    assert steps[:20] == list(range(4, 84, 4))
    assert [(point.samples, point.quality) for point in report.measurement.curve][:2] == [
        (40, 0.007),
        (80, 0.007),
    ]
    if kind.tells_records:
        losses = [r["train_loss"] for r in read_records(TrialDir(tmp_path)) if "train_loss" in r]
        assert losses[:20] == [1 / samples for samples in range(4, 84, 4)]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if not kind.is_slow], ids=str)
def test_the_time_of_an_evaluation_is_none_of_training(run, tmp_path):
    """By the program's own clock: its evaluations take longer than its training."""
    found = run("evaluates", samples=160, keep_work=True).measurement
    own_s = json.loads((tmp_path / "work" / "own").read_text())
    assert found.throughput.samples_per_s == pytest.approx(4 * len(own_s) / sum(own_s), rel=0.4)
    assert found.curve[-1].seconds == pytest.approx(sum(own_s), rel=0.4)


def test_the_seed_arrives(run, kind):
    workload = registry.load(kind.workload("trains", SETTINGS))
    settings = workload.with_seed(SETTINGS, 5)
    assert run("trains", settings).measurement.quality == 0.012


def test_after_a_kill_it_goes_on_from_its_checkpoint_and_no_point_is_twice(begin, tmp_path):
    """What nobody listens to any more ends by itself: it would be trained for nothing, and not be timed."""
    first, work = begin("trains", samples=10**6), tmp_path / "work"
    while first.step(0.1).samples < 60:
        pass
    pid = int((work / "pid").read_text())
    os.kill(os.getsid(pid), signal.SIGKILL)
    wait_for(lambda: is_over(pid), seconds=20)
    assert finish(first).outcome.status is Status.INTERRUPTED
    samples = 4 * int((work / "state").read_text()) + 400
    report = finish(begin("trains", samples=samples))
    before, after = steps_of(tmp_path)
    assert before[0] == 4
    assert after[0] % 40 == 4  # the step after an evaluation
    points = [point.samples for point in report.measurement.curve]
    assert points == sorted(set(points))
    assert points[0] == 40
    assert points[-1] >= samples


def test_a_whole_training_comes_to_its_own_end_and_keeps_its_checkpoint(run, kind, tmp_path):
    report = run("babbles", samples=0, whole=True)
    assert report.outcome.status is Status.COMPLETED, report.outcome.reason
    assert report.measurement.samples == 80
    if kind.is_slow:
        assert (tmp_path / "work" / "after").exists(), "what follows its training is done"
        assert int((tmp_path / "work" / "state").read_text()) == 20


@pytest.mark.parametrize("moment", ["at once", "in a step", "in an evaluation"])
def test_a_stop_ends_it_at_any_moment_and_leaves_its_checkpoint(begin, tmp_path, moment):
    running, work = begin("trains", {"evaluation_s": 0.5}, samples=10**6), tmp_path / "work"
    if moment != "at once":
        wait_for(lambda: running.step(0.1).samples >= 4 and (work / "pid").exists())
    if moment == "in an evaluation":
        wait_for((work / "state").exists)
    running.stop()
    assert identity.read_verdict(TrialDir(tmp_path)) is None
    if moment != "at once":
        assert (work / "closed").exists()
        assert is_over(int((work / "pid").read_text()))
    last = int((work / "state").read_text()) * 4 if (work / "state").exists() else 0
    assert finish(begin("trains", samples=last + 80)).outcome.status is Status.COMPLETED
    assert steps_of(tmp_path)[-1][0] == last + 4


def test_a_stop_ends_what_hangs(begin, tmp_path):
    running = begin("hangs", closing_s=1.0)
    wait_for(lambda: running.step(0.1).samples)
    running.stop()
    assert is_over(int((tmp_path / "work" / "pid").read_text()))
    assert identity.read_verdict(TrialDir(tmp_path)) is None


def test_out_of_memory_is_distinguished_from_other_errors(run, kind):
    limit_mib = kind.own_mib + 300
    failed(run("grows", samples=1000, host_bytes=limit_mib * 2**20), Failure.OOM)


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("abort", ["SIGABRT"]),
        ("segmentation fault", ["SIGSEGV"]),
        ("exception", ["ValueError: the words of its own"]),
        ("exit", ["3"]),
    ],
)
def test_what_ends_badly_says_why(run, how, words):
    failed(run("ends_badly", {"how": how}), Failure.ERROR, *words)


@pytest.mark.long
def test_a_hang_is_recognised_by_its_silence(run):
    failed(run("hangs", stall_timeout_s=3.0), Failure.TIMEOUT, "no record with more samples for ")


@pytest.mark.parametrize("how", ["text", "nothing", "half", "less", "object", "no number"])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.tells_records], ids=str)
def test_what_is_no_record_fails_the_trial_in_one_line(run, how):
    failed(run("no_record", {"how": how}, samples=4), Failure.ERROR)


def test_whatever_it_prints_its_records_are_exact(run, tmp_path):
    report = run("babbles")
    assert report.outcome.status is Status.COMPLETED, report.outcome.reason
    assert steps_of(tmp_path) == [list(range(4, 84, 4))]


def test_what_says_nothing_fails_in_one_line(run):
    failed(run("says_nothing"), Failure.ERROR)


@pytest.mark.parametrize("is_stopped", [False, True])
def test_whom_it_has_started_ends_with_it(begin, tmp_path, is_stopped):
    running = begin("leaves_somebody", samples=10**6 if is_stopped else 80, keep_work=True)
    if is_stopped:
        wait_for(lambda: running.step(0.1).samples)
        running.stop()
    else:
        assert finish(running).outcome.status is Status.COMPLETED
    wait_for(lambda: is_over(int((tmp_path / "work" / "left").read_text())))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if not kind.is_slow], ids=str)
def test_as_many_records_as_there_are_in_a_second_are_all_taken(run, tmp_path):
    report = run("hurries", samples=20_000)
    assert report.outcome.status is Status.COMPLETED, report.outcome.reason
    assert steps_of(tmp_path) == [list(range(1, 20_001))]


def test_an_evaluation_that_ends_with_the_stop_is_counted(begin, kind, tmp_path):
    """A function is asked after its next record; a command is ended at once, and may have more to say."""
    if not kind.name.startswith("command"):
        pytest.skip("nothing can be said by it after it was closed")
    running = begin("evaluates_when_stopped", samples=10**6)
    wait_for(lambda: running.step(0.1).samples)
    running.stop()
    assert [record["score"] for record in read_records(TrialDir(tmp_path)) if "score" in record] == [0.5]
