"""Learning rates that are refused because lower ones have ruined a training."""

import pytest

from autotune.judging.decisions.history import History
from autotune.searcher.screening import RateLimit
from autotune.space import configurations

DRAWN = {"micro_batch_size": 16, "accumulation_steps": 1, "precision": "fp32", "num_workers": 2}


@pytest.fixture
def config(space):
    def make(multiplier, **changes):
        drawn = {**DRAWN, "learning_rate": multiplier, **changes}
        return configurations.configure(space, drawn)

    return make


@pytest.fixture
def limit(space, make_trial, config):
    """Returns the limit after a baseline with quality 0.2 and one other trial."""

    def make(multiplier, quality=None, failure=None):
        baseline = make_trial(0, 10.0, curve=[0.2], **config(1.0))
        curve = [] if quality is None else [quality]
        other = make_trial(1, 10.0, curve=curve, failure=failure, **config(multiplier))
        return RateLimit(History([baseline, other], space))

    return make


def test_a_rate_above_or_just_below_one_that_ruined_a_training_is_refused_for_any_batch(limit, config):
    ruined = limit(1.6, quality=0.05)
    for multiplier, batch in ((1.6, 16), (1.9, 16), (1.2, 16), (1.6, 64), (1.6, 4)):
        reason = ruined.explain_excess(config(multiplier, micro_batch_size=batch))
        assert reason == "has a learning rate like that of trial 1, which lost its quality"
    assert ruined.explain_excess(config(1.1)) is None
    assert ruined.explain_excess(config(1.1, micro_batch_size=64)) is None


def test_a_diverged_training_counts_and_an_out_of_memory_does_not(limit, config):
    assert limit(1.6, failure="diverged").explain_excess(config(1.6))
    assert limit(1.6, failure="oom").explain_excess(config(1.6)) is None


@pytest.mark.parametrize(("multiplier", "quality"), [(1.6, 0.15), (0.6, 0.05)])
def test_a_small_loss_and_a_low_rate_refuse_nothing(limit, config, multiplier, quality):
    assert limit(multiplier, quality=quality).explain_excess(config(1.9)) is None


def test_settings_that_leave_the_training_the_same_share_a_limit(limit, config):
    assert limit(1.6, quality=0.05).explain_excess(config(1.6, precision="bf16", num_workers=8))
