"""How long a training is planned to be, in samples here and in its own settings outside."""

import pytest

from autotune.core.errors import InputError
from autotune.space import lengths
from autotune.space import space as spaces
from tests.autotune.conftest import SCHEDULED


def made(text):
    return spaces.complete(spaces.parse(text, "made"), "made")


def test_a_trial_of_the_baseline_is_its_own_training(scheduled):
    assert scheduled.baseline_config["length"] == 24_000
    assert scheduled.training.samples == 24_000
    given = scheduled.for_trial(scheduled.settings(scheduled.baseline_config))
    assert (given["max_iters"], given["warmup"], given["every"]) == (2000, 100, 500)
    assert "length" not in given, "the workload knows it by its own settings"


def test_a_batch_twice_as_large_takes_half_the_steps_and_the_warm_up_follows(scheduled):
    config = scheduled.config({**scheduled.drawn(scheduled.baseline_config), "micro_batch_size": 24})
    given = scheduled.for_trial(scheduled.settings(config))
    assert (config["length"], given["max_iters"], given["warmup"], given["every"]) == (24_000, 1000, 50, 250)
    half = scheduled.for_trial(scheduled.settings({**config, "length": 12_000}))
    assert (half["max_iters"], half["warmup"], half["every"]) == (500, 25, 125)


def test_a_length_is_of_whole_steps_and_ends_with_an_evaluation(scheduled):
    config = {**scheduled.baseline_config, "micro_batch_size": 24}
    assert lengths.planned(scheduled, config, 16_050) == 16_032, "4 evaluations, each after 167 steps of 24"
    given = scheduled.for_trial(scheduled.settings({**config, "length": 16_032}))
    assert given["max_iters"] == 4 * given["every"] == 668


def test_a_length_lies_within_its_share_of_the_baselines(scheduled):
    config = scheduled.baseline_config
    assert lengths.planned(scheduled, config, 1) == 6_000
    assert lengths.planned(scheduled, config, 10**9) == 48_000
    for length, is_within in ((6_000, True), (48_000, True), (5_000, False), (50_000, False), (None, False)):
        assert lengths.is_within(scheduled, {**config, "length": length}) is is_within
    assert scheduled.contains({**config, "length": 12_000})
    assert not scheduled.contains({**config, "length": 1_000})


def test_epochs_take_what_an_epoch_has(scheduled):
    text = SCHEDULED.replace("max_iters: 2000, warmup: 100", "epochs: 8, decay_epochs: 6")
    text = text.replace("{steps: [max_iters, warmup]}", "{epochs: [epochs, decay_epochs]}")
    of = made(text + "training: {samples_per_epoch: 500}\n")
    assert of.baseline_config["length"] == 4_000
    config = {**of.baseline_config, "length": lengths.planned(of, of.baseline_config, 2_100)}
    given = of.for_trial(of.settings(config))
    assert (config["length"], given["epochs"], given["decay_epochs"]) == (2_000, 4, 3)
    with pytest.raises(InputError, match="samples_per_epoch has to say how many samples an epoch has"):
        made(text)


def test_samples_are_taken_as_they_are():
    text = SCHEDULED.replace("max_iters: 2000", "images: 9000").replace(
        "{steps: [max_iters, warmup]}", "{samples: [images]}"
    )
    of = made(text)
    assert of.for_trial(of.settings({**of.baseline_config, "length": 4_500}))["images"] == 4_500


def test_what_a_miniature_has_found_is_the_same_share_of_the_whole_training():
    of = made(SCHEDULED.replace("trials: 20", "trials: 20, samples_per_trial: 2400"))
    config = {**of.baseline_config, "length": 1_200}
    assert of.for_trial(of.settings(config))["max_iters"] == 100
    assert of.for_workload(of.settings(config))["max_iters"] == 1000
    assert of.for_workload(of.settings(of.baseline_config))["max_iters"] == 2000


def test_in_a_race_no_training_comes_to_its_end(scheduled):
    config = scheduled.baseline_config
    assert lengths.endless(scheduled, config, 20)["length"] == 480_000
    without = made(SCHEDULED.replace("  length: {steps: [max_iters, warmup]}\n", ""))
    assert lengths.endless(without, without.baseline_config, 20) == without.baseline_config


def test_a_space_is_read_back_as_it_was_written_with_its_own_names():
    text = SCHEDULED.replace("knobs:", "roles: {num_workers: loader.workers}\nknobs:")
    text = text.replace("num_workers: 0", "loader: {workers: 0}")
    of = made(text)
    assert made(spaces.dump(of)) == of


@pytest.mark.parametrize(
    ("length", "why_not"),
    [
        (
            "{steps: [max_iter]}",
            "knob length: the baseline has no setting 'max_iter': did you mean max_iters?",
        ),
        ("{steps: [max_iters], epochs: [every]}", "exactly one of steps, epochs, samples"),
        (
            "{steps: [learning_rate]}",
            "knob length: learning_rate follows the length: it can be no other knob",
        ),
        (
            "{choice: [1, 2]}",
            "knob length: settings that say how long a training is, such as {steps: [max_iters]}",
        ),
        (
            "{steps: [max_iters], share: [2, 4]}",
            "share: [shortest, longest] with 0 < shortest <= 1 <= longest",
        ),
    ],
)
def test_what_is_wrong_with_a_length_is_one_clear_line(length, why_not):
    with pytest.raises(InputError) as error:
        made(SCHEDULED.replace("{steps: [max_iters, warmup]}", length))
    assert why_not in str(error.value)
    assert "\n" not in str(error.value)
