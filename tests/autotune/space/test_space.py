import math
import re

import pytest
import yaml

from autotune.core.errors import InputError
from autotune.space import sections, spaces
from autotune.space.knobs import Distribution
from tests.autotune.conftest import SPACE


def test_a_space_survives_yaml(space):
    assert spaces.parse(spaces.dump(space), "again") == space


def test_a_float_without_a_point_is_a_number(space):
    assert space.baseline["learning_rate"] == 1e-4


def test_the_learning_rate_grows_with_the_square_root_of_the_effective_batch(space):
    config = {"micro_batch_size": 32, "accumulation_steps": 2}
    assert space.learning_rate(config, 1.0) == pytest.approx(1e-4 * math.sqrt(64 / 16))
    assert space.learning_rate(config, 0.5) == pytest.approx(0.5e-4 * math.sqrt(64 / 16))
    assert space.learning_rate({}, 1.0) == pytest.approx(1e-4)


def test_a_violation_names_the_limits(space):
    assert space.violation({"micro_batch_size": 64, "accumulation_steps": 2}) is None
    assert "256 is outside [8, 128]" in space.violation({"micro_batch_size": 64, "accumulation_steps": 4})


def test_all_mistakes_are_reported_at_once():
    text = """
    workload: r2gen
    baseline: {micro_batch_size: 16}
    knobs: {a: {choice: []}, b: {uniform: [2, 1]}, c: 3, d: {chioce: [1]}, e: {choice: [1], uniform: [0, 1]}}
    budget: {trials: -1, time: soon}
    limits: {effective_batch_size: [9, 3]}
    objective: {keep: 2}
    surprise: 1
    """
    with pytest.raises(InputError) as raised:
        spaces.parse(text, "bad.yaml")
    message = str(raised.value)
    assert "\n" not in message
    for part in ("bad.yaml", "budget.trials", "'soon'", "[9, 3]", "objective.keep", "surprise: no such key"):
        assert part in message


@pytest.mark.parametrize(
    ("knob", "part"),
    [
        ("{choice: []}", "at least 1 item"),
        ("{uniform: [2, 1]}", "lower bound must be below"),
        ("{loguniform: [0, 1]}", "above 0"),
        ("3", "a distribution such as"),
        ("{chioce: [1]}", "no such key"),
        ("{choice: [1, 1]}", "must differ"),
        ("{scale: cube}", "sqrt"),
    ],
)
def test_an_invalid_knob_is_named(knob, part):
    text = f"workload: r2gen\nbaseline: {{x: 1}}\nknobs: {{x: {knob}}}"
    with pytest.raises(InputError, match=f"x.*{part}"):
        spaces.parse(text, "bad.yaml")


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        ("budget: {trails: 3}", "budget.trails: no such key, did you mean trials?"),
        ("limits: {memory: 1}", "limits.memory: no such key: one of effective_batch_size, memory_fraction"),
        ("objective: {qualty: x}", "objective.qualty: no such key, did you mean quality?"),
        ("budgte: {trials: 3}", "budgte: no such key, did you mean budget?"),
        ("budget: {time: 2hours}", "budget.time: a duration is a positive number"),
        ("budget: {repeats: 2}", "budget.repeats: 0, or at least 3"),
        ("objective: {constraints: {loss: x}}", 'objective.constraints: loss: ">= number"'),
        ("knobs: {x: {chioce: [1]}}", "x.chioce: no such key, did you mean choice?"),
        (
            "knobs: {x: {scale: sqrt, multiplyer: {choice: [1]}}}",
            "x.multiplyer: no such key, did you mean mul",
        ),
        (
            "knobs: {x: {scale: sqrt, multiplier: {chioce: [1]}}}",
            "x.multiplier.chioce: no such key, did you m",
        ),
        ("knobs: {x: {scale: sqrt, multiplier: {choice: [0]}}}", "x.multiplier: numbers from 1e-06 to"),
    ],
)
def test_a_mistake_is_reported_once_with_its_path_and_the_nearest_name(mistake, message):
    values = yaml.safe_load("{workload: some:fit, baseline: {x: 1}, knobs: {x: {choice: [1]}}}")
    with pytest.raises(InputError) as raised:
        spaces.from_values(values | yaml.safe_load(mistake), "bad.yaml")
    assert str(raised.value).startswith(f"search space bad.yaml: {message}")
    assert "; " not in str(raised.value)


def test_a_knob_missing_from_the_baseline_is_reported_with_the_nearest_setting():
    space = spaces.parse(SPACE.replace("  num_workers:", "  num_worker:"), "test")
    message = "knob num_worker: the baseline must give its value, did you mean num_workers?"
    with pytest.raises(InputError, match=re.escape(message)):
        spaces.complete(space, "test")


@pytest.mark.parametrize("text", ["- 1", "a: : b", "", "3", "\t"])
def test_text_that_is_no_mapping_is_refused_in_one_line(text):
    with pytest.raises(InputError) as raised:
        spaces.parse(text, "bad.yaml")
    assert "\n" not in str(raised.value)


def test_the_baselines_value_is_added_to_a_choice():
    text = SPACE.replace("{micro_batch_size: 16", "{micro_batch_size: 12")
    space = spaces.complete(spaces.parse(text, "test"), "test")
    assert space.knobs["micro_batch_size"].choice == (4, 8, 12, 16, 32, 64)


