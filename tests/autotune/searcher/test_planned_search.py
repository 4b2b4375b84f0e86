"""A search that plans the lengths of trainings, with a real study and made-up trainings."""

import math

import optuna
import pytest

from autotune.core.measurement import Evaluation, Measurement, Throughput
from autotune.core.trial import Outcome, Status
from autotune.searcher.ports import Listener
from autotune.searcher.search import Search
from autotune.space import spaces
from autotune.storage import studies
from autotune.storage.study_file import SearchPlan
from autotune.trials.progress import Phase
from autotune.trials.report import TrialReport

SPACE = """
workload: some.module:fit
baseline: {micro_batch_size: 8, max_iters: 1000, num_workers: 2, learning_rate: 1e-3}
knobs:
  length:           {steps: [max_iters]}
  micro_batch_size: {choice: [4, 8, 16, 32]}
  num_workers:      {choice: [0, 2, 4]}
  learning_rate:    {scale: sqrt, multiplier: {loguniform: [0.5, 8]}}
budget: {trials: 8, repeats: 0}
"""
WHOLE = 8000


def trained(config, speed=100.0):
    """A training of `config`: doubling its length gains 0.04, as does doubling its rate, up to fourfold."""
    batch, length = config["micro_batch_size"], config["length"]
    rate = config["learning_rate"] / 1e-3 / math.sqrt(batch / 8)
    quality = 0.3 + 0.04 * (math.log2(length / WHOLE) + (math.log2(rate) if rate < 4.01 else -3))
    speed *= (batch / 8) ** 0.3
    point = Evaluation(length, length / speed, quality)
    figures = {"quality": quality, "quality_samples": length, "samples": length, "curve": (point,)}
    return Measurement(throughput=Throughput(speed, 0.01, 50, 9.0), **figures)


@pytest.fixture
def space():
    return spaces.complete(spaces.parse(SPACE, "test"), "test")


@pytest.fixture
def begin(space):
    def make(trials):
        study = optuna.create_study(directions=["maximize", "maximize"])
        studies.set_plan(study, SearchPlan(trials, None))
        return Search(space.revised(budget={"trials": trials}), study, Listener())

    return make


def end(search, trial):
    measurement, outcome = trained(trial.config), Outcome(Status.COMPLETED)
    search.progress(TrialReport(trial.number, Phase.TRAINING, 9.0, measurement, outcome=outcome))


def run(search):
    """Runs the search's trials one by one; returns their configurations."""
    ran = []
    while (trial := search.next()) is not None:
        end(search, trial)
        ran.append(trial.config)
    return ran


def test_the_second_trial_is_the_baseline_at_half_its_length(begin, space):
    first, second, *others = run(begin(5))
    assert first == space.baseline_config
    assert second == {**first, "length": WHOLE // 2}
    assert all({**config, "length": 0} != {**first, "length": 0} for config in others)


def test_other_trials_may_run_during_the_half_training(begin):
    search = begin(5)
    end(search, search.next())
    half, other = (search.next().config for _ in range(2))
    assert half["length"] == WHOLE // 2
    assert half["num_workers"] != other["num_workers"]


def test_free_speedups_come_first_then_rates_then_batches(begin):
    """The rate is doubled as long as that helps, and its gain shortens the next training."""
    names = ("num_workers", "learning_rate", "micro_batch_size", "length")
    assert [tuple(config[name] for name in names) for config in run(begin(8))][2:] == [
        (4, 1e-3, 8, 8000),
        (2, 2e-3, 8, 8000),
        (2, 4e-3, 8, 4000),
        (2, 8e-3, 8, 2000),
        (2, 5.657e-3, 16, 2000),
        (2, 8e-3, 32, 1984),
    ]


def test_the_best_settings_are_trained_again_at_the_length_that_they_need(begin):
    *_, better, again = run(begin(4))
    assert (better["learning_rate"], better["length"]) == (2e-3, WHOLE)
    assert again == {**better, "length": WHOLE // 2}, "the quality was better than needed"
