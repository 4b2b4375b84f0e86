"""Planned lengths, in samples and in the training's own settings."""

import pytest

from autotune.core.errors import InputError
from autotune.space import configurations, lengths, spaces

BASELINE = "{micro_batch_size: 8, max_iters: 1000, warmup_iters: 50, epochs: 10, decay: 4, tokens: 8000}"


def build(length, baseline=BASELINE, more=""):
    text = f"""
workload: some.module:fit
baseline: {baseline}
knobs: {{micro_batch_size: {{choice: [4, 8, 16]}}, length: {length}}}
{more}
"""
    return spaces.complete(spaces.parse(text, "bad.yaml"), "bad.yaml")


def changes(space, **config):
    """Returns the settings given to a trial's workload that differ from the baseline."""
    given = configurations.for_trial(space, space.settings({**space.baseline_config, **config}))
    assert "length" not in given, "the workload does not know the tuner's setting"
    was = space.naming.as_given(space.baseline)
    return {name: value for name, value in given.items() if value != was[name]}


ALONE = "follows the length, so it can be neither another knob nor counted in steps"
STEPS = "{steps: [max_iters, warmup_iters]}"
EPOCHS = "{epochs: [epochs, decay]}"
OF_EPOCHS = "training: {samples_per_epoch: 100}"


def test_a_length_in_steps_is_converted_to_samples_and_back():
    space = build(STEPS)
    assert space.baseline_config == {"micro_batch_size": 8, "length": 8000}
    assert (space.budget.samples_per_trial, space.training.samples) == (8000, 8000)
    assert changes(space) == {}
    assert configurations.contains(space, space.baseline_config)


def test_half_the_length_halves_steps_and_warm_up():
    assert changes(build(STEPS), length=4000) == {"max_iters": 500, "warmup_iters": 25}


def test_a_batch_twice_as_large_takes_half_the_steps():
    space = build(STEPS)
    larger = configurations.configure(space, {"micro_batch_size": 16})
    assert larger["length"] == 8000
    assert changes(space, **larger) == {"micro_batch_size": 16, "max_iters": 500, "warmup_iters": 25}


def test_epochs_and_samples_do_not_depend_on_the_batch():
    epochs, samples = build(EPOCHS, more=OF_EPOCHS), build("{samples: [tokens]}")
    assert (epochs.baseline_config["length"], samples.baseline_config["length"]) == (1000, 8000)
    for batch in (4, 16):
        config = {"micro_batch_size": batch}
        assert changes(epochs, **config, length=500) == {**config, "epochs": 5, "decay": 2}
        assert changes(samples, **config, length=500) == {**config, "tokens": 500}


def test_scaled_counts_stay_whole_and_positive():
    space = build("{steps: [max_iters, warmup_iters, decay]}", BASELINE.replace("decay: 4", "decay: 0.3"))
    assert changes(space, length=2008) == {"max_iters": 251, "warmup_iters": 13, "decay": 0.0753}
    few = build(STEPS, BASELINE.replace("warmup_iters: 50", "warmup_iters: 1"))
    assert changes(few, length=2000) == {"max_iters": 250}, "a warm-up of one step"
    none = build(STEPS, BASELINE.replace("warmup_iters: 50", "warmup_iters: 0"))
    assert changes(none, length=16_000) == {"max_iters": 2000}, "no warm-up"


@pytest.mark.parametrize(
    ("asked", "length"), [(100, 800), (3003, 3000), (3005, 3008), (8000, 8000), (10**9, 16_000)]
)
def test_a_planned_length_has_whole_steps_within_its_bounds(asked, length):
    space = build(STEPS)
    planned = lengths.planned(space, space.baseline_config, asked)
    assert planned == length
    assert configurations.contains(space, {**space.baseline_config, "length": planned})


def test_the_share_bounds_the_length():
    space = build("{steps: [max_iters], share: [0.5, 1.0]}")
    assert [lengths.planned(space, {}, samples) for samples in (1, 10**6)] == [4000, 8000]
    assert not configurations.contains(space, {**space.baseline_config, "length": 2000})
    assert not configurations.contains(space, {**space.baseline_config, "length": 16_000})


def test_the_last_of_evenly_spaced_evaluations_is_at_the_end():
    """Also of a script that evaluates before a step, and not after its last one."""
    baseline = BASELINE.replace("decay: 4", "eval_interval: 100")
    more = "evaluate_every: eval_interval\nbudget: {evaluations_per_trial: 6}"
    space = build(STEPS, baseline, more)
    for batch in (4, 8, 16):
        length = lengths.planned(space, {"micro_batch_size": batch}, 3000)
        given = configurations.for_trial(space, space.settings({"micro_batch_size": batch, "length": length}))
        assert given["max_iters"] == length / batch
        before = [step for step in range(given["max_iters"]) if step % given["eval_interval"] == 0]
        assert len(before) == 7, "the first is before the training"
        assert before[-1] >= given["max_iters"] - 6


