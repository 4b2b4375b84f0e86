"""Models to compare: trained, reused, resumed and failed."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import psutil
import pytest

from autotune.__main__ import main
from autotune.compare import results
from autotune.compare.compare import Comparison, Contender, ModelLength, contenders, evaluate, known_length
from autotune.compare.results import Model
from autotune.core.errors import EvaluationError, InputError
from autotune.core.measurement import Measurement, Throughput
from autotune.core.trial import Failure, Outcome, Status, Trial
from autotune.judging.decisions.history import History
from autotune.space import configurations, spaces
from autotune.space.sections import Objective
from autotune.storage import provenance, studies
from autotune.storage.store import Options, StoredSession
from autotune.system.telemetry import hardware
from autotune.trials.setup import TrainingSetup
from autotune.workloads.base import Workload
from tests.faults import killing
from tests.waiting import wait_for

HERE = Path(__file__).parents[1]
SPACE = """
workload: toy_workload:fit
baseline: {micro_batch_size: 4, learning_rate: 1e-3, step_s: 0.001, precision: fp32}
knobs: {micro_batch_size: {choice: [4, 8, 64]}, learning_rate: {scale: sqrt}}
training: {samples_per_epoch: 50}
budget: {trials: 4, samples_per_trial: 400, evaluations_per_trial: 2, repeats: 0}
"""
# Scores the checkpoint in `work`, and fails while there is a file called `fault`.
SCORER = """
import json, sys
work, reports, fault = map(__import__("pathlib").Path, sys.argv[1:])
if fault.exists():
    sys.exit("the scorer has\\na fault")
state = json.loads((work / "state.json").read_text())
reports.write_text(json.dumps({"id": "1", "images": [], "reference": "a", "report": "b"}) + "\\n")
print(json.dumps({"split": "test", "studies": 1, "trained": state, "bleu_4": 0.5, "seconds": 2.0,
                  "reports_per_s": 0.5, "peak_memory_bytes": 7, "bleu_4_items": [0.25, 0.75],
                  "collapsed": True, "parameters": 12}))
