"""One attempt at a trial: real children over small workloads, and the files that they leave."""

import itertools
import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from autotune.core.measurement import Metric
from autotune.core.trial import Failure, Outcome, Status, StoppedFor
from autotune.inside import stop_request
from autotune.judging.decisions.stopping import Rival, Threshold
from autotune.judging.measurement import trends
from autotune.storage import identity
from autotune.storage.identity import TrialIdentity
from autotune.storage.json_file import JsonFile
from autotune.storage.layout import TrialDir
from autotune.storage.records import is_mark, read_records
from autotune.trials import attempt
from autotune.trials import child as child_module
from autotune.trials.attempt import Attempt
from autotune.trials.child import Child
from autotune.trials.fork_server import ForkServer
from autotune.trials.order import Ends, Order, TrialLimits
from autotune.trials.progress import Progress
from tests.faults.sessions import small_disk
from tests.waiting import finish, wait_for

HERE = str(Path(__file__).parent)
# Faster than any trial here, whatever the load of the machine.
SCORE = Metric("bleu_4")
KNOWN = TrialIdentity("key", 3, {"micro_batch_size": 4})
FAR_AHEAD = Threshold(rivals=(Rival(1, 1e6, shared=False, samples=10**6, others=1.0),))


def scored(config, workdir):
    """Trains until it is closed; the configuration determines the score."""
    for step in itertools.count(1):
        time.sleep(0.002)
        yield {"samples": step * 4, "train_loss": 1.0, "forward_s": 0.003, "backward_s": 0.001}
        if step % 10 == 0:
            yield {"samples": step * 4, "bleu_4": config["score"], "rouge_l": 0.5}


def hasty(config, workdir):
    """Trains far beyond any end before anyone looks."""
    for step in range(1, 200):
        yield {"samples": step * 4, "train_loss": 1.0}
        if step % 10 == 0:
            yield {"samples": step * 4, "bleu_4": step / 1000}
        time.sleep(0.001 if step < 15 else 0)


def losing(config, workdir):
    """Counts work in tokens, a varying number per step; its loss falls to a given value."""
    tokens = 0
    for step in itertools.count(1):
        time.sleep(0.002)
        tokens += 500 + step % 7
        yield {"samples": step * 4, "tokens": tokens, "train_loss": 1.0}
        if step % 10 == 0:
            yield {"samples": step * 4, "tokens": tokens, "val_loss": config["score"] + 1 / step}


def lasting(config, workdir):
    """Lasts until telemetry has sampled it twice."""
    for step in range(1, 21):
        time.sleep(0.1)
        yield {"samples": step * 4, "train_loss": 1.0}
    yield {"samples": 80, "bleu_4": 0.5}


def leaking(config, workdir):
    """Leaks a MiB per step."""
    kept = []
    for step in range(1, 81):
        kept.append(bytearray(b"1") * 2**20)
        yield {"samples": step * 4, "train_loss": 1.0}
        if step % 20 == 0:
            yield {"samples": step * 4, "bleu_4": 0.5}


def doubtful(config, workdir):
    yield {"samples": 4, "train_loss": 1.0, "note": "4 of 16 are counted"}
    yield {"samples": 8, "train_loss": 1.0}


def short(config, workdir):
    yield {"samples": 4, "train_loss": 1.0}


def ending(config, workdir):
    """Ends by itself after 60 steps, with an evaluation."""
    yield from itertools.islice(scored(config, workdir), 66)


def delegating(config, workdir):
    """Works in a child process, like a launcher of several processes."""
    held = (
        f"import sys; held = bytearray(b'1') * ({config['mib']} << 20); print(flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", held]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as worker:
        worker.stdout.readline()
        for step in range(1, 41):
            time.sleep(0.1)
            yield {"samples": step * 4, "train_loss": 1.0}
        worker.stdin.close()
    yield {"samples": 160, "bleu_4": 0.5}


@pytest.fixture(scope="module")
def server():
    sys.path.insert(0, HERE)
    yield ForkServer([])
    sys.path.remove(HERE)


