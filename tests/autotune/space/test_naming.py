"""The translation of names and values between a user's nested settings and the tuner's flat ones."""

import itertools

import pytest
import yaml

from autotune.core.errors import InputError
from autotune.core.settings import LEARNING_RATE, MICRO_BATCH, PRECISION
from autotune.space import configurations, spaces
from autotune.space.naming import Naming, flatten, nest, text_of

NESTED = {
    "data": {"batch_size": 4, "crops": [], "root": None},
    "optim": {"lr": 0.1, "betas": [0.9, [0.95, 0.99]], "more": {}},
    "amp": "16-mixed",
}
NAMING = Naming(
    {"micro_batch_size": "data.batch_size", "learning_rate": "optim.lr", "precision": "amp"},
    {"precision": {"fp16": "16-mixed", "fp32": 32}},
)
SPACE = """
workload: other:fit
roles: {micro_batch_size: data.batch_size, learning_rate: optim.lr, precision: amp}
values: {precision: {fp16: 16-mixed, fp32: 32}, compile: {off: null, default: {mode: default, graphs: [1]}}}
baseline:
  data: {batch_size: 4}
  optim: {lr: 1e-3, slow_lr: 1e-4, betas: [0.9, 0.95]}
  amp: 32
  compile: off
  max_iters: 1000
  eval_interval: 100
knobs:
  data.batch_size: {choice: [4, 8, 16]}
  optim.lr: {scale: sqrt}
  optim.betas[1]: {uniform: [0.9, 0.99], moves: [quality]}
  amp: {choice: [32, 16-mixed]}
counted_in_steps: [max_iters]
follow_learning_rate: [optim.slow_lr]
evaluate_every: eval_interval
objective: {quality: score}
budget: {samples_per_trial: 1600, evaluations_per_trial: 4}
"""


def space(**changes):
    values = yaml.safe_load(SPACE) | changes
    return spaces.complete(spaces.from_values(values, "test"), "test")


def test_nested_settings_are_flattened_and_rebuilt():
    flat = NAMING.named(NESTED)
    assert flat == {
        "micro_batch_size": 4,
        "data.crops[]": None,
        "data.root": None,
        "learning_rate": 0.1,
        "optim.betas[0]": 0.9,
        "optim.betas[1][0]": 0.95,
        "optim.betas[1][1]": 0.99,
        "optim.more{}": None,
        "precision": "fp16",
    }
    assert NAMING.as_given(flat) == NESTED


def test_a_dot_in_a_name_separates_levels():
    given = NAMING.as_given(NAMING.named({"optim.lr": 0.2, "optim": {"b": 1}}))
    assert given == {"optim": {"lr": 0.2, "b": 1}}


@pytest.mark.parametrize(
    ("nested", "message"),
    [
        ({"a": 1, "a.b": 2}, "a is a setting itself"),
        ({"a.b": 2, "a": 1}, "a: given twice"),
        ({"": 1}, "not a path"),
        ({"a..b": 1}, "not a path"),
        ({"[0]": 1}, "not a path"),
        ({"a[]x": 1}, "not a path"),
        ({"a[1]": 2}, "every index from 0"),
        ({"a": {1: 2}}, "names must be text"),
        ({"micro_batch_size": 1, "data": {"batch_size": 2}}, "two settings have this name"),
    ],
)
def test_conflicting_paths_are_refused(nested, message):
    with pytest.raises(ValueError, match=message):
        NAMING.named(nested)


def test_nest_inverts_flatten():
    assert nest(dict(flatten(NESTED))) == NESTED


def test_roles_are_names_only_inside_the_tuner():
    made = space()
    assert made.baseline[MICRO_BATCH] == 4
    assert made.baseline[LEARNING_RATE] == 1e-3
    assert made.baseline[PRECISION] == "fp32"
    assert set(made.knobs) == {MICRO_BATCH, LEARNING_RATE, "optim.betas[1]", PRECISION}
    assert made.knobs[PRECISION].choice == ("fp32", "fp16")
    config = configurations.changed(made, made.baseline_config, {MICRO_BATCH: 16, PRECISION: "fp16"})
    assert config[LEARNING_RATE] == pytest.approx(2e-3)
    assert configurations.for_workload(made, made.settings(config)) == {
        "data": {"batch_size": 16},
        "optim": {"lr": config[LEARNING_RATE], "slow_lr": pytest.approx(2e-4), "betas": [0.9, 0.95]},
        "amp": "16-mixed",
        "compile": None,
        "max_iters": 250,
        "eval_interval": 25,
    }