"""
FACTS = {"torch": "2.5", "data": None}


@dataclass(frozen=True)
class Scorer:
    fault: Path

    def evaluate(self, workdir, settings, reports):
        return [sys.executable, "-c", SCORER, str(workdir), str(reports), str(self.fault)]


@dataclass(frozen=True)
class Scored(Workload):
    """The toy workload, with a command that scores it."""

    entry_point: str = "toy_workload:fit"
    fault: Path = Path("none")

    @property
    def program(self):
        return Scorer(self.fault)


@pytest.fixture(autouse=True)
def _toys(monkeypatch):
    """Puts the toy workload on the path, also for child processes, and hides GPUs."""
    monkeypatch.syspath_prepend(str(HERE))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


@pytest.fixture
def space():
    return spaces.complete(spaces.parse(SPACE, "test"), "test")


def searched(root, space, winner=8, **options):
    """Returns a session in which batches of `winner` were twice as fast with equal quality."""
    machine, workload = replace(hardware(), gpus=()), Workload(space.workload)
    facts = provenance.collect("s", space, workload, machine, 0)
    session = StoredSession.create(root, space, Options(**options), facts)
    study = studies.open_study(session.study_file, space)
    for batch, speed in ((4, 100.0), (winner, 200.0)):
        trial = studies.begin(
            study, space, configurations.configure(space, {"micro_batch_size": batch, "learning_rate": 1.0})
        )
        measured = Measurement(Throughput(speed, 1.0, 50, 1.0), 0.2, 400, samples=400)
        studies.end(study, replace(trial, outcome=Outcome(Status.COMPLETED), measurement=measured), 0.85)
    return session


@pytest.fixture
def session(tmp_path, space):
    return searched(tmp_path / "s", space)


def training_of(session, space, workload):
    return TrainingSetup(space, workload, replace(hardware(), gpus=()), session.options())


@pytest.fixture
def compared(session, space):
    """Returns a function that compares one configuration, and returns the model and the lines of output."""
    output = []

    def compare(label="bf16", *, workload=None, samples=400, **config):
        training = training_of(session, space, workload or Scored())
        comparing = Comparison(session, training, ModelLength(samples), FACTS, output.append)
        output.clear()
        comparing.run(Contender(label, {**space.baseline_config, "precision": label, **config}))
        return results.first_models(results.runs(session.comparison.root))[label], list(output)

    return compare


def attempts(session, label):
    lines = session.model_dir(label).records_file.read_text().splitlines()
    return sum("attempt" in json.loads(line) for line in lines)


def test_the_recommended_settings_are_compared_in_every_precision(space, make_trial):
    trials = [make_trial(0, 100, 0.2, learning_rate=1e-3)]
    trials.append(make_trial(1, 200, 0.2, micro_batch_size=8, learning_rate=1e-3))
    baseline, fp32, bf16 = contenders(History(trials, space), ("fp32", "bf16"))
    assert baseline == Contender("baseline", {**space.baseline_config, "precision": "fp32"})
    assert fp32.config == {"micro_batch_size": 8, "learning_rate": 1e-3, "precision": "fp32"}
    assert bf16.config == fp32.config | {"precision": "bf16"}


def test_every_model_has_its_first_seed_before_one_has_its_second(space, make_trial):
    found = contenders(History([make_trial(0, 100, 0.2, learning_rate=1e-3)], space), ("bf16",), seeds=2)
    assert [c.name for c in found] == ["baseline", "bf16", "baseline-seed-1", "bf16-seed-1"]
    assert found[1].config == found[3].config


def test_a_precision_that_is_the_baseline_itself_is_not_trained_twice(space, make_trial):
    baseline = [make_trial(0, 100, 0.2, micro_batch_size=4, learning_rate=1e-3)]
    assert [c.label for c in contenders(History(baseline, space), ("fp32", "bf16"))] == ["baseline", "bf16"]


def test_without_a_baseline_there_is_nothing_to_compare(space):
    with pytest.raises(InputError, match="the baseline has not completed"):
        contenders(History([Trial(0, space.baseline_config)], space), ("fp32",))


def test_a_model_is_trained_and_scored_once(session, compared):
    model, output = compared()
    assert (model.label, model.outcome.status, model.trial) == ("bf16", Status.COMPLETED, None)
    assert (model.samples, model.training.quality) == (400, 0.2)
    assert model.training.quality_samples >= 400  # the workload trains until it is stopped
    assert model.training.throughput.samples_per_s > 0
    assert model.config["precision"] == "bf16"
    assert model.scores == {"bleu_4": 0.5, "trained": model.scores["trained"]}
    assert model.scores["trained"] >= 400
    assert (model.reports_per_s, model.peak_memory_bytes) == (0.5, 7)
    assert (model.items, model.collapsed) == ({"bleu_4": (0.25, 0.75)}, True)
    assert model.steps.count >= 100
    assert (model.steps.bad, model.steps.final_loss) == (0, 1.0)
    assert (model.parameters, model.checkpoint_bytes > 0) == (12, True)
    place = session.model_dir("bf16")
    assert json.loads(place.reports_file.read_text())["report"] == "b"
    assert not place.work.exists()
    assert output[0] == "bf16: training for 400 samples with batch 4 bf16 lr 0.001"

    assert compared() == (model, ["bf16: already done"])


def test_other_conditions_train_a_new_model(session, space, compared):
    assert compared()[0].samples == 400
    model, _ = compared(samples=600)
    assert (model.samples, model.training.quality_samples >= 600) == (600, True)
    assert model.scores["trained"] >= 600
    assert attempts(session, "bf16") == 1


def set_aside(session, space, contenders, samples=400, facts=FACTS):
    """Returns by label the message about each model that is set aside when `contenders` are compared."""
    output, training = [], training_of(session, space, Scored())
    Comparison(session, training, ModelLength(samples), facts, output.append).keep_only(contenders)
    return dict(line.split(": ", 1) for line in output)


def test_models_of_other_conditions_are_set_aside(session, space, compared):
    for label in ("fp32", "bf16"):
        compared(label)
    (session.comparison.root / "tf32").mkdir()
    result = session.model_dir("bf16").result_file.read_bytes()
    other = {**space.baseline_config, "micro_batch_size": 8, "precision": "bf16"}
    fp32 = Contender("fp32", space.baseline_config)
    assert set_aside(session, space, [fp32, Contender("bf16", other)]) == {
        "bf16": "made with other settings, so it is set aside as bf16.aside-1",
        "tf32": "made with other settings, so it is set aside as tf32.aside-1",
    }
    assert list(results.runs(session.comparison.root)) == ["fp32"]
    assert session.model_dir("bf16.aside-1").result_file.read_bytes() == result
    assert set_aside(session, space, [fp32]) == {}


@pytest.mark.parametrize(
    ("terms", "other"),
    [
        ({"samples": 600}, "samples"),
        ({"facts": {"torch": "2.6", "data": "abc"}}, "torch, data"),
        ({"facts": {**FACTS, "driver": "580"}}, None),
    ],
)
def test_conditions_differ_if_figures_are_not_comparable(session, space, compared, terms, other):
    """Facts that an older model lacks are not compared."""
    model, _ = compared()
    messages = set_aside(session, space, [Contender("bf16", model.config)], **terms)
    assert messages == (
        {"bf16": f"made with other {other}, so it is set aside as bf16.aside-1"} if other else {}
    )


def test_a_model_that_does_not_fit_has_no_scores_and_is_retried(session, compared):
    for _ in range(2):
        model, output = compared(micro_batch_size=64)
        assert (model.outcome.status, model.outcome.failure) == (Status.FAILED, Failure.OOM)
        assert (model.scores, model.reports_per_s) == ({}, None)
        assert "toy: the batch does not fit" in output[-1]
        assert attempts(session, "bf16") == 1


def test_an_unscored_model_is_scored_later_without_training(session, compared, tmp_path):
    fault = tmp_path / "fault"
    fault.touch()
    model, output = compared(workload=Scored(fault=fault))
    assert model.outcome.status is Status.COMPLETED
    assert model.scores == {}
    assert "could not be scored, exit code 1: a fault;" in output[-1]
    assert "the scorer has" in session.model_dir("bf16").log.read_text()

    fault.unlink()
    model, _ = compared(workload=Scored(fault=fault))
    assert model.scores["trained"] >= 400
    assert attempts(session, "bf16") == 1


def compare(capsys, *arguments):
    """Runs the command in this process; returns its exit code, its lines of output and its errors."""
    code = main(["compare", *map(str, arguments)])
    out, err = capsys.readouterr()
    return code, out.splitlines(), err


@pytest.mark.slow
def test_the_command_compares_a_workload_that_writes_no_reports(session, capsys):
    code, lines, err = compare(capsys, session.root, "--precisions", " bf16,fp32,bf16", "--seeds", 2)
    assert (code, err) == (0, "")
    begun = [line.partition(":")[0] for line in lines if ": training for" in line]
    assert begun == ["baseline", "bf16", "fp32", "baseline-seed-1", "bf16-seed-1", "fp32-seed-1"]
    start = next(n for n, line in enumerate(lines) if line.split() == ["baseline", "bf16", "fp32"])
    rows = {line[:20].strip(): line[20:].split() for line in lines[start + 1 : -2]}
    assert (rows["seeds"], rows["BLEU-4"]) == (["2"] * 3, ["0.2000"] * 3)
    assert (rows["final train loss"][1], rows["against fp32"][1], rows["bad steps"][1]) == (
        "1.0000",
        "+0.0%",
        "0",
    )
    assert not {"overflows", "reports/s"} & rows.keys(), "there are none, and no generated reports"
    goal = "The fastest precision that keeps 95% of the baseline's improvement in bleu_4 at "
    assert lines[-2].startswith(goal)
    assert " of the baseline's improvement, 2 seeds each." in lines[-2]
    assert lines[-1] == f"Compare the models in the report: python -m autotune report {session.root}"
    found = results.runs(session.comparison.root)
    assert [(m.seed, m.config["micro_batch_size"]) for m in found["fp32"]] == [(0, 8), (1, 8)]
    assert found["baseline"][0].config["micro_batch_size"] == 4
    plans = [json.loads(session.model_dir(name).plan_file.read_text()) for name in ("fp32", "fp32-seed-1")]
    assert [plan["settings"].get("seed", 0) for plan in plans] == [0, 1]
    assert not list(session.comparison.root.glob("*/work"))


def test_an_unsupported_precision_is_left_out_with_a_message(session, capsys):
    code, lines, err = compare(capsys, session.root, "--precisions", "fp32,bf16,fp8")
    assert (code, err) == (0, "")
    assert lines[0] == "precision fp8: left out, needs a CUDA device"
    assert list(results.first_models(results.runs(session.comparison.root))) == ["baseline", "bf16", "fp32"]


def test_a_failed_model_is_named_at_the_end_and_sets_the_exit_code(tmp_path, space, capsys):
    session = searched(tmp_path / "large", space, winner=64)  # does not fit any more
    code, lines, err = compare(capsys, session.root, "--precisions", "fp32")
    assert (code, err) == (1, "")
    assert lines[-1] == "1 of 2 models failed: fp32"
    assert any(line.startswith("fp32: training failed (oom), ") for line in lines)
    assert list(results.first_models(results.runs(session.comparison.root))) == ["baseline", "fp32"]


def test_changes_since_the_search_are_reported(session, capsys):
    info = json.loads(session.info_file.read_text())
    info["provenance"]["torch"] = "0.4"
    session.info_file.write_text(json.dumps(info))
    code, lines, _ = compare(capsys, session.root, "--precisions", "fp32", "--epochs-per-model", 2)
    assert code == 0
    assert any(line.startswith("changed since the search: torch 0.4, now ") for line in lines)
    assert lines[-2].startswith(("Not decided", "The baseline stays: ")), "depending on their speeds"
    assert results.first_models(results.runs(session.comparison.root))["fp32"].samples == 100


@pytest.fixture
def _lasts_rounds(monkeypatch):
    """Gives the workload a setting for its number of epochs."""
    monkeypatch.setattr(Workload, "epochs", "rounds")


@pytest.mark.usefixtures("_lasts_rounds")
def test_epochs_are_set_in_the_models_settings(session, capsys):
    """Otherwise the trainer would stop after the search's epochs, or its schedule would not reach its end."""
    arguments = (session.root, "--precisions", "fp32")
    code, _, _ = compare(capsys, *arguments, "--epochs-per-model", 3)
    plan = json.loads(session.model_dir("fp32").plan_file.read_text())
    assert (code, plan["samples"], plan["settings"]["rounds"]) == (0, 150, 3)
    _, lines, _ = compare(capsys, *arguments)
    assert lines[:2] == ["baseline: already done", "fp32: already done"]
    _, lines, _ = compare(capsys, *arguments, "--samples-per-model", 150)
    assert "fp32: made with other settings, so it is set aside as fp32.aside-1" in lines


