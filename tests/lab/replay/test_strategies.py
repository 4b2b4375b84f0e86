"""The baseline strategies: each runs in full what its sampler suggests."""

import pytest

from autotune.core.trial import Status
from lab.replay import strategies
from lab.replay.scoring import Truth


@pytest.mark.parametrize("name", strategies.OTHERS)
def test_a_strategy_starts_at_the_baseline_and_is_confirmed_like_ours(recorded, name):
    result = strategies.OTHERS[name](recorded, 0, 15)
    searched = [t for t in result.trials if t.kind == "searched"]
    assert len(searched) == 15
    assert searched[0].config == recorded.space.baseline_config
    assert all(t.outcome is not None for t in result.trials)
    assert [t.number for t in result.trials] == list(range(len(result.trials)))
    if result.claims_gain:
        assert Truth(recorded).speed(result.winner) > Truth(recorded).speed(searched[0].config)
    else:
        assert result.winner == recorded.space.baseline_config
    assert result == strategies.OTHERS[name](recorded, 0, 15), "equal seeds"


def test_asha_cuts_trials_short_and_the_others_do_not(recorded):
    stopped = {
        name: sum(t.outcome.status is Status.STOPPED for t in strategy(recorded, 0, 15).trials)
        for name, strategy in strategies.OTHERS.items()
    }
    assert stopped["asha"] > 0
    assert stopped["optuna"] == stopped["random"] == 0
