"""The contract of all trackers, checked by reading their files with their own libraries."""

import shutil
import time
import warnings
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

from .driver import KEY, Driver
from .wandb_files import read_runs

ENDED, FAILED, OPEN = "ended", "failed", "open"


@dataclass
class Run:
    """A run: its settings as text, its curves over steps, and its outcome."""

    state: str
    settings: dict[str, str] = field(default_factory=dict)
    curves: dict[str, list[tuple[int, float]]] = field(default_factory=dict)


def of_tensorboard(place: Path) -> dict[str, Run]:
    return {folder.name: _of_events(folder) for folder in (place / "tensorboard").iterdir()}


def _of_events(folder: Path) -> Run:
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()

    def hparams(kind: str) -> HParamsPluginData:
        content = events.SummaryMetadata(f"_hparams_/session_{kind}_info").plugin_data.content
        return getattr(HParamsPluginData.FromString(content), f"session_{kind}_info")

    try:
        state = [ENDED, FAILED][hparams("end").status - 1]
    except KeyError:
        state = OPEN
    settings = {
        name: f"{value.number_value:g}" if value.HasField("number_value") else value.string_value
        for name, value in hparams("start").hparams.items()
    }
    curves = {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
    return Run(state, settings, curves)


def of_wandb(place: Path) -> dict[str, Run]:
    """Merges the files of a run by its ID, as W&B does."""
    runs: dict[str, Run] = {}
    for found in read_runs(place):
        run = runs.setdefault(found.id.split("-")[-1], Run(OPEN))
        run.state = {0: ENDED, 1: FAILED}.get(found.exit_code, OPEN)
        run.settings |= {name: str(value) for name, value in found.config.items()}
        for row in found.history:
            for name, value in row.items():
                run.curves.setdefault(name, []).append((int(row.get("samples", 0)), value))
    return runs


def of_mlflow(place: Path) -> dict[str, Run]:
    return {
        run.data.tags["autotune.run"].split("-")[-1]: _of_mlflow(place, run) for run in mlflow_runs(place)
    }


def mlflow_client(place: Path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from mlflow import MlflowClient

        return MlflowClient(f"sqlite:///{place / 'mlflow' / 'mlflow.db'}")


def mlflow_runs(place: Path):
    client = mlflow_client(place)
    return client.search_runs([e.experiment_id for e in client.search_experiments()])


def _of_mlflow(place: Path, run) -> Run:
    client = mlflow_client(place)
    histories = {name: client.get_metric_history(run.info.run_id, name) for name in run.data.metrics}
    curves = {
        name: [(metric.step, metric.value) for metric in history] for name, history in histories.items()
    }
    state = {"FINISHED": ENDED, "FAILED": FAILED}.get(run.info.status, OPEN)
    return Run(state, run.data.params, curves)


READERS = {"tensorboard": of_tensorboard, "wandb": of_wandb, "mlflow": of_mlflow}


# MLflow takes seconds to import, in every process of its own.
@pytest.fixture(
    params=[pytest.param(name, marks=[pytest.mark.slow] if name == "mlflow" else []) for name in READERS]
)
def driver(request: pytest.FixtureRequest, tmp_path: Path) -> Driver:
    if request.param == "mlflow":
        request.getfixturevalue("_mlflow_database")
    return Driver(tmp_path, request.param)


def read(driver: Driver) -> dict[str, Run]:
    return READERS[driver.tracker](driver.session)


# The calls of Ray Tune for three concurrent trials: one completes, one fails, and one is lost.
TUNE = """
ENDS = [Outcome(Status.COMPLETED), Outcome(Status.FAILED, Failure.OOM, "CUDA out of memory")]
with opened(tags=("r2gen", "thesis"), knobs=("micro_batch_size", "precision", "data")) as trackers:
    callback = ray_callback.callback(trackers)
    callback.setup()
    settings = {"precision": os.environ["SOME_API_KEY"], "data": os.environ["HOME"] + "/images"}
    told = [{"iteration": 1, "trials": [], "trial": trial(n, **settings)} for n in range(3)]
    for one in told:
        callback.on_trial_start(**one)
    for step in (1, 2):
        for number, one in enumerate(told):
            records = [{"at_s": float(step), "samples": 8 * step, "train_loss": 3.0 - step}]
            if step == 2:
                records.append({"at_s": 2.5, "samples": 16, "bleu_4": 0.125})
            shown = report(number, 8 * step, 1.5 * step, tuple(records), telemetry={"cpu_percent": 150.0})
            callback.on_trial_result(**one, result=asdict(shown))
    for number, outcome in enumerate(ENDS):
        last = report(number, 16, 4.0, (), outcome=outcome)
        callback.on_trial_result(**told[number], result=asdict(last))
    callback.on_trial_complete(**told[0])
    callback.on_trial_error(**told[1])
    callback.on_trial_error(**told[2])
    callback.on_experiment_end(trials=[])
"""


def test_concurrent_trials_are_logged_whole_and_quietly(driver: Driver) -> None:
    assert driver.run(TUNE, SOME_API_KEY=KEY) == ""
    runs = read(driver)
    assert {name: run.state for name, run in runs.items()} == {"0000": ENDED, "0001": FAILED, "0002": FAILED}
    for run in runs.values():
        assert run.curves["train/loss"] == [(8, 2.0), (16, 1.0)]
        assert run.curves["val/bleu_4"] == [(16, 0.125)]
        assert {step for step, _ in run.curves["perf/throughput"]} == {8, 16}
        assert set(run.curves["system/cpu_percent"]) == {(8, 150.0), (16, 150.0)}
        assert run.settings["micro_batch_size"] == "4"
        assert run.settings["precision"] == "(hidden)"
        assert run.settings["data"] == "~/images"
    assert driver.files_with(KEY) == []
    assert driver.log.read_text() == ""


def _has_losses(driver: Driver) -> bool:
    """Whether a loss can be read back: a database also holds the bytes of what it has not committed yet."""
    written = any(driver.session / driver.tracker in file.parents for file in driver.files_with("train/loss"))
    return written and any("train/loss" in run.curves for run in read(driver).values())


def test_a_trial_resumed_after_a_kill_continues_its_run(driver: Driver) -> None:
    begin = """
trackers = opened()
callback = ray_callback.callback(trackers)
callback.log_trial_start(trial(7))
for samples in range(*map(int, sys.argv[4:6])):
    log(callback, 7, samples, samples / 10)
"""
    process = driver.start(begin + "time.sleep(60)", "1", "101")
    deadline = time.monotonic() + 120
    while not _has_losses(driver):
        assert time.monotonic() < deadline, "nothing was written before the kill"
        time.sleep(0.1)
    process.kill()
    process.wait()
    assert read(driver)["0007"].state == OPEN
    end = """
log(callback, 7, 104, 10.4, outcome=Outcome(Status.STOPPED))
callback.log_trial_end(trial(7))
with trackers:
    pass
"""
    driver.run(begin + end, "101", "104")
    (run,) = read(driver).values()
    assert run.state == ENDED
    steps = [step for step, _ in run.curves["train/loss"]]
    assert steps[0] == 1
    assert steps[-1] == 104
    assert driver.log.read_text() == ""

    driver.run("with opened() as trackers:\n    trackers.begin('0008', {})")
    assert read(driver)["0008"].state == OPEN, "interrupted, and may be resumed"


TRAINING = """
place = TrainingDir(directory)
with opened(place) as trackers:
    trackers.begin("training", {"micro_batch_size": 8, "data": None})
    for samples in (100, 200, 150):
        trackers.log("training", report(0, samples, samples / 10))
    trackers.log("training", report(0, 300, 30.0, outcome=Outcome(Status.COMPLETED)))
"""


def test_a_training_is_one_run(driver: Driver) -> None:
    assert driver.run(TRAINING) == ""
    ((name, run),) = read(driver).items()
    assert name == ("session" if driver.tracker == "tensorboard" else "training"), "its directory's"
    assert run.state == ENDED
    assert run.settings["micro_batch_size"] == "8"
    assert {step for step, _ in run.curves["train/loss"]} >= {100, 150, 300}


def test_a_tracker_that_cannot_write_says_so_once_and_stops_nothing(driver: Driver) -> None:
    shutil.rmtree(driver.session, ignore_errors=True)
    driver.session.mkdir()
    (driver.session / driver.tracker).write_text("in the way")
    script = """
with opened() as trackers:
    callback = ray_callback.callback(trackers)
    for number in (0, 1):
        callback.log_trial_start(trial(number))
        log(callback, number, 8)
        callback.log_trial_end(trial(number))
"""
    assert driver.run(script) == ""
    (line,) = driver.log.read_text().splitlines()
    title = {"tensorboard": "TensorBoard", "wandb": "W&B", "mlflow": "MLflow"}[driver.tracker]
    assert line.startswith(f"{title}: ")
    assert line.endswith("; the search continues")


def test_the_callback_survives_pickling_without_its_runs(driver: Driver) -> None:
    script = """
import pickle
from ray import cloudpickle
from ray.tune.logger import LoggerCallback
with opened() as trackers:
    callback = ray_callback.callback(trackers)
    assert type(pickle.loads(cloudpickle.dumps(callback))) is LoggerCallback
"""
    driver.run(script)


SUMMARY = """
from autotune.judging.decisions.history import History
from autotune.core.trial import Trial
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
report_file = directory / "report.html"
report_file.write_text("<p>what came out</p>")
with opened() as trackers:
    trackers.summarise(History(trials[:int(sys.argv[4])], space), report_file)
"""


def test_a_session_has_one_summary_however_often_it_is_resumed(driver: Driver) -> None:
    if driver.tracker == "tensorboard":
        pytest.skip("TensorBoard has no runs without curves")
    for trials in ("1", "4"):
        assert driver.run(SUMMARY, trials, SOME_API_KEY=KEY) == ""
    ((name, run),) = read(driver).items()
    assert (name, run.state) == ("summary", ENDED)
    assert driver.files_with(KEY) == []
    assert all(f.is_relative_to(driver.session) for f in driver.files_with("what came out"))
    assert driver.log.read_text() == ""