@pytest.mark.usefixtures("_lasts_rounds")
@pytest.mark.parametrize(("baseline", "winner"), [(3, 2), (2, 5), (2, 2)])
def test_requested_epochs_apply_even_if_they_are_a_knob(session, baseline, winner):
    """Otherwise a trial with fewer epochs would end early and count as failed."""
    text = SPACE.replace("baseline: {", f"baseline: {{rounds: {baseline}, ")
    text = text.replace("knobs: {", "knobs: {rounds: {choice: [2, 3, 5]}, ")
    space = spaces.complete(spaces.parse(text, "test"), "test")
    training = training_of(session, space, Scored())
    comparing = Comparison(session, training, ModelLength(150, epochs=3), FACTS, str)
    job = comparing._job(Contender("bf16", {**space.baseline_config, "precision": "bf16", "rounds": winner}))
    config = {**space.baseline_config, "precision": "bf16", "rounds": 3}
    assert (job.order.settings["rounds"], job.contender.config) == (3, config)


def test_existing_models_set_the_length_of_new_ones(session, capsys):
    arguments = (session.root, "--precisions", "fp32")
    compare(capsys, *arguments, "--samples-per-model", 100)
    code, lines, _ = compare(capsys, *arguments)
    assert code == 0
    assert lines[:2] == ["baseline: already done", "fp32: already done"]
    before = session.model_dir("fp32").result_file.read_bytes()
    _, lines, _ = compare(capsys, *arguments, "--samples-per-model", 150)
    assert "fp32: made with other samples, so it is set aside as fp32.aside-1" in lines
    assert session.model_dir("fp32.aside-1").result_file.read_bytes() == before
    found = results.first_models(results.runs(session.comparison.root))
    assert {label: model.samples for label, model in found.items()} == {"baseline": 150, "fp32": 150}

    for place in session.comparison.models:
        plan = json.loads(place.plan_file.read_text())
        place.plan_file.write_text(json.dumps({**plan, "torch": "0.4"}))
    _, lines, _ = compare(capsys, *arguments)
    assert "fp32: made with other samples, torch, so it is set aside as fp32.aside-2" in lines
    found = results.first_models(results.runs(session.comparison.root))
    assert {model.samples for model in found.values()} == {400}, "the length of a trial"


