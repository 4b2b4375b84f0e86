"""The shares of a training that evaluations and pauses take, beside the answer."""

import time
from dataclasses import replace

import pytest

from autotune.core.measurement import Outside
from autotune.display import cautions, events, view
from autotune.judging.decisions.history import History
from autotune.space import spaces
from autotune.space.sections import Training
from autotune.workloads import registry


@pytest.fixture
def told(space, make_trial):
    """The lines of a search whose baseline trains 100 samples a second, and its best as many as given."""

    def make(best=None, every=1000, settings=None, **seen):
        asked = space.model_copy(
            update={
                "training": Training(samples_per_evaluation=every),
                "baseline": {**space.baseline, **(settings or {})},
            }
        )
        speeds = [100.0, best] if best else [100.0]
        trials = []
        for n, speed in enumerate(speeds):
            made = make_trial(n, speed, 0.2, half_width=1.0)
            shown = replace(made.measurement, outside=Outside(4, **seen))
            trials.append(replace(made, config={"num_workers": 2 * n}, measurement=shown))
        return History(trials, asked)

    return make


def test_evaluation_weighs_more_if_steps_are_faster(told):
    found = told(best=300.0, settings={"eval_every_samples": 1000}, evaluation_s=3.0)
    [line] = cautions.spending(found)
    assert line == (
        "Evaluation is about 47% of the training with trial 1's settings, 23% of the baseline's; "
        "eval_every_samples 2000 instead of 1000 would save about 24%."
    )
    assert line in view.summary(found, registry.named("r2gen"), "runs/s")


def test_without_an_interval_setting_half_as_many_evaluations_are_advised(told):
    assert cautions.spending(told(evaluation_s=2.0)) == [
        "Evaluation is about 17% of the training; half as many would save about 8%."
    ]


@pytest.mark.parametrize(
    ("part", "advice"), [(0.25, "trainer.val_check_interval 0.5 instead of 0.25"), (1.0, "half as many")]
)
def test_a_part_of_an_epoch_is_advised_up_to_a_whole_one(make_trial, part, advice):
    text = f"""
    workload: {{kind: lightning, run: python train.py}}
    baseline: {{trainer: {{val_check_interval: {part}}}, loader: {{batch_size: 8}}}}
    knobs: {{loader.batch_size: {{choice: [8, 16]}}}}
    training: {{samples_per_epoch: {int(1000 / part)}}}
    objective: {{quality: accuracy}}
    """
    made = make_trial(0, 100.0, 0.2, half_width=1.0)
    shown = replace(made.measurement, outside=Outside(4, evaluation_s=2.0))
    timed = replace(made, config={"micro_batch_size": 8}, measurement=shown)
    found = cautions.spending(History([timed], spaces.parse(text, "test")))
    assert found == [f"Evaluation is about 17% of the training; {advice} would save about 8%."]


def test_a_small_share_is_not_mentioned_or_has_no_advice(told):
    assert cautions.spending(told(evaluation_s=0.3)) == ["Evaluation is about 3% of the training."]
    assert cautions.spending(told(evaluation_s=0.05)) == []


def test_pauses_have_a_line_of_their_own(told):
    assert cautions.spending(told(every=None, evaluation_s=2.0, pauses=0.04)) == [
        "Regular pauses, such as for checkpoints, are about 4% of the training."
    ]


def test_unknown_shares_are_not_mentioned(told, space):
    assert cautions.spending(told(every=None, evaluation_s=2.0)) == []
    assert cautions.spending(told()) == []
    assert cautions.spending(History([], space)) == []


def test_events_have_the_shares(told):
    found = told(evaluation_s=2.0, pauses=0.04)
    result = events.result(found, (found.trial(0), None))
    assert result["evaluation_share"] == pytest.approx(2 / 12)
    assert result["pause_share"] == pytest.approx(0.04 * 10 / 12)
    assert events.result(History([], found.space), None)["evaluation_share"] is None


def test_thousands_of_equal_trials_are_not_compared_pairwise(make_trial, space):
    scores = {"bleu_1": 0.4, "bleu_4": 0.2}
    trials = [make_trial(n, 10, 0.2, scores=scores, dropout=n, width=n) for n in range(3000)]
    began_s = time.process_time()
    assert cautions.unused_settings(History(trials, space)) == []
    assert time.process_time() - began_s < 1
