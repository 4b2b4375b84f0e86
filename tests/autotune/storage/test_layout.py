"""The file names in a session's directory, on which existing sessions depend."""

from autotune.storage.layout import ModelDir, SessionDir, TrialDir
from autotune.storage.store import StoredSession


def test_file_names_of_a_session_are_those_of_existing_sessions(tmp_path):
    place = SessionDir(tmp_path)
    names = {
        "session.json": place.info_file,
        "space.yaml": place.space_file,
        "study.db": place.study_file,
        "lock": place.lock_file,
        "threshold.json": place.threshold_file,
        "stop": place.stop_file,
        "ray": place.ray_dir,
        "tensorboard": place.tracker_dir("tensorboard"),
        "report.html": place.report_file,
        "trials/0007": place.trial_dir(7).root,
        "comparison/bf16": place.model_dir("bf16").root,
        "training/winner": place.training_dir(None).root,
        "training/trial-7": place.training_dir(7).root,
    }
    assert {name: tmp_path / name for name in names} == names


def test_a_session_is_known_by_the_name_of_its_directory(tmp_path):
    assert StoredSession(tmp_path / "first").name == "first"


def test_file_names_of_a_trial_are_those_of_existing_sessions(tmp_path):
    place = TrialDir(tmp_path)
    names = {"work": place.work, "log": place.log, "records.jsonl": place.records_file}
    names |= {"slices.jsonl": place.slices_file, "verdict.json": place.verdict_file}
    assert {name: tmp_path / name for name in names} == names
    assert place.member(7).work == tmp_path / "member-7" / "work"


def test_a_compared_model_is_trained_like_a_trial(tmp_path):
    place = ModelDir(tmp_path)
    names = {
        "plan.json": place.plan_file,
        "model.json": place.result_file,
        "reports.jsonl": place.reports_file,
    }
    assert {name: tmp_path / name for name in names} == names
    assert place.records_file == TrialDir(tmp_path).records_file
