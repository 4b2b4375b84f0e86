"""A full, read-only, slow or failing disk: one line, exit code 2, and an intact session."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from autotune.core import files
from autotune.core.measurement import Measurement, Metric, Throughput
from autotune.core.trial import Status
from autotune.space import spaces
from autotune.storage import identity, studies
from autotune.storage.layout import SessionDir
from autotune.storage.store import StoredSession
from autotune.trackers.tensorboard import TensorBoard
from autotune.trackers.tracker import Context
from autotune.trackers.tracking import Trackers
from autotune.trials.child import Child, Stalls
from autotune.trials.fork_server import ForkServer
from autotune.trials.order import Ends, Order
from autotune.trials.progress import Phase
from autotune.trials.report import TrialReport
from tests import forked
from tests.endings import ENDED

from .sessions import (
    KEPT,
    SPACE,
    as_if_here,
    call,
    fill,
    is_one_line,
    kept,
    mount,
    mounted,
    read_only,
    search,
    small_disk,
    start,
    trials_of,
    wait_for,
)

pytestmark = pytest.mark.slow

FULL = "No space left on device", "database or disk is full", "disk I/O error"


def test_every_connection_to_the_study_is_synced_fully(tmp_path):
    space = spaces.parse(SPACE, "test")
    engine = studies.open_study(tmp_path / "study.db", space)._storage._backend.engine
    with engine.connect() as one, engine.connect() as another:
        for connection in (one, another):
            assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2  # FULL
            assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"


def test_a_disk_that_fills_up_stops_the_search_without_loss(tmp_path):
    """Checkpoints are kept, so at the end all of them must be there."""
    options = ("--trials", 3, "--keep-checkpoints")
    with small_disk(tmp_path / "s", "8m") as place:
        process = start(tmp_path, *search(tmp_path, *options, samples_per_trial=1000, choice=[4, 32]))
        wait_for(lambda: " completed: " in process.said())
        before = [t for t in trials_of(place) if t.outcome is not None]
        ballast = fill(place)
        out, err = process.communicate(timeout=240)
        is_one_line(subprocess.CompletedProcess((), process.returncode, out, err))
        assert any(said in err for said in FULL), err
        assert "nothing is lost" in err
        assert call(tmp_path, "status", "s").returncode == 0, "what is known can be seen without room"
        ballast.unlink()
        done = call(tmp_path, "resume", "s")
        assert done.returncode in ENDED, done.stderr
        after = trials_of(place)
        assert after[: len(before)] == before
        assert len(after) == 3
        assert all(t.outcome is not None for t in after)
        completed = {t.number for t in after if t.completed}
        assert len(completed) < 3, "one did not fit"
        assert {int(work.parent.name) for work in (place / "trials").glob("*/work")} == completed
        assert " on disk" in call(tmp_path, "status", "s").stdout


def test_charts_are_omitted_while_the_disk_is_full(tmp_path, caplog):
    with small_disk(tmp_path / "s", "256k") as place:
        board = TensorBoard(Context(SessionDir(place), "s", Metric("bleu_4")))
        shown = Measurement(throughput=Throughput(4.0, None, 9, 9.0), samples=4)
        report = TrialReport(0, Phase.TRAINING, 1.0, shown)
        with Trackers({"tensorboard": board}, "search") as trackers:
            trackers.begin("0000", {})
            ballast = fill(place)
            for run in ("0000", "0001"):
                trackers.begin(run, {})
                for _ in range(200):
                    trackers.log(run, report)
                trackers.end(run)
        ballast.unlink()
        with Trackers({"tensorboard": board}, "search") as trackers:
            trackers.begin("0002", {})
            trackers.log("0002", report)
        events = EventAccumulator(str(place / "tensorboard" / "0002")).Reload()
        assert [(e.step, e.value) for e in events.Scalars("perf/throughput")] == [(4, 4.0)]
    assert caplog.messages == [], "the search itself stops, and says why"


@pytest.mark.long
def test_resuming_on_a_full_disk_is_refused_in_one_line(tmp_path):
    with small_disk(tmp_path / "s", "2m") as place:
        as_if_here(kept("format-2", place))
        before = trials_of(place)
        ballast = fill(place)
        done = call(tmp_path, "resume", "s")
        is_one_line(done, "nothing is lost")
        assert any(said in done.stderr for said in FULL), done.stderr
        ballast.unlink()
        assert trials_of(place) == before
        assert call(tmp_path, "resume", "s").returncode in ENDED


@pytest.mark.long
def test_a_search_on_a_full_disk_can_begin_once_there_is_room(tmp_path):
    """At first the session cannot be created; later it can, but its study cannot."""
    with small_disk(tmp_path / "small", "1m") as place:
        begin = search(tmp_path, "--trials", 1, "--session", "small/s")
        for room in (0, 24576):
            ballast = fill(place, room)
            done = call(tmp_path, *begin)
            is_one_line(done)
            assert any(said in done.stderr for said in FULL), done.stderr
            ballast.unlink()
        subprocess.run(["mount", "-o", "remount,size=16m", place], check=True)
        is_one_line(call(tmp_path, "status", "small/s"), "nothing was run yet")
        assert call(tmp_path, "resume", "small/s").returncode in ENDED


def test_a_session_on_a_read_only_disk_can_be_read_but_not_resumed(tmp_path):
    place = as_if_here(kept("format-2", tmp_path / "s"))
    shown = call(tmp_path, "status", "s").stdout.partition(" on disk")[2]
    for left in place.glob("study.db-*"):
        left.unlink()
    with read_only(place):
        seen = call(tmp_path, "status", "s")
        assert seen.returncode == 0, seen.stderr
        assert seen.stdout.partition(" on disk")[2] == shown
        assert call(tmp_path, "export", "s", "-o", "best.yaml").returncode == 0
        is_one_line(call(tmp_path, "export", "s", "-o", "s/best.yaml"), "s/best.yaml: cannot be written")
        is_one_line(call(tmp_path, "resume", "s"), "s/lock: cannot be written: Read-only file system")
        is_one_line(call(tmp_path, *search(tmp_path)), "already exists; continue it with")
    (tmp_path / "other").mkdir()
    with read_only(tmp_path / "other"):
        is_one_line(
            call(tmp_path, "search", "--space", "space.yaml", "--session", "other/s"),
            "session other/s: cannot be written: Read-only file system",
        )


def test_a_killed_searchs_write_ahead_log_is_read_on_a_read_only_disk(tmp_path):
    """Its last trials are only in the write-ahead log."""
    place = kept("format-2", tmp_path / "s")
    script = (
        "import os, pathlib; from autotune.storage import studies;"
        "from autotune.storage.store import StoredSession;"
        "session = StoredSession(pathlib.Path('s')); space = session.space();"
        "study = studies.open_study(session.study_file, space);"
        "studies.begin(study, space, space.baseline_config); os._exit(9)"
    )
    before = len(trials_of(place))
    assert subprocess.run([sys.executable, "-c", script], check=False, cwd=tmp_path).returncode == 9
    assert (place / "study.db-wal").stat().st_size
    with read_only(place):
        assert len(trials_of(place)) == before + 1


@pytest.fixture
def disk(tmp_path, monkeypatch):
    """Yields a file system on its own device."""
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}:/usr/sbin:/sbin")
    if not shutil.which("mkfs.ext4"):
        pytest.skip("cannot make an ext4 file system")
    image, place = tmp_path / "image", tmp_path / "s"
    place.mkdir()
    with image.open("wb") as file:
        file.truncate(64 * 2**20)
    subprocess.run(["mkfs.ext4", "-q", image], check=True)
    mount("-o", "loop", image, place)
    (place / "lost+found").rmdir()
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)


def test_a_disk_that_turns_read_only_stops_the_search_without_loss(tmp_path, disk):
    subprocess.run(["mount", "-o", "remount,errors=remount-ro", disk], check=True)
    device = subprocess.check_output(["findmnt", "-n", "-o", "SOURCE", disk], text=True).strip()
    fault = Path("/sys/fs/ext4", Path(device).name, "trigger_fs_error")
    if not os.access(fault, os.W_OK):
        pytest.skip("cannot make a fault of the file system")
    process = start(tmp_path, *search(tmp_path, "--trials", 3, samples_per_trial=1000))
    wait_for(lambda: " completed: " in process.said())
    before = [t for t in trials_of(disk) if t.outcome is not None]
    fault.write_text("made by a test")
    out, err = process.communicate(timeout=240)
    is_one_line(subprocess.CompletedProcess((), process.returncode, out, err))
    assert "nothing is lost" in err
    assert call(tmp_path, "status", "s").returncode == 0
    shutil.copytree(disk, tmp_path / "elsewhere")
    assert trials_of(tmp_path / "elsewhere")[: len(before)] == before


def test_a_slow_disk_is_not_taken_for_a_stall(tmp_path, disk, monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    order = Order(0, "slow_disk:fit", {"disk": str(disk)}, str(tmp_path), Metric("bleu_4"), Ends(1))
    subprocess.run(["fsfreeze", "--freeze", disk], check=True)
    try:
        child = Child(order, ForkServer([]), Stalls(shortest_s=0.5))
        wait_for((tmp_path / "work" / "waiting").exists)
        frozen = time.monotonic()
        while time.monotonic() < frozen + 3:
            child.poll(0.1)
        assert child.verdict is None
    finally:
        subprocess.run(["fsfreeze", "--unfreeze", disk], check=True)
    while child.verdict is None:
        child.poll(0.1)
    child.kill()
    assert child.verdict.status is Status.COMPLETED


@pytest.mark.long
@pytest.mark.parametrize("limit", ["size=32k", "nr_inodes=12"])
def test_a_full_temporary_directory_is_named_if_ray_does_not_start(tmp_path, limit):
    with tempfile.TemporaryDirectory(prefix="t-", dir="/tmp") as place, mounted(Path(place), limit):
        (tmp_path / "kept_workload.py").write_text((KEPT / "kept_workload.py").read_text())
        done = forked.run(search(tmp_path), tmp_path, {**os.environ, "TMPDIR": place})
    said = done.stderr.splitlines()[-1]
    assert done.returncode == 2, done.stderr
    assert f"TMPDIR: {place}: cannot be written: No space left on device; nothing is lost" in said


def test_a_log_on_a_full_disk_is_one_line(tmp_path):
    kept("format-2", tmp_path / "s")
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "autotune", "status", "s"],
            check=False,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": f"{KEPT}:{os.environ.get('PYTHONPATH', '')}"},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    is_one_line(done, "cannot be written: No space left on device")


def test_a_file_appears_whole_or_stays_as_it_was(tmp_path):
    with small_disk(tmp_path / "small", "64k") as place:
        files.write_whole(place / "verdict.json", "first")
        with pytest.raises(OSError, match="No space left"):
            files.write_whole(place / "verdict.json", "x" * 2**20)
        assert {f.name: f.read_text() for f in place.iterdir()} == {"verdict.json": "first"}


def test_resuming_removes_what_a_kill_left_of_an_ended_trial(tmp_path):
    place = kept("format-2", tmp_path / "s")
    session, trials = StoredSession.open(place), trials_of(place)
    for trial in trials:
        directory = session.trial_dir(trial.number)
        directory.work.mkdir(parents=True, exist_ok=True)
        identity.write_identity(directory, session.identity_of(trial))
    session.remove_work(trials)
    left = {int(work.parent.name) for work in (place / "trials").glob("*/work")}
    assert left == {t.number for t in trials if t.outcome is None}
    assert left, "one that was interrupted goes on from its checkpoint"
