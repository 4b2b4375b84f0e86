import sys
from pathlib import Path

import pytest

from autotune.core.errors import InputError
from autotune.sessions import prepare, start
from autotune.sessions.requests import SearchRequest
from autotune.space import checks, configurations, spaces
from autotune.space.builtin import space_file, space_for, spaces_dir
from autotune.space.knobs import Distribution
from autotune.space.sections import Training
from autotune.storage import provenance, studies
from autotune.storage.store import Options, StoredSession
from autotune.system.nvml import Gpu
from autotune.system.telemetry import Hardware
from autotune.workloads import registry
from autotune.workloads.base import Workload
from r2gen import synthetic
from r2gen.__main__ import _parser

CPU = Hardware(2, 2**34, (), None)


def gpu(memory_gib, capability=(9, 0), count=1):
    one = Gpu("Test GPU", int(memory_gib * 2**30), capability, "GPU-0")
    return Hardware(16, 2**36, (one,) * count, "999")


@pytest.mark.parametrize(
    ("hardware", "name"), [(CPU, "cpu"), (gpu(8), "laptop-8gb"), (gpu(24), "gpu"), (gpu(141), "gpu")]
)
def test_the_space_is_chosen_by_the_machine(hardware, name):
    assert space_for(hardware).stem == name


@pytest.mark.parametrize(("hardware", "name"), [(CPU, "cpu"), (gpu(8), "gpu-small"), (gpu(80), "gpu-small")])
def test_the_model_for_synthetic_data_is_small(hardware, name):
    assert space_for(hardware, drawn=True).stem == name
    small = registry.load("r2gen").models["small"]
    baseline = prepare.read_space(space_file(name), {}).baseline
    assert baseline.items() & small.items() == {(k, v) for k, v in small.items() if k in baseline}
    assert baseline["d_model"] == 64


@pytest.mark.parametrize(
    ("tuned", "is_demonstration"),
    [
        (SearchRequest(), True),
        (SearchRequest(model="small"), True),
        (SearchRequest(model="full"), False),
        (SearchRequest(data=Path("d")), False),
        (SearchRequest(baseline=Path("b")), False),
        (SearchRequest(space="gpu"), False),
    ],
)
def test_a_demonstration_names_the_options_for_the_published_model(tuned, is_demonstration):
    assert start.given_space(tuned, gpu(80)).stem == ("gpu-small" if is_demonstration else "gpu")
    assert bool(start._demonstration(tuned, gpu(80))) is is_demonstration
    assert start._demonstration(tuned, CPU) == []


@pytest.mark.parametrize(
    ("name", "hardware"),
    [
        ("cpu", CPU),
        ("laptop-8gb", gpu(8, (8, 6))),
        ("gpu", gpu(80)),
        ("gpu", gpu(24, (7, 5))),
        ("gpu-small", gpu(8)),
    ],
)
def test_every_space_that_ships_is_complete_for_its_machine(name, hardware, tmp_path):
    data = synthetic.make(tmp_path, {"train": 1, "val": 1, "test": 1}, seed=0, size=32)
    file = space_file(name)
    space = prepare.read_space(file, {})
    here = prepare.machine(hardware)
    whole, _ = prepare.complete(space, {"data": str(data)}, registry.load("r2gen"), here, str(file))
    assert whole.baseline["weight_decay"] == 5e-5, "the trainer's defaults are filled in"
    assert whole.knobs
    assert {f.stem for f in spaces_dir().glob("*.yaml")} == {"cpu", "gpu", "gpu-small", "laptop-8gb"}


R2GEN = """
workload: r2gen
baseline: {micro_batch_size: 4, learning_rate: 1e-3}
knobs: {%s}
"""


@pytest.fixture
def complete(tmp_path):
    """Completes a space with the given knobs for R2Gen on a CPU."""
    data = synthetic.make(tmp_path / "data", {"train": 1, "val": 1, "test": 1}, seed=0, size=32)

    def call(knobs):
        (tmp_path / "space.yaml").write_text(R2GEN % knobs)
        space = prepare.read_space(tmp_path / "space.yaml", {})
        here = prepare.machine(CPU)
        return prepare.complete(space, {"data": str(data)}, registry.load("r2gen"), here, "space.yaml")[0]

    return call


