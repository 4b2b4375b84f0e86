"""A session of another format is left alone; changes since a session began are reported."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from autotune import __main__ as cli
from autotune.core.errors import InputError
from autotune.sessions import run as run_of_a_session
from autotune.storage import provenance
from autotune.storage.store import FORMAT, StoredSession
from autotune.system.telemetry import hardware
from autotune.trials.setup import Setup
from autotune.workloads import registry
from r2gen import synthetic
from tests.endings import ENDED

from .sessions import KEPT, as_if_here, call, is_one_line, kept, trials_of


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Runs the command line in this process; returns its exit code and output."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(KEPT))
    monkeypatch.setenv("COLUMNS", "200")

    def call_here(*arguments):
        code = cli.main([str(a) for a in arguments])
        said = capsys.readouterr()
        return code, said.out, said.err

    return call_here


def is_refused(said, *parts):
    code, out, err = said
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    for part in parts:
        assert part in err


def edit(place, change):
    info = json.loads((place / "session.json").read_text())
    change(info)
    (place / "session.json").write_text(json.dumps(info))


def edit_space(place, change):
    space = yaml.safe_load((place / "space.yaml").read_text())
    change(space)
    (place / "space.yaml").write_text(yaml.safe_dump(space, sort_keys=False))


def test_a_kept_session_is_small_and_does_not_describe_its_machine():
    written = [f for f in (KEPT / "format-2").rglob("*") if f.is_file()]
    assert sum(f.stat().st_size for f in written) < 200_000
    for file in written:
        for place in (b"/work", b"/root", b"/home", b"/tmp"):
            assert place not in file.read_bytes(), file


def test_a_kept_session_can_be_read_and_exported(run, tmp_path):
    kept("format-2", tmp_path / "s")
    code, out, err = run("status", "s")
    assert (code, err) == (0, "")
    assert " out of memory" in out
    assert "1 interrupted" in out
    assert "trial 2, " in out
    code, out, err = run("export", "s", "--trial", "2", "-o", "best.yaml")
    assert (code, err) == (0, "")
    assert yaml.safe_load(Path("best.yaml").read_text())["micro_batch_size"] > 4


@pytest.mark.long
def test_a_kept_session_can_be_resumed(tmp_path):
    place = as_if_here(kept("format-2", tmp_path / "s"))
    before = {t.number: t for t in trials_of(place) if t.outcome is not None}
    (interrupted,) = [t.number for t in trials_of(place) if t.outcome is None]
    done = call(tmp_path, "resume", "s")
    assert done.returncode in ENDED, done.stderr
    assert f"trial {interrupted} started" in done.stdout
    after = {t.number: t for t in trials_of(place)}
    assert {n: after[n] for n in before} == before
    assert all(t.outcome is not None for t in after.values())


@pytest.mark.parametrize("command", ["status", "report", "export", "resume", "recover", "compare", "train"])
@pytest.mark.parametrize("found", [None, 0, 1, FORMAT + 1, "two"])
def test_a_session_of_another_format_is_left_alone_with_advice(run, tmp_path, command, found):
    place = kept("format-2", tmp_path / "s")
    edit(place, lambda info: info.update(format=found))
    before = {file: file.read_bytes() for file in place.rglob("*") if file.is_file()}
    is_refused(
        run(command, "s"),
        f"session s: has format {found!r}, and this version reads format {FORMAT}; nothing was changed; ",
        "use the version that wrote it, which session.json names, or start a new search of its space with: "
        "python -m autotune search --space s/space.yaml --session s-2",
    )
    assert {file: file.read_bytes() for file in place.rglob("*") if file.is_file()} == before


@pytest.mark.parametrize(
    ("name", "then", "said"),
    [
        ("device", "Another CPU", "device Another CPU, now "),
        ("cpus", 999, "CPUs 999, now "),
        ("torch", "1.0", "torch 1.0, now "),
        ("revision", "0123456789ab", "code 0123456789ab, now "),
        ("data", "0123456789ab", "data 0123456789ab, now none"),
    ],
)
def test_what_figures_come_from_has_changed_and_none_is_compared(run, tmp_path, name, then, said):
    place = as_if_here(kept("format-2", tmp_path / "s"))
    edit(place, lambda info: info["provenance"].update({name: then}))
    known = (place / "study.db").read_bytes()
    is_refused(
        run("resume", "s"),
        "session s: has changed since it was begun, so new trials cannot be compared with its own: ",
        said,
        "search --space s/space.yaml --session s-2",
    )
    assert (place / "study.db").read_bytes() == known
    assert run("status", "s")[0] == 0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda s: s["baseline"].update(step_s=0.1), "baseline.step_s of space.yaml 0.02, now 0.1"),
        (lambda s: s["knobs"].pop("learning_rate"), "knobs.learning_rate of space.yaml"),
        (
            lambda s: s["budget"].update(samples_per_trial=1),
            "budget.samples_per_trial of space.yaml 400, now 1",
        ),
    ],
)
def test_edits_of_a_search_space_are_reported_by_setting(run, tmp_path, change, said):
    place = as_if_here(kept("format-2", tmp_path / "s"))
    edit_space(place, change)
    is_refused(run("resume", "s"), said)


@pytest.mark.parametrize("command", ["status", "report", "export"])
def test_a_session_whose_knobs_were_edited_is_not_read_with_others(run, tmp_path, command):
    edit_space(kept("format-2", tmp_path / "s"), lambda space: space["knobs"].pop("learning_rate"))
    is_refused(run(command, "s"), "learning_rate: must be knobs of space.yaml and of every trial, or of none")


def test_edited_code_is_noticed(tmp_path):
    as_if_here(kept("format-2", tmp_path / "s"))
    edited = tmp_path / "edited"
    edited.mkdir()
    text = (KEPT / "kept_workload.py").read_text()
    (edited / "kept_workload.py").write_text(text.replace("0.0001", "0.0002"))
    is_one_line(call(tmp_path, "resume", "s", workload=edited), "code ", ", now ")


def test_an_edited_module_beside_the_workload_is_noticed(run, tmp_path, monkeypatch):
    place = as_if_here(kept("format-2", tmp_path / "s"))
    edit_space(place, lambda space: space.update(workload="imports_late:fit"))
    for name, text in {
        "imports_late": "def fit(settings, workdir):\n    import beside",
        "unrelated": "",
    }.items():
        (tmp_path / f"{name}.py").write_text(text)
    (tmp_path / "beside.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))

    def collect():
        return provenance.collect(
            "s", StoredSession.open(place).space(), registry.load("imports_late:fit"), here, 0
        )

    here = replace(hardware(), gpus=())
    then = collect()
    edit(place, lambda info: info.update(provenance=then))
    (tmp_path / "unrelated.py").write_text("# edited")
    assert provenance.require_same(place, then, collect(), ()) == []
    (tmp_path / "beside.py").write_text("# edited")
    is_refused(run("resume", "s"), "new trials cannot be compared with its own: code ", ", now ")


@pytest.fixture
def facts(tmp_path, monkeypatch):
    """Returns the provenance of a session in `s` that began now."""
    monkeypatch.syspath_prepend(str(KEPT))
    place = kept("format-2", tmp_path / "s")

    def collect():
        space = StoredSession.open(place).space()
        return provenance.collect("s", space, registry.load("kept_workload:fit"), hardware(), 0)

    return place, collect


def test_the_judgement_of_trials_may_change_and_is_reported(facts):
    place, collect = facts
    then = json.loads(json.dumps(collect()))
    assert provenance.require_same(place, then, collect(), ()) == []
    edit_space(place, lambda s: s["objective"].update(keep=0.5))
    edit_space(place, lambda s: s["budget"].update(repeats=5))
    notes = provenance.require_same(place, then, collect(), ())
    assert notes == [
        "budget.repeats of space.yaml 0, now 5: this applies to earlier trials as well",
        "objective.keep of space.yaml 0.95, now 0.5: this applies to earlier trials as well",
    ]


def test_the_length_of_the_whole_training_may_change(facts):
    place, collect = facts
    assert collect()["training_samples"] is None
    assert provenance.require_same(place, {**collect(), "training_samples": 7}, collect(), ()) == []


@pytest.mark.parametrize(
    ("happens", "said"),
    [
        (lambda earlier: None, None),
        (shutil.rmtree, "there is no session here"),
        (lambda earlier: (earlier / "study.db").unlink(), "its study is missing or empty"),
        (
            lambda earlier: edit(earlier, lambda info: info["provenance"].update(revision="0123456789ab")),
            "must be of the same workload, settings, data and hardware: code 0123456789ab, now ",
        ),
    ],
)
def test_a_session_resumes_without_its_warm_start(tmp_path, happens, said):
    place, earlier = (as_if_here(kept("format-2", tmp_path / name)) for name in ("s", "earlier"))
    edit(place, lambda info: info["options"].update(warm_start=str(earlier)))
    happens(earlier)
    session = StoredSession.open(place)
    notes = SimpleNamespace(lines=[])
    notes.note = notes.lines.append
    setup = Setup(session, session.space(), registry.named(session.space().workload), hardware())
    learnt = run_of_a_session.earlier_trials(setup, notes)
    assert (len(notes.lines), bool(learnt)) == ((0, True) if said is None else (1, False))
    assert said is None or notes.lines[0].endswith(said) or f": {said}" in notes.lines[0]


def test_data_may_move_but_not_change(tmp_path):
    data = synthetic.make(tmp_path / "data", {"train": 4, "val": 2, "test": 2}, seed=0, size=32)
    workload = registry.load("r2gen")
    settings = workload.complete({"data": str(data)})
    then = workload.data_fingerprint(settings)
    moved = Path(shutil.copytree(data, tmp_path / "moved"))
    elsewhere = {**settings, "data": str(moved)}
    assert workload.data_fingerprint(elsewhere) == then
    annotation = json.loads((moved / "annotation.json").read_text())
    annotation["train"][0]["report"] += " no more."
    (moved / "annotation.json").write_text(json.dumps(annotation))
    assert workload.data_fingerprint(elsewhere) != then
    image = next((data / "images").rglob("*.png"))
    image.write_bytes(image.read_bytes() + b"\0")
    assert workload.data_fingerprint(settings) != then
    shutil.rmtree(data)
    with pytest.raises(InputError, match="cannot be read"):
        workload.data_fingerprint(settings)