@pytest.mark.parametrize("ours", ["off", "fp16", "8", 8, True, None, 0.5, "1e-3", "2026-01-01", "[1"])
def test_words_are_translated_back_to_their_values(ours):
    naming = Naming({}, {"x": {text_of(ours): "theirs"}})
    found = naming.value("x", "theirs")
    assert text_of(found) == text_of(ours)
    assert naming.as_given({"x": found}) == {"x": "theirs"}


def test_a_word_may_be_a_mapping():
    made = space()
    given = configurations.for_workload(made, {**made.baseline, "compile": "default"})
    assert given["compile"] == {"mode": "default", "graphs": [1]}


def test_the_number_of_evaluations_does_not_depend_on_the_batch():
    made = space()
    assert configurations.for_trial(made, made.baseline)["eval_interval"] == 100
    assert configurations.for_trial(made, {**made.baseline, MICRO_BATCH: 16})["eval_interval"] == 25


@pytest.mark.parametrize("micro_batch", [4, 8, 16])
def test_the_last_evaluation_is_not_before_the_end(micro_batch):
    made = space(budget={"samples_per_trial": 2018, "evaluations_per_trial": 5})
    given = configurations.for_trial(made, {**made.baseline, MICRO_BATCH: micro_batch})
    between = micro_batch * given["eval_interval"]
    assert 4 * between < 2018 <= 5 * between


def test_moves_declares_the_effects_of_a_knob():
    known = space().known
    assert "optim.betas[1]" in known.same_speed
    assert "optim.betas[1]" not in known.same_quality
    assert known[PRECISION].needs


def test_a_space_with_roles_survives_yaml():
    made = space()
    assert spaces.parse(spaces.dump(made), "test") == made
    assert spaces.to_values(made)["baseline"]["data"] == {"batch_size": 4}


def test_yaml_aliases_that_expand_to_billions_are_refused():
    lines = [f"{c}: &{c} [{', '.join([f'*{p}'] * 9)}]" for p, c in itertools.pairwise("abcdefghijk")]
    bomb = yaml.safe_load("\n".join(["a: &a [1, 2]", *lines]))
    with pytest.raises(ValueError, match="at most 10000 settings"):
        NAMING.named(bomb)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"roles": {"batch": "data.batch_size"}}, "roles: no such role 'batch'"),
        (
            {"roles": {"micro_batch_size": "data.batchsize"}},
            "no setting 'data.batchsize', did you mean data.batch_size",
        ),
        (
            {"roles": {"micro_batch_size": "data.batch_size", "learning_rate": "data.batch_size"}},
            "roles.learning_rate: data.batch_size is the micro_batch_size already",
        ),
        ({"values": {"amq": {"fp16": 1}}}, "values: the baseline has no setting 'amq'"),
        ({"counted_in_steps": ["max_iter"]}, "counted_in_steps: the baseline has no setting 'max_iter'"),
        ({"counted_in_steps": ["amp"]}, "amp is a knob"),
        ({"follow_learning_rate": ["optim.lr"]}, "optim.lr has values of its own"),
        ({"follow_learning_rate": ["optim.fast"]}, "optim.fast must be a number of the baseline"),
        ({"unit": "tokens"}, "evaluate_every: how many tokens an optimizer step has is not known"),
        ({"evaluate_every": "compile"}, "compile must be a whole number of steps"),
        (
            {"roles": {"learning_rate": "optim.lr"}, "knobs": {"optim.lr": {"scale": "sqrt"}}},
            "scale: sqrt needs the setting micro_batch_size: the baseline has none; name yours in roles",
        ),
        ({"baseline": {"a": 1, "a.b": 2}}, "baseline: a.b: a is a setting itself"),
        ({"knobs": {"x": {"choice": [1], "moves": ["colour"]}}}, "moves"),
    ],
)
def test_each_mistake_is_one_line(changes, message):
    with pytest.raises(InputError, match="search space test: ") as error:
        space(**changes)
    assert message in str(error.value)
    assert "\n" not in str(error.value)