@pytest.fixture
def order(tmp_path):
    def make(
        score=0.25,
        workload="test_attempt:scored",
        samples=80,
        directory=tmp_path,
        metric=SCORE,
        *,
        ends=None,
        closing_s=stop_request.CLOSING_S,
        **rest,
    ):
        return Order(
            number=3,
            workload=workload,
            settings={"score": score, "micro_batch_size": 4},
            directory=str(directory),
            metric=metric,
            ends=Ends(samples, **(ends or {})),
            limits=TrialLimits(device_bytes=2**30, closing_s=closing_s),
            **rest,
        )

    return make


def test_it_completes_at_the_samples_asked_for_with_every_figure(order, server, tmp_path):
    report = finish(Attempt(order(), server))
    outcome, figures = identity.read_verdict(TrialDir(tmp_path))
    assert report.outcome == outcome
    assert outcome.status is Status.COMPLETED
    assert figures.quality == 0.25
    assert figures.quality_samples >= 80  # it continues until it is told to stop
    assert figures.scores["rouge_l"] == 0.5
    assert figures.throughput.samples_per_s > 0
    assert figures.step_shares == pytest.approx(
        {"forward_s": 0.75, "backward_s": 0.25, "data_s": 0, "transfer_s": 0, "optimizer_s": 0}
    )
    assert figures.memory_limit_bytes == 2**30
    assert not (tmp_path / "work").exists()
    records = list(read_records(TrialDir(tmp_path)))
    assert [r["samples"] for r in records if "train_loss" in r][:20] == list(range(4, 84, 4))


def test_a_loss_over_tokens_is_counted_once_and_reads_back_the_same(order, server, tmp_path):
    """Records have the workload's own sign, and tokens instead of samples."""
    loss = Metric("val_loss", minimize=True, unit="tokens")
    counted = order(score=2.0, workload="test_attempt:losing", samples=20_000, metric=loss)
    figures = finish(Attempt(counted, server)).measurement
    assert figures.quality_samples >= 20_000
    assert [p.quality for p in figures.curve] == sorted(p.quality for p in figures.curve), "it rises"
    assert figures.quality == -figures.scores["val_loss"] < -2.0
    records = [r for r in read_records(TrialDir(tmp_path)) if not is_mark(r)]
    assert all(r["samples"] == r["tokens"] for r in records)
    again = Progress(loss, counted.settings)
    for record in read_records(TrialDir(tmp_path)):
        again.count(record)
    assert again.measurement().curve == figures.curve
    assert again.measurement().throughput == figures.throughput


def test_a_trial_ends_at_the_target_of_its_loss(order, server):
    given = {"metric": Metric("val_loss", minimize=True, unit="tokens"), "ends": {"target": -2.05}}
    report = finish(Attempt(order(score=2.0, workload="test_attempt:losing", samples=10**9, **given), server))
    assert report.outcome.status is Status.COMPLETED
    assert report.measurement.scores["val_loss"] <= 2.05


@pytest.mark.slow
def test_what_a_workloads_own_process_holds_is_in_its_peak(order, server):
    running = order(workload="test_attempt:delegating", samples=160)
    figures = finish(Attempt(replace(running, settings={**running.settings, "mib": 64}), server)).measurement
    assert 64 * 2**20 < figures.peak_memory_bytes < 2 * 64 * 2**20
    assert figures.telemetry["children_uss_bytes"] > 64 * 2**20


def test_a_leak_is_predicted_within_a_fifth(order, server):
    shown = finish(Attempt(order(workload="test_attempt:leaking", samples=320), server)).measurement
    assert shown.memory_slope.per_sample == pytest.approx(2**18, rel=0.2)
    full = trends.training_full_at(shown, training_samples=10**6)
    left_bytes = 2**30 - shown.peak_memory_bytes
    assert full == pytest.approx(320 + left_bytes / 2**18, rel=0.2)


def test_a_process_with_negligible_memory_has_no_peak(order, server, tmp_path):
    assert finish(Attempt(order(), server)).measurement.peak_memory_bytes is None
    assert not [r for r in read_records(TrialDir(tmp_path)) if "memory_children_bytes" in r]


