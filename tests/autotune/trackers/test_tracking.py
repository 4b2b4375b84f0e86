"""What the tracker logs is read back from the files that W&B itself would upload."""

import json
import os
import socket
import struct
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.forked import Forked

KEY = "made-up-key-" + "0123456789" * 3
USER = "somebody-in-particular"

PROLOGUE = """
import logging, sys, time
from pathlib import Path
from types import SimpleNamespace
from autotune.core.metric import Metric
from autotune.space import spaces
from autotune.trackers import runs, tracking
from autotune.trials.progress import Phase
from autotune.trials.reported import Report
from autotune.core.measurement import Measurement, Throughput
from autotune.core.trial import Failure, Outcome, Status
logging.basicConfig(filename=sys.argv[2], level="WARNING", format="%(message)s")
directory = Path(sys.argv[1])
def trial(number):
    return SimpleNamespace(config={"number": number, "config": {"micro_batch_size": 4}})
def report(number, samples, **more):
    records = ({"samples": samples, "train_loss": 1.5, "at_s": 0.0},)
    return Report(number, Phase.TRAINING, 2.0, Measurement(samples=samples), records, **more)
space = spaces.parse('''
workload: some.module:fit
baseline: {micro_batch_size: 4, precision: fp32, learning_rate: 1e-3}
knobs: {micro_batch_size: {choice: [4, 8]}, precision: {choice: [fp32, null]}, learning_rate: {scale: sqrt}}
''', "test")
"""

# As Ray Tune tells its callbacks of a trial that completes, of one that fails, and of one that is lost.
TUNE = """
import os

OUTCOMES = [Outcome(Status.COMPLETED), Outcome(Status.FAILED, Failure.OOM, "CUDA out of memory")]
SEEN = {"cpu_percent": 150.0}

def shown(samples, samples_per_s):
    return Measurement(throughput=Throughput(samples_per_s, None, 9, 9.0), samples=samples)

def reports(number):
    for step in (1, 2):
        records = [{"at_s": float(step), "samples": 8 * step, "train_loss": 3.0 - step, "data_s": 0.25}]
        if step == 2:
            records.append({"at_s": 2.5, "samples": 16, "bleu_4": 0.125})
        yield Report(number, Phase.TRAINING, 1.5 * step, shown(8 * step, 5.5 * step), tuple(records), SEEN)
    if number < 2:
        yield Report(number, Phase.TRAINING, 4.0, shown(16, 10.5), (), SEEN, OUTCOMES[number])

config = {"micro_batch_size": 4, "precision": "bf16", "data": os.environ["HOME"] + "/images"}
tags = ("r2gen", "thesis")
with tracking.Tracker(directory, "chest", metric=Metric("bleu_4"), tags=tags) as tracker:
    assert not tracker.__getstate__()["_worker"]
    tracker.setup()
    for number in (0, 1, 2):
        one = SimpleNamespace(config={"number": number, "config": config})
        told = {"iteration": 1, "trials": [one], "trial": one}
        tracker.on_trial_start(**told)
        for report in reports(number):
            tracker.on_trial_result(**told, result=report.to_dict())
        (tracker.on_trial_error if number else tracker.on_trial_complete)(**told)
    tracker.on_experiment_end(trials=[])
"""


@dataclass
class Run:
    """An offline run's file, read."""

    id: str = ""
    group: str = ""
    name: str = ""
    host: str = ""
    tags: tuple[str, ...] = ()
    config: dict[str, Any] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    axes: dict[str, str] = field(default_factory=dict)
    files: Path = Path()
    artifacts: dict[str, dict[str, bytes]] = field(default_factory=dict)
    exit_code: int | None = None

    def column(self, name: str) -> list[Any]:
        return [row[name] for row in self.history if name in row]

    def table(self, name: str) -> list[dict[str, Any]]:
        """The rows of a table, by the names of its columns."""
        logged = json.loads((self.files / self.summary[f"{name}/path"]).read_text())
        return [dict(zip(logged["columns"], row, strict=True)) for row in logged["data"]]