def test_models_of_other_conditions_do_not_set_the_length(session, compared):
    compared(samples=100)
    assert known_length(session, FACTS) == ModelLength(100)
    newer = {**FACTS, "driver": "580"}
    assert known_length(session, newer) == ModelLength(100), "facts that the model lacks are not compared"
    assert known_length(session, {**FACTS, "torch": "2.6"}) is None
    compared("fp32", samples=150)
    session.model_dir("bf16").plan_file.write_text("[]")
    assert known_length(session, FACTS) == ModelLength(150)


def test_a_labels_figures_are_of_its_first_completed_seed(session):
    done, failed = Outcome(Status.COMPLETED), Outcome(Status.FAILED, Failure.OOM)
    for seed, outcome in enumerate((failed, done, done)):
        place = session.model_dir(results.name_of("bf16", seed))
        place.root.mkdir(parents=True)
        results.RESULT.write(place.result_file, Model("bf16", {}, outcome, Measurement(), 400, seed=seed))
        place.reports_file.touch()
    found = results.load(session, Objective())
    assert results.first_models(found.models)["bf16"].seed == 1
    assert found.reports == {"bf16": session.model_dir("bf16-seed-1").reports_file}


def test_the_share_to_keep_is_the_searchs_unless_another_is_requested(session, space):
    file, goal = session.comparison.goal_file, space.objective.model_copy(update={"keep": 0.9})
    assert results.load(session, goal).goal.keep == 0.9
    results.write_keep(file, 0.98)
    found = results.load(session, goal.model_copy(update={"within": 0.1})).goal
    assert (found.keep, found.within) == (0.98, None)
    for text in ('{"keep": null}', "[]", "no JSON"):
        file.write_text(text)
        assert results.load(session, goal).goal == goal


