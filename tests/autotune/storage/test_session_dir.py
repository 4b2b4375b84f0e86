"""The file names in a session's directory, on which existing sessions depend."""

from autotune.storage.session_dir import SessionDir
from autotune.storage.store import StoredSession


def test_file_names_are_those_of_existing_sessions(tmp_path):
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
