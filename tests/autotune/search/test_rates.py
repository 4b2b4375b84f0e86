"""Which learning rates are beyond one that was too high, or too low."""

import pytest

from autotune.judging.history import History
from autotune.search.rates import RateBounds

WHOLE, QUALITY, DOUBLING = 20_000, 0.3, 0.04


@pytest.fixture
def why_out(make_trial, planned):
    """What is said of a rate and a batch, after trainings of the baseline's length with these rates."""

    def trained(number, quality, rate, samples=WHOLE, **rest):
        config = {**planned.baseline_config, "length": samples, "learning_rate": rate, **rest}
        return make_trial(number, 10, **{"curve": [quality], "half_width": 0.01, **config})

    def make(qualities, rate, batch=16, **rest):
        own = planned.baseline_config["learning_rate"]
        pilots = [trained(0, QUALITY, own), trained(1, QUALITY - DOUBLING, own, WHOLE // 2)]
        others = [trained(2 + i, found, r, **rest) for i, (r, found) in enumerate(qualities.items())]
        bounds = RateBounds(History([*pilots, *others], planned))
        return bounds.why_out({**planned.baseline_config, "learning_rate": rate, "micro_batch_size": batch})

    return make


def test_a_rate_above_one_that_was_worse_is_refused(why_out):
    assert (
        why_out({2e-4: QUALITY - 0.02}, 3e-4) == "learning rate 0.0003 is above 0.0002, too high in trial 2"
    )
    assert why_out({2e-4: QUALITY - 0.02}, 1.5e-4) is None
    assert why_out({2e-4: QUALITY - 0.02}, 2e-4) is None, "which another setting may mend"


def test_a_rate_below_one_that_was_worse_is_refused(why_out):
    assert "below 5e-05, too low in trial 2" in why_out({5e-5: QUALITY - 0.02}, 4e-5)
    assert why_out({5e-5: QUALITY - 0.02}, 7e-5) is None


def test_what_is_better_or_nearly_as_good_bounds_nothing(why_out):
    assert why_out({2e-4: QUALITY + 0.02}, 8e-4) is None
    assert why_out({2e-4: QUALITY - 0.005}, 8e-4) is None


def test_the_nearest_worse_rate_is_the_bound(why_out):
    found = {2e-4: QUALITY + 0.02, 4e-4: QUALITY - 0.02, 8e-4: QUALITY - 0.1}
    assert "above 0.0004, too high in trial 3" in why_out(found, 5e-4)
    assert why_out(found, 3e-4) is None
    assert "below 0.0001, too low in trial 0" in why_out(found, 0.9e-4)


def test_a_larger_batch_may_have_a_rate_that_is_larger_in_proportion(why_out):
    worse = {2e-4: QUALITY - 0.02}
    assert why_out(worse, 4e-4, batch=32) is None
    assert why_out(worse, 5e-4, batch=32) is not None
    assert why_out(worse, 2.5e-4, batch=8) is not None


def test_before_anything_is_known_of_lengths_no_rate_is_refused(make_trial, planned):
    config = {**planned.baseline_config, "length": WHOLE}
    alone = make_trial(0, 10, curve=[QUALITY], half_width=0.01, **config)
    worse = make_trial(1, 10, curve=[0.1], half_width=0.01, **{**config, "learning_rate": 2e-4})
    assert RateBounds(History([alone, worse], planned)).why_out({**config, "learning_rate": 8e-4}) is None
