"""Whole searches over a toy workload on the real command line: real Ray, real children, real kills."""

import json
import os
import re
import signal
import statistics
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.core.measurement import Measurement, Throughput
from autotune.core.trial import Failure, Outcome, Status
from autotune.space import spaces
from autotune.storage import studies, study_file
from autotune.storage.store import Options, StoredSession
from tests import forked
from tests.endings import ENDED
from tests.forked import Forked
from tests.waiting import wait_for

HERE = Path(__file__).parents[1]
SPACE = """
workload: toy_workload:fit
baseline: {micro_batch_size: 4, learning_rate: 1e-3, step_s: 0.002, fault: none}
knobs: {micro_batch_size: {choice: [4, 8, 16, 32, 64]}, learning_rate: {scale: sqrt}}
objective: {select: pareto}
budget: {trials: 5, samples_per_trial: 400, repeats: 0}
"""  # with the whole front as the objective, no trial is stopped for being slower


# Fails if Ray is started although there is nothing to run.
WITHOUT_RAY = "from autotune.engines import engine_cluster; engine_cluster.private_cluster = None"


@pytest.fixture
def environment():
    path = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": path, "WANDB_MODE": "offline"}


@pytest.fixture
def autotune(tmp_path, environment):
    """Runs the command line in an empty directory."""

    def run(*arguments, patch=""):
        return forked.run(arguments, tmp_path, environment, script=f"{patch}\n{forked.COMMAND}")

    return run


@pytest.fixture
def start(tmp_path, environment):
    """Starts the command line in the background; its remaining processes die with the test."""
    started = []

    def begin(*arguments):
        started.append(Forked(arguments, tmp_path, environment))
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.wait()


def write_space(tmp_path, old="", new=""):
    (tmp_path / "space.yaml").write_text(SPACE.replace(old, new) if old else SPACE)


def trials_of(tmp_path):
    """Returns the trials in the session's study; none while it is being created."""
    try:
        return study_file.load_study(tmp_path / "s" / "study.db").trials
    except KeyError:
        return []


