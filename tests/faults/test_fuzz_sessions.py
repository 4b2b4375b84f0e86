"""Damaged sessions: an exit code, one line, no traceback.

Values in the study's attributes, JSON, YAML and records are changed; files are cut, emptied, zeroed, damaged,
swapped and removed. --soak has 20,000 other cases.
"""

import copy
import itertools
import json
import os
import random
import shutil
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

import pytest
import yaml
from hypothesis import strategies as st

from autotune import __main__ as tuner
from autotune.core.errors import InputError
from autotune.storage.store import StoredSession

from . import left_by_a_search
from .sessions import KEPT, run_no_trials, trials_of
from .test_fuzz import JUNK, encoded, fuzz, places_in, say  # noqa: F401 - a fixture among them

pytestmark = pytest.mark.timeout(6 * 3600)

COMMANDS = [
    *(("status", "s"), ("status", "s", "--json"), ("report", "s", "--format", "json", "-o", "-")),
    *(("report", "s", "--format", "md", "-o", "-"), ("export", "s", "-o", "best.yaml")),
    *(("resume", "s"), ("recover", "s"), ("compare", "s")),
]
# Plotly draws a report's page, which takes as long as ten other commands.
PAGE = ("report", "s", "--format", "html", "-o", "report.html")


@pytest.fixture(scope="module")
def bases(tmp_path_factory):
    """Creates the sessions to damage: a search's, and one without its trials' files."""
    ours = left_by_a_search.make(tmp_path_factory.mktemp("left") / "s").root
    return [ours, ours, KEPT / "format-2"]


@pytest.fixture
def begins_nothing(monkeypatch, tmp_path):
    """Runs everything before and after the trials, but no trial."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(KEPT)
    run_no_trials(monkeypatch, left_by_a_search.HARDWARE, instead_of="_execute")
    monkeypatch.setattr("autotune.compare.compare.Comparison.run", lambda *_: None)


FAULTS = ("attribute", "attribute", "attribute", "json", "record", "space", "file", "file", "row")
CASES = st.tuples(
    st.integers(0, 2),
    st.lists(st.tuples(st.sampled_from(FAULTS), st.integers(0, 2**32), JUNK), min_size=1, max_size=2),
    st.lists(st.sampled_from(COMMANDS), min_size=1, max_size=2),
    st.integers(0, 20),
)


def test_sessions(begins_nothing, fuzz, bases):  # noqa: F811
    def check(case):
        base, faults, commands, draw_page = case
        shutil.rmtree("s", ignore_errors=True)
        shutil.copytree(bases[base], "s")
        for kind, seed, junk in faults:
            APPLY[kind](Path("s"), random.Random(seed), junk)
        for command in [*commands, *([PAGE] if draw_page == 0 else [])]:
            say(tuner.main, list(command), codes={0, 1, 2})

    fuzz("sessions", CASES, check)


def spoil_attribute(session, rng, junk):
    """Changes a user attribute."""
    table = rng.choice(["trial_user_attributes"] * 4 + ["study_user_attributes"])
    if not may_write(session / "study.db"):
        return
    damaged = suppress(sqlite3.Error, UnicodeDecodeError)  # by another fault
    with damaged, closing(sqlite3.connect(session / "study.db")) as study, study:
        found = study.execute(f"SELECT rowid, value_json FROM {table}").fetchall()
        if not found:
            return
        rowid, text = rng.choice(found)
        text = rng.choice([junk_text(junk), spoilt(rng, text), changed_json(rng, text, junk)])
        text = text.encode(errors="replace").decode()  # SQLite refuses a lone surrogate
        study.execute(f"UPDATE {table} SET value_json = ? WHERE rowid = ?", (text, rowid))


def spoil_row(session, rng, junk):
    """Changes or removes a row of Optuna's tables."""
    table = rng.choice(["trials", "trial_user_attributes", "studies", "trial_params", "study_directions"])
    if not may_write(session / "study.db"):
        return
    with suppress(sqlite3.Error), closing(sqlite3.connect(session / "study.db")) as study, study:
        rows = [rowid for (rowid,) in study.execute(f"SELECT rowid FROM {table}")]
        if not rows:
            return
        if rng.random() < 0.5:
            study.execute(f"DELETE FROM {table} WHERE rowid = ?", (rng.choice(rows),))
            return
        columns = [column[1] for column in study.execute(f"PRAGMA table_info({table})")]
        value = junk if isinstance(junk, str | float | None) else json.dumps(junk, default=str)
        with suppress(UnicodeEncodeError):
            study.execute(
                f"UPDATE {table} SET {rng.choice(columns)} = ? WHERE rowid = ?", (value, rng.choice(rows))
            )


