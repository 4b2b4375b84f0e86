"""Trials on a GPU that is faked below `torch.cuda`: present or lost, capped, synchronised."""

import pytest

from autotune.core.trial import Failure, Outcome, Status
from autotune.judging.measurement.meter import Meter
from autotune.workloads.registry import load
from tests.gpu import on_fake_gpu
from tests.gpu.on_fake_gpu import GIB, Case

MIB = 2**20
BROKEN = "CUDA unknown error - this may be due to an incorrectly set up environment"
FULL = "CUDA error: out of memory"

CASES = {
    "trains": Case("asks_for_cuda:trains", {"mib": 100}, {"allocator_bytes": 2 * GIB}),
    "grows": Case("asks_for_cuda:grows", {"mib": 900}, {"allocator_bytes": 2 * GIB}),
    "grows uncapped": Case("asks_for_cuda:grows", {"mib": 900}),
    "lost": Case("asks_for_cuda:trains", {"mib": 1}, gpu={"broken": BROKEN}),
    "lost, loaded late": Case("loads_late:trains", gpu={"broken": BROKEN}),
    "too few": Case("asks_for_cuda:trains", {"mib": 1}, {"gpus": 2.0}),
    "full": Case("asks_for_cuda:trains", {"mib": 1}, gpu={"broken": FULL}),
    "none asked for": Case("asks_for_cuda:stays_on_the_host", limits={"gpus": 0.0}, gpu={"broken": BROKEN}),
    "on the host": Case("asks_for_cuda:stays_on_the_host"),
    "others": Case("asks_for_cuda:meets_another", {"others_mib": 7500}, {"allocator_bytes": 4 * GIB}),
    "others, before": Case(
        "asks_for_cuda:meets_another", {"others_mib": 0}, gpu={"elsewhere_bytes": 7500 * MIB}
    ),
    "runs ahead": Case("asks_for_cuda:runs_ahead", {"steps": 120}),
    "runs ahead, shortly": Case("asks_for_cuda:runs_ahead", {"steps": 20}),
    "waits": Case("asks_for_cuda:waits"),
    "limited": Case("asks_for_cuda:says_its_limits", limits={"host_bytes": GIB}),
    "limited on the host": Case("asks_for_cuda:says_its_limits", limits={"host_bytes": GIB, "gpus": 0.0}),
    "no engine": Case(
        "asks_for_cuda:raises", {"text": "GET was unable to find an engine to execute this computation"}
    ),
    "no engine, no room": Case(
        "asks_for_cuda:raises",
        {"text": "GET was unable to find an engine to execute this computation"},
        gpu={"elsewhere_bytes": 8100 * MIB},
    ),
}


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """The result of each case, forked from a server in which a workload has queried CUDA.

    The built-in workload is loaded there, too.
    """
    preload = [*load("r2gen").preload, "asks_for_cuda"]
    runs = on_fake_gpu.run(tmp_path_factory.mktemp("gpu"), preload, CASES.values())
    return dict(zip(CASES, runs, strict=True))


def throughput(records):
    """Returns the tuner's throughput, without prefetching."""
    meter = Meter(0)
    for record in records:
        marks = {"compiling": record.get("is_compiling", False), "queued": record.get("is_queued", False)}
        meter.add(record["at_s"], record["samples"], evaluation="r2" in record, **marks)
    return meter.throughput()


@pytest.mark.long
def test_a_module_that_asks_for_cuda_when_it_is_imported_can_be_forked_from(found):
    assert found["trains"].outcome == Outcome(Status.COMPLETED), found["trains"].log
    assert found["trains"].note == ""


def test_the_peak_is_of_tensors_and_the_cache_is_separate(found):
    last = found["trains"].records[-1]
    assert last["memory_peak_bytes"] == 100 * MIB
    assert last["memory_peak_reserved_bytes"] == last["memory_reserved_bytes"] == 200 * MIB
    assert last["memory_allocated_bytes"] == 0


def test_a_cap_ends_a_trial_that_the_gpu_has_room_for(found):
    capped, free = found["grows"], found["grows uncapped"]
    assert (capped.outcome.failure, free.outcome.failure) == (Failure.OOM, Failure.OOM)
    assert (len(capped.records), len(free.records)) == (2, 9)
    assert capped.records[-1]["memory_peak_reserved_bytes"] <= 2 * GIB


@pytest.mark.parametrize(
    ("case", "why"), [("lost", BROKEN), ("lost, loaded late", BROKEN), ("too few", "it finds 1 of 2")]
)
def test_without_its_gpu_a_trial_is_interrupted_and_nothing_is_measured(found, case, why):
    outcome = found[case].outcome
    assert (outcome.status, outcome.failure, found[case].records) == (Status.INTERRUPTED, None, [])
    assert outcome.reason == f"torch cannot use the trial's GPU: {why}"


def test_a_gpu_without_memory_for_the_start_is_not_the_trials_fault(found):
    outcome = found["full"].outcome
    assert (outcome.status, outcome.failure) == (Status.INTERRUPTED, Failure.LOST)


def test_a_trial_without_a_gpu_needs_none(found):
    assert found["none asked for"].outcome == Outcome(Status.COMPLETED)


def test_a_workload_that_does_not_use_its_gpu_has_the_hosts_memory_measured(found):
    assert found["on the host"].outcome == Outcome(Status.COMPLETED)
    last = found["on the host"].records[-1]
    assert last["memory_peak_bytes"] > 30 * MIB
    assert "memory_peak_reserved_bytes" not in last


def test_memory_taken_by_others_is_not_learnt_as_a_limit(found):
    taken, there = found["others"].outcome, found["others, before"].outcome
    assert (taken.status, taken.failure) == (Status.INTERRUPTED, Failure.LOST)
    assert taken.reason.startswith("others have taken the GPU's memory: OutOfMemoryError: CUDA out of memory")
    assert there.failure is Failure.OOM, "it was there when the trial began"


def test_a_workload_that_does_not_synchronise_is_timed_by_the_gpus_progress(found):
    for case in ("runs ahead", "runs ahead, shortly"):
        assert throughput(found[case].records).samples_per_s == pytest.approx(8 / 0.02, rel=0.4), (
            "or else by hundreds"
        )
    queued = ["is_queued" in record for record in found["runs ahead"].records]
    assert sum(queued) > 100, "it is not made to wait with every step"


def test_a_workload_that_waits_by_itself_is_not_made_to(found):
    records = found["waits"].records
    assert records[-1]["waits"] == 20
    assert not any("is_queued" in record for record in records)


def test_a_workload_cannot_set_the_queued_mark_itself(found):
    assert "is_queued" not in found["trains"].records[-1]


def test_a_limit_of_the_hosts_memory_is_not_the_drivers(found):
    unlimited = found["limited"].records[0]["data_limit"]
    assert unlimited == -1
    assert 0 < found["limited on the host"].records[0]["data_limit"] != unlimited


def test_a_missing_engine_is_out_of_memory_if_there_is_none_left(found):
    assert found["no engine"].outcome.failure is Failure.ERROR
    assert found["no engine, no room"].outcome.failure is Failure.OOM


@pytest.mark.long
def test_a_module_that_uses_cuda_when_it_is_imported_is_imported_by_every_trial(tmp_path):
    cases = [Case("uses_cuda:trains"), Case("uses_cuda:trains")]
    first, second = on_fake_gpu.run(tmp_path, ["torch", "uses_cuda"], cases)
    assert first.outcome == second.outcome == Outcome(Status.COMPLETED), first.log
    assert "uses CUDA when it is imported" in first.note
