"""What the tracker logs is read back from the files that W&B itself would upload."""

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from autotune.errors import InputError

pytest.importorskip("ray.air.integrations.wandb")

KEY = "made-up-key-" + "0123456789" * 3
USER = "somebody-in-particular"

PROLOGUE = """
import logging, sys, time
from pathlib import Path
from types import SimpleNamespace
from autotune import tracking
logging.basicConfig(filename=sys.argv[2], level="WARNING", format="%(message)s")
directory = Path(sys.argv[1])
def trial(number):
    return SimpleNamespace(config={"number": number, "config": {"micro_batch_size": 4}})
def result(samples, **more):
    records = [{"samples": samples, "train_loss": 1.5, "at_s": 0.0}]
    return {"samples": samples, "elapsed_s": 2.0, "records": records, **more}
"""

TUNE = """
import os, time
import ray
from ray import tune

OUTCOMES = [
    {"status": "completed", "failure": None, "reason": ""},
    {"status": "failed", "failure": "oom", "reason": "CUDA out of memory"},
]

def trainable(config):
    number = config["number"]
    report = {"number": number, "phase": "training", "telemetry": {"cpu_percent": 150.0}}
    for step in (1, 2):
        records = [{"at_s": float(step), "samples": 8 * step, "train_loss": 3.0 - step, "data_s": 0.25}]
        if step == 2:
            records.append({"at_s": 2.5, "samples": 16, "bleu_4": 0.125})
        tune.report({**report, "samples": 8 * step, "elapsed_s": 1.5 * step, "records": records,
                     "throughput": 5.5 * step})
    if number == 2:
        raise RuntimeError("lost without a word")
    end = {"outcome": OUTCOMES[number], "measurement": {"throughput": {"samples_per_s": 10.5}, "samples": 16}}
    tune.report({**report, "samples": 16, "elapsed_s": 4.0, "records": [], "throughput": 11.0, **end})
    if number == 1:
        raise RuntimeError("CUDA out of memory")

logging.getLogger("ray").setLevel(logging.CRITICAL)
ray.init(num_cpus=3, log_to_driver=False, logging_level="CRITICAL", include_dashboard=False,
         object_store_memory=10**8, _node_ip_address="127.0.0.1")
config = {"micro_batch_size": 4, "precision": "bf16", "data": os.environ["HOME"] + "/images"}
tracker = tracking.Tracker(directory, "chest")
assert not tracker.__getstate__()["_worker"]
tune.Tuner(
    trainable,
    param_space={"number": tune.grid_search([0, 1, 2]), "config": config},
    run_config=tune.RunConfig(storage_path=str(directory / "ray"), callbacks=[tracker], verbose=0),
).fit()
ray.shutdown()
"""


@dataclass
class Run:
    """An offline run's file, read."""

    id: str = ""
    group: str = ""
    name: str = ""
    host: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    axes: dict[str, str] = field(default_factory=dict)
    exit_code: int | None = None

    def column(self, name: str) -> list[Any]:
        return [row[name] for row in self.history if name in row]


def read_run(file: Path) -> Run:
    from wandb.proto.wandb_internal_pb2 import Record

    run = Run()
    for data in log_records(file.read_bytes()):
        record = Record()
        record.ParseFromString(data)
        kind = record.WhichOneof("record_type")
        if kind == "run":
            run.id, run.group = record.run.run_id, record.run.run_group
            run.name, run.host = record.run.display_name, record.run.host
            run.config |= items(record.run.config.update)
        elif kind == "history":
            run.history.append(items(record.history.item))
        elif kind == "summary":
            run.summary |= items(record.summary.update)
        elif kind == "metric" and record.metric.step_metric:
            run.axes[record.metric.glob_name] = record.metric.step_metric
        elif kind == "exit":
            run.exit_code = record.exit.exit_code
    return run


def log_records(data: bytes) -> Iterator[bytes]:
    """The records in LevelDB's log format: blocks of 32 KiB, in them checksum, length, kind, bytes."""
    assert data[:4] == b":W&B"
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

    def start(self, script: str, **environment: str) -> subprocess.Popen[str]:
        home = self.directory / "home" / USER
        home.mkdir(parents=True, exist_ok=True)
        self.session.mkdir(exist_ok=True)
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("WANDB_")}
        quiet = {"RAY_AIR_NEW_OUTPUT": "0", "RAY_AUTH_MODE": "disabled", "TUNE_PRINT_ALL_TRIAL_ERRORS": "0"}
        who = {"HOME": str(home), "USER": USER, "LOGNAME": USER}
        return subprocess.Popen(
            [sys.executable, "-c", PROLOGUE + script, str(self.session), str(self.log)],
            env=inherited | quiet | who | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, script: str, **environment: str) -> str:
        """What the script printed; it must succeed."""
        with self.start(script, **environment) as process:
            output, _ = process.communicate(timeout=120)
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


