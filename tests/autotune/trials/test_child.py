"""Real children, real deaths."""

import gc
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from multiprocessing import forkserver
from pathlib import Path

import psutil
import pytest

from autotune.core.measurement import Metric
from autotune.core.trial import Failure, Outcome, Status
from autotune.trials.child import Child, Stalls
from autotune.trials.fork_server import ForkServer
from autotune.trials.memory_watch import MemoryWatch
from autotune.trials.order import Ends, Order, TrialLimits
from autotune.trials.output import Messages
from tests.autotune.system.fake_cgroups import tree
from tests.waiting import status, wait_for

from .children import listen, session

__all__ = ["tree"]

CAP = 300 * 2**20
SCORE = Metric("bleu_4")


@pytest.fixture(scope="module")
def server():
    """A fork server with torch, since the server that another file has started may lack it."""
    forkserver._forkserver._stop()
    return ForkServer(["torch", "torch.utils.data"])


@pytest.fixture
def start(tmp_path, server):
    """Starts a workload of `workloads_for_tests`; its remaining processes are killed with the test."""
    started = []

    def begin(workload, config=None, *, metric=SCORE, whole=False, stalls=Stalls(), **limits):
        name = workload if ":" in workload else f"workloads_for_tests:{workload}"
        order = Order(
            0, name, config or {}, str(tmp_path), metric, Ends(1), TrialLimits(**limits), whole=whole
        )
        started.append(Child(order, server, stalls))
        return started[-1]

    yield begin
    for child in started:
        child.kill()


@pytest.fixture
def run(start):
    """Runs a workload to its end; returns the verdict and the records."""

    def to_the_end(workload, config=None, **limits):
        child = start(workload, config, **limits)
        events = listen(child)
        child.kill()
        return child.verdict, events

    return to_the_end


def limit_stall(child, seconds):
    """Sets the child's stall timeout from now on."""
    child._order = replace(child._order, limits=TrialLimits(stall_timeout_s=seconds))


def was_away(child, seconds):
    """Moves the time at which the supervisor last heard from the child back by `seconds`."""
    child._heard_s -= seconds


def first_record(child):
    events = []
    wait_for(lambda: events.extend(child.poll(0.1)) or events or child.verdict)
    assert events, child.verdict
    return events[0]


@pytest.mark.slow
def test_two_of_the_first_steps_have_their_operations_in_their_records(run):
    _, events = run("computes")
    layer = 2 * 4 * 64 * 32
    counted = [event.get("step_flops") for event in events]
    assert [found for found in counted if found] == [{"fp32": 2 * layer}] * 2
    assert counted[0] is None  # the first step ends before counting begins


def test_records_come_with_the_childs_clock_and_memory(run):
    before_s = time.monotonic()
    outcome, events = run("steps")
    assert outcome == Outcome(Status.COMPLETED)
    assert [event["samples"] for event in events] == [4, 8, 12]
    clock = [before_s, *(event["at_s"] for event in events), time.monotonic()]
    assert clock == sorted(clock)
    assert all(event["memory_peak_bytes"] >= 0 for event in events)


def test_a_trial_has_its_directory_however_late_its_supervisor_continues(server, tmp_path, monkeypatch):
    monkeypatch.setattr(MemoryWatch, "begin", lambda watch, pid: time.sleep(1))
    order = Order(0, "workloads_for_tests:steps", {}, str(tmp_path / "member"), SCORE, Ends(1))
    child = Child(order, server)
    listen(child)
    child.kill()
    assert child.verdict == Outcome(Status.COMPLETED)


def test_scalars_of_numpy_and_torch_are_numbers(run):
    _, [event] = run("scalars")
    assert event["samples"] == 4
    assert event["train_loss"] == 0.5
    assert event["scores"] == {"bleu_4": 0.25}


def test_steps_in_which_torch_has_compiled_are_marked(run):
    outcome, events = run("compiles")
    assert outcome == Outcome(Status.COMPLETED)
    marked = ["is_compiling" in event for event in events]
    assert marked == [True, False, False, True, False, False, False, False]