def read_run(file: Path) -> Run:
    from wandb.proto.wandb_internal_pb2 import Record

    run = Run(files=file.parent / "files")
    for data in log_records(file.read_bytes()):
        record = Record()
        record.ParseFromString(data)
        kind = record.WhichOneof("record_type")
        if kind == "run":
            run.id, run.group = record.run.run_id, record.run.run_group
            run.name, run.host = record.run.display_name, record.run.host
            run.tags = tuple(record.run.tags)
            run.config |= items(record.run.config.update)
        elif kind == "history":
            run.history.append(items(record.history.item))
        elif kind == "summary":
            run.summary |= items(record.summary.update)
        elif kind == "config":
            run.config |= items(record.config.update)
        elif kind == "artifact":
            contents = record.artifact.manifest.contents
            run.artifacts[record.artifact.type] = {c.path: Path(c.local_path).read_bytes() for c in contents}
        elif kind == "metric" and record.metric.step_metric:
            run.axes[record.metric.glob_name] = record.metric.step_metric
        elif kind == "exit":
            run.exit_code = record.exit.exit_code
    return run


def log_records(data: bytes) -> Iterator[bytes]:
    """The records in LevelDB's log format: blocks of 32 KiB, in them checksum, length, kind, bytes.

    A file that its writer has only just made holds nothing yet.
    """
    assert data[:4] in {b"", b":W&B"}
    position, record = 7, b""
    while position + 7 <= len(data):
        left = 32768 - position % 32768
        if left < 7:
            position += left
            continue
        checksum, length, kind = struct.unpack_from("<IHB", data, position)
        piece = data[position + 7 : position + 7 + length]
        if kind == 0 or len(piece) < length:
            return  # the end; what a kill cut short is not read
        assert zlib.crc32(data[position + 6 : position + 7 + length]) == checksum
        position += 7 + length
        record = piece if kind in {1, 2} else record + piece  # 1 whole, 2 first, 3 middle, 4 last
        if kind in {1, 4}:
            yield record


def items(entries: Any) -> dict[str, Any]:
    return {e.key or "/".join(e.nested_key): json.loads(e.value_json) for e in entries}


def read_runs(directory: Path) -> list[Run]:
    """The runs of a session by name, then in the order in which they were written."""
    files = sorted(directory.glob("wandb/*run-*/*.wandb"), key=lambda file: file.stat().st_mtime)
    return sorted((run for run in map(read_run, files) if run.id), key=lambda run: run.name)


@dataclass
class Driver:
    """Runs a script in a process of its own, as another user, without and with W&B's variables."""

    directory: Path

    def start(self, script: str, *arguments: str, **environment: str) -> Forked:
        home = self.directory / "home" / USER
        home.mkdir(parents=True, exist_ok=True)
        self.session.mkdir(exist_ok=True)
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("WANDB_")}
        quiet = {"RAY_AIR_NEW_OUTPUT": "0", "RAY_AUTH_MODE": "disabled", "TUNE_PRINT_ALL_TRIAL_ERRORS": "0"}
        who = {"HOME": str(home), "USER": USER, "LOGNAME": USER}
        given = (self.session, self.log, *arguments)
        return Forked(given, self.directory, inherited | quiet | who | environment, script=PROLOGUE + script)

    def run(self, script: str, *arguments: str, **environment: str) -> str:
        """The output of the script; it must succeed."""
        process = self.start(script, *arguments, **environment)
        output = "".join(process.communicate(timeout=120))
        assert process.returncode == 0, output
        return output

    @property
    def session(self) -> Path:
        return self.directory / "session"

    @property
    def log(self) -> Path:
        return self.directory / "log"

    def files_with(self, text: str) -> list[Path]:
        return [f for f in self.directory.rglob("*") if f.is_file() and text.encode() in f.read_bytes()]