@pytest.mark.parametrize(
    ("old", "new", "part"),
    [
        ("num_workers: 2,", "", "knob num_workers: the baseline must give its value"),
        ("[8, 128]", "[3, 3]", "allows none of the sizes that"),
        ("[0.5, 2.0]", "[1.5, 2.0]", "must contain 1.0"),
        ("{choice: [0, 2, 4, 8]}", "{randint: [4, 8]}", "must contain the baseline's 2"),
    ],
)
def test_a_space_that_cannot_be_searched_is_refused(old, new, part):
    with pytest.raises(InputError) as raised:
        spaces.complete(spaces.parse(SPACE.replace(old, new), "test"), "test")
    assert part in str(raised.value)


@pytest.mark.parametrize(
    ("old", "new", "part"),
    [
        (
            "[4, 8, 16, 32, 64]",
            "[a, 16]",
            "micro_batch_size: must be whole numbers from 1 to 1073741824, got 'a'",
        ),
        ("[1, 2, 4]", "[0, 1]", "accumulation_steps: must be whole numbers from 1 to 1048576, got 0"),
        (
            "micro_batch_size: 16,",
            "micro_batch_size: x,",
            "micro_batch_size: must be whole numbers from 1 to 1073741824, got 'x'",
        ),
        (
            "micro_batch_size: 16,",
            f"micro_batch_size: {10**310},",
            "micro_batch_size: must be whole numbers from 1 to 1073741824, got",
        ),
        ("learning_rate: 1e-4}", "learning_rate: fast}", "learning_rate: must be a number above 0"),
    ],
)
def test_batch_sizes_and_learning_rates_must_be_numbers(old, new, part):
    with pytest.raises(InputError) as raised:
        spaces.complete(spaces.parse(SPACE.replace(old, new), "test"), "test")
    assert part in str(raised.value)


def test_consecutive_powers_of_two_are_searched_by_exponent():
    assert Distribution(choice=(8, 4, 16)).exponents == (2, 4)
    for values in ((4, 16), (1, 2, 3), (True, False), ("a", "b"), (0, 1, 2), (4,), (0.5, 1, 2)):
        assert Distribution(choice=values).exponents is None


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        (">= 0.5", (">=", 0.5)),
        ("<=3", ("<=", 3.0)),
        (" >=  -1.5e-3 ", (">=", -0.0015)),
        (">= .5", (">=", 0.5)),
        ("> 0.5", None),
        ("== 0.5", None),
        (">= half", None),
        (">= 0.5 or so", None),
        ("0.5", None),
        ("", None),
    ],
)
def test_a_constraint_is_a_comparison_with_a_number(text, meant):
    assert sections.comparison(text) == meant
    if meant:
        assert sections.Objective(constraints={"rouge_l": text}).constraints == {"rouge_l": text}
    else:
        with pytest.raises(ValueError, match='rouge_l: ">= number" or "<= number", got'):
            sections.Objective(constraints={"rouge_l": text})


def test_a_target_is_optional_and_requires_same_quality():
    assert sections.Objective(select="same-quality").target is None
    assert sections.Objective(select="same-quality", target=0.2).target == 0.2
    for select in ("same-training", "pareto"):
        with pytest.raises(ValueError, match="a target needs select: same-quality"):
            sections.Objective(select=select, target=0.2)
    assert sections.PROMISES == ("same-quality", "same-training")


def objective_of(text):
    values = yaml.safe_load("{workload: some:fit, baseline: {x: 1}, knobs: {x: {choice: [1]}}}")
    return spaces.from_values(values | {"objective": yaml.safe_load(text)}, "bad.yaml").objective


def test_minimize_names_the_quality_and_within_replaces_keep():
    loss = objective_of("{minimize: val_loss, within: 0.02}")
    assert (loss.quality, loss.minimize, loss.keep, loss.within) == ("val_loss", "val_loss", None, 0.02)
    assert objective_of("{maximize: accuracy}") == objective_of("{quality: accuracy}")
    assert (objective_of("{}").keep, objective_of("{minimize: val_loss}").keep) == (0.95, 0.99)
    assert objective_of("{minimize: val_loss, keep: 0.95}").keep == 0.95
    assert objective_of("{within: 0.0}").within == 0.0
    dumped = objective_of("{quality: val_loss, minimize: val_loss, keep: null}")
    assert dumped == objective_of("{minimize: val_loss}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{quality: a, minimize: b}", "one of quality and minimize, got quality 'a' and minimize 'b'"),
        ("{keep: 0.9, within: 0.1}", "one of keep and within, got keep 0.9 and within 0.1"),
        ("{within: -1}", "objective.within: "),
        ("{within: .inf}", "objective.within: "),
        ("{minimize: .nan}", "objective.minimize: "),
    ],
)
def test_conflicting_objective_fields_are_refused_in_one_line(text, message):
    with pytest.raises(InputError) as raised:
        objective_of(text)
    assert message in str(raised.value)
    assert "; " not in str(raised.value)


def test_objective_and_unit_survive_yaml():
    given = {"objective": {"minimize": "val_loss", "within": 0.02}, "unit": "tokens"}
    space = spaces.from_values(yaml.safe_load(SPACE) | given, "test")
    assert (space.unit, space.objective.within) == ("tokens", 0.02)
    assert spaces.parse(spaces.dump(space), "again") == space
    assert spaces.parse(SPACE, "test").unit == "samples"
    with pytest.raises(InputError, match="unit: "):
        spaces.parse(f"{SPACE}unit: 'tokens/s'\n", "test")


def test_turning_a_sign_twice_restores_it_and_avoids_negative_zero():
    higher, lower = sections.Objective(), sections.Objective(minimize="val_loss", target=2.5)
    assert (higher.turned(0.2), lower.turned(2.5), lower.aim) == (0.2, -2.5, -2.5)
    assert lower.turned(lower.turned(2.5)) == 2.5
    assert f"{lower.turned(0.0):.4f} {lower.turned(-0.0):.4f}" == "0.0000 0.0000"
