"""One real search as optuna-dashboard, TensorBoard and W&B show it, by their own servers and files."""

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from autotune.core.trial import Trial
from autotune.storage import study_file
from tests.endings import ENDED
from tests.forked import Forked

from .wandb_files import read_runs

HERE = Path(__file__).parents[1]
SPACE = """
workload: toy_workload:fit
baseline: {micro_batch_size: 4, learning_rate: 1e-3, step_s: 0.02, fault: none}
knobs: {micro_batch_size: {choice: [4, 64]}, learning_rate: {scale: sqrt}}
objective: {select: pareto}
budget: {trials: 3, samples_per_trial: 400, repeats: 0}
"""
_PATIENCE_S = 240.0

pytestmark = pytest.mark.slow


@contextmanager
def serving(program: str, *arguments: str) -> Iterator[Callable[[str], Any]]:
    """Starts a server from this environment on a free port; it answers in JSON."""
    command = [Path(sys.executable).with_name(program), *arguments, "--host", "127.0.0.1", "--port=0"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            address = f"http://127.0.0.1:{port_of(process)}"
            yield lambda path: ask(address + path, process)
        finally:
            process.terminate()


def port_of(server: subprocess.Popen[bytes]) -> int:
    """Waits until the server listens, and returns its port."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        assert server.poll() is None, f"{server.args} has ended"
        for connection in psutil.Process(server.pid).net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN:
                return int(connection.laddr.port)
        assert time.monotonic() < deadline, f"{server.args} does not listen"
        time.sleep(0.1)


def ask(address: str, server: subprocess.Popen[bytes]) -> Any:
    """Waits for an answer, and returns it."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        with suppress(OSError), urllib.request.urlopen(address, timeout=_PATIENCE_S) as answer:
            return json.load(answer)
        assert server.poll() is None, f"{server.args} has ended"
        assert time.monotonic() < deadline, f"{address} does not answer"
        time.sleep(0.1)


@dataclass
class Searched:
    """An ended search: its session, its output, and the dashboard's answer while it ran."""

    session: Path
    code: int
    errors: str
    shown: list[dict[str, Any]]

    @property
    def trials(self) -> list[Trial]:
        return study_file.load_study(self.session / "study.db").trials


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Searched:
    """Runs a search of three trials, one of which does not fit, while optuna-dashboard is open."""
    place = tmp_path_factory.mktemp("searched")
    (place / "space.yaml").write_text(SPACE)
    path = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("WANDB_")}
    search = ("search", "--space", "space.yaml", "--session", "s")
    process = Forked(search, place, inherited | {"PYTHONPATH": path})
    study, shown = place / "s" / "study.db", []
    while process.poll() is None and not has_begun(study):
        time.sleep(0.1)
    with serving("optuna-dashboard", f"sqlite:///{study}") as dashboard:
        while process.poll() is None:
            shown.append(dashboard("/api/studies/1"))
            time.sleep(0.2)
    return Searched(place / "s", process.wait(), process.communicate()[1], shown)


def has_begun(study: Path) -> bool:
    try:
        study_file.load_study(study)
    except KeyError:
        return False
    return True


@pytest.mark.long
def test_a_search_does_not_notice_a_dashboard_that_shows_it(searched):
    assert searched.errors == ""
    assert searched.code in ENDED
    assert any(t["state"] == "Running" for study in searched.shown for t in study["trials"])


def test_optuna_dashboard_has_knobs_objectives_and_constraints_by_name(searched):
    with serving("optuna-dashboard", f"sqlite:///{searched.session / 'study.db'}") as dashboard:
        assert [s["study_name"] for s in dashboard("/api/studies")["study_summaries"]] == ["autotune"]
        study = dashboard("/api/studies/1")
        importances = dashboard("/api/studies/1/param_importances")["param_importances"]
    assert study["objective_names"] == ["throughput", "bleu_4"]
    assert study["directions"] == ["maximize", "maximize"]
    assert {knob["name"] for knob in study["union_search_space"]} == {"micro_batch_size", "learning_rate"}
    assert {knob["name"] for each in importances for knob in each} == {"micro_batch_size", "learning_rate"}
    assert len(study["trials"]) == len(searched.trials) == 3
    for shown, trial in zip(study["trials"], searched.trials, strict=True):
        values = {knob["name"]: float(knob["param_external_value"]) for knob in shown["params"]}
        assert values == trial.config
        (violation,) = shown["constraints"]
        assert (violation > 0) == trial.out_of_memory
        if trial.completed:
            assert shown["values"] == [trial.samples_per_s, trial.quality]
    assert {t["number"] for t in study["best_trials"]} <= {t.number for t in searched.trials if t.completed}


def test_tensorboard_has_a_run_for_each_trial(searched):
    """A trial that ran out of memory at once has a run without charts."""
    numbers = {f"{t.number:04d}" for t in searched.trials}
    charted = {f"{t.number:04d}" for t in searched.trials if t.completed}
    with serving("tensorboard", f"--logdir={searched.session / 'tensorboard'}") as tensorboard:
        deadline = time.monotonic() + _PATIENCE_S
        while not charted <= (tags := tensorboard("/data/plugin/scalars/tags")).keys():
            assert time.monotonic() < deadline, tags
            time.sleep(0.1)
        assert set(tensorboard("/data/runs")) == numbers
        points = tensorboard("/data/plugin/scalars/scalars?run=0000&tag=val/bleu_4")
    (baseline, *_) = searched.trials
    assert {"train/loss", "train/learning_rate", "val/bleu_4", "perf/throughput"} <= tags["0000"].keys()
    assert [(step, pytest.approx(value)) for _, step, value in points] == [
        (point.samples, point.quality) for point in baseline.measurement.curve
    ]


def test_wandb_has_the_same_trials(searched):
    *runs, summary = read_runs(searched.session)
    assert {run.config["trial"]: run.exit_code for run in runs} == {
        t.number: int(t.out_of_memory) for t in searched.trials
    }
    assert summary.name == "s-summary"
    rows = {row["trial"]: row for row in summary.table("trials")}
    for trial in searched.trials:
        row = rows[trial.number]
        assert {name: row[name] for name in trial.config} == trial.config
        assert (row["run_throughput"], row["run_bleu_4"]) == (trial.samples_per_s, trial.quality)
        assert (row["outcome"], row["reason"]) == (str(trial.outcome), trial.outcome.reason)