@pytest.fixture
def driver(tmp_path: Path) -> Driver:
    return Driver(tmp_path)


def test_what_ray_tune_tells_is_logged_whole_and_quietly(driver: Driver) -> None:
    assert driver.run(TUNE) == ""
    completed, failed, lost = read_runs(driver.session)

    assert {run.group for run in (completed, failed, lost)} == {"chest"}
    assert completed.name == "chest-0000"
    assert completed.config["micro_batch_size"] == 4
    assert completed.config["precision"] == "bf16"
    assert completed.config["trial"] == 0
    assert completed.tags == ("r2gen", "thesis", "bf16")
    assert completed.config["data"] == "~/images"

    assert completed.column("train/loss") == [2.0, 1.0]
    assert completed.column("val/bleu_4") == [0.125]
    assert completed.column("perf/data_s") == [0.25, 0.25]
    assert completed.column("perf/throughput") == [5.5, 11.0, 10.5]
    assert completed.column("system/cpu_percent") == [150.0] * 3
    assert completed.column("samples") == [8.0, 8.0, 16.0, 16.0, 16.0, 16.0]
    assert completed.column("seconds") == [1.5, 1.5, 2.5, 3.0, 3.0, 4.0]
    assert completed.axes["train/*"] == "samples"
    assert completed.axes["gpu/*"] == "seconds"

    assert (completed.exit_code, completed.summary["status"]) == (0, "completed")
    assert completed.summary["perf/throughput"] == 10.5
    assert (failed.exit_code, failed.summary["status"]) == (1, "failed")
    assert (failed.summary["failure"], failed.summary["reason"]) == ("oom", "CUDA out of memory")
    assert (lost.exit_code, lost.summary["failure"]) == (1, "lost")
    assert lost.column("train/loss") == [2.0, 1.0]

    assert [f for f in driver.files_with(USER) if f.is_relative_to(driver.session / "wandb")] == []
    assert completed.host == ""
    assert driver.log.read_text() == ""


def test_a_trial_gone_on_with_after_a_kill_is_the_same_run(driver: Driver) -> None:
    log = """
tracker = tracking.Tracker(directory, "chest", metric=Metric("bleu_4"))
tracker.log_trial_start(trial(7))
tracker.log_trial_result(1, trial(7), report(7, {samples}).to_dict())
"""
    process = driver.start(log.format(samples=8) + "time.sleep(60)")
    deadline = time.monotonic() + 120
    while not [run for run in read_runs(driver.session) if run.history]:
        assert time.monotonic() < deadline, "nothing was written before the kill"
        time.sleep(0.1)
    process.kill()
    process.wait()
    end = "with tracker:\n    tracker.log_trial_end(trial(7))\n"
    outcome = "outcome=Outcome(Status.STOPPED)"
    driver.run(log.format(samples=f"16, {outcome}") + end)

    first, second = read_runs(driver.session)
    assert first.id == second.id
    assert first.column("samples")[0] == 8.0
    assert first.exit_code is None
    assert second.column("samples")[0] == 16.0
    assert (second.exit_code, second.summary["status"]) == (0, "stopped")

    (driver.directory / "elsewhere").mkdir()
    other = Driver(driver.directory / "elsewhere")
    other.run(log.format(samples=8) + end)
    (stranger,) = read_runs(other.session)
    assert stranger.id != first.id  # of the same name, but of another search
    assert (stranger.exit_code, stranger.summary["status"]) == (255, "interrupted")


