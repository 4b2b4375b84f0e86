"""A lost, damaged, outdated or foreign study: no trial is mistaken for another."""

import json
import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace

import pytest

from autotune import __main__ as cli
from autotune.storage import studies, study_file
from autotune.storage.layout import TrialDir
from autotune.storage.store import StoredSession

from . import left_by_a_search
from .left_by_a_search import HARDWARE, RUNNING
from .sessions import KEPT, SPACE, run_no_trials, trials_of


@pytest.fixture(scope="module")
def left(tmp_path_factory):
    """Creates a session like a search's."""
    return left_by_a_search.make(tmp_path_factory.mktemp("left") / "s").root


@pytest.fixture
def place(left, tmp_path, monkeypatch):
    """Copies it to the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(KEPT)
    run_no_trials(monkeypatch, HARDWARE)
    return shutil.copytree(left, tmp_path / "s")


@pytest.fixture
def run(capsys):
    def call_here(*arguments):
        code = cli.main([str(a) for a in arguments])
        said = capsys.readouterr()
        return code, said.out, said.err

    return call_here


def missing(place):
    for file in place.glob("study.db*"):
        file.unlink()


def empty(place):
    missing(place)
    (place / "study.db").touch()


def zeroed(place):
    file = place / "study.db"
    file.write_bytes(bytes(file.stat().st_size))


def cut(place):
    file = place / "study.db"
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def without_its_last_trials(place):
    with closing(sqlite3.connect(place / "study.db")) as study, study:
        study.execute("DELETE FROM trials WHERE number > 2")


def without_a_row(place):
    with closing(sqlite3.connect(place / "study.db")) as study, study:
        study.execute("DELETE FROM trials WHERE number = 1")


def with_other_settings(place):
    edit(place, 1, "config", lambda config: config.update(micro_batch_size=16))


def torn(place):
    """Damages a page that only Optuna reads, as in a plain copy taken during a write."""
    file = place / "study.db"
    with closing(sqlite3.connect(file)) as study:
        study.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (root,) = study.execute("SELECT rootpage FROM sqlite_master WHERE name = 'trial_params'").fetchone()
        (size,) = study.execute("PRAGMA page_size").fetchone()
    data = bytearray(file.read_bytes())
    data[(root - 1) * size : root * size] = bytes(size)
    file.write_bytes(data)


def of_another_session(place):
    missing(place)
    other = left_by_a_search.make(place.with_name("other"))
    shutil.copy(other.study_file, place / "study.db")


def of_another_space(place):
    missing(place)
    text = SPACE.replace("baseline: {", "baseline: {wd: 0.1, ").replace(
        "knobs: {", "knobs: {wd: {choice: [0.1]}, "
    )
    other = left_by_a_search.make(place.with_name("other"), text)
    shutil.copy(other.study_file, place / "study.db")


def edit(place, number, key, change):
    """Changes a user attribute of a trial in the study."""
    which = "key = ? AND trial_id = (SELECT trial_id FROM trials WHERE number = ?)"
    with closing(sqlite3.connect(place / "study.db")) as study, study:
        query = f"SELECT value_json FROM trial_user_attributes WHERE {which}"
        (text,) = study.execute(query, (key, number)).fetchone()
        value = json.loads(text)
        change(value)
        changed = f"UPDATE trial_user_attributes SET value_json = ? WHERE {which}"
        study.execute(changed, (json.dumps(value), key, number))


def contents(place):
    """Returns a session's files, except those that change on reading."""
    passing = {"lock", "study.db-wal", "study.db-shm"}
    return {p: p.read_bytes() for p in place.rglob("*") if p.is_file() and p.name not in passing}


LOST = [
    *(missing, empty, zeroed, cut, torn, without_its_last_trials, without_a_row, with_other_settings),
    of_another_session,
    of_another_space,
]


