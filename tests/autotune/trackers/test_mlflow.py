"""Features that only MLflow has: tags, tables and artifacts, read by its own client."""

import json
import shutil
from pathlib import Path

import pytest

from autotune.core.errors import InputError
from autotune.trackers import registry

from .driver import KEY, Driver
from .test_contract import SUMMARY, TUNE, mlflow_runs


@pytest.fixture
def driver(tmp_path: Path, _mlflow_database: None) -> Driver:
    return Driver(tmp_path, "mlflow")


@pytest.mark.long
def test_a_failed_run_says_why(driver: Driver) -> None:
    driver.run(TUNE, SOME_API_KEY=KEY)
    runs = {run.data.params["trial"]: run for run in mlflow_runs(driver.session)}
    assert [runs[number].info.status for number in "012"] == ["FINISHED", "FAILED", "FAILED"]
    tags = runs["1"].data.tags
    assert (tags["failure"], tags["reason"]) == ("oom", "CUDA out of memory")
    assert (tags["session"], tags["tags"]) == ("chest", "r2gen, thesis")
    assert runs["2"].data.tags["failure"] == "lost"
    assert runs["0"].info.run_name == "chest-0000"
    assert runs["0"].data.metrics["perf/throughput"] == 5.0


@pytest.mark.slow
def test_the_summary_has_the_gain_the_trials_and_the_report(driver: Driver) -> None:
    driver.run(SUMMARY, "4", SOME_API_KEY=KEY)
    (run,) = mlflow_runs(driver.session)
    assert run.data.metrics["gain/factor"] == 2.5
    assert run.data.tags["outcomes"] == "4 trials: 3 completed, 1 failed otherwise"
    artifacts = Path(run.info.artifact_uri.removeprefix("file://"))
    trials = json.loads((artifacts / "trials.json").read_text())
    assert trials["trial"] == [0, 1, 2, 3]
    assert trials["reason"][3] == "~/images: (hidden)"
    assert (artifacts / "report.html").read_text() == "<p>what came out</p>"


def test_names_that_mlflow_refuses_are_changed(driver: Driver) -> None:
    script = """
with opened() as trackers:
    trackers.begin("0000", {"lr[0]": 0.1})
    trackers.log("0000", report(0, 8, records=({"samples": 8, "bleu_4": 0.5, "acc@5": 0.25, "at_s": 0.0},)))
"""
    driver.run(script)
    (run,) = mlflow_runs(driver.session)
    assert run.data.params == {"lr_0_": "0.1"}
    assert run.data.metrics["val/acc_5"] == 0.25
    assert driver.log.read_text() == ""


def test_the_usual_variables_name_the_server_and_the_experiment(driver: Driver) -> None:
    elsewhere = driver.directory / "shared"
    shutil.move(driver.session, elsewhere)
    uri = f"sqlite:///{elsewhere / 'mlflow' / 'mlflow.db'}"
    driver.run(
        "with opened() as t:\n    t.begin('0000', {})", MLFLOW_TRACKING_URI=uri, MLFLOW_EXPERIMENT_NAME="x"
    )
    (run,) = mlflow_runs(elsewhere)
    assert run.info.status == "KILLED"
    assert not (driver.session / "mlflow" / "mlflow.db").exists()


def test_an_unknown_tracker_is_refused() -> None:
    with pytest.raises(InputError, match="--tracker: must be one of mlflow, got 'neptune'"):
        registry.check(["neptune"])
    assert registry.check(["mlflow", "mlflow"]) == ("mlflow",)


def test_a_missing_tracker_is_reported_and_left_out(driver: Driver) -> None:
    script = """
import sys
sys.modules["mlflow"] = None
with opened() as trackers:
    assert trackers.names == {"tensorboard"}
"""
    driver.run(script)
    (line,) = driver.log.read_text().splitlines()
    assert line.startswith("mlflow: ")
    assert line.endswith("; the search continues")