def test_a_search_from_start_to_a_confirmed_export(tmp_path, autotune):
    write_space(tmp_path, "step_s: 0.002", "step_s: 0.01")  # long compared with delays on a busy machine
    done = autotune(
        *("search", "--space", "space.yaml", "--session", "s", "--wandb", "off"),
        *("--trials", 4, "--samples", 1200, "--repeats", 3, "--finalists", 1, "--select", "same-quality"),
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "trial 0 started: batch 4 lr 0.001 (baseline)" in done.stdout
    assert "started: speed comparison of trials 0 and " in done.stdout
    assert "Confirmed: " in done.stdout
    gain = r"reaches bleu_4 .*x faster than the baseline \(.*; \d seeds?(, while other programs used .*)?\)"
    assert re.search(gain, done.stdout), "its learning rate is constant"
    assert "python -m autotune export s -o best.yaml" in done.stdout
    trials = trials_of(tmp_path)
    assert sum(t.kind == "searched" for t in trials) == 4
    races = [t for t in trials if t.race]
    assert [t.race[0] for t in races] == [0] * len(races) != [], "the baseline first"
    repeats = sum(t.repeat is not None for t in trials)
    assert all(t.outcome is not None for t in trials)
    assert not (tmp_path / "s" / "ray").exists()
    assert not list((tmp_path / "s" / "trials").glob("*/work"))

    shown = autotune("status", "s")
    assert shown.returncode == 0
    assert "4 trials: " in shown.stdout
    assert f"; also {len(races)} speed comparison" in shown.stdout
    assert f"{repeats} runs with another seed" in shown.stdout
    assert "s so far, ended" in shown.stdout

    exported = autotune("export", "s", "-o", "best.yaml")
    assert exported.returncode == 0
    text = (tmp_path / "best.yaml").read_text()
    assert text.startswith("# trial: ")
    assert "# measured: Confirmed: " in text
    assert "micro_batch_size: " in text


@pytest.mark.long
def test_a_search_without_a_winner_explains_itself_and_can_be_extended(tmp_path, autotune):
    """With --json nothing but events is printed. One trial fails, and counts as failed everywhere."""
    slower = SPACE.replace("step_s: 0.002", "step_s: 0.02")
    (tmp_path / "space.yaml").write_text(slower.replace("choice: [4, 8, 16, 32, 64]", "choice: [4, 64]"))
    done = autotune(
        *("search", "--space", "space.yaml", "--session", "s", "--json"),
        *("--trials", 2, "--select", "same-quality"),
    )
    assert (done.returncode, done.stderr) == (1, "")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert {e["event"] for e in events} == {"note", "started", "progress", "ended", "result"}
    started = [e["trial"] for e in events if e["event"] == "started"]
    assert started == [e["trial"] for e in events if e["event"] == "ended"] == [0, 1]
    result = events[-1]
    assert (result["event"], result["exit_code"], result["verdict"]) == ("result", 1, "baseline")
    assert result["why"] == "No winner: of 1 other trial, 1 ran out of memory"
    assert result["try"][-1] == {
        "what": "run more trials",
        "command": "python -m autotune resume s --trials 20",
    }
    assert autotune("status", "s", "--json").stdout.count('"state": "ended"') == 1

    again = autotune("resume", "s", patch=WITHOUT_RAY)
    assert (again.returncode, again.stderr) == (1, "")
    assert f"): {result['why'].removeprefix('No winner: ')}.\n" in again.stdout
    assert "What may help:\n" in again.stdout
    assert "- run more trials:\n  python -m autotune resume s --trials 20\n" in again.stdout

    before = trials_of(tmp_path)
    more = autotune("resume", "s", "--trials", 500, "--time", "8s")
    assert more.returncode in ENDED, more.stderr
    assert re.search(
        "Out of time after [0-9]+ of 502 trials\\.|Fewer trials than planned, because time was kept",
        more.stdout,
    )
    trials = trials_of(tmp_path)
    assert trials[:2] == before
    assert len(trials) < 500
    assert trials[0].outcome.status is Status.COMPLETED
    failed = [t for t in trials if t.out_of_memory]
    assert len(failed) == 1, "one out-of-memory is enough to know that it does not fit"
    assert failed[0].outcome.reason == "MemoryError: toy: the batch does not fit"
    logged = {run.name.rpartition("-")[2] for run in (tmp_path / "s" / "wandb").glob("offline-run-*")}
    assert {run.name for run in (tmp_path / "s" / "tensorboard").iterdir()} == logged - {"summary"}
    ended = {f"{t.number:04d}" for t in trials if t.outcome is not None}
    assert {*ended, "summary"} <= logged <= {*(f"{t.number:04d}" for t in trials), "summary"}


@pytest.mark.long
def test_a_time_limit_that_is_too_short_is_reported_early_and_an_unconfirmed_winner_is_none(
    tmp_path, autotune
):
    write_space(tmp_path, "step_s: 0.002", "step_s: 0.05")
    done = autotune(
        *("search", "--space", "space.yaml", "--session", "s", "--wandb", "off", "--time", "25s"),
        *("--trials", 40, "--repeats", 3, "--select", "same-quality"),
    )
    assert done.returncode in ENDED, done.stderr
    reach = "probably too short for a second trial|enough for about [0-9]+ trials"
    line = rf"A trial takes [0-9]+s: 25s is ({reach}) and confirming a winner; 5m recommended[.]\n"
    assert len(re.findall(line, done.stdout)) == 1
    assert "Out of time after " in done.stdout
    if "Possibly " in done.stdout:
        assert done.returncode == 1
        assert "faster, not confirmed. To confirm it: python -m autotune resume s --time 5m\n" in done.stdout
        assert not re.search("Best: |Run next|No winner|What may help", done.stdout)


@pytest.mark.long
def test_a_baseline_that_fails_ends_the_search_with_its_reason(tmp_path, autotune):
    write_space(tmp_path, "fault: none", "fault: kill")
    done = autotune("search", "--space", "space.yaml", "--session", "s", "--wandb", "off")
    assert done.returncode == 1
    assert "the baseline itself failed" in done.stdout
    assert "Continue with" not in done.stdout
    assert "No winner, because the baseline failed" in done.stdout
    assert "the trial's log is s/trials/0000/log" in done.stdout
    assert trials_of(tmp_path)[0].outcome.failure is Failure.LOST
    again = autotune("resume", "s")
    assert again.returncode == 2
    assert "nothing can be compared without it" in again.stderr


@pytest.mark.long
def test_an_interrupted_search_keeps_its_checkpoint_and_prints_how_to_resume(tmp_path, start, autotune):
    write_space(tmp_path, "step_s: 0.002", "step_s: 0.05")
    process = start("search", "--space", "space.yaml", "--session", "s", "--wandb", "off", "--trials", 2)
    records = tmp_path / "s" / "trials" / "0000" / "records.jsonl"
    wait_for(lambda: records.exists() and records.read_text().count("\n") > 5)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=240)
    assert process.returncode == 130
    assert "Stopped: interrupted" in output
    assert "Continue with: python -m autotune resume s" in output
    kept = json.loads((tmp_path / "s" / "trials" / "0000" / "work" / "state.json").read_text())
    assert kept > 0
    spent_s = StoredSession.open(tmp_path / "s").study().plan.spent_s
    assert spent_s > 0, "the clock goes on from there"

    done = autotune("resume", "s")
    assert done.returncode in ENDED, done.stderr
    samples = [json.loads(line) for line in records.read_text().splitlines()]
    trained = [r["samples"] for r in samples if "train_loss" in r]
    assert trained == sorted(set(trained)), "no step was done twice"
    assert Counter("attempt" in r for r in samples)[True] == 2


@pytest.mark.long
def test_a_race_runs_its_members_in_turns(tmp_path, autotune):
    """Resumes an interrupted race in a search without other work."""
    space = spaces.complete(spaces.parse(SPACE, "test"), "test")
    session = StoredSession.create(
        tmp_path / "s", space, Options(wandb="off"), {"space": spaces.to_values(space)}
    )
    study = studies.open_study(session.study_file, space)
    studies.set_plan(study, study_file.SearchPlan(2, None))
    shown = Measurement(Throughput(100.0, 1.0, 10, 1.0), 0.2, 400, samples=400, peak_memory_bytes=2**20)
    for batch in (4, 16):
        trial = studies.begin(study, space, {**space.baseline_config, "micro_batch_size": batch})
        studies.end(study, replace(trial, outcome=Outcome(Status.COMPLETED), measurement=shown), 0.9)
    studies.begin(study, space, space.baseline_config, race=[0, 1])

    done = autotune("resume", "s")
    assert done.returncode in ENDED, done.stderr
    race = trials_of(tmp_path)[2]
    assert race.race == (0, 1)
    assert race.completed
    slices = race.measurement.slices
    assert {one.number for one in slices} == {0, 1}
    speed = {n: statistics.median(s.samples_per_s for s in slices if s.number == n) for n in (0, 1)}
    assert speed[1] > 1.5 * speed[0]
    assert not list((tmp_path / "s" / "trials").glob("*/work"))
    assert not list((tmp_path / "s" / "trials").glob("*/*/work"))
