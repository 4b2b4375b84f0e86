import pytest

from autotune.core.errors import InputError
from autotune.sessions import option_values
from autotune.system.nvml import Gpu
from autotune.system.telemetry import Hardware

CPU = Hardware(2, 2**34, (), None)


def gpu(memory_gib, capability=(9, 0), count=1):
    one = Gpu("Test GPU", int(memory_gib * 2**30), capability, "GPU-0")
    return Hardware(16, 2**36, (one,) * count, "999")


@pytest.mark.parametrize(
    ("asked", "hardware", "expected"),
    [
        (None, CPU, 0.0),
        (None, gpu(8), 1.0),
        (0.25, gpu(8), 0.25),
        (2, gpu(8, count=4), 2.0),
        (0, gpu(8), 0.0),
    ],
)
def test_gpus_of_a_trial(asked, hardware, expected):
    assert option_values.gpus_per_trial(asked, hardware) == expected


@pytest.mark.parametrize(("asked", "hardware"), [(1, CPU), (2, gpu(8)), (1.5, gpu(8, count=4))])
def test_more_gpus_than_there_are_is_refused(asked, hardware):
    with pytest.raises(InputError, match="--gpus-per-trial"):
        option_values.gpus_per_trial(asked, hardware)


@pytest.mark.parametrize(
    ("promise", "rule", "meant"),
    [
        (None, None, None),
        (None, "pareto", "pareto"),
        ("same-quality", None, "same-quality"),
        ("same-training", None, "same-training"),
        ("same-training", "same-training", "same-training"),
    ],
)
def test_a_promise_selects_the_rule_for_the_winner(promise, rule, meant):
    assert option_values.select(promise, rule) == meant


def test_an_unknown_promise_or_one_that_contradicts_the_rule_is_refused():
    with pytest.raises(
        InputError, match="--promise: must be one of same-quality, same-training, got 'faster'"
    ):
        option_values.select("faster", None)
    with pytest.raises(InputError, match="--promise same-quality: means --select same-quality"):
        option_values.select("same-quality", "pareto")


@pytest.mark.parametrize(
    ("given", "values"),
    [
        (None, {}),
        ("auto", {"until_learnt": True}),
        ("1", {"samples_per_trial": 1}),
        ("20000", {"samples_per_trial": 20000}),
    ],
)
def test_the_samples_of_a_trial_are_a_number_or_auto(given, values):
    assert option_values.samples(given) == values


@pytest.mark.parametrize("given", ["0", "-1", "1e4", "many", "", "1.5", "9" * 30])
def test_other_samples_are_refused(given):
    with pytest.raises(InputError, match="--samples: must be a whole number above 0, or auto, got"):
        option_values.samples(given)