# Every loss once, and every command once; all of both in `make test-all`.
READERS = ["status", "resume", "export", "report"]
SELDOM = [pytest.mark.slow]
LOSSES_READ = [
    pytest.param(lose, command, marks=[] if lose is missing or command == "status" else SELDOM)
    for lose in LOST
    for command in READERS
]
REBUILT = [
    pytest.param(
        lose, marks=[] if lose in {missing, torn, without_its_last_trials, with_other_settings} else SELDOM
    )
    for lose in LOST
]


@pytest.mark.parametrize(("lose", "command"), LOSSES_READ)
def test_a_session_without_its_study_is_neither_read_nor_resumed(place, run, lose, command):
    lose(place)
    before = contents(place)
    code, out, err = run(command, "s")
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert "its study is " in err
    assert "has files of 7 trials" in err
    assert "6 of which had ended" in err
    assert "nothing is lost" not in err
    assert f"python -m autotune recover {place}" in err
    assert contents(place) == before


@pytest.mark.parametrize("lose", REBUILT)
def test_a_study_is_rebuilt_from_its_trials_files(place, run, left, lose):
    whole = {t.number: t for t in trials_of(left)}
    lose(place)
    code, out, err = run("recover", "s")
    assert (code, err) == (0, "")
    assert "6 trials had ended, 1 will be run again" in out
    rebuilt = {t.number: t for t in trials_of(place)}
    assert {n: replace(t, seconds=0.0) for n, t in rebuilt.items()} == {
        n: replace(t, seconds=0.0) for n, t in whole.items()
    }
    assert run("resume", "s")[0] == 0
    assert run("recover", "s")[1].startswith("session s: its study is intact")


@pytest.mark.parametrize(
    ("lose", "lost"),
    [
        (
            missing,
            ["the time between trials, and any trials", "skipped before trials 0, 1, 2, 3, 4 and 2 more"],
        ),
        (without_its_last_trials, ["skipped before trials 3, 4, 5, 6"]),
        (with_other_settings, []),
        (torn, []),
    ],
)
def test_only_trials_without_any_trace_are_lost(place, run, lose, lost):
    lose(place)
    _, out, _ = run("recover", "s")
    assert "The study is rebuilt" in out
    said = [line for line in out.splitlines() if line.startswith("Lost: ")]
    assert len(said) == len(lost)
    assert all(part in line for part, line in zip(lost, said, strict=True)), said


def test_the_old_study_is_kept_beside_the_rebuilt_one(place, run):
    damaged = b"not a study" * 1000
    (place / "study.db").write_bytes(damaged)
    assert "Set aside: " in run("recover", "s")[1]
    assert (place / "study.db.aside-1").read_bytes() == damaged


def test_a_lost_trial_is_reported_and_keeps_its_number(place, run):
    missing(place)
    (place / "trials" / "0001" / "trial.json").unlink()  # no race or repeat refers to trial 1
    (place / "trials" / "0002" / "verdict.json").write_text("{}")
    code, out, _ = run("recover", "s")
    assert code == 0
    assert "Lost: the settings and results of trials 1" in out
    rebuilt = {t.number: t for t in trials_of(place)}
    assert sorted(rebuilt) == [0, 2, 3, 4, 5, 6]
    assert rebuilt[2].outcome is None, "it runs again"
    assert run("resume", "s")[0] == 0


@pytest.mark.parametrize("number", ["1000000000", "NULL", "'two'"])
def test_an_absurd_trial_number_is_not_a_billion_lost_trials(place, run, number):
    with closing(sqlite3.connect(place / "study.db")) as study, study:
        study.execute(f"UPDATE trials SET number = {number} WHERE number = 2")
    (place / "trials" / "1000000001").mkdir()
    (place / "trials" / "1000000001" / "card.json").touch()
    code, said, _ = run("recover", "s")
    assert code == 0
    assert "1000000" not in said


def test_a_race_is_lost_with_one_of_its_trials(place, run):
    missing(place)
    shutil.rmtree(place / "trials" / "0002")
    assert run("recover", "s")[0] == 0
    assert [t.number for t in trials_of(place)] == [0, 1, 3, 5, 6]


