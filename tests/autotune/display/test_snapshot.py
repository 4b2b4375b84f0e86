"""The state of a search, read from its session's directory."""

import json
import shutil
import time
from io import StringIO
from pathlib import Path

import pytest
import yaml
from rich.console import Console

from autotune.core.errors import InputError
from autotune.core.trial import Outcome, Status, Trial
from autotune.display import draw, events, snapshot
from autotune.storage import studies
from autotune.storage.store import Options, StoredSession
from autotune.storage.study_file import SearchPlan
from autotune.system.node_kinds import Cluster, ClusterNode, NodeKind

KEPT = Path(__file__).parents[2] / "fixtures" / "sessions"


@pytest.fixture
def kept(tmp_path):
    shutil.copytree(KEPT / "format-2", tmp_path / "s")
    return StoredSession.open(tmp_path / "s")


def take(session):
    return snapshot.take(session, Path("s"))


def test_an_interrupted_session_shows_how_far_its_trials_had_come(kept):
    shown = take(kept)
    assert (shown.session, shown.device, shown.state) == ("s", "no GPU, 2 CPUs, 23.5 GiB", "interrupted")
    assert [t.number for t in shown.trials] == [0, 1, 2, 3]
    (running,) = shown.running
    assert (running.trial.number, running.phase) == (4, "interrupted")
    assert running.trial.measurement.samples == 328
    assert running.trial.measurement.quality == 0.2
    assert running.trial.samples_per_s == pytest.approx(351.7, abs=0.1)
    assert 0 < running.seconds < 10
    assert shown.best[0].number == 2
    assert [t.number for t in shown.history.trials] == [0, 1, 2, 3, 4]


def test_a_running_trial_is_shown_with_the_users_own_sign(kept):
    values = yaml.safe_load(kept.space_file.read_text())
    values["objective"]["minimize"] = values["objective"]["quality"]
    kept.space_file.write_text(yaml.safe_dump(values))
    shown = take(kept)
    assert shown.running[0].trial.measurement.quality == -0.2
    status = events.status(shown)
    assert status["running"][0]["quality"] == 0.2
    assert status["minimize"]
    out = Console(width=100, file=StringIO())
    out.print(draw.full_picture(shown))
    assert "  0.2000  " in out.file.getvalue()


def test_the_speed_of_a_running_trial_includes_evaluations_if_they_count(kept):
    steady_per_s = take(kept).running[0].trial.samples_per_s
    values = yaml.safe_load(kept.space_file.read_text())
    values["objective"]["speed"] = "wall"
    values["training"] = {"samples_per_evaluation": 4}
    kept.space_file.write_text(yaml.safe_dump(values))
    trial = take(kept).running[0].trial
    evaluation_s = trial.measurement.outside.evaluation_s
    assert trial.samples_per_s == pytest.approx(1 / (1 / steady_per_s + evaluation_s / 4))
    assert trial.samples_per_s < 0.9 * steady_per_s


def test_a_session_in_use_is_running_and_its_clock_goes_on(kept):
    records = kept.trial_dir(4).records_file
    lines = [json.loads(line) for line in records.read_text().splitlines()]
    began = lines[0]["clock_s"]
    lines[0]["attempt"] = time.time() - (lines[-1]["at_s"] - began) - 100  # its last record came 100 s ago
    records.write_text("".join(json.dumps(line) + "\n" for line in lines))
    before = take(kept)
    with kept.lock():
        shown = take(kept)
    assert shown.state == "running"
    assert shown.running[0].phase == "evaluating", "it has been silent for far more than a step"
    assert shown.running[0].seconds == pytest.approx(before.running[0].seconds + 100, abs=5)
    assert shown.plan.spent_s == pytest.approx(before.plan.spent_s + shown.running[0].seconds)


def test_in_a_cluster_a_trial_without_a_record_waits_for_a_node(kept):
    a, b = ClusterNode("1", "a", NodeKind("NVIDIA A100", 8), 8, 1), ClusterNode("2", "b", fault="it is gone")
    kept.write_cluster(Cluster(a.kind, (a, b)))
    kept.trial_dir(4).records_file.unlink()
    with kept.lock():
        shown = events.status(take(kept))
    assert [(trial["phase"], trial["node"]) for trial in shown["running"]] == [("waiting", None)]
    assert shown["nodes"][0] == {
        "name": "a",
        "device": "NVIDIA A100",
        "driver": None,
        "probe_s": (),
        "cpus": 8,
        "gpus": 1,
        "left_out": None,
    }
    assert (shown["nodes"][1]["name"], shown["nodes"][1]["left_out"]) == ("b", "it is gone")


def test_a_trial_that_was_only_begun_is_at_its_start(kept):
    kept.trial_dir(4).records_file.unlink()
    with kept.lock():
        (running,) = take(kept).running
    assert (running.phase, running.seconds, running.trial.measurement.samples) == ("start", 0.0, 0)


def test_a_finished_plan_has_ended(tmp_path, space):
    session = StoredSession.create(tmp_path / "s", space, Options(), {})
    with pytest.raises(InputError, match="nothing was run yet; start it with: python -m autotune resume"):
        take(session)
    study = studies.open_study(session.study_file, space)
    trial = studies.begin(study, space, space.baseline_config)
    studies.end(study, Trial(0, trial.config, Outcome(Status.COMPLETED)), 0.85)
    studies.set_plan(study, SearchPlan(1, None, 3.0))
    assert take(session).state == "interrupted"
    studies.set_plan(study, SearchPlan(1, None, 3.0, ended=True))
    assert take(session).state == "ended"


def test_taking_a_snapshot_writes_nothing(kept):
    before = contents(kept)
    take(kept)
    assert contents(kept) == before


def contents(session):
    """Returns the content of every file except SQLite's shared memory and write-ahead log."""
    files = (f for f in session.root.rglob("*") if f.is_file() and f.suffix not in {".db-shm", ".db-wal"})
    return {f: f.read_bytes() for f in files}