FAILURES = {
    "torch's allocator": ("fills_memory", {"with": "tensors"}, Failure.OOM, "can't allocate memory"),
    "a convolution": ("fills_memory", {"with": "a convolution"}, Failure.OOM, "RuntimeError: "),
    "NumPy": ("fills_memory", {"with": "an array"}, Failure.OOM, "MemoryError: Unable to allocate"),
    "Python's lists": ("fills_memory", {"with": "lists"}, Failure.OOM, "MemoryError"),
    "Python's bytes": ("fills_memory", {"with": "bytes"}, Failure.OOM, "MemoryError"),
    "a loader's worker": ("loads", {"fault": "memory"}, Failure.OOM, "Caught MemoryError in DataLoader"),
    "NumPy in a worker": ("loads", {"fault": "array"}, Failure.OOM, "Caught MemoryError in DataLoader"),
    "bad_alloc": ("dies", {"how": "bad_alloc"}, Failure.OOM, "killed by SIGABRT: std::bad_alloc"),
    "abort": ("dies", {"how": "abort"}, Failure.ERROR, "killed by SIGABRT"),
    "SIGSEGV": ("dies", {"how": "segv"}, Failure.ERROR, "killed by SIGSEGV"),
    "os._exit": ("dies", {"how": "exit"}, Failure.ERROR, "exited with 3 without a verdict"),
    "sys.exit": ("raises", {"kind": "exit"}, Failure.ERROR, "SystemExit: 2"),
    "an exception": ("raises", {"kind": "value"}, Failure.ERROR, "ValueError: the loss [31mis bad"),
    "one without text": ("raises", {"kind": "unprintable"}, Failure.ERROR, "UnprintableError: (its text"),
    "divergence": ("raises", {"kind": "diverged"}, Failure.DIVERGED, "DivergedError: loss is nan"),
    "NaN": ("losses", {"losses": [1.0, None, None, None]}, Failure.DIVERGED, "train_loss was nan 3 times"),
    "no record": ("nothing", {}, Failure.ERROR, "the workload yielded no record"),
    "no mapping": ("yields", {"kind": "text"}, Failure.ERROR, "a record must be a mapping, got str"),
    "no samples": ("yields", {"kind": "no samples"}, Failure.ERROR, "samples must be an int, got None"),
    "half a sample": ("yields", {"kind": "half a sample"}, Failure.ERROR, "must be an int, got 0.5"),
    "a true sample": ("yields", {"kind": "true"}, Failure.ERROR, "samples must be an int, got True"),
    "an object": ("yields", {"kind": "an object"}, Failure.ERROR, "values must be JSON's, got object"),
    "an object inside": ("yields", {"kind": "an object inside"}, Failure.ERROR, "must be JSON's, got object"),
    "samples backwards": ("backwards", {}, Failure.ERROR, "must not decrease, got 4 after 8"),
    "no such module": ("no_such_module:fit", {}, Failure.ERROR, "there is no module no_such_module"),
    "no such function": ("workloads_for_tests:fit", {}, Failure.ERROR, "AttributeError: "),
}


@pytest.mark.parametrize(("workload", "config", "kind", "reason"), FAILURES.values(), ids=FAILURES)
def test_every_failure_is_reported(run, workload, config, kind, reason):
    outcome, _ = run(workload, config, host_bytes=CAP)
    assert (outcome.status, outcome.failure) == (Status.FAILED, kind), outcome.reason
    assert reason in outcome.reason


def test_a_record_without_the_unit_of_work_is_one_clear_line(run):
    outcome, _ = run("steps", metric=Metric("bleu_4", unit="tokens"))
    assert (outcome.status, outcome.failure) == (Status.FAILED, Failure.ERROR)
    assert outcome.reason.endswith("a record's tokens must be an int, got None")


