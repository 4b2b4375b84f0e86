"""The nouns of a search: what they are written as, and what was written before they had all their fields."""

import json

import pytest

from autotune.core.trial import (
    Evaluation,
    Failure,
    Measurement,
    Outcome,
    Repeat,
    Shortage,
    Slope,
    Status,
    StoppedFor,
    Throughput,
    Trial,
    TrialKind,
)


def out_of_memory(reason, shortage=None):
    return Outcome(Status.FAILED, Failure.OOM, reason, shortage)


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome(Status.COMPLETED),
        out_of_memory("x"),
        *(out_of_memory("x", kind) for kind in Shortage),
        *(Outcome(Status.STOPPED, reason="x", stopped_for=kind) for kind in StoppedFor),
    ],
    ids=str,
)
def test_an_outcome_is_read_as_it_was_written(outcome):
    assert Outcome.from_dict(json.loads(json.dumps(outcome.to_dict()))) == outcome


def test_what_was_stopped_before_there_was_a_kind_of_it_has_its_words_alone():
    old = {"status": "stopped", "failure": None, "reason": "at most 9.1 samples/s; trial 5 has 12.3"}
    assert Outcome.from_dict(old) == Outcome(Status.STOPPED, reason=old["reason"])


@pytest.mark.parametrize(
    "reason",
    [
        "RuntimeError: DataLoader worker (pid(s) 12) exited unexpectedly",
        "RuntimeError: unable to allocate shared memory(shm) for file </torch_1>",
        "killed by the kernel, which was out of memory",
        "killed by SIGKILL while 97% of the machine's memory was in use",
        "Ray's memory monitor killed it: the machine was running out of memory",
    ],
)
def test_whose_memory_ran_out_is_read_of_the_words_where_there_is_nothing_else(reason):
    """Sessions that were written before outcomes had a field for it."""
    old = {"status": "failed", "failure": "oom", "reason": reason}
    assert Outcome.from_dict(old).shortage is Shortage.MACHINE
    assert Outcome.from_dict({**old, "failure": "error"}).shortage is None
    assert Outcome.from_dict({**old, "reason": "OutOfMemoryError: CUDA out of memory"}).shortage is None
    assert Outcome.from_dict(out_of_memory(reason).to_dict()).shortage is None, "words decide nothing else"


def test_a_measurement_with_the_peaks_the_other_way_round_is_read_as_it_is_now():
    earlier = {"peak_memory_bytes": 9, "peak_allocated_bytes": 4}
    found = Measurement.from_dict(earlier)
    assert (found.peak_memory_bytes, found.peak_reserved_bytes) == (4, 9)
    on_the_host = Measurement.from_dict({"peak_memory_bytes": 9, "peak_allocated_bytes": None})
    assert (on_the_host.peak_memory_bytes, on_the_host.peak_reserved_bytes) == (9, None)


def test_a_measurement_is_read_as_it_was_written() -> None:
    shown = Measurement(
        throughput=Throughput(10.0, None, 5, 2.0),
        curve=(Evaluation(8, 1.0, 0.5),),
        memory_slope=Slope(2.0, 1.0, 3.0, is_slowing=True),
    )
    assert Measurement.from_dict(json.loads(json.dumps(shown.to_dict()))) == shown


@pytest.mark.parametrize(
    ("trial", "kind", "runs_alone", "references"),
    [
        (Trial(3, {}), TrialKind.SEARCHED, False, set()),
        (Trial(1, {}, repeat=Repeat(0, 0, (0,))), TrialKind.PILOT, False, {0}),
        (Trial(9, {}, repeat=Repeat(3, 1, (3,))), TrialKind.SEED, True, {3}),
        (Trial(8, {}, race=(0, 3)), TrialKind.RACE, True, {0, 3}),
        (Trial(9, {}, ablation_of=3), TrialKind.STEP, True, {3}),
    ],
    ids=lambda value: value if isinstance(value, TrialKind) else "",
)
def test_a_trial_says_what_it_is_for(trial, kind, runs_alone, references):
    """What confirms, and what is held against that, runs alone; the pilot does not."""
    assert (trial.kind, trial.runs_alone, trial.references) == (kind, runs_alone, references)
