"""The study is read without Optuna exactly as with it, in every state of the file."""

import subprocess
import sys

import optuna
import pytest

from autotune.core.errors import DamagedError
from autotune.core.measurement import Measurement
from autotune.core.trial import Failure, Outcome, RejectedFor, RejectedSuggestion, Repeat, Status, Trial
from autotune.storage import studies, study_file
from autotune.storage.study_file import SearchPlan


@pytest.fixture
def file(tmp_path):
    return tmp_path / "study.db"


def test_an_ablation_step_says_so(file, space):
    study = studies.open_study(file, space)
    studies.begin(study, space, space.baseline_config)
    studies.begin(study, space, space.baseline_config, ablation_of=0)
    entries = study_file.load_study(file).entries
    assert [t.user_attrs.get("ablation_of") for t in entries] == [None, 0]
    assert [t.ablation_of for t in studies.read(study).trials] == [None, 0]


def test_it_reads_what_optuna_reads(file, space):
    study = studies.open_study(file, space)
    studies.set_plan(study, SearchPlan(5, 100.0, 3.0, ended=True))
    passed = [RejectedSuggestion({"micro_batch_size": 64}, RejectedFor.MEMORY, "no room")]
    first = studies.begin(study, space, space.baseline_config, passed=passed)
    studies.mark_shared(study, first.number)
    studies.end(study, Trial(0, first.config, Outcome(Status.FAILED, Failure.OOM, "x")), 0.85)
    study.ask()  # another program's trial
    studies.begin(study, space, space.baseline_config, Repeat(0, 1))
    read = study_file.load_study(file)
    by_optuna = optuna.load_study(study_name=study_file.NAME, storage=f"sqlite:///{file}")
    assert read.user_attrs == by_optuna.user_attrs
    assert [(t.number, t.user_attrs) for t in read.entries] == [
        (t.number, t.user_attrs) for t in by_optuna.get_trials()
    ]
    assert read.trials == studies.read(study).trials
    assert [t.number for t in read.trials] == [0, 2]
    assert read.passed_over == passed
    assert read.plan == SearchPlan(5, 100.0, 3.0, ended=True)


def test_numbers_that_json_does_not_know_are_read(file, space):
    study = studies.open_study(file, space)
    trial = studies.begin(study, space, space.baseline_config)
    figures = Measurement(quality=float("inf"))
    studies.end(study, Trial(0, trial.config, Outcome(Status.COMPLETED), figures), 0.85)
    assert study_file.load_study(file).trials[0].quality == float("inf")


def test_a_number_of_hundreds_of_digits_is_damage(file, space):
    study = studies.open_study(file, space)
    trial = studies.begin(study, space, space.baseline_config)
    trial = Trial(0, trial.config, Outcome(Status.COMPLETED), Measurement(memory_limit_bytes=10**400))
    studies.end(study, trial, 0.85)
    with pytest.raises(DamagedError, match="its attribute measurement"):
        study_file.load_study(file)


@pytest.mark.parametrize(("time_s", "spent_s"), [(100.0, float("inf")), (float("nan"), 3.0)])
def test_a_plan_without_an_end_is_damage(file, space, time_s, spent_s):
    study = studies.open_study(file, space)
    studies.set_plan(study, SearchPlan(5, time_s, spent_s))
    with pytest.raises(DamagedError, match="its plan"):
        assert study_file.load_study(file).plan


@pytest.mark.parametrize("made", ["nothing", "an empty file", "tables", "another study"])
def test_a_study_still_being_created_is_absent(file, made):
    if made == "an empty file":
        file.touch()
    if made == "tables":
        optuna.storages.RDBStorage(f"sqlite:///{file}")
    if made == "another study":
        optuna.create_study(study_name="other", storage=f"sqlite:///{file}").ask()
    with pytest.raises(KeyError, match="there is no study"):
        study_file.load_study(file)


def test_a_study_without_trials_is_one(file, space):
    studies.open_study(file, space)
    assert study_file.load_study(file).trials == []


def test_a_file_that_is_not_a_study_is_an_error(file):
    file.write_text("this is no database, and long enough to be seen to be none" * 20)
    with pytest.raises(DamagedError, match="not a database"):
        study_file.load_study(file)


def test_a_writer_is_not_disturbed(file, space):
    study = studies.open_study(file, space)
    studies.begin(study, space, space.baseline_config)
    before = file.read_bytes()
    for _ in range(3):
        assert len(study_file.load_study(file).trials) == 1
    assert file.read_bytes() == before
    studies.begin(study, space, space.baseline_config)
    assert len(study_file.load_study(file).trials) == 2


def test_reading_imports_no_optuna():
    code = (
        "import sys; from autotune.display import snapshot; from autotune.storage import study_file;"
        "print('optuna' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "False\n"