def test_trials_may_be_miniatures_of_the_training():
    space = build(STEPS, more="budget: {samples_per_trial: 2000}")
    assert (space.baseline_config["length"], space.training.samples) == (2000, 8000)
    assert changes(space) == {"max_iters": 250, "warmup_iters": 12}
    whole = configurations.for_workload(space, space.settings(space.baseline_config))
    assert (whole["max_iters"], whole["warmup_iters"]) == (1000, 50)
    half = configurations.for_workload(space, space.settings({"micro_batch_size": 16, "length": 1000}))
    assert (half["max_iters"], half["warmup_iters"]) == (250, 12)


@pytest.mark.parametrize(
    ("given", "samples", "epochs"), [(640, 600, 6), (660, 700, 7), (100, 100, 1), (20, 20, 1)]
)
def test_a_miniature_has_whole_epochs_or_is_a_part_of_one(given, samples, epochs):
    space = build(EPOCHS, more=f"{OF_EPOCHS}\nbudget: {{samples_per_trial: {given}}}")
    assert (space.baseline_config["length"], space.training.samples) == (samples, 1000)
    assert changes(space)["epochs"] == epochs
    assert lengths.settings(space, space.baseline_config, is_whole=True) == {"epochs": 10, "decay": 4}


def test_a_shorter_training_has_as_many_evaluations():
    """An interval longer than the training would leave it without an evaluation."""
    baseline = BASELINE.replace("{", "{every: 1000, ")
    space = build(STEPS, baseline=baseline, more="evaluate_every: every")
    length = lengths.planned(space, space.baseline_config, 4408)
    whole = configurations.for_workload(space, space.settings({**space.baseline_config, "length": length}))
    assert whole["every"] == whole["max_iters"] == length // 8
    assert configurations.for_workload(space, space.settings(space.baseline_config))["every"] == 1000


def test_endless_lengthens_a_training_beyond_its_race():
    space = build(STEPS)
    assert lengths.endless(space, {**space.baseline_config, "length": 4000}, 20)["length"] == 80_000
    unplanned = spaces.complete(
        spaces.parse("{workload: a:b, baseline: {x: 1}, knobs: {x: {choice: [1]}}}", "t"), "t"
    )
    assert lengths.endless(unplanned, {"x": 1}, 20) == {"x": 1}


@pytest.mark.parametrize(
    ("length", "line"),
    [
        (
            "{steps: [max_iter]}",
            "knob length: the baseline has no setting 'max_iter', did you mean max_iters?",
        ),
        ("{steps: [name]}", "knob length: name must be a number, got 'a'"),
        ("{steps: [flag]}", "knob length: flag must be a number, got True"),
        ("{steps: [never]}", "knob length: never must be a number, got -1"),
        ("{samples: [micro_batch_size]}", f"knob length: micro_batch_size {ALONE}"),
        ("{epochs: [epochs]}", "knob length: needs training.samples_per_epoch, the samples of an epoch"),
        (
            "{choice: [100, 200]}",
            "knob length: takes the settings that end a training, such as {steps: [max_iters]}",
        ),
        (
            "{steps: [max_iters], epochs: [epochs]}",
            "length.exactly one of steps, epochs, samples, got ['steps', 'epochs']",
        ),
        ("{steps: []}", "length.exactly one of steps, epochs, samples, got []"),
        (
            "{steps: [max_iters], share: [2, 3]}",
            "length.share: [shortest, longest] with 0 < shortest <= 1 <= longest <= 16, got [2.0, 3.0]",
        ),
    ],
)
def test_every_mistake_is_one_line(length, line):
    baseline = BASELINE.replace("}", ", name: a, flag: true, never: -1}")
    with pytest.raises(InputError) as raised:
        build(length, baseline)
    assert str(raised.value) == f"search space bad.yaml: {line}"


def test_a_setting_follows_the_length_or_counts_steps_but_not_both():
    with pytest.raises(InputError, match="warmup_iters follows the length, so it can be neither"):
        build(STEPS, more="counted_in_steps: [warmup_iters]")


def test_a_setting_called_length_conflicts_only_with_a_planned_length():
    text = "{workload: a:b, baseline: {x: 1, length: 60}, knobs: {x: {choice: [1, 2]}}}"
    space = spaces.complete(spaces.parse(text, "t"), "t")
    assert configurations.for_trial(space, space.settings({"x": 2})) == {"x": 2, "length": 60}
    with pytest.raises(InputError, match="knob length: the baseline has a setting of that name"):
        build(STEPS, BASELINE.replace("}", ", length: 60}"))


@pytest.mark.parametrize(
    ("length", "more"), [(STEPS, ""), (EPOCHS, OF_EPOCHS), ("{samples: [tokens], share: [0.5, 4]}", "")]
)
def test_a_space_with_a_length_survives_yaml(length, more):
    space = build(length, more=more)
    assert spaces.complete(spaces.parse(spaces.dump(space), "again"), "again") == space


def test_length_settings_keep_the_users_names_and_shape():
    baseline = "{micro_batch_size: 8, trainer: {max_steps: 1000, warmup: 50}}"
    space = build("{steps: [trainer.max_steps, trainer.warmup]}", baseline)
    given = configurations.for_trial(space, space.settings({**space.baseline_config, "length": 4000}))
    assert given["trainer"] == {"max_steps": 500, "warmup": 25}
    text = spaces.dump(space)
    assert "  - trainer.max_steps\n" in text.replace("    - ", "  - ")
    assert spaces.complete(spaces.parse(text, "again"), "again") == space