def test_a_search_with_ray_tune_is_logged_whole_and_quietly(driver: Driver) -> None:
    assert driver.run(TUNE) == ""
    completed, failed, lost = read_runs(driver.session)

    assert {run.group for run in (completed, failed, lost)} == {"chest"}
    assert completed.name == "chest-0000"
    assert completed.config["micro_batch_size"] == 4
    assert completed.config["precision"] == "bf16"
    assert completed.config["trial"] == 0
    assert completed.config["data"] == "~/images"

    assert completed.column("train/loss") == [2.0, 1.0]
    assert completed.column("val/bleu_4") == [0.125]
    assert completed.column("perf/data_s") == [0.25, 0.25]
    assert completed.column("perf/throughput") == [5.5, 11.0, 11.0]
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
tracker = tracking.Tracker(directory, "chest")
tracker.log_trial_start(trial(7))
tracker.log_trial_result(1, trial(7), result({samples}))
"""
    with driver.start(log.format(samples=8) + "time.sleep(60)") as process:
        deadline = time.monotonic() + 30
        while not [run for run in read_runs(driver.session) if run.history]:
            assert time.monotonic() < deadline, "nothing was written before the kill"
            time.sleep(0.1)
        process.send_signal(signal.SIGKILL)
    end = "tracker.log_trial_end(trial(7))\ntracker.on_experiment_end([])\n"
    outcome = 'outcome={"status": "stopped"}, measurement={}'
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


@pytest.fixture(params=["refuses", "never answers"])
def server(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a W&B that is away."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        if request.param == "never answers":
            listener.listen()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


AWAY = """
tracking._INIT_TIMEOUT_S = 2.0
tracker = tracking.Tracker(directory, "chest")
started = time.monotonic()
for number in (0, 1):
    tracker.log_trial_start(trial(number))
    tracker.log_trial_result(1, trial(number), result(8, outcome={"status": "completed"}, measurement={}))
    tracker.log_trial_end(trial(number))
assert time.monotonic() - started < 1.0, "the search waited for W&B"
tracker.on_experiment_end([])
"""


def test_when_wandb_is_away_runs_are_kept_offline_and_nobody_waits(driver: Driver, server: str) -> None:
    assert driver.run(AWAY, WANDB_API_KEY=KEY, WANDB_BASE_URL=server) == ""
    runs = [run for run in read_runs(driver.session) if run.history]
    assert [run.name for run in runs] == ["chest-0000", "chest-0001"]
    assert {run.exit_code for run in runs} == {0}
    (line,) = driver.log.read_text().splitlines()
    assert line.startswith("W&B cannot be reached, so runs are kept offline: ")
    assert driver.files_with(KEY) == []


def test_runs_that_were_open_when_wandb_went_away_go_on_offline(driver: Driver, server: str) -> None:
    script = """
tracking._INIT_TIMEOUT_S = 1.0
runs = tracking._Runs(directory, "chest", "autotune", online=False)
runs.start(0, {"micro_batch_size": 4})
runs.log(0, result(8))
runs._online = True
runs.start(1, {"micro_batch_size": 8})
runs.log(0, result(16))
runs.close()
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
    assert line.endswith("; the search goes on")


def test_it_survives_pickling_without_its_runs(driver: Driver) -> None:
    script = """
import pickle
from ray import cloudpickle
tracker = tracking.Tracker(directory, "chest")
tracker.log_trial_start(trial(0))
again = pickle.loads(cloudpickle.dumps(tracker))
again.log_trial_start(trial(1))
for each in (tracker, again):
    each.on_experiment_end([])
"""
    driver.run(script)
    # The first to end takes W&B's service, which is the process's, with it: the other's run is gone on with.
    assert {run.name for run in read_runs(driver.session)} == {"chest-0000", "chest-0001"}


@pytest.mark.parametrize(
    ("asked", "environment", "online"),
    [
        ("auto", {}, False),
        ("auto", {"WANDB_API_KEY": ""}, False),
        ("auto", {"WANDB_API_KEY": KEY}, True),
        ("auto", {"WANDB_API_KEY": KEY, "WANDB_MODE": "offline"}, False),
        ("online", {"WANDB_API_KEY": KEY}, True),
        ("offline", {"WANDB_API_KEY": KEY}, False),
    ],
)
def test_runs_go_online_only_with_a_key(asked: str, environment: dict[str, str], online: bool) -> None:
    from autotune.tracking import is_online

    assert is_online(asked, environment) is online


def test_online_without_a_key_is_a_mistake_of_the_users() -> None:
    from autotune.tracking import is_online

    with pytest.raises(InputError, match="WANDB_API_KEY"):
        is_online("online", {})