def test_trials_without_traces_make_no_study(place, run):
    missing(place)
    for file in place.glob("trials/*/trial.json"):
        file.unlink()
    code, _, err = run("recover", "s")
    assert code == 2
    assert "neither its study nor its trials say what was run; start a new search" in err
    assert not (place / "study.db").exists()


def test_concurrent_trials_are_still_marked_as_shared(place, run):
    missing(place)
    for number in (0, 1):
        records = place / "trials" / f"{number:04d}" / "records.jsonl"
        mark, rest = records.read_text().split("\n", 1)
        records.write_text(json.dumps({**json.loads(mark), "attempt": 100.0 + number}) + "\n" + rest)
    run("recover", "s")
    assert [t.number for t in trials_of(place) if t.measurement.shared] == [0, 1]


def edit_identity(trial, **changes):
    known = json.loads(trial.identity_file.read_text())
    trial.identity_file.write_text(json.dumps({**known, **changes}))


def of_another_number(trial):
    edit_identity(trial, number=1)


def of_another_copy(trial):
    """Mixes two resumed copies of a session, which ran different trials under one number."""
    edit_identity(trial, config={"micro_batch_size": 64, "learning_rate": 0.001})


def of_an_equal_trial_elsewhere(trial):
    edit_identity(trial, session="another")


def without_an_identity(trial):
    trial.identity_file.unlink()


@pytest.mark.parametrize(
    "swap", [of_another_number, of_another_copy, of_an_equal_trial_elsewhere, without_an_identity]
)
def test_a_directory_of_another_trial_is_set_aside_and_neither_adopted_nor_deleted(place, swap):
    session = StoredSession.open(place)
    (running,) = [t for t in trials_of(place) if t.outcome is None]
    own = session.trial_dir(RUNNING)
    shutil.copy(own.root.with_name("0001") / "verdict.json", own.verdict_file)
    assert session.clear(running) is None, "its own"
    assert session.verdict_of(running)
    assert session.records_of(running)
    swap(own)
    before = {p.name: p.read_bytes() for p in own.root.rglob("*") if p.is_file()}
    assert session.verdict_of(running) is None
    assert session.records_of(running) == []
    said = session.clear(running)
    assert said.count("\n") == 0
    assert "set aside as 0006.aside-1" in said
    assert not own.root.exists()
    aside = TrialDir(place / "trials" / "0006.aside-1")
    assert {p.name: p.read_bytes() for p in aside.root.rglob("*") if p.is_file()} == before


def test_another_sessions_trials_are_not_counted_as_run(place, run):
    one_more = TrialDir(shutil.copytree(place / "trials" / "0006", place / "trials" / "0007"))
    edit_identity(one_more, number=7)
    assert "does not know trials 7;" in run("status", "s")[2]
    edit_identity(one_more, session="another")
    assert run("status", "s")[0] == 0
    missing(place)
    assert "Lost: the settings and results of trials 7\n" in run("recover", "s")[1]


def test_the_directory_of_another_trial_is_not_emptied(place):
    session = StoredSession.open(place)
    ended = [t for t in trials_of(place) if t.outcome is not None]
    for trial in ended:
        session.trial_dir(trial.number).work.mkdir()
        of_another_copy(session.trial_dir(trial.number))
    session.remove_work(ended)
    assert all(session.trial_dir(t.number).work.is_dir() for t in ended)


@pytest.mark.slow
def test_a_copy_of_the_studys_file_alone_has_every_ended_trial(tmp_path):
    """The search writes while the study is copied without its write-ahead log."""
    session = left_by_a_search.make(tmp_path / "s")
    study = studies.open_study(session.study_file, session.space(), session.key)
    (running,) = [t for t in studies.read(study).trials if t.outcome is None]
    left_by_a_search.end(session, study, running, *session.verdict_of(studies.read(study).trials[0]))
    assert (session.root / "study.db-wal").stat().st_size
    studies.checkpoint(session.study_file)
    shutil.copy(session.study_file, tmp_path / "copy.db")
    copied = study_file.load_study(tmp_path / "copy.db").trials
    assert copied == studies.read(study).trials
    assert all(t.outcome is not None for t in copied)
    studies.close(study)
