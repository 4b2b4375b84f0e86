"""Features that only W&B has, read back from the files that it would upload."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from .driver import KEY, USER, Driver
from .test_contract import SUMMARY, TUNE
from .wandb_files import read_runs


@pytest.fixture
def driver(tmp_path: Path) -> Driver:
    return Driver(tmp_path, "wandb")


@pytest.mark.slow
def test_runs_have_tags_axes_and_the_figures_over_the_whole_trial(driver: Driver) -> None:
    assert driver.run(TUNE, SOME_API_KEY=KEY) == ""
    completed, failed, lost = read_runs(driver.session)

    assert {run.group for run in (completed, failed, lost)} == {"chest"}
    assert completed.name == "chest-0000"
    assert completed.config["trial"] == 0
    assert completed.tags == ("r2gen", "thesis", "(hidden)")

    assert completed.column("samples") == [8.0, 8.0, 16.0, 16.0, 16.0, 16.0]
    assert completed.column("seconds") == [1.5, 1.5, 2.5, 3.0, 3.0, 4.0]
    assert completed.axes["train/*"] == "samples"
    assert completed.axes["gpu/*"] == "seconds"

    assert (completed.exit_code, completed.summary["status"]) == (0, "completed")
    assert completed.summary["perf/throughput"] == 5.0
    assert (failed.exit_code, failed.summary["status"]) == (1, "failed")
    assert (failed.summary["failure"], failed.summary["reason"]) == ("oom", "CUDA out of memory")
    assert (lost.exit_code, lost.summary["failure"]) == (1, "lost")

    assert [f for f in driver.files_with(USER) if f.is_relative_to(driver.session / "wandb")] == []
    assert completed.host == ""


def test_ray_knows_the_callback_as_its_own_for_wandb(driver: Driver) -> None:
    script = """
from ray.air.integrations.wandb import WandbLoggerCallback
with opened() as trackers:
    assert isinstance(ray_callback.callback(trackers), WandbLoggerCallback)
"""
    assert driver.run(script) == ""


def test_a_resumed_trial_has_the_id_of_its_run_and_another_sessions_has_not(driver: Driver) -> None:
    script = "with opened(SessionDir(Path(sys.argv[4]))) as trackers:\n    trackers.begin('0007', {})"
    for place in ("a", "a", "b"):
        driver.run(script, driver.directory / place)
    first, second = read_runs(driver.directory / "a")
    (stranger,) = read_runs(driver.directory / "b")
    assert first.id == second.id != stranger.id
    assert (stranger.exit_code, stranger.summary["status"]) == (255, "interrupted")


def test_the_sessions_own_run_has_its_trials_front_gain_and_report(driver: Driver) -> None:
    for trials in ("1", "4"):
        driver.run(SUMMARY, trials, SOME_API_KEY=KEY)
    earlier, run = read_runs(driver.session)
    assert (run.group, run.name, run.exit_code) == ("chest", "chest-summary", 0)
    assert run.id == earlier.id
    assert len(earlier.table("trials")) == 1
    assert run.config["objective"]["quality"] == "bleu_4"

    rows = run.table("trials")
    assert [row["trial"] for row in rows] == [0, 1, 2, 3]
    assert [row["micro_batch_size"] for row in rows] == [4, 8, 4, 4]
    assert [row["precision"] for row in rows] == ["fp32", None, None, "fp32"]
    assert [row["throughput"] for row in rows] == [10.0, 25.0, 20.0, None]
    assert [row["bleu_4"] for row in rows] == [0.2, 0.199, 0.1, None]
    assert rows[1]["configuration"] == "batch 8 None lr 0.001"
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
    assert [f for f in driver.files_with(USER) if f.is_relative_to(driver.session / "wandb")] == []


@pytest.fixture(params=["refuses", "never answers"])
def server(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of an unreachable W&B server."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        if request.param == "never answers":
            listener.listen()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


AWAY = """
from autotune.judging.decisions.history import History
from autotune.trackers import wandb
wandb._INIT_TIMEOUT_S = 12.0
with opened() as trackers:
    callback = ray_callback.callback(trackers)
    started = time.monotonic()
    for number in (0, 1):
        callback.log_trial_start(trial(number))
        log(callback, number, 8, outcome=Outcome(Status.COMPLETED))
        callback.log_trial_end(trial(number))
    trackers.summarise(History([], space), directory / "report.html")
    assert time.monotonic() - started < 12.0, "the search waited for W&B"
"""


def test_if_wandb_cannot_be_reached_runs_are_kept_offline_without_a_delay(
    driver: Driver, server: str
) -> None:
    assert driver.run(AWAY, WANDB_API_KEY=KEY, WANDB_BASE_URL=server) == ""
    runs = [run for run in read_runs(driver.session) if run.history]
    assert [run.name for run in runs] == ["chest-0000", "chest-0001", "chest-summary"]
    assert {run.exit_code for run in runs} == {0}
    (line,) = driver.log.read_text().splitlines()
    assert line.startswith("W&B cannot be reached, so runs are kept offline: ")
    assert driver.files_with(KEY) == []


def test_open_runs_continue_offline_if_wandb_goes_away(driver: Driver, server: str) -> None:
    script = """
from autotune.trackers import wandb
wandb._INIT_TIMEOUT_S = 1.0
runs = wandb.Wandb(Context(SessionDir(directory), "chest", Metric("bleu_4"), wandb="offline"))
runs.begin("0000", {"micro_batch_size": 4})
runs.log("0000", report(0, 8))
runs._online = True
runs.begin("0001", {"micro_batch_size": 8})
runs.log("0000", report(0, 16))
for name in ("0000", "0001"):
    runs.end(name, Outcome(Status.COMPLETED), None)
runs.close()
"""
    driver.run(script, WANDB_API_KEY=KEY, WANDB_BASE_URL=server)
    before, after, other = [run for run in read_runs(driver.session) if run.exit_code is not None]
    assert before.id == after.id
    assert (before.column("samples")[0], after.column("samples")[0]) == (8.0, 16.0)
    assert after.config["micro_batch_size"] == 4
    assert other.config["micro_batch_size"] == 8


@pytest.mark.parametrize("is_broken_off", [True, False])
def test_an_aborted_search_does_not_report_wandbs_service(driver: Driver, is_broken_off: bool) -> None:
    script = """
import psutil
with opened() as trackers:
    trackers.begin("0000", {})
    while not list((directory / "wandb").glob("offline-run-*/*.wandb")):
        time.sleep(0.05)
    if BROKEN_OFF:
        trackers.break_off()
    for one in psutil.Process().children():
        if one.name() == "wandb-core":
            one.kill()
            one.wait()
    trackers.begin("0001", {})
""".replace("BROKEN_OFF", str(is_broken_off))
    driver.run(script)
    assert ("W&B: " in driver.log.read_text()) is not is_broken_off
