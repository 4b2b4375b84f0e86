"""The cautions about the shares of evaluations and pauses."""

import time
from dataclasses import replace

import pytest

from autotune.core.measurement import Outside
from autotune.display import cautions, events, view
from autotune.judging.decisions.history import History
from autotune.space.sections import Training
from autotune.workloads import registry


@pytest.fixture
def searched(space, make_trial):
    """Returns a history maker: its baseline trains 100 samples/s, its best trial `best`."""

    def make(best=None, every=1000, settings=None, **outside):
        baseline, training = space.baseline | (settings or {}), Training(samples_per_evaluation=every)
        changed = space.model_copy(update={"training": training, "baseline": baseline})
        speeds = [100.0, best] if best else [100.0]
        trials = []
        for n, speed in enumerate(speeds):
            made = make_trial(n, speed, 0.2, half_width=1.0)
            measured = replace(made.measurement, outside=Outside(4, **outside))
            trials.append(replace(made, config={"num_workers": 2 * n}, measurement=measured))
        return History(trials, changed)

    return make


def test_evaluation_takes_a_larger_share_if_steps_are_faster(searched):
    history = searched(best=300.0, settings={"eval_every_samples": 1000}, evaluation_s=3.0)
    [line] = cautions.spending(history)
    assert line == ("Evaluation is about 47% of the training with trial 1's settings, 23% of the baseline's.")
    assert line in view.summary(history, registry.named("r2gen"), "runs/s")


def test_a_small_share_is_not_mentioned(searched):
    assert cautions.spending(searched(evaluation_s=0.3)) == ["Evaluation is about 3% of the training."]
    assert cautions.spending(searched(evaluation_s=0.05)) == []


def test_pauses_have_a_line_of_their_own(searched):
    assert cautions.spending(searched(every=None, evaluation_s=2.0, pauses=0.04)) == [
        "Regular pauses, such as for checkpoints, are about 4% of the training."
    ]


def test_unknown_shares_are_not_mentioned(searched, space):
    assert cautions.spending(searched(every=None, evaluation_s=2.0)) == []
    assert cautions.spending(searched()) == []
    assert cautions.spending(History([], space)) == []


def test_events_have_the_shares(searched):
    history = searched(evaluation_s=2.0, pauses=0.04)
    result = events.result(history, (history.trial(0), None))
    assert result["evaluation_share"] == pytest.approx(2 / 12)
    assert result["pause_share"] == pytest.approx(0.04 * 10 / 12)
    assert events.result(History([], history.space), None)["evaluation_share"] is None


def test_thousands_of_equal_trials_are_not_compared_pairwise(make_trial, space):
    scores = {"bleu_1": 0.4, "bleu_4": 0.2}
    trials = [make_trial(n, 10, 0.2, scores=scores, dropout=n, width=n) for n in range(3000)]
    began_s = time.process_time()
    assert cautions.unused_settings(History(trials, space)) == []
    assert time.process_time() - began_s < 1