KILLS = {
    "the process itself": ("dies", {"how": "kill"}, "killed by SIGKILL"),
    "a worker of torch's loader": ("loads", {"fault": "kill"}, "is killed by signal: Killed"),
    "the process, politely": ("dies", {"how": "term"}, "it received a SIGTERM"),
}


@pytest.mark.parametrize(("workload", "config", "reason"), KILLS.values(), ids=KILLS)
def test_a_kill_that_nothing_explains_is_no_failure_of_the_trial(run, workload, config, reason):
    outcome, _ = run(workload, config)
    assert (outcome.status, outcome.failure) == (Status.INTERRUPTED, Failure.LOST), outcome.reason
    assert reason in outcome.reason


@pytest.fixture
def _full_machine(tree):
    tree("0::/container", {"container/memory.max": "100", "container/memory.current": "97"})


@pytest.mark.usefixtures("_full_machine")
def test_a_worker_that_is_killed_while_the_machine_is_full_is_out_of_memory(run):
    outcome, _ = run("loads", {"fault": "kill"})
    assert (outcome.status, outcome.failure) == (Status.FAILED, Failure.OOM)


def test_losses_that_recover_are_no_divergence(run):
    losses = [1.0, None, None, 0.5, None, None]
    assert run("losses", {"losses": losses})[0] == Outcome(Status.COMPLETED)


@pytest.mark.parametrize(
    ("workload", "config", "written"),
    [
        ("raises", {"kind": "value"}, "in raises"),
        ("dies", {"how": "segv"}, "Fatal Python error: Segmentation fault"),
    ],
)
def test_the_log_has_the_traceback(run, tmp_path, workload, config, written):
    run(workload, config)
    assert written in (tmp_path / "log").read_text()


def test_the_log_of_an_earlier_attempt_does_not_count(run, tmp_path):
    assert run("dies", {"how": "bad_alloc"})[0].failure is Failure.OOM
    assert run("dies", {"how": "abort"})[0].failure is Failure.ERROR
    assert "bad_alloc" in (tmp_path / "log").read_text(), "a log is appended to"


@pytest.mark.usefixtures("_full_machine")
def test_a_kill_while_the_machine_is_full_is_out_of_memory(start):
    child = start("has_family")
    first_record(child)
    os.kill(child.pid, signal.SIGKILL)
    listen(child)
    assert child.verdict.failure is Failure.OOM
    assert child.verdict.reason == "killed by SIGKILL while 97% of the machine's memory was in use"


@pytest.mark.slow
def test_a_hang_is_ended_and_its_stack_is_in_the_log(start, tmp_path):
    child = start("hangs_here", stall_timeout_s=60.0)
    wait_for((tmp_path / "work" / "hanging").exists)
    limit_stall(child, 1.0)
    events, outcome = listen(child), child.verdict
    assert (outcome.status, outcome.failure, len(events)) == (Status.FAILED, Failure.TIMEOUT, 1)
    assert f"its stack is in {tmp_path / 'log'}" in outcome.reason
    assert "in hangs_here" in (tmp_path / "log").read_text()


@pytest.mark.slow
def test_records_yielded_during_a_stack_dump_are_received(start, tmp_path):
    """A program that cannot dump its stacks dies of the signal, and its parent continues."""
    child = start("waits_for_a_program", stall_timeout_s=60.0, whole=True)
    wait_for((tmp_path / "work" / "hanging").exists)
    limit_stall(child, 1.0)
    assert [event["samples"] for event in listen(child)] == [1, 2, 3, 4]
    assert child.verdict.failure is Failure.TIMEOUT


def test_a_flood_of_records_that_keeps_its_supervisor_busy_is_no_progress(start):
    child = start("stands_still", stall_timeout_s=1.0)
    listened = 0
    while child.verdict is None:
        child.poll(0.001)
        time.sleep(0.05)  # processing of the records
        listened += 1
        assert listened < 1200
    assert child.verdict.failure is Failure.TIMEOUT


def test_a_supervisor_that_was_suspended_ends_no_trial(start):
    child = start("hangs_here", stall_timeout_s=60.0)
    first_record(child)
    was_away(child, 1000.0)
    child.poll(0.0)
    assert child.verdict is None