def spoil_json(session, rng, junk):
    file = rng.choice([session / "session.json", *sorted(session.rglob("trials/*/*.json"))])
    if not may_write(file):
        return
    text = file.read_text(errors="replace") if file.is_file() else "{}"
    file.write_bytes(encoded(rng.choice([changed_json(rng, text, junk), spoilt(rng, text), "[" * 100_000])))


def spoil_record(session, rng, junk):
    files = sorted(session.rglob("trials/*/*.jsonl"))
    if not files or not (file := files[-1 if rng.random() < 0.7 else 0]).is_file():
        return
    lines = file.read_text(errors="replace").splitlines() or ["{}"]
    at = rng.randrange(len(lines))
    lines[at] = rng.choice([changed_json(rng, lines[at], junk), spoilt(rng, lines[at]), junk_text(junk)])
    file.write_bytes(encoded("\n".join(lines)))


def spoil_space(session, rng, junk):
    file = session / "space.yaml"
    if not may_write(file):
        return
    text = file.read_text(errors="replace") if file.is_file() else "{}"
    with suppress(yaml.YAMLError, ValueError, RecursionError):
        values = changed(rng, yaml.safe_load(text), junk)
        file.write_bytes(encoded(rng.choice([yaml.safe_dump(values), spoilt(rng, text)])))


def spoil_file(session, rng, junk):
    """Damages a file as a disk may."""
    files = [p for p in sorted(session.rglob("*")) if p.is_file()]
    if not files:
        return
    file = rng.choice([*files, *[session / "study.db", session / "session.json"] * 5])
    if not may_write(file):
        return
    data = file.read_bytes() if file.is_file() else b""
    kinds = ["cut", "zeroed", "empty", "gone", "bytes", "not UTF-8", "a directory", "another's"]
    match rng.choice([*kinds, "a pipe", "a device"]):
        case "cut":
            file.write_bytes(data[: rng.randrange(len(data) + 1)])
        case "zeroed":
            file.write_bytes(bytes(len(data)))
        case "empty":
            file.write_bytes(b"")
        case "gone":
            file.unlink(missing_ok=True)
        case "bytes":
            at = rng.randrange(len(data) + 1)
            file.write_bytes(data[:at] + rng.randbytes(rng.choice([1, 20, 4096])) + data[at + 20 :])
        case "not UTF-8":
            file.write_bytes(data[:7] + b"\xff\xfe" + data[7:])
        case "a directory":
            file.unlink(missing_ok=True)
            file.mkdir()
        case "a pipe":
            file.unlink(missing_ok=True)
            os.mkfifo(file)
        case "a device":
            file.unlink(missing_ok=True)
            file.symlink_to("/dev/zero")
        case "another's":
            file.write_bytes(rng.choice(files).read_bytes())


def may_write(file):
    """Returns False if an earlier fault has replaced the file with something else."""
    return file.is_file() or not file.exists()


APPLY = {
    "attribute": spoil_attribute,
    "row": spoil_row,
    "json": spoil_json,
    "record": spoil_record,
    "space": spoil_space,
    "file": spoil_file,
}


def junk_text(junk):
    return json.dumps(junk, default=str)


def changed_json(rng, text, junk):
    try:
        return json.dumps(changed(rng, json.loads(text), junk), default=str)
    except (ValueError, RecursionError):
        return text


def changed(rng, value, junk):
    """Returns `value` with one part replaced, removed, extended or renamed."""
    value = {"": copy.deepcopy(value)}
    *path, last = rng.choice(list(places_in(value)))
    inside = value
    for key in path:
        inside = inside[key]
    match rng.choice(["replace", "replace", "remove", "add", "rename"]):
        case "remove" if path:
            del inside[last]
        case "add" if path and isinstance(inside, dict):
            inside["added by a newer release"] = junk
        case "rename" if path and isinstance(inside, dict):
            inside[f"{last}_"] = inside.pop(last)
        case _:
            inside[last] = junk
    return value[""]