@pytest.mark.parametrize(
    ("knobs", "parts"),
    [
        ("micro_batch_size: {choice: [a, 4]}", ["knob micro_batch_size", "'a'", "valid integer"]),
        ("num_workers: {choice: [two, 2]}", ["knob num_workers", "'two'"]),
        ("precision: {choice: [fp32, fp31]}", ["knob precision", "'fp31'", "'bf16'"]),
        ("dropout: {uniform: [0.0, 1.5]}", ["knob dropout", "1.5"]),
        ("micro_batch_size: {randint: [0, 8]}", ["knob micro_batch_size", "got 0"]),
        ("batch_size: {choice: [1, 2]}", ["knob batch_size", "no such setting"]),
        (
            "num_heads: {choice: [7, 8]}, compile: {choice: [on]}",
            ["num_heads must divide d_model", "knob compile"],
        ),
    ],
)
def test_a_value_that_the_trainer_rejects_is_refused_before_the_search(complete, knobs, parts):
    with pytest.raises(InputError) as raised:
        complete(knobs)
    for part in ["search space space.yaml: ", *parts]:
        assert part in str(raised.value)


def test_a_space_with_planned_lengths_has_a_note_on_its_trials():
    text = """
workload: json:loads
baseline: {micro_batch_size: 8, eval_interval: 1}
knobs: {micro_batch_size: {choice: [8, 16]}}
evaluate_every: eval_interval
objective: {minimize: val_loss}
budget: {samples_per_trial: 2000, evaluations_per_trial: 4}
"""
    machine = prepare.machine(CPU)
    space, notes = prepare.complete(spaces.parse(text, "test"), {}, Workload("json:loads"), machine, "test")
    assert notes == [
        "a trial of the baseline: 250 steps of 8 samples, an evaluation every 63 (eval_interval)"
    ]
    assert configurations.for_trial(space, space.baseline)["eval_interval"] == 63


def test_each_process_of_a_launcher_has_a_micro_batch(tmp_path):
    text = f"""
workload:
  kind: command
  run: python -m torch.distributed.run --nproc_per_node 2 train.py {{batch}} {{every}}
  directory: {tmp_path}
  quality: {{acc: 'acc (.*)'}}
roles: {{micro_batch_size: batch}}
baseline: {{batch: 8, every: 1}}
knobs: {{batch: {{choice: [8, 16]}}}}
limits: {{effective_batch_size: [32, 32]}}
evaluate_every: every
objective: {{quality: acc}}
budget: {{samples_per_trial: 2000, evaluations_per_trial: 4}}
"""
    asked = spaces.parse(text, "test")
    space, notes = prepare.complete(asked, {}, registry.load(asked.workload), prepare.machine(CPU), "test")
    assert notes == ["a trial of the baseline: 125 steps of 16 samples, an evaluation every 32 (every)"]
    assert configurations.for_trial(space, space.baseline)["every"] == 32


def test_values_are_searched_as_the_trainer_converts_them(complete):
    assert complete('num_workers: {choice: ["0", 2]}').knobs["num_workers"].choice == (0, 2)


@pytest.mark.parametrize("knob", ["max_seq_length", "min_word_count"])
def test_a_knob_that_changes_the_references_needs_a_score_over_full_ones(complete, knob):
    with pytest.raises(InputError, match=f"knob {knob}: changes the references of bleu_4.*full_bleu_4"):
        complete(f"{knob}: {{choice: [4, 60]}}")
    registry.load("r2gen").require_comparable([knob], "full_bleu_4")


@pytest.mark.parametrize(("quality", "says"), [("bleu4", "did you mean bleu_4"), ("accuracy", "'accuracy'$")])
def test_a_quality_that_nothing_measures_is_refused_before_the_search(quality, says):
    with pytest.raises(InputError, match=f"^objective.quality: bleu_1 to bleu_4, .*, got .*{says}"):
        registry.load("r2gen").require_comparable([], quality)


@pytest.mark.parametrize(
    ("quality", "minimize", "says"),
    [("val_loss", False, "'val_loss'"), ("bleu_4", True, "minimize: 'bleu_4'")],
)
def test_a_loss_is_minimized_and_a_score_is_not(quality, minimize, says):
    r2gen = registry.load("r2gen")
    r2gen.require_comparable(["micro_batch_size"], "val_loss", minimize=True)
    with pytest.raises(InputError, match=f"or objective.minimize: val_loss, got {says}$"):
        r2gen.require_comparable([], quality, minimize=minimize)


@pytest.mark.parametrize("knob", ["cut_reports", "max_seq_length", "min_word_count"])
def test_a_knob_that_moves_the_targets_moves_the_loss(knob):
    with pytest.raises(InputError, match=f"^knob {knob}: changes the references of val_loss"):
        registry.load("r2gen").require_comparable([knob], "val_loss", minimize=True)


def test_r2gen_trains_on_one_gpu():
    registry.load("r2gen").require_gpus(0.5)
    with pytest.raises(InputError, match="one GPU, or a part of one, got 2"):
        registry.load("r2gen").require_gpus(2)