SUMMARY = """
import os
from autotune.judging.decisions.history import History
from autotune.core.measurement import Measurement, Throughput
from autotune.core.trial import Failure, Outcome, Status, Trial
def ended(number, speed, quality, **config):
    figures = Measurement(throughput=Throughput(speed, 1.0, 9, 9.0), quality=quality, peak_memory_bytes=2**30)
    return Trial(number, space.baseline_config | config, Outcome(Status.COMPLETED), figures)
why = Outcome(Status.FAILED, Failure.ERROR, f"{os.environ['HOME']}/images: {os.environ['SOME_API_KEY']}")
trials = [
    ended(0, 10.0, 0.2),
    ended(1, 25.0, 0.199, micro_batch_size=8, precision=None),
    ended(2, 20.0, 0.1, precision=None),
    Trial(3, space.baseline_config, why),
]
report = directory / "report.html"
report.write_text("<p>what came out</p>")
with tracking.Tracker(directory, "chest", metric=Metric("bleu_4")) as tracker:
    tracker.summarise(History(trials[:int(sys.argv[3])], space), report)
"""


def test_the_sessions_own_run_has_its_trials_front_gain_and_report(driver: Driver) -> None:
    assert driver.run(SUMMARY, "4", SOME_API_KEY=KEY) == ""
    (run,) = read_runs(driver.session)
    assert (run.group, run.name, run.exit_code) == ("chest", "chest-summary", 0)
    assert run.config["objective"]["quality"] == "bleu_4"

    rows = run.table("trials")
    assert [row["trial"] for row in rows] == [0, 1, 2, 3]
    assert [row["micro_batch_size"] for row in rows] == [4, 8, 4, 4]
    assert [row["precision"] for row in rows] == ["fp32", None, None, "fp32"]
    assert [row["throughput"] for row in rows] == [10.0, 25.0, 20.0, None]
    assert [row["bleu_4"] for row in rows] == [0.2, 0.199, 0.1, None]
    assert rows[1]["configuration"] == "8 None lr 0.001"
    assert rows[1]["peak_memory_bytes"] == 2**30
    assert (rows[3]["outcome"], rows[3]["reason"]) == ("failed (error)", "~/images: (hidden)")
    assert [row["trial"] for row in run.table("front")] == [1, 0]
    chart = run.config["_wandb/visualize/throughput_and_quality"]["panel_config"]
    assert chart["fieldSettings"] == {"x": "throughput", "y": "bleu_4"}
    assert [row["trial"] for row in run.table("throughput_and_quality_table")] == [0, 1, 2]

    assert run.summary["outcomes"] == "4 trials: 3 completed, 1 failed otherwise"
    assert (run.summary["baseline/trial"], run.summary["winner/trial"]) == (0, 1)
    assert (run.summary["baseline/throughput"], run.summary["winner/throughput"]) == (10.0, 25.0)
    assert (run.summary["baseline/bleu_4"], run.summary["winner/bleu_4"]) == (0.2, 0.199)
    assert (run.summary["gain/factor"], run.summary["gain/is_confirmed"]) == (2.5, False)
    assert run.summary["gain/low"] < 2.5 < run.summary["gain/high"]
    assert run.artifacts["report"] == {"report.html": b"<p>what came out</p>"}

    assert driver.files_with(KEY) == []
    assert all(f.is_relative_to(driver.session) for f in driver.files_with("what came out"))
    assert [f for f in driver.files_with(USER) if f.is_relative_to(driver.session / "wandb")] == []
    assert driver.log.read_text() == ""


def test_a_session_gone_on_with_has_one_run_of_its_own(driver: Driver) -> None:
    driver.run(SUMMARY, "1", SOME_API_KEY=KEY)
    driver.run(SUMMARY, "2", SOME_API_KEY=KEY)
    first, second = read_runs(driver.session)
    assert first.id == second.id
    assert (len(first.table("trials")), len(second.table("trials"))) == (1, 2)
    assert (first.summary["winner/trial"], second.summary["winner/trial"]) == (0, 1)