def test_without_ray_all_but_the_trial_and_its_search_are_others(order, server):
    figures = finish(Attempt(order(workload="test_attempt:lasting"), server)).measurement
    assert figures.telemetry["others_cpu_percent"] >= 0
    assert figures.telemetry["allowed_cpus"] >= 1


def test_a_non_numeric_quality_is_a_failure_with_a_reason(order, server):
    outcome = finish(Attempt(order(score=math.nan), server)).outcome
    assert (outcome.status, outcome.failure) == (Status.FAILED, Failure.ERROR)
    # On a busy machine there may be another evaluation before it is stopped.
    assert re.fullmatch(r"bleu_4 is not a number after \d+ samples, got nan", outcome.reason)


def test_doubtful_records_are_noted(order, server):
    assert finish(Attempt(order(workload="test_attempt:doubtful"), server)).note == "4 of 16 are counted"


def test_a_workload_that_ends_without_quality_is_a_failure(order, server):
    outcome = finish(Attempt(order(workload="test_attempt:short"), server)).outcome
    assert outcome.failure == Failure.ERROR
    assert "without a record that has bleu_4" in outcome.reason


@pytest.mark.parametrize("samples", [240, 10**6])
def test_a_workload_that_comes_to_its_own_end_is_a_whole_training(order, server, samples):
    report = finish(Attempt(order(workload="test_attempt:ending", samples=samples), server))
    assert (report.outcome.status, report.measurement.quality_samples) == (Status.COMPLETED, 240)
    assert report.measurement.ended is (samples > 240)


def test_an_end_before_the_planned_samples_is_a_failure(order, server):
    planned = order(workload="test_attempt:ending", samples=480, ends={"planned": True})
    outcome = finish(Attempt(planned, server)).outcome
    assert (outcome.status, outcome.failure) == (Status.FAILED, Failure.ERROR)
    assert outcome.reason == (
        "the training ended after 240 samples, and was planned for 480: the settings of the length do not "
        "decide when it ends"
    )


@pytest.mark.parametrize("shared", [False, True], ids=["alone", "shared"])
def test_a_trial_that_is_beaten_is_stopped_and_leaves_no_work_behind(order, server, tmp_path, shared):
    rival = replace(FAR_AHEAD.rivals[0], shared=shared)
    threshold = replace(FAR_AHEAD, rivals=(rival,), shared=(3,) if shared else ())
    JsonFile(Threshold).write(tmp_path / "threshold.json", threshold)
    file, place = str(tmp_path / "threshold.json"), tmp_path / "3"
    beaten = order(samples=10**6, directory=place, threshold_file=file, identity=KNOWN)
    report = finish(Attempt(beaten, server))
    outcome, figures = identity.read_verdict(TrialDir(tmp_path / "3"))
    assert report.outcome == outcome
    assert (outcome.status, outcome.stopped_for) == (Status.STOPPED, StoppedFor.SLOW)
    assert outcome.reason.endswith("; trial 1 reaches 1000000.0")
    assert figures.throughput.samples_per_s > 0
    assert not (tmp_path / "3" / "work").exists()


def test_a_threshold_raised_while_a_trial_runs_stops_it(order, server, tmp_path):
    file = str(tmp_path / "threshold.json")
    running = Attempt(order(samples=10**6, threshold_file=file, identity=KNOWN), server)
    wait_for(lambda: running.step(0.1).samples >= 40)
    JsonFile(Threshold).write(tmp_path / "threshold.json", FAR_AHEAD)
    assert finish(running).outcome.status == Status.STOPPED


def test_a_trial_ends_at_its_target(order, server):
    report = finish(Attempt(order(samples=10**6, ends={"target": 0.25}), server))
    assert report.outcome.status == Status.COMPLETED
    assert report.measurement.quality_samples < 10**6


def test_a_trial_ends_once_its_speed_is_known_if_that_is_enough(order, server):
    report = finish(Attempt(order(samples=10**6, ends={"until_timed": True}), server))
    shown = report.measurement
    assert report.outcome.status is Status.COMPLETED
    assert 0 < shown.quality_samples < 10**6
    assert shown.throughput.half_width_per_s <= 0.1 * shown.throughput.samples_per_s