@pytest.mark.slow
def test_without_a_limit_its_own_steps_determine_the_stall_timeout(start, tmp_path):
    child = start("hangs_here", {"steps": 5, "evaluates": True}, stalls=Stalls(shortest_s=1.0))
    wait_for((tmp_path / "work" / "hanging").exists)
    events = listen(child)
    assert (child.verdict.failure, len(events)) == (Failure.TIMEOUT, 5)


def test_the_first_evaluation_may_take_long(start):
    child = start("hangs_here", {"steps": 5}, stalls=Stalls(shortest_s=0.1))
    deadline = time.monotonic() + 1
    while time.monotonic() < deadline:
        child.poll(0.1)
    assert child.verdict is None
    child.kill()


def test_a_hang_before_the_first_record_is_ended(run):
    assert run("hangs_here", {"steps": 0}, stalls=Stalls(untimed_s=0.3))[0].failure is Failure.TIMEOUT


def test_stop_closes_the_workload_and_loses_no_record(start, tmp_path):
    child = start("endless")
    events = child.poll(30)
    child.stop(30)
    events += child.poll(0)
    assert child.verdict == Outcome(Status.STOPPED, reason="was asked to stop")
    samples = [event["samples"] for event in events]
    assert samples == list(range(1, len(samples) + 1))
    assert int((tmp_path / "work" / "checkpoint").read_text()) == samples[-1]
    wait_for(lambda: not session(child.pid))


def test_stop_does_not_wait_for_ever(start, tmp_path):
    child = start("hangs_here")
    wait_for((tmp_path / "work" / "hanging").exists)
    child.stop(0.2)
    assert child.verdict == Outcome(Status.STOPPED, reason="killed: it did not close within 0.2 s")
    wait_for(lambda: not session(child.pid))


def test_while_it_closes_it_may_stand_still_for_longer_than_a_step(start, tmp_path):
    child = start("saves_for_long", stall_timeout_s=60.0)
    first_record(child)
    limit_stall(child, 0.1)
    child.stop(30)
    assert child.verdict == Outcome(Status.STOPPED, reason="was asked to stop")
    assert (tmp_path / "work" / "checkpoint").exists()


@pytest.mark.parametrize("end", [Child.kill, lambda child: child.stop(5)])
def test_a_child_can_be_ended_before_it_has_begun(start, end):
    for _ in range(5):  # a new process has no process group of its own yet
        child = start("hangs_here")
        end(child)
        assert child.verdict.status is Status.STOPPED
        wait_for(lambda pid=child.pid: not psutil.pid_exists(pid))


def test_a_child_that_ends_during_a_poll_is_noticed(start, monkeypatch):
    child = start("steps", {"steps": 1})
    read = child._inbox.take

    def read_and_be_late():
        messages = read()
        child._process.join()  # record, verdict and exit all come after the pipe was read
        return messages

    monkeypatch.setattr(child._inbox, "take", read_and_be_late)
    events = []
    while child.verdict is None:
        events += child.poll(0)
    assert (child.verdict, len(events + child.poll(0))) == (Outcome(Status.COMPLETED), 1)


def test_a_child_that_ends_as_it_is_stopped_is_noticed(start, monkeypatch):
    child = start("steps", {"steps": 1})
    is_alive = child._process.is_alive

    def alive_and_then_gone():
        monkeypatch.undo()
        found = is_alive()
        wait_for(lambda: not psutil.pid_exists(child.pid))
        return found

    monkeypatch.setattr(child._process, "is_alive", alive_and_then_gone)
    assert child.stop(30) == Outcome(Status.COMPLETED)
    assert len(child.poll(0)) == 1


def test_a_long_record_comes_whole_and_half_of_one_blocks_nobody(start):
    child = start("says_much", {"bytes": 2**22})
    wait_for(lambda: psutil.Process(child.pid).num_threads() and child._inbox.pipe.poll(0.1))
    os.kill(child.pid, signal.SIGSTOP)
    for _ in range(20):
        assert child.poll(0.01) == []
    os.kill(child.pid, signal.SIGCONT)
    [event] = listen(child)
    assert event["text"] == "x" * 2**22


