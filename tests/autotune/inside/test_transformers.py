"""A script with Transformers' Trainer, TRL's or Accelerate is tuned unmodified."""

import itertools
import json

import pytest

from autotune.inside.messages import GpuLost, Reported, ScriptError
from autotune.inside.site import autotune_wire as wire
from tests.autotune.inside.heard import contents

ROWS = 45
PRECISION = ["bf16", "fp16", "tf32"]


def told(heard):
    """Returns the names of the settings that were applied."""
    return set(heard.taken)


@pytest.mark.parametrize("kind", ["plain", "evaluated", "accumulated", "workers", "grouped", "streamed"])
def test_every_batch_counts_once_and_padding_is_no_token(hear_trainer, kind):
    heard = hear_trainer(kind)
    tokens = [step.tokens for step in heard.steps]
    assert heard.said, heard.errors
    assert len(tokens) == len(heard.said)
    if kind != "streamed":  # the streamed one ends within an epoch
        assert (sum(heard.samples), sum(tokens)) == (2 * ROWS, heard.said[-1])
    # A prefetched batch may be counted with the previous step.
    most = max(b - a for a, b in itertools.pairwise([0, *heard.said]))
    assert all(abs(a - b) <= most for a, b in zip(itertools.accumulate(tokens), heard.said, strict=True))


def test_a_training_off_the_gpu_of_its_trial_is_reported(hear_trainer):
    heard = hear_trainer("plain", AUTOTUNE_GPUS="1.0")
    assert [kind is GpuLost for kind in heard.kinds][:3] == [True, False, False]


def test_settings_replace_a_scripts_arguments_however_they_are_created(hear_trainer):
    given = {"precision": "bf16", "max_grad_norm": 2.0, "gradient_checkpointing": True, "optim": "adafactor"}
    names = [*PRECISION, "max_grad_norm", "activation_checkpointing", "gradient_checkpointing", "optim"]
    heard = hear_trainer("arguments", {"trainer": given}, NAMES=json.dumps(names))
    assert heard.said, heard.errors
    assert [list(one.values()) for one in heard.said] == [
        [True, False, None, 2.0, True, True, "adafactor"]
    ] * 3
    assert told(heard) == {f"trainer.{name}" for name in given}


@pytest.mark.parametrize(
    ("precision", "become"),
    [
        ("fp32", [False, False, False]),
        ("torch-default", [False, False, None]),
        ("fp16", [False, True, None]),
        ("bf16", [True, False, None]),
    ],
)
def test_a_precision_is_one_name_for_several_arguments(hear_trainer, precision, become):
    heard = hear_trainer("arguments", {"trainer": {"precision": precision}}, NAMES=json.dumps(PRECISION))
    assert [list(one.values()) for one in heard.said] == [become] * 3, heard.errors


def test_a_precision_that_the_trainer_does_not_have_ends_it(hear_trainer):
    heard = hear_trainer("arguments", {"trainer": {"precision": "fp8"}}, NAMES="[]")
    [error] = contents(heard.messages, ScriptError)
    assert error.message.startswith("trainer.precision: must be one of fp32, ")
    assert error.message.endswith("got 'fp8'")


def test_a_trial_saves_and_logs_only_in_its_directory_and_keeps_its_batch_size(hear_trainer, tmp_path):
    names = ["output_dir", "save_strategy", "report_to", "auto_find_batch_size", "eval_strategy", "bf16"]
    overrides = {"trainer": {"precision": "fp32"}, wire.IN_TRIAL: {"evaluate_every": 100}}
    for one in hear_trainer("arguments", overrides, NAMES=json.dumps(names)).said:
        assert list(one.values()) == [str(tmp_path / "work0"), "no", [], False, "steps", False]
    exported = hear_trainer("arguments", overrides, NAMES=json.dumps(names), **{wire.SOCKET: None})
    assert [list(one.values()) for one in exported.said[:2]] == [["own", "steps", [], False, "no", False]] * 2


def test_a_whole_training_keeps_its_arguments_except_the_directory(hear_trainer, tmp_path):
    names = ["output_dir", "save_strategy", "save_total_limit", "eval_strategy", "push_to_hub"]
    heard = hear_trainer("arguments", {}, NAMES=json.dumps(names), **{wire.WHOLE: "1"})
    assert [list(one.values()) for one in heard.said] == [
        [str(tmp_path / "work0"), "steps", None, "no", False]
    ] * 3, heard.errors