def test_a_model_written_before_seeds_existed_has_the_first(session):
    place = session.model_dir("bf16")
    place.root.mkdir(parents=True)
    model = Model("bf16", {}, Outcome(Status.COMPLETED), Measurement(), 400, scores={"bleu_4": 0.1})
    older = asdict(model) | {"scores": {"bleu_4": 0.1, "cider": "spoilt"}}
    for name in ("seed", "items", "collapsed", "steps", "checkpoint_bytes"):
        del older[name]
    place.result_file.write_text(json.dumps(older))
    assert results.runs(session.comparison.root) == {"bf16": (model,)}


def test_a_model_whose_scores_are_damaged_is_none(session):
    place = session.model_dir("bf16")
    place.root.mkdir(parents=True)
    model = Model("bf16", {}, Outcome(Status.COMPLETED), Measurement(), 400)
    place.result_file.write_text(json.dumps(asdict(model) | {"scores": 0}))
    assert results.runs(session.comparison.root) == {}


def test_a_training_loss_is_compared_with_the_same_training_in_fp32():
    def model(label, precision, loss, seed=0, batch=8):
        config = {"micro_batch_size": batch, "precision": precision}
        summary = results.StepSummary(1, final_loss=loss)
        outcome = Outcome(Status.COMPLETED)
        return Model(label, config, outcome, Measurement(), 400, seed=seed, steps=summary)

    fp32 = model("fp32", "fp32", 2.0), model("fp32", "fp32", 4.0, seed=1)
    bf16 = model("bf16", "bf16", 2.1), model("bf16", "bf16", 3.0, seed=1)
    models = {"baseline": (model("baseline", "bf16", 9.0, batch=4),), "fp32": fp32, "bf16": bf16}
    assert results.loss_over_fp32(bf16[0], models) == pytest.approx(0.05)
    assert results.loss_over_fp32(bf16[1], models) == pytest.approx(-0.25)
    assert results.loss_over_fp32(fp32[0], models) is None
    assert results.loss_over_fp32(models["baseline"][0], models) is None


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--epochs-per-model", 2, "--samples-per-model", 100], "-model, --epochs-per-model: give only one"),
        (["--epochs-per-model", 0], "--epochs-per-model"),
        (["--seeds", 0], "--seeds"),
        (["--keep", 1.5], "--keep"),
    ],
)
def test_invalid_options_are_refused(session, capsys, options, reason):
    code, lines, err = compare(capsys, session.root, *options)
    assert (code, lines, err.count("\n")) == (2, [], 1)
    assert reason in err
    assert not session.comparison.root.exists()


def test_epochs_need_samples_per_epoch(session, capsys):
    file = session.space_file
    file.write_text(file.read_text().replace("samples_per_epoch: 50", "samples_per_epoch: null"))
    code, lines, err = compare(capsys, session.root, "--epochs-per-model", 2)
    assert (code, lines, err.count("\n")) == (2, [], 1)
    assert "--epochs-per-model: how many samples an epoch has is not known: give training.samples" in err