def test_an_old_child_is_read_a_few_times_a_second_however_much_it_sends(start):
    child = start("endless")
    first_record(child)
    child._begun_s = time.monotonic() - 60.0
    deadline, readings, records = time.monotonic() + 2.0, 0, 0
    while time.monotonic() < deadline:
        events = child.poll(1.0)
        readings, records = readings + 1, records + len(events)
    assert records > 100
    assert readings < 20


def test_the_end_of_a_child_of_some_age_is_seen_at_once(start):
    def seen_after_s():
        child = start("endless")
        first_record(child)
        child._begun_s = time.monotonic() - 60.0
        child.poll(1.0)
        os.kill(child.pid, signal.SIGKILL)
        begun_s = time.monotonic()
        listen(child)
        return time.monotonic() - begun_s

    # Its next reading would be 0.2 s away. A busy machine may delay it, too, but not every time.
    assert any(seen_after_s() < 0.15 for _ in range(10))


@pytest.mark.parametrize("end", [Child.kill, lambda child: child.stop(0.1)])
def test_workers_and_programs_end_with_the_child(start, end):
    child = start("has_family")
    first_record(child)
    assert len(session(child.pid)) >= 4
    end(child)
    wait_for(lambda: not session(child.pid))


def test_what_a_completed_workload_leaves_behind_is_killed(start):
    child = start("leaves_family")
    first_record(child)
    listen(child)
    child.kill()
    wait_for(lambda: not session(child.pid))  # the program is part of the session


def test_a_forgotten_child_is_killed(tmp_path, server):
    order = Order(0, "workloads_for_tests:has_family", {}, str(tmp_path), SCORE, Ends(1))
    child = Child(order, server)
    first_record(child)
    pid = child.pid
    del child
    wait_for(lambda: not session(pid))


def test_a_dead_fork_server_costs_a_trial_and_is_replaced(start, run):
    child = start("has_family")
    first_record(child)
    os.kill(psutil.Process(child.pid).ppid(), signal.SIGKILL)
    wait_for(lambda: child.pid not in session(child.pid))
    listen(child)
    assert child.verdict.failure is Failure.LOST
    assert "its fork server was killed" in child.verdict.reason
    assert run("steps")[0] == Outcome(Status.COMPLETED)
    child.kill()
    wait_for(lambda: not session(child.pid))


def test_nothing_of_a_trial_reaches_the_next(run):
    _, [first] = run("remembers", host_bytes=CAP)
    _, [second] = run("remembers")
    expected = {**first, "limit": resource.getrlimit(resource.RLIMIT_DATA)[0], "at_s": second["at_s"]}
    expected["memory_peak_bytes"] = second["memory_peak_bytes"]
    assert second == expected
    assert first["limit"] != second["limit"]
    assert second["held"] == 0


def test_a_workload_starts_its_workers_as_it_does_by_itself(run):
    outcome, [event] = run("loads_what_cannot_be_pickled")
    assert outcome == Outcome(Status.COMPLETED)
    script = "import multiprocessing; print(multiprocessing.get_start_method())"
    plain = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert event["start_method"] == plain.stdout.strip()


@pytest.mark.slow
def test_children_leave_no_descriptor_and_no_process(tmp_path, server):
    def one():
        order = Order(0, "workloads_for_tests:steps", {}, str(tmp_path), SCORE, Ends(1))
        child = Child(order, server)
        listen(child)
        child.kill()
        return child.pid

    def descriptors():
        gc.collect()
        return len(list(Path("/proc/self/fd").iterdir()))

    one()
    before = descriptors()
    pids = [one() for _ in range(30)]
    assert descriptors() <= before
    wait_for(lambda: not any(psutil.pid_exists(pid) or session(pid) for pid in pids))


