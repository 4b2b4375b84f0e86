"""The file names in a trial's directory, on which existing sessions depend."""

from autotune.storage.trial_dir import ModelDir, TrialDir


def test_file_names_are_those_of_existing_sessions(tmp_path):
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
