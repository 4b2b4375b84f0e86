"""Real children whose workload reports from its own loop."""

import time

import pytest

from autotune.core.measurement import Metric
from autotune.core.trial import Failure, Outcome, Status
from autotune.trials.child import Child
from autotune.trials.fork_server import ForkServer
from autotune.trials.order import Ends, Order

from .children import listen

COMPLETED = Outcome(Status.COMPLETED)


@pytest.fixture(scope="module")
def server():
    return ForkServer(["autotune", "workloads_that_report"])


@pytest.fixture
def start(tmp_path, server):
    started = []

    def begin(workload, config=None):
        name = f"workloads_that_report:{workload}"
        order = Order(0, name, config or {}, str(tmp_path), Metric("bleu_4"), Ends(100))
        started.append(Child(order, server))
        return started[-1]

    yield begin
    for child in started:
        child.kill()


@pytest.fixture
def run(start):
    """Runs a workload to its end; returns the verdict and the records."""

    def to_the_end(workload, config=None):
        child = start(workload, config)
        events = listen(child)
        return child.verdict, events

    return to_the_end


def samples(events):
    return [event["samples"] for event in events]


def test_reports_are_counted_with_the_reporters_timestamps(run):
    begun_s = time.monotonic()
    outcome, events = run("steps")
    assert (outcome, samples(events)) == (COMPLETED, [4, 8, 12, 12])
    stamps = [begun_s, *(event["at_s"] for event in events), time.monotonic()]
    assert stamps == sorted(stamps)
    assert events[-1]["bleu_4"] == 0.5
    assert all(event["memory_peak_bytes"] >= 0 for event in events)


def test_a_workload_learns_its_directory_and_its_settings(run):
    outcome, [event] = run("says_where_it_is", {"micro_batch_size": 4, "optim": {"betas": [0.9, 0.99]}})
    assert outcome == COMPLETED
    assert event["settings"] == {"micro_batch_size": 4, "optim": {"betas": [0.9, 0.99]}}


def test_scalars_of_numpy_and_torch_are_numbers(run):
    _, [event] = run("scalars")
    found = {name: event[name] for name in ("samples", "train_loss", "scores")}
    assert found == {"samples": 4, "train_loss": 0.5, "scores": {"bleu_4": 0.25}}


def test_it_stops_on_request_without_losing_a_record(start, tmp_path):
    child = start("until_stopped")
    events = child.poll(30)
    child.stop(30)
    events += child.poll(0)
    assert child.verdict == Outcome(Status.STOPPED, reason="was asked to stop")
    assert samples(events) == list(range(1, len(events) + 1))
    assert int((tmp_path / "work" / "checkpoint").read_text()) == len(events)


@pytest.mark.parametrize(
    ("kind", "failure", "reason"),
    [
        ("backwards", Failure.ERROR, "samples must not decrease, got 4 after 8"),
        ("no samples", Failure.ERROR, "samples must be an int, got None"),
        ("NaN", Failure.DIVERGED, "train_loss was nan 3 times in a row"),
        ("an object", Failure.ERROR, "values must be JSON's, got object"),
    ],
)
def test_an_invalid_record_ends_a_workload_that_never_checks(run, kind, failure, reason):
    outcome, _ = run("goes_on", {"kind": kind})
    assert (outcome.status, outcome.failure) == (Status.FAILED, failure)
    assert reason in outcome.reason


def test_all_that_was_reported_before_a_failure_is_counted(run, tmp_path):
    outcome, events = run("raises")
    assert (outcome.failure, outcome.reason) == (Failure.ERROR, "ValueError: the loss is bad")
    assert samples(events) == list(range(1000))
    assert "in raises" in (tmp_path / "log").read_text()


def test_a_workload_that_reports_nothing_has_failed(run):
    outcome, events = run("nothing")
    assert (outcome.reason, events) == ("the workload reported no record", [])


def test_an_iterator_that_it_returns_is_driven_as_a_generator_is(run):
    outcome, events = run("returns_an_iterator")
    assert (outcome, samples(events)) == (COMPLETED, [1, 2])


def test_threads_forks_and_programs_report_but_only_the_first_rank(run):
    outcome, events = run("from_everywhere")
    assert outcome == COMPLETED
    heard = sorted((event["samples"], event["who"]) for event in events)
    assert heard == [(0, "itself"), (1, "a thread"), (2, "a fork"), (3, "rank 0"), (4, "itself")]


def test_a_generator_has_neither_a_thread_nor_a_socket(run):
    _, [event] = run("generator")
    assert (event["threads"], event["has_socket"]) == (1, False)


def test_a_timestamp_of_another_process_is_clipped_to_this_ones_time(run):
    _, events = run("stamped")
    first, ahead, behind, own = events
    assert first["at_s"] == first["began_s"]
    assert first["at_s"] < ahead["at_s"] <= behind["at_s"] <= own["at_s"] <= time.monotonic()
    assert [event["memory_peak_bytes"] for event in events[:3]] == [5, 7, 7]
    assert first["is_queued"] is True
    assert own["memory_peak_bytes"] != 9, "of its own process the tuner knows better"
    assert own.keys().isdisjoint({"is_queued", "stands_for"})