@pytest.mark.parametrize("own", [True, False])
def test_the_peak_is_of_memory_of_its_own_and_not_of_files_that_are_mapped(run, own):
    _, events = run("maps", {"own": own})
    before, after = (event["memory_peak_bytes"] for event in events)
    assert (after - before > 2**25) is own


@pytest.mark.parametrize(("mib", "failure"), [(95, Failure.OOM), (10, Failure.ERROR)])
def test_a_crash_at_the_memory_limit_is_an_out_of_memory(run, mib, failure):
    outcome, _ = run("crashes_full", {"bytes": mib * 2**20}, host_bytes=100 * 2**20)
    assert outcome.failure is failure, outcome
    assert outcome.reason.startswith("killed by SIGSEGV")


def suspended(pid):
    return [one for one in session(pid) if status(one) == psutil.STATUS_STOPPED]


def lengths(tmp_path):
    return [(tmp_path / "work" / name).stat().st_size for name in ("counter", "program")]


def test_a_paused_family_stands_still_and_continues(start, tmp_path):
    child = start("counts")
    first_record(child)
    wait_for(lambda: all(lengths(tmp_path)))
    child.pause()
    wait_for(lambda: len(suspended(child.pid)) == 2)
    child.poll(0.0)  # records yielded before
    stood = lengths(tmp_path)
    assert child.poll(0.3) == []
    assert lengths(tmp_path) == stood
    child.resume()
    wait_for(lambda: all(now > then for now, then in zip(lengths(tmp_path), stood, strict=True)))
    assert first_record(child)["samples"] > 1


def test_a_guard_is_not_paused(start):
    child = start("has_family")
    first_record(child)
    child.pause()
    wait_for(lambda: len(suspended(child.pid)) >= 4)  # the process, two workers, a program
    [running] = set(session(child.pid)) - set(suspended(child.pid))
    assert psutil.Process(running).name() == "sh"


def test_a_pause_is_no_silence(start):
    child = start("endless", stall_timeout_s=60.0)
    first_record(child)
    child.pause()
    for _ in range(200):
        was_away(child, 1.0)
        child.poll(0.0)
    assert child.verdict is None
    child.resume()
    wait_for(lambda: child.poll(0.1))


def test_a_paused_child_can_be_killed_and_asked_to_stop(start, tmp_path):
    for end in (Child.kill, lambda child: child.stop(20.0)):
        child = start("endless")
        first_record(child)
        child.pause()
        end(child)
        wait_for(lambda pid=child.pid: not session(pid))
    assert child.verdict.reason == "was asked to stop"
    assert (tmp_path / "work" / "checkpoint").exists()


def test_nothing_is_left_of_a_paused_child_that_dies(start):
    child = start("has_family")
    first_record(child)
    child.pause()
    os.kill(child.pid, signal.SIGKILL)
    wait_for(lambda: child.poll(0.1) or child.verdict)
    child.kill()
    wait_for(lambda: not session(child.pid))


def time_to_read(record_bytes):
    """Returns the CPU seconds to read a record from a pipe, the minimum of three."""
    message = b'{"blob": "' + bytes(record_bytes).replace(b"\0", b"x") + b'"}\n'

    def once():
        receiver, sender = multiprocessing.Pipe(duplex=False)
        writer = threading.Thread(target=lambda: os.write(sender.fileno(), message))
        inbox, found = Messages(receiver), []
        writer.start()
        receiver.poll(None)
        spent_s = 0.0
        while not found:
            begun_s = time.thread_time()
            found = inbox.take()
            spent_s += time.thread_time() - begun_s
        writer.join()
        for end in (receiver, sender):
            end.close()
        assert len(found[0]["blob"]) == record_bytes
        return spent_s

    return min(once() for _ in range(3))


def test_a_record_of_many_megabytes_is_taken_in_linear_time():
    # 8 times the size: quadratic time would be 64 times as long; cache misses may cost several times.
    assert time_to_read(32 * 2**20) < 5 * 8 * time_to_read(4 * 2**20)