def test_a_stopped_attempt_is_resumed(order, server, tmp_path):
    first = Attempt(order(samples=10**6), server)
    wait_for(lambda: first.step(0.1).samples >= 40)
    first.stop()
    assert (tmp_path / "work").exists()
    assert identity.read_verdict(TrialDir(tmp_path)) is None
    before = [r for r in read_records(TrialDir(tmp_path)) if "train_loss" in r]
    with (tmp_path / "records.jsonl").open("a") as file:
        file.write('{"at_s": 1.0, "samp')  # a kill cut the last line short
    finish(Attempt(order(samples=10**4 if len(before) > 10**3 else 80), server))
    records = list(read_records(TrialDir(tmp_path)))
    assert sum("attempt" in r for r in records) >= 1
    assert [r for r in records if "train_loss" in r][: len(before)] == before


def long_steps(config, workdir):
    """A step takes a while; progress is checkpointed only if the generator is closed."""
    for child in workdir.iterdir():
        child.unlink()  # like a trainer that needs an empty directory
    try:
        for step in itertools.count(1):
            yield {"samples": step * 4, "train_loss": 1.0}
            time.sleep(config["step_s"])
    finally:
        (workdir / "samples").write_text(str(step * 4))


def test_an_attempt_closes_when_its_search_has_stopped_and_its_checkpoint_is_its_own(order, server, tmp_path):
    given = order(workload="test_attempt:long_steps", stop_file=str(tmp_path / "stop"), identity=KNOWN)
    running = Attempt(replace(given, settings={"step_s": 1.0}), server)
    wait_for(lambda: running.step(0.1).samples)
    (tmp_path / "stop").touch()
    outcome = finish(running).outcome
    assert (outcome.status, outcome.failure) == (Status.INTERRUPTED, None)
    place = TrialDir(tmp_path)
    trained = [r["samples"] for r in read_records(place) if "train_loss" in r]
    assert (place.work / "samples").read_text() == str(trained[-1])
    assert identity.read_verdict(place) is None
    assert identity.read_identity(place) == KNOWN


def evaluating(config, workdir):
    """Takes a while for an evaluation."""
    yield {"samples": 4, "train_loss": 1.0}
    time.sleep(config["step_s"])
    yield {"samples": 4, "bleu_4": 0.5}


def test_what_is_trained_while_the_supervisor_is_suspended_does_not_count(order, server):
    running = Attempt(order(workload="test_attempt:hasty", samples=80), server)
    wait_for(lambda: not running._child._process.is_alive())
    last = finish(running)
    assert last.outcome.status is Status.COMPLETED
    assert (last.measurement.samples, last.measurement.quality) == (80, 0.02)
    assert max(record.get("samples", 0) for record in read_records(running._place)) == 80


@pytest.mark.long
def test_time_in_which_everything_was_suspended_counts_nowhere(order, server, monkeypatch):
    monkeypatch.setattr(child_module, "_LONG_S", 1.0)
    begun_s = time.monotonic()
    running = Attempt(order(samples=8000), server)
    wait_for(lambda: running.step(0.1).measurement.samples)
    own, others = os.getpid(), running._child.pid
    os.kill(others, signal.SIGSTOP)  # at once, so that it cannot end before
    with subprocess.Popen(["sh", "-c", f"kill -STOP {own}; sleep 4; kill -CONT {own} {others}"]):
        last = finish(running)
    took_s = time.monotonic() - begun_s
    records = [record for record in read_records(running._place) if not is_mark(record)]
    [suspended_s] = [record["suspended_s"] for record in records if "suspended_s" in record]
    assert 2.5 < suspended_s < took_s
    figures = last.measurement
    for counted_s in (last.elapsed_s, figures.throughput.seconds, figures.curve[-1].seconds):
        assert counted_s < took_s - 2.5