@pytest.mark.parametrize(("strategy", "count"), [("epoch", 2), ("steps", 1), ("no", 1)])
def test_a_whole_training_keeps_its_own_checkpoints_or_else_the_newest(
    hear_trainer, tmp_path, strategy, count
):
    given = {"trainer": {"save_strategy": strategy, "eval_strategy": "epoch"}}
    assert hear_trainer("plain", given, **{wire.WHOLE: "1"}).said
    assert len(list((tmp_path / "work0").glob("checkpoint-*"))) == count


def test_unknown_arguments_are_not_applied(hear_trainer):
    heard = hear_trainer("plain", {"trainer": {"max_steps": 1, "max_lenght": 1, "packing": True}})
    assert told(heard) == {"trainer.max_steps"}
    assert len(heard.said) == 1


@pytest.mark.long
def test_a_model_gets_the_requested_attention(hear_trainer):
    heard = hear_trainer("attention", {"model": {"attn_implementation": "eager"}})
    assert heard.said == ["eager"]
    assert told(heard) == {"model.attn_implementation"}
    assert hear_trainer("attention").said == ["sdpa"]


@pytest.mark.slow
def test_settings_of_trl_are_applied_like_others(hear_trainer):
    heard = hear_trainer("packed", {"trainer": {"packing": True, "max_length": 32}})
    assert heard.said, heard.errors
    packing, length, *tokens = heard.said
    assert (packing, length) == (True, 32)
    assert sum(step.tokens for step in heard.steps) >= tokens[-1] > 0


@pytest.mark.slow
def test_an_evaluation_is_reported_when_due_and_several_data_sets_are_one(hear_trainer):
    overrides, at_the_end = {wire.IN_TRIAL: {"evaluate_every": 20}}, 1  # Transformers' own evaluation
    found = hear_trainer("two_evaluations", overrides).records
    assert len(found) == 2 * ROWS // 20 + at_the_end
    assert all({"eval_a_loss", "eval_b_loss"} <= record.keys() for record in found)
    overrides, tokens = {wire.IN_TRIAL: {"evaluate_every": 200}}, hear_trainer("plain").said[-1]
    found = hear_trainer("two_evaluations", overrides, **{wire.UNIT: "tokens"}).records
    assert len(found) == tokens // 200 + at_the_end


def test_a_trainer_that_evaluates_by_itself_is_heard_once_for_each_evaluation(hear_trainer):
    assert [record["eval_f1"] for record in hear_trainer("answering").records] == [0.5, 0.5]


def test_a_loop_with_accelerate_is_reported_and_has_its_settings(hear_trainer):
    overrides = {"accelerator": {"gradient_accumulation_steps": 3, "mixed_precision": "bf16"}}
    heard = hear_trainer("accelerated", overrides, ACCELERATE_GRADIENT_ACCUMULATION_STEPS="2")
    assert heard.said, heard.errors
    precision, *seen = heard.said
    assert precision == "bf16"
    assert len(seen) == 4, "of six batches an epoch, whatever the launcher has put into the environment"
    assert list(itertools.accumulate(heard.samples)) == seen
    assert told(heard) == {"accelerator.gradient_accumulation_steps", "accelerator.mixed_precision"}
    assert [list(record) for record in heard.records] == [["eval_loss"]] * 2


@pytest.mark.slow
def test_a_stopped_trial_saves_at_the_end_of_its_step_and_resumes_there(hear_trainer, tmp_path):
    overrides, work = {wire.IN_TRIAL: {"evaluate_every": 8}}, tmp_path / "work0"
    stopped = hear_trainer("ended", overrides)
    assert (stopped.said, stopped.samples, stopped.records) == ([], [4, 4], []), stopped.errors
    assert (work / "checkpoint-2" / "trainer_state.json").exists()
    (work / "checkpoint-9").mkdir()  # from a run that was killed while saving
    resumed = hear_trainer("plain", overrides, **{wire.BEGUN: '{"samples": 8}', wire.WORKDIR: str(work)})
    assert sum(resumed.samples) == 2 * ROWS - 8, resumed.errors
    assert resumed.kinds[0] is Reported
    assert "eval_loss" in resumed.records[0], "the evaluation for which there was no time is made first"


def test_only_the_first_training_of_a_script_resumes_from_a_checkpoint(hear_trainer, tmp_path):
    heard = hear_trainer("twice", {wire.IN_TRIAL: {"evaluate_every": 8}})
    assert heard.said == [0, 0], heard.errors
    assert list((tmp_path / "work0").glob("checkpoint-*")), "the first has left one"


def test_what_a_function_builds_is_trained_and_saved(hear_trainer):
    assert "model.safetensors" in hear_trainer("built").said
