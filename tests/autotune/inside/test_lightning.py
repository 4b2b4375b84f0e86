"""A Lightning training without knowledge of the tuner: its overrides, its reports, its checkpoints."""

import pytest

from autotune.inside.messages import GpuLost, Reported, Step

CHECKPOINT, SAVES = "autotune.ckpt", ".saves"


@pytest.mark.parametrize("kind", ["automatic", "accumulated", "half", "manual", "stream"])
def test_every_step_is_reported_with_its_samples(fit, kind):
    heard = fit(kind)
    assert heard.said, heard.errors
    assert heard.samples == heard.said
    assert "autotune:" not in heard.errors


def test_a_training_off_the_gpu_of_its_trial_is_reported(fit):
    heard = fit("automatic", AUTOTUNE_GPUS="1.0")
    assert [kind is GpuLost for kind in heard.kinds][:3] == [True, False, False]


def test_the_results_of_a_fits_validations_are_reported(fit):
    heard = fit("logged")
    assert heard.records == [{"val/loss": found} for found in heard.said], heard.errors
    assert len(heard.said) == 2
    assert heard.kinds == [*[Step] * 3, Reported, *[Step] * 3, Reported]


@pytest.mark.parametrize(("ends", "last"), [({}, 2), ({"max_steps": 5}, 1)])
def test_a_trial_that_ends_by_itself_is_validated_at_the_end(fit, ends, last):
    """Of 6 steps, or of 5, every fourth is followed by a validation."""
    heard = fit("logged", {"trainer": {"val_check_interval": 4, "check_val_every_n_epoch": None, **ends}})
    assert heard.kinds == [*[Step] * 4, Reported, *[Step] * last, Reported], heard.errors


def test_the_older_package_name_is_watched_too(fit, tmp_path):
    heard = fit("older", {"loader": {"num_workers": 0}})
    assert heard.records == [{"val/loss": heard.said[0]}], heard.errors
    assert (tmp_path / CHECKPOINT).exists()


def test_a_trainer_takes_the_arguments_of_the_search_and_keeps_its_own(fit):
    own = [[3, "32-true", 0, True], [2, "64-true", 0, False]]
    assert fit("arguments").said == own
    heard = fit("arguments", {"trainer": {"precision": "bf16-true", "max_epoch": 9}})
    assert heard.said == [[epochs, "bf16-true", *rest] for epochs, _, *rest in own], heard.errors
    assert heard.taken == ["trainer.precision"]


def test_a_whole_training_is_unchanged(fit, tmp_path):
    usual, other = fit("arguments", AUTOTUNE_WHOLE="1").said
    assert (usual, other) == ([3, "32-true", 2, True], [2, "64-true", 2, False]), "with its sanity check"
    assert fit("built", AUTOTUNE_WHOLE="1").said
    assert list(tmp_path.glob("lightning-*/**/epoch=0-*.ckpt")), "a function's trainer keeps its model"


def test_a_stop_ends_the_script_and_the_next_run_resumes(fit, tmp_path):
    stopped = fit("goes_on", stops=True)
    steps = len(stopped.steps)
    assert (stopped.said, 1 <= steps < 6) == ([], True), stopped.errors
    heard = fit("goes_on")
    assert heard.said == [steps, steps // 3, 6, 2], heard.errors
    assert {place.name for place in tmp_path.iterdir()} == {CHECKPOINT, SAVES}


def test_a_signal_ends_it_after_its_batch(fit):
    assert len(fit("terminated").steps) == 2
    heard = fit("goes_on")
    assert heard.said == [2, 0, 6, 2], heard.errors


def test_a_signal_ends_a_validation(fit, tmp_path):
    heard = fit("terminated_in_a_validation")
    assert (len(heard.steps), heard.records) == (1, []), heard.errors
    assert not (tmp_path / CHECKPOINT).exists()


@pytest.mark.long
def test_a_run_resumed_after_a_validation_reports_it_again(fit):
    first, again = fit("goes_on"), fit("goes_on")
    assert (first.said[0], again.said[0] in {3, 6}) == (0, True), again.errors
    assert again.records[0] in first.records
    assert again.messages[0].content.record, "before any step"


def test_all_of_several_processes_save_or_none(fit):
    """A checkpoint that only some processes save waits for the others forever."""
    heard = fit("agreed")
    assert heard.said == [1, 1], heard.errors


def test_a_directory_as_a_checkpoint_replaces_the_last_one(fit, tmp_path):
    assert fit("sharded").said == [["a"], ["b"], ["c"]]
    assert [place.name for place in tmp_path.iterdir()] == [CHECKPOINT]


def test_only_the_first_rank_reports(fit):
    assert fit("automatic", RANK="1", WORLD_SIZE="2").messages == []


def test_the_seed_of_the_tuner_is_added_to_lightnings(fit):
    usual, other = (fit("seeded", AUTOTUNE_SEED=seed).said for seed in ("0", "1"))
    assert usual != other


def test_a_trainer_can_be_sent_to_another_process(fit):
    assert fit("sent").said == ["AutotuneCallback"] * 2


def test_a_command_not_declared_as_lightnings_is_left_alone(fit):
    assert fit("watched").said == ["AutotuneCallback"]
    assert fit("watched", AUTOTUNE_OVERRIDES=None).said == []


def test_what_a_function_builds_is_fitted(fit):
    heard = fit("built")
    assert heard.said == [[4, 4], [8], [8, 8]], heard.errors  # none resumes from another one's end


@pytest.mark.slow
def test_lightning_cli_takes_the_arguments_of_the_search(fit):
    overrides = {
        "trainer": {"precision": "bf16-mixed", "accumulate_grad_batches": 2},
        "loader": {"batch_size": 8},
        "optimizer": {"lr": 0.25},
    }
    for steps in ([16, 6], []):  # the second run finds the end and the config of the first
        heard = fit("command_line", overrides)
        assert heard.said == ["bf16-mixed", 0.25, steps], heard.errors