def test_an_override_is_checked_like_the_file(tmp_path):
    with pytest.raises(InputError, match=r"budget\.trials"):
        prepare.read_space(space_file("cpu"), {"budget": {"trials": 0}})
    assert prepare.read_space(space_file("cpu"), {"budget": {"trials": 3, "time": None}}).budget.trials == 3


def test_only_a_comparable_session_can_warm_start(tmp_path, space):
    workload = Workload("json:loads")
    now = provenance.collect("s", space, workload, CPU, 0)
    earlier = StoredSession.create(tmp_path / "earlier", space, Options(), now)
    with pytest.raises(InputError, match="nothing was run"):
        prepare.warm_start(earlier, now, ())
    studies.open_study(earlier.study_file, space)
    assert prepare.warm_start(earlier, now, ()) == []
    rule = (
        "--warm-start .*earlier: must be of the same workload, settings, data and hardware: hardware no GPU"
    )
    with pytest.raises(InputError, match=rule) as raised:
        prepare.warm_start(earlier, {**now, "hardware": "two GPUs"}, ())
    assert "\n" not in str(raised.value)


def test_a_trial_computes_only_the_requested_score():
    r2gen = registry.load("r2gen")
    fails = {"halve_on_oom": False}  # an out-of-memory must end the trial
    assert r2gen.for_trial({}, 1000, 4, "bleu_4") == {"eval_every_samples": 250, "meteor": False} | fails
    assert r2gen.for_trial({}, 1001, 4, "meteor") == {"eval_every_samples": 251, "meteor": True} | fails


def test_a_repeat_has_a_seed_of_its_own():
    r2gen = registry.load("r2gen")
    assert [r2gen.with_seed({"seed": 7}, n)["seed"] for n in (0, 1, 2)] == [7, 8, 9]


def test_a_whole_training_has_every_study_once_an_epoch(tmp_path):
    r2gen = registry.load("r2gen")
    data = synthetic.make(tmp_path, {"train": 5, "val": 1, "test": 1}, seed=0, size=32)
    settings = r2gen.complete({"data": str(data), "epochs": 30})
    assert r2gen.training_samples(settings) == 150
    assert r2gen.samples_per_epoch(settings) == 5
    assert r2gen.training_samples({**settings, "epochs": 300}) == 1500
    next((data / "images").glob("train-*/0.png")).unlink()
    assert r2gen.training_samples({**settings, "skip_bad_samples": True}) == 120
    with pytest.raises(InputError, match="skip_bad_samples leaves them out"):
        r2gen.training_samples(settings)
    assert Workload("json:loads").training_samples({"epochs": 30}) is None


def test_a_checkpoint_is_scored_by_the_trainers_own_command(tmp_path):
    command = registry.load("r2gen").program.evaluate(tmp_path, {"data": "d"}, tmp_path / "reports.jsonl")
    given = vars(_parser().parse_args(command[3:]))
    assert command[:3] == [sys.executable, "-m", "r2gen"]
    assert (given["checkpoint"], given["data"]) == (tmp_path / "best.pt", Path("d"))
    assert (given["split"], given["reports"]) == ("test", tmp_path / "reports.jsonl")
    assert Workload("json:loads").program is None


def test_a_model_has_the_name_that_its_workload_gives_it(space):
    r2gen, other = registry.load("r2gen"), Workload("json:loads")
    given = prepare.settings(r2gen, space, "small", None, Path("d"))
    assert (given["d_model"], given["data"]) == (64, "d")
    with pytest.raises(InputError, match="--model: must be one of full, small, got 'huge'"):
        prepare.settings(r2gen, space, "huge", None, None)
    with pytest.raises(InputError, match="--model: json:loads has no models to choose from, got 'small'"):
        prepare.settings(other, space, "small", None, None)


def test_the_revision_is_that_of_the_code():
    assert registry.load("r2gen").revision() == registry.load("r2gen").revision()
    assert registry.load("r2gen").revision() != Workload("autotune.cli.app:app").revision()


class Known(Workload):
    """Knows how long its training and an epoch are."""

    def __init__(self, training_samples, samples_per_epoch=None):
        super().__init__("json:loads")
        self._lengths = training_samples, samples_per_epoch

    def training_samples(self, settings):
        return self._lengths[0]

    def samples_per_epoch(self, settings):
        return self._lengths[1]