@pytest.fixture
def stopped(order, server):
    """The last report of a whole training that is stopped in the middle of an evaluation."""

    def stop(evaluation_s, closing_s):
        given = order(workload="test_attempt:evaluating", samples=10**6, whole=True, closing_s=closing_s)
        running = Attempt(replace(given, settings={"step_s": evaluation_s}), server)
        wait_for(lambda: running.step(0.1).samples)
        return running.step(0.1, lambda: True)

    return stop


@pytest.mark.slow
def test_a_whole_training_may_come_to_the_end_of_its_evaluation(stopped):
    last = stopped(evaluation_s=3.0, closing_s=600.0)
    assert last.outcome == Outcome(Status.INTERRUPTED, reason="was asked to stop")
    assert [record["bleu_4"] for record in last.records if "bleu_4" in record] == [0.5]
    assert [point.quality for point in last.measurement.curve] == [0.5]


def test_a_whole_training_that_does_not_close_is_reported(stopped):
    last = stopped(evaluation_s=3600.0, closing_s=0.5)
    assert last.outcome == Outcome(Status.INTERRUPTED, reason="killed: it did not close within 0.5 s")


def saving(config, workdir):
    """Takes a while for its checkpoint."""
    try:
        yield from scored({"score": 0.25}, workdir)
    finally:
        time.sleep(0.5)
        (workdir / "saved").touch()


@pytest.mark.parametrize("samples", [80, 10**6])
def test_a_whole_training_has_the_time_to_save_wherever_it_is_stopped(order, server, tmp_path, samples):
    """It is stopped at its own end, or abandoned."""
    running = Attempt(order(workload="test_attempt:saving", samples=samples, whole=True), server)
    while (report := running.step(0.1)).outcome is None and report.samples < 800:
        pass
    running.stop()
    assert (tmp_path / "work" / "saved").exists()


@pytest.fixture
def closings(monkeypatch):
    """How long children were given to close; they are killed at once instead, or that is interrupted."""
    found, stop = SimpleNamespace(waited=[], interrupts=False), Child.stop

    def at_once(child, grace_s):
        found.waited.append(grace_s)
        if found.interrupts:
            raise KeyboardInterrupt
        return stop(child, 0.0)

    monkeypatch.setattr(Child, "stop", at_once)
    return found


@pytest.mark.parametrize(("is_stopping", "grace_s"), [(False, stop_request.CLOSING_S), (True, 0.0)])
def test_a_second_ctrl_c_kills_without_waiting(order, server, closings, is_stopping, grace_s):
    """The second may come before the first is noticed."""
    asked = []
    reports = attempt.reports(order(samples=10**6), server, lambda: bool(asked))
    next(reports)
    asked += [True] * is_stopping
    reports.close()
    assert closings.waited == [grace_s]


def test_an_interrupt_while_closing_does_not_wait_again(order, server, closings):
    closings.interrupts = True
    running = Attempt(order(samples=10**6), server)
    with pytest.raises(KeyboardInterrupt):
        running.step(0.1, lambda: True)
    running.stop()
    assert len(closings.waited) == 1


def test_a_disk_that_is_full_interrupts_the_attempt_and_keeps_it(order, server, tmp_path):
    with small_disk(tmp_path / "small", "64k") as place:
        report = finish(Attempt(order(directory=place, samples=10**6), server))
        assert report.outcome.status == Status.INTERRUPTED
        assert "No space left on device" in report.outcome.reason
        assert identity.read_verdict(TrialDir(place)) is None
        subprocess.run(["mount", "-o", "remount,size=1m", place], check=True)
        assert finish(Attempt(order(directory=place), server)).outcome.status == Status.COMPLETED


def test_records_that_reach_the_samples_complete_the_trial_without_a_child(order, server, tmp_path):
    lines = [{"at_s": i * 0.1, "samples": 4 * i, "train_loss": 1.0} for i in range(1, 21)]
    lines.append({"at_s": 3.0, "samples": 80, "bleu_4": 0.5})
    (tmp_path / "records.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    report = Attempt(order(), server).step(0.1)
    assert report.outcome.status == Status.COMPLETED
    assert report.measurement.quality == 0.5
    assert report.measurement.throughput.samples_per_s == pytest.approx(40)
    assert not (tmp_path / "log").exists()