@pytest.mark.parametrize(
    ("precisions", "reason"),
    [
        ("fp32,bf17", "--precisions: must be one of fp32, torch-default, tf32, bf16, fp16, fp8, got 'bf17'"),
        ("", "--precisions: must be one of fp32, torch-default, tf32, bf16, fp16, fp8, got ''"),
        ("../x", "got '../x'"),
        ("fp16,fp8", "--precisions: fp16 needs a CUDA device; fp8 needs a CUDA device"),
    ],
)
def test_an_unknown_precision_is_refused(session, capsys, precisions, reason):
    code, lines, err = compare(capsys, session.root, "--precisions", precisions)
    assert (code, lines, err.count("\n")) == (2, [], 1)
    assert reason in err
    assert not session.comparison.root.exists()


def test_a_session_in_use_or_without_a_result_is_refused(session, space, tmp_path, capsys):
    with session.lock():
        code, _, err = compare(capsys, session.root)
    assert (code, "is in use by pid" in err) == (2, True)
    new = StoredSession.create(tmp_path / "new", space, Options(), {})
    assert "nothing was run yet" in compare(capsys, new.root)[2]
    del space.baseline["precision"]
    other = searched(tmp_path / "other", space)
    assert "toy_workload:fit has no setting called precision" in compare(capsys, other.root)[2]


@pytest.mark.long
def test_a_kill_loses_only_the_running_model(tmp_path, space, capsys):
    """The model in training resumes from its checkpoint; the earlier one is not trained again."""
    slow = spaces.complete(spaces.parse(SPACE.replace("0.001", "0.02"), "test"), "test")
    session = searched(tmp_path / "slow", slow)
    command = [sys.executable, "-m", "autotune", "compare", str(session.root), "--precisions", "bf16"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    records = session.model_dir("bf16").records_file
    wait_for(lambda: records.exists() and "bleu_4" in records.read_text())
    children = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    assert "baseline: training completed" in process.communicate()[0]
    assert children
    wait_for(lambda: not killing.alive(children))
    before = records.read_text()

    code, lines, _ = compare(capsys, session.root, "--precisions", "bf16")

    assert code == 0
    assert "baseline: already done" in lines
    assert records.read_text().startswith(before)
    assert attempts(session, "bf16") == 2
    assert results.first_models(results.runs(session.comparison.root))["bf16"].training.quality_samples >= 400


def score(tmp_path, program):
    return evaluate([sys.executable, "-c", program], tmp_path / "log")


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("raise SystemExit(3)", "exit code 3: it printed nothing"),
        ("import os; os.abort()", "exit code -6"),
        ("print('done')", "it printed no JSON object"),
        ("print('[1]')", "it printed no JSON object"),
    ],
)
def test_a_failed_scorer_is_reported_in_one_line(tmp_path, program, reason):
    with pytest.raises(EvaluationError, match=reason):
        score(tmp_path, program)


def test_the_numbers_that_a_scorer_prints_are_scores(tmp_path):
    found = score(tmp_path, 'print(\'{"bleu_4": 0.25, "studies": 3, "split": "x", "bad": NaN, "ok": true}\')')
    assert found == {"scores": {"bleu_4": 0.25}, "reports_per_s": None, "items": {}, "collapsed": False}


def test_a_scorer_and_its_children_end_with_the_command(tmp_path):
    pids = tmp_path / "pids"
    program = (
        "import os, subprocess, pathlib\n"
        f"child = subprocess.Popen(['sleep', '600']); place = pathlib.Path({str(pids)!r})\n"
        "new = place.with_name('new'); new.write_text(f'{os.getpid()} {child.pid}'); new.rename(place)\n"
        "child.wait()"
    )
    waiting = (
        "import sys; from pathlib import Path; from autotune.compare.compare import evaluate\n"
        f"evaluate([sys.executable, '-c', {program!r}], Path({str(tmp_path / 'log')!r}))"
    )
    process = subprocess.Popen([sys.executable, "-c", waiting])
    wait_for(pids.exists)
    started = [psutil.Process(int(pid)) for pid in pids.read_text().split()]
    process.send_signal(signal.SIGKILL)
    process.wait()
    wait_for(lambda: not killing.alive(started))