@pytest.mark.parametrize(
    ("training_samples", "most", "evaluations"), [(None, 4000, 16), (7000, 7000, 28), (500, 1000, 4)]
)
def test_an_open_ended_trial_is_at_most_the_whole_training_or_a_multiple_of_its_samples(
    space, training_samples, most, evaluations
):
    workload = Known(training_samples)
    for until_learnt, expected in ((True, (most, evaluations)), (False, (1000, 4))):
        changes = {"samples_per_trial": 1000, "evaluations_per_trial": 4, "until_learnt": until_learnt}
        asked = space.model_copy(update={"budget": space.budget.model_copy(update=changes)})
        whole, _ = prepare.complete(asked, {}, workload, prepare.machine(CPU), "test")
        assert (whole.budget.samples_per_trial, whole.budget.evaluations_per_trial) == expected


def test_the_training_section_takes_precedence_over_the_workload(space):
    workload = Known(7000, 500)
    for said, known in ((Training(), (7000, 500)), (Training(samples=9, samples_per_epoch=3), (9, 3))):
        asked = space.model_copy(update={"training": said})
        whole, _ = prepare.complete(asked, {}, workload, prepare.machine(CPU), "test")
        assert (whole.training.samples, whole.training.samples_per_epoch) == known


def test_a_note_says_that_a_knob_of_the_evaluation_interval_cannot_win(space):
    every = {"eval_every_samples": Distribution(choice=(500, 1000))}
    asked = space.model_copy(
        update={"knobs": every, "baseline": {**space.baseline, "eval_every_samples": 500}}
    )
    told = f"knob eval_every_samples: {checks.UNCOUNTED}"
    assert prepare._uncounted(asked) == [told]
    wall = asked.objective.model_copy(update={"speed": "wall"})
    assert prepare._uncounted(asked.model_copy(update={"objective": wall})) == []
    assert prepare._uncounted(space) == []


def test_speed_with_evaluations_needs_the_trainings_own_interval(space):
    wall = space.objective.model_copy(update={"speed": "wall"})
    asked = space.model_copy(update={"objective": wall})
    with pytest.raises(InputError, match="give eval_every_samples in the baseline, or training"):
        prepare._uncounted(asked)
    assert prepare._uncounted(asked.model_copy(update={"training": Training(samples_per_epoch=9)})) == []
    [note] = prepare._uncounted(asked.model_copy(update={"workload": "json:loads"}))
    assert "so as often as a trial; training.samples_per_evaluation would say it" in note


@pytest.mark.parametrize(("said", "given"), [("keep: 0.98", {"within": 0.1}), ("within: 0.2", {"keep": 0.9})])
def test_an_option_replaces_keep_or_within_of_a_search_space(tmp_path, said, given):
    file = tmp_path / "space.yaml"
    file.write_text(
        "workload: json:loads\nbaseline: {seed: 1}\nknobs: {seed: {choice: [1, 2]}}\n"
        f"objective: {{minimize: val_loss, {said}}}"
    )
    objective = prepare.read_space(file, {"objective": {"keep": None, "within": None, **given}}).objective
    assert {"keep": objective.keep, "within": objective.within} == {"keep": None, "within": None, **given}


@pytest.mark.parametrize("given", ["width: {}", "width: []", "width: {a: 1}"])
def test_settings_that_conflict_with_the_space_are_refused(tmp_path, given):
    """A file with the user's settings may hold a section where the space's baseline has a value."""
    values = "{micro_batch_size: 4, width: 3}"
    (tmp_path / "space.yaml").write_text(
        f"workload: json:loads\nbaseline: {values}\nknobs: {{micro_batch_size: {{choice: [4, 8]}}}}\n"
        "objective: {quality: score}\n"
    )
    (tmp_path / "mine.yaml").write_text(given)
    space = prepare.read_space(tmp_path / "space.yaml", {})
    mine = prepare.settings_file(tmp_path / "mine.yaml", "--baseline")
    with pytest.raises(InputError, match=r"baseline: width.*(given twice|is a setting itself)"):
        prepare.whole_baseline(space, mine, registry.load("json:loads"))


def test_values_that_the_workload_takes_as_one_are_refused(tmp_path):
    """The trainer's settings have types: it takes the text "yes" as the switch, like the value beside it."""
    (tmp_path / "space.yaml").write_text(
        "workload: r2gen\nbaseline: {micro_batch_size: 4}\nknobs: {compile: {choice: [a, b]}}\n"
    )

    class Converting(Workload):
        def complete(self, settings):
            return {**settings, "compile": True}

    space = prepare.read_space(tmp_path / "space.yaml", {})
    with pytest.raises(InputError, match="knob compile: the workload takes several of its values as one"):
        prepare._as_taken(space, space.baseline, Converting("json:loads"), "given")


def test_the_trainers_own_file_of_damaged_settings_is_refused():
    with pytest.raises(InputError, match="skip_bad_samples"):
        registry.load("r2gen").own_file.text({"skip_bad_samples": -1})