def spoilt(rng, text):
    """Returns `text` with a part replaced with junk."""
    first = rng.randrange(len(text) + 1)
    other = rng.choice([*"{}[]:,\"'-\n0", "NaN", "1e999", "null", "\udcff", "9" * 400, ""])
    return text[:first] + other + text[first + rng.randrange(20) :]


@pytest.mark.parametrize(
    ("name", "spoil", "said"),
    [
        ("session.json", lambda file: file.write_text("[" * 100_000), "cannot be read"),
        ("space.yaml", lambda file: file.write_bytes(b"\xff" + file.read_bytes()), "must be text in UTF-8"),
        (
            "space.yaml",
            lambda file: file.write_text(file.read_text().replace("micro_batch_size", '"\\udcff"')),
            "must be text that UTF-8 can hold",
        ),
    ],
)
def test_an_unreadable_file_is_reported_in_one_line(begins_nothing, bases, name, spoil, said):
    shutil.copytree(bases[0], "s")
    spoil(Path("s", name))
    for command in COMMANDS:
        _, err, _ = say(tuner.main, list(command), codes={2})
        assert said in err


def make_pipe(file):
    os.mkfifo(file)


def make_endless(file):
    file.symlink_to("/dev/zero")


OWN = ["trial.json", "verdict.json", "records.jsonl", "slices.jsonl", "log"]
FILES = [
    *("session.json", "space.yaml", "study.db", "study.db-wal", "study.db-journal", "lock"),
    *("threshold.json", "stop", "report.html", "report.html.tmp", *(f"trials/0006/{file}" for file in OWN)),
]


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("make", [make_pipe, make_endless, Path.mkdir])
def test_no_command_waits_for_a_pipe_or_an_endless_file(begins_nothing, bases, make):
    for name, command in itertools.product(FILES, COMMANDS):
        shutil.rmtree("s", ignore_errors=True)
        file = Path(shutil.copytree(bases[0], "s"), name)
        file.unlink(missing_ok=True)
        make(file)
        say(tuner.main, list(command), codes={0, 1, 2})


@pytest.mark.parametrize(
    ("key", "text", "said"),
    [
        ("plan", '{"trials": 6, "time_s": null, "surprise": 1}', None),
        ("plan", "{", "its attribute plan is no JSON"),
        ("plan", '{"trials": 6, "time_s": null, "spent_s": 6e307}', "its plan is not one"),
        ("seconds", "6e307", "is not readable: its seconds are no duration"),
        ("outcome", '{"status": "vanished"}', "is not readable"),
        ("config", '{"micro_batch_size": "many"}', "is not readable: micro_batch_size is no number"),
    ],
)
def test_attributes_that_this_release_does_not_write(begins_nothing, bases, key, text, said):
    session = Path(shutil.copytree(bases[0], "s"))
    with closing(sqlite3.connect(session / "study.db")) as study, study:
        for table in ("study_user_attributes", "trial_user_attributes"):
            study.execute(f"UPDATE {table} SET value_json = ? WHERE key = ?", (text, key))
    code, err, _ = say(tuner.main, ["status", "s"], codes={0, 2})
    assert (code == 0) == (said is None)
    assert said is None or (said in err and "python -m autotune recover" in err)


@pytest.mark.parametrize("name", ["a{b}", "{", "100%", "a?b#c", "-dash", "a\nb", "a  b", "é"])
def test_a_session_may_have_any_name(begins_nothing, bases, name):
    shutil.copytree(bases[0], name)
    for command in ("status", "resume", "recover"):
        say(tuner.main, [command, "--", name], codes={0, 1})
    assert len(trials_of(Path(name))) == 7


def test_a_mutated_session_is_no_session_or_refused(bases, tmp_path):
    """Checks the fuzzer itself: its damage is detected."""
    place = shutil.copytree(bases[0], tmp_path / "s")
    for seed in range(30):
        spoil_attribute(place, random.Random(seed), {"a": 1})
    with pytest.raises(InputError):
        StoredSession.open(place).study()
