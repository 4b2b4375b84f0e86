"""Reports read from sessions: running, interrupted, failed and compared."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from autotune.compare import results
from autotune.compare.results import Model
from autotune.core.errors import InputError
from autotune.core.measurement import Measurement
from autotune.core.trial import Failure, Outcome, Status, Trial
from autotune.reports import markdown, page
from autotune.reports.read import read
from autotune.storage import studies
from autotune.storage.store import Options, StoredSession
from autotune.workloads.base import Workload
from r2gen.compared.answers import id_of
from tests.r2gen.compared import written

from .test_page import Page

KEPT = Path(__file__).parents[2] / "fixtures" / "sessions"


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """Returns a function that copies a recorded session by name."""
    monkeypatch.syspath_prepend(str(KEPT))

    def copy(name):
        return Path(shutil.copytree(KEPT / name, tmp_path / name))

    return copy


@pytest.fixture
def session(space, tmp_path):
    """Returns a session that has just begun, without a study."""
    return StoredSession.create(tmp_path / "s", space, Options(wandb="off"), {"created": "now"})


def test_an_interrupted_session_is_read(kept):
    place = kept("format-2")
    report = read(place, 5)
    assert (report.session, report.state) == (str(place), "interrupted")
    assert report.answer.verdict == "unconfirmed"
    assert [row.kind for row in report.trials][:1] == ["baseline"]
    assert [row.status for row in report.trials].count("") == 1
    assert any(row.failure == "oom" for row in report.trials)
    assert report.answer.factor.value > 1
    assert f"python -m autotune resume {place}" in report.answer.commands


def test_nothing_is_written(kept):
    place = kept("format-2")
    before = {file: file.read_bytes() for file in place.rglob("*") if file.is_file()}
    read(place, 5)
    after = {file: file.read_bytes() for file in place.rglob("*") if file.is_file()}
    assert {file: text for file, text in after.items() if not file.name.endswith(("-shm", "-wal"))} == before


def test_a_running_search_is_read_and_not_disturbed(kept):
    place = kept("format-2")
    with StoredSession.open(place).lock():
        report = read(place, 5)
        assert read(place, 5, is_over=True).state == "interrupted", "the search holds its lock for its report"
    assert report.state == "running"
    assert not [command for command in report.answer.commands if "resume" in command]


def test_a_session_without_a_study_has_no_report(session, tmp_path):
    with pytest.raises(InputError, match="there is no session here"):
        read(tmp_path / "nowhere", 5)
    with pytest.raises(InputError, match=r"nothing was run yet; start it with: python -m autotune resume"):
        read(session.root, 5)


def test_a_session_without_a_trial_has_a_report_that_says_so(session, space):
    studies.open_study(session.study_file, space)
    report = read(session.root, 5)
    assert (report.trials, report.answer.verdict, report.state) == ((), "none", "interrupted")


def test_a_baseline_that_failed_is_reported_with_its_reason(session, space):
    study = studies.open_study(session.study_file, space)
    begun = studies.begin(study, space, space.baseline_config)
    ended = Trial(begun.number, begun.config, Outcome(Status.FAILED, Failure.OOM, "it is too large"))
    studies.end(study, ended, space.limits.memory_fraction)
    report = read(session.root, 5)
    assert report.answer.verdict == "none"
    assert report.answer.sentence.endswith("It failed (oom): it is too large")
    assert report.trials[0].reason == "it is too large"


def test_compared_models_are_read(kept, monkeypatch):
    place = kept("format-2")
    session = StoredSession.open(place)
    for label in ("baseline", "bf16"):
        model_dir = session.model_dir(label)
        model_dir.root.mkdir(parents=True)
        model = Model(label, {}, Outcome(Status.COMPLETED), Measurement(), 400, scores={"bleu_4": 0.1})
        results.RESULT.write(model_dir.result_file, model)
        model_dir.reports_file.write_text(label)
    calls = []
    monkeypatch.setattr(Workload, "report_section", lambda *given: calls.append(given[1:]))
    report = read(place, 2)
    assert [model.label for model in report.compared] == ["baseline", "bf16"]
    files = {label: session.model_dir(label).reports_file for label in ("baseline", "bf16")}
    assert calls == [(session.comparison.root, files, 2)]


def test_generated_reports_and_readers_marks_are_a_section(kept):
    place = kept("iu_xray")
    session = StoredSession.open(place)
    for label in ("baseline", "bf16"):
        model_dir = session.model_dir(label)
        written.write(model_dir.reports_file, [written.entry(n, f"{label} {n}") for n in range(4)])
        model = Model(label, {}, Outcome(Status.COMPLETED), Measurement(), 400)
        results.RESULT.write(model_dir.result_file, model)
    marks = {id_of("1", "bf16 1"): {"mark": "correct", "note": "well seen"}}
    answers = session.comparison.root / "answers-AB.json"
    answers.write_text(json.dumps({"format": 1, "reader": "AB", "marks": marks}))
    report = read(place, 2)
    found = Page(page.render(report))
    for part in ("Clinical findings and words", "Blind reading", "well seen", "only in the reference"):
        assert part in found.texts["own"]
    assert len(found.ids) == len(set(found.ids))
    assert "| Blind reading | reports | correct |" in markdown.render(report)
    assert "Notes of the readers" not in markdown.render(report)
    assert json.loads(report.to_json())["own"]["studies"][0]["written"]["bf16"]["report"] == "bf16 1"
    answers.write_text("{}")
    with pytest.raises(InputError, match=r"comparison/answers-AB.json: must be as a sheet saves it"):
        read(place, 2)


def test_a_session_without_races_has_no_claim(kept):
    """The search ran on two busy CPUs, and sequential repeats are no race."""
    place = kept("iu_xray")
    report = read(place, 5)
    answer, best = report.answer, report.answer.best
    assert (report.session, report.state) == (str(place), "ended")
    assert (answer.verdict, best.trial) == ("unconfirmed", 6)
    assert answer.promise.startswith("Goal: the shortest training that keeps 70% of the ")
    confirm = f"To confirm it: python -m autotune resume {place}"
    assert answer.sentence == f"Possibly 1.9x faster, not confirmed. {confirm}"
    factor = [answer.factor.low, answer.factor.value, answer.factor.high]
    assert factor == pytest.approx([1.117, 1.864, 3.111], 1e-3), "its first run alone was 3.45x as fast"
    assert (answer.rounds, answer.baseline.seeds, best.seeds) == (0, 5, 3)
    assert answer.full_training_samples == 30 * 480
    assert best.full_training_s == pytest.approx(14_400 / best.throughput.value)
    assert best.step_s.keys() == {"data", "transfer", "forward", "backward", "optimizer"}
    assert sum(best.step_s.values()) == pytest.approx(8 / best.throughput.value)
    assert {"bleu_1", "bleu_4", "rouge_l", "cider", "val_studies"} <= best.scores.keys()
    kinds = Counter(row.kind for row in report.trials)
    assert kinds == {"baseline": 1, "trial": 11, "repeat": 8, "ablation": 1}
    assert [row.number for row in report.trials if row.failure == "oom"] == [2]
    assert report.ablation == ()


@pytest.mark.parametrize("name", ["iu_xray", "drawn"])
def test_a_kept_search_is_small_and_has_no_text_from_its_machine_or_the_reports(name):
    found = {file.name: file.read_bytes() for file in (KEPT / name).iterdir()}
    assert found.keys() == {"session.json", "space.yaml", "study.db"}, "no log, no record, no checkpoint"
    assert sum(map(len, found.values())) < 250_000
    assert f"data: data/{name}\n".encode() in found["space.yaml"]
    for text in found.values():
        assert not re.search(rb"/(home|root|tmp|work|mnt|Users|var|usr)\b", text)
        assert b"/shared/" not in text
    words = rb"(?i)\b(effusion|pneumothorax|cardiomegaly|lungs?|heart|chest|impression)\b"
    assert not [text for text in found.values() if re.search(words, text)]


def test_neither_torch_nor_ray_is_imported(kept):
    place = kept("format-2")
    code = (
        "import sys; from pathlib import Path; from autotune.reports import markdown, read;"
        f"found = read.read(Path({str(place)!r}), 5); found.to_json(); markdown.render(found);"
        "print(sorted({'torch', 'ray', 'wandb', 'sklearn'} & set(sys.modules)))"
    )
    paths = os.pathsep.join([str(KEPT), os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, "PYTHONPATH": paths}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    assert done.stdout == "[]\n"
    assert done.stderr == "", "Optuna logs nothing"
