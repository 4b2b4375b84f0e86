"""A failed trial counts as failed in Ray Tune and W&B too: checked after a real search."""

import json
import os
import re
from collections import Counter
from pathlib import Path

import pytest

from autotune.storage import study_file
from tests import forked
from tests.autotune.trackers.wandb_files import read_runs

HERE = Path(__file__).parents[1]
SPACE = """
workload: toy_workload:fit
baseline: {micro_batch_size: 4, fault: none}
knobs: {micro_batch_size: {choice: [4, 64]}, fault: {choice: [none, error, kill]}}
objective: {select: pareto}
budget: {trials: 6, samples_per_trial: 400, repeats: 0}
"""
# Ray's own reporter prints its table, and files that a search otherwise deletes are kept.
WATCHED = """
import json
from pathlib import Path
from ray import tune
from autotune.engines import ray_internals

class Patient(ray_internals._Patient):
    looks = 0

    def next(self, timeout=None):
        Patient.looks += 1
        return super().next(timeout)

ray_internals._Patient = Patient

class Watching(tune.Callback):
    told, supervisors = [], set()

    def on_trial_result(self, iteration, trials, trial, result, **info):
        self.supervisors.add(result["pid"])

    def on_trial_complete(self, iteration, trials, trial, **info):
        self.told.append([trial.config["number"], "complete"])

    def on_trial_error(self, iteration, trials, trial, **info):
        self.told.append([trial.config["number"], "error"])

class Tuner(tune.Tuner):
    def __init__(self, trainable, tune_config, run_config):
        run_config.verbose, run_config.progress_reporter = 1, tune.CLIReporter(max_column_length=30)
        run_config.callbacks.append(Watching())
        super().__init__(trainable, tune_config=tune_config, run_config=run_config)

    def fit(self):
        grid = super().fit()
        seen = {
            "ended": [[t.config["number"], t.status] for t in grid._experiment_analysis.trials],
            "counts": [grid.num_errors, grid.num_terminated],
            "errors": list(map(str, grid.errors)),
            "told": Watching.told,
            "supervisors": len(Watching.supervisors),
            "looks": Patient.looks,
        }
        Path("seen.json").write_text(json.dumps(seen))
        return grid

tune.Tuner = Tuner
"""


@pytest.fixture
def search(tmp_path):
    def run(space):
        (tmp_path / "space.yaml").write_text(space)
        path = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
        given = ("search", "--space", "space.yaml", "--session", "s", "--wandb", "offline")
        environment = {**os.environ, "PYTHONPATH": path}
        done = forked.run(given, tmp_path, environment, script=f"{WATCHED}\n{forked.COMMAND}")
        assert done.stderr == ""
        trials = study_file.load_study(tmp_path / "s" / "study.db").trials
        runs = {r.config["trial"]: r for r in read_runs(tmp_path / "s") if "trial" in r.config}
        return trials, json.loads((tmp_path / "seen.json").read_text()), runs, done.stdout

    return run


@pytest.mark.long
def test_a_failed_trial_is_failed_in_ray_and_in_wandb_and_its_supervisor_runs_the_next_one(search):
    trials, seen, runs, printed = search(SPACE)
    failed = {t.number: t.outcome for t in trials if str(t.outcome).startswith("failed")}
    assert set(map(str, failed.values())) == {"failed (oom)", "failed (error)", "failed (lost)"}

    # A killed trial is retried until it is given up: the earlier attempts are no failures.
    lost = next(number for number, outcome in failed.items() if outcome.failure == "lost")
    expected = Counter((t.number, "ERROR" if t.number in failed else "TERMINATED") for t in trials)
    expected[lost, "TERMINATED"] = 2
    assert Counter(map(tuple, seen["ended"])) == expected
    assert seen["counts"] == [len(failed), expected.total() - len(failed)]
    words = {"ERROR": "error", "TERMINATED": "complete"}
    assert Counter(map(tuple, seen["told"])) == Counter({(n, words[s]): c for (n, s), c in expected.items()})

    for outcome in failed.values():
        assert any(outcome.failure in error for error in seen["errors"])
    assert any("toy: the batch does not fit" in error for error in seen["errors"])
    assert re.search(r"\b64\b.*\bERROR\b|\bERROR\b.*\b64\b", printed)
    assert f"Number of errored trials: {len(failed)}" in printed

    assert {number for number, run in runs.items() if run.exit_code == 1} == set(failed)
    assert runs[lost].summary["status"] == "failed"
    changed = "a release of Ray has changed what engines/ray_internals.py relies on"
    assert seen["supervisors"] == 1, f"{changed}: _Controller"
    assert seen["looks"] > 0, f"{changed}: _Patient"


@pytest.mark.slow
def test_a_failed_baseline_is_failed_in_ray_too_although_it_ends_the_search(search):
    trials, seen, runs, _ = search(SPACE.replace("fault: none", "fault: error"))
    assert [str(t.outcome) for t in trials] == ["failed (error)"]
    assert seen["ended"] == [[0, "ERROR"]]
    assert seen["told"] == [[0, "error"]]
    assert runs[0].exit_code == 1