@pytest.fixture(params=["refuses", "never answers"])
def server(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of an unreachable W&B."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        if request.param == "never answers":
            listener.listen()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


AWAY = """
from autotune.judging.decisions.history import History
runs._INIT_TIMEOUT_S = 12.0
tracker = tracking.Tracker(directory, "chest", metric=Metric("bleu_4"))
started = time.monotonic()
for number in (0, 1):
    tracker.log_trial_start(trial(number))
    told = report(number, 8, outcome=Outcome(Status.COMPLETED))
    tracker.log_trial_result(1, trial(number), told.to_dict())
    tracker.log_trial_end(trial(number))
tracker.summarise(History([], space), directory / "report.html")
assert time.monotonic() - started < 12.0, "the search waited for W&B"
with tracker:
    pass
"""


def test_when_wandb_is_away_runs_are_kept_offline_and_nobody_waits(driver: Driver, server: str) -> None:
    assert driver.run(AWAY, WANDB_API_KEY=KEY, WANDB_BASE_URL=server) == ""
    runs = [run for run in read_runs(driver.session) if run.history]
    assert [run.name for run in runs] == ["chest-0000", "chest-0001", "chest-summary"]
    assert {run.exit_code for run in runs} == {0}
    (line,) = driver.log.read_text().splitlines()
    assert line.startswith("W&B cannot be reached, so runs are kept offline: ")
    assert driver.files_with(KEY) == []


def test_runs_that_were_open_when_wandb_went_away_go_on_offline(driver: Driver, server: str) -> None:
    script = """
runs._INIT_TIMEOUT_S = 1.0
kept = runs.Kept(directory, directory / "wandb" / "session-key", "chest", Metric("bleu_4"), ())
open_runs = runs.Runs(kept, online=False)
open_runs.start(0, {"micro_batch_size": 4})
open_runs.log(report(0, 8))
open_runs._online = True
open_runs.start(1, {"micro_batch_size": 8})
open_runs.log(report(0, 16))
open_runs.close()
"""
    driver.run(script, WANDB_API_KEY=KEY, WANDB_BASE_URL=server)
    before, after, other = [run for run in read_runs(driver.session) if run.exit_code is not None]
    assert before.id == after.id
    assert (before.column("samples")[0], after.column("samples")[0]) == (8.0, 16.0)
    assert after.config["micro_batch_size"] == 4
    assert other.config["micro_batch_size"] == 8


def test_when_wandb_raises_the_log_says_so_once(driver: Driver) -> None:
    (driver.session).mkdir()
    (driver.session / "wandb").write_text("in the way")
    assert driver.run(AWAY) == ""
    (line,) = driver.log.read_text().splitlines()
    assert line.startswith("W&B: ")
    assert line.endswith("; the search continues")


@pytest.mark.parametrize("is_broken_off", [True, False])
def test_what_is_broken_off_says_nothing_of_its_service(driver: Driver, is_broken_off: bool) -> None:
    script = """
import psutil
tracker = tracking.Tracker(directory, "chest", "offline", metric=Metric("bleu_4"))
def services():
    return [one for one in psutil.Process().children() if one.name() == "wandb-core"]
with tracker:
    tracker.log_trial_start(trial(0))
    while not services() or tracker._worker._waiting.qsize() or not tracker._worker._runs._open:
        time.sleep(0.05)
    if BROKEN_OFF:
        tracker.break_off()
    for one in services():
        one.kill()
        one.wait()
    tracker.log_trial_start(trial(1))
""".replace("BROKEN_OFF", str(is_broken_off))
    driver.run(script)
    assert ("W&B: " in driver.log.read_text()) is not is_broken_off


def test_it_survives_pickling_without_its_runs(driver: Driver) -> None:
    script = """
import pickle
from ray import cloudpickle
tracker = tracking.Tracker(directory, "chest", metric=Metric("bleu_4"))
tracker.log_trial_start(trial(0))
again = pickle.loads(cloudpickle.dumps(tracker))
again.log_trial_start(trial(1))
for each in (tracker, again):
    with each:
        pass
"""
    driver.run(script)
    # The first to end takes W&B's service, which is the process's, with it: the other's run is gone on with.
    assert {run.name for run in read_runs(driver.session)} == {"chest-0000", "chest-0001"}
