"""The evaluation cadence of a framework's trainer, from its arguments."""

import pytest

from autotune.space import spaces
from autotune.workloads import registry

BATCH = {"micro_batch_size": 16, "accumulation_steps": 4}


@pytest.mark.parametrize(
    ("settings", "epoch", "samples"),
    [
        ({}, 6400, None),  # the script's own setting is unknown
        ({"trainer.val_check_interval": 0.25}, 6400, 1600),
        ({"trainer.val_check_interval": 0.25}, None, None),
        ({"trainer.val_check_interval": 1.0, "trainer.check_val_every_n_epoch": 2}, 6400, 12800),
        ({"trainer.check_val_every_n_epoch": 3}, 6400, 19200),
        ({"trainer.val_check_interval": 50, **BATCH}, 6400, 800),  # in batches, regardless of accumulation
        ({"trainer.val_check_interval": 50, **BATCH, "processes": 2}, 6400, 1600),  # of each process
        ({"trainer.val_check_interval": 50}, 6400, None),
        ({"trainer.val_check_interval": 50, "trainer.check_val_every_n_epoch": None, **BATCH}, None, 800),
    ],
)
def test_lightning_counts_batches_or_parts_of_an_epoch(settings, epoch, samples):
    assert registry.cadence("lightning").samples(settings, epoch) == samples


@pytest.mark.parametrize(
    ("settings", "epoch", "samples"),
    [
        ({}, 6400, None),
        ({"trainer.eval_strategy": "epoch"}, 6400, 6400),
        ({"trainer.eval_strategy": "epoch"}, None, None),
        ({"trainer.eval_strategy": "no", "trainer.eval_steps": 50, **BATCH}, 6400, None),
        ({"trainer.eval_strategy": "steps", "trainer.eval_steps": 50, **BATCH}, None, 3200),
        ({"trainer.eval_strategy": "steps", "trainer.eval_steps": 50}, None, None),
        ({"trainer.eval_strategy": "steps", "trainer.eval_steps": 0.1, **BATCH}, 6400, None),
    ],
)
def test_transformers_counts_optimizer_steps(settings, epoch, samples):
    assert registry.cadence("transformers").samples(settings, epoch) == samples


def test_a_fraction_of_an_epoch_is_searched_by_its_samples():
    space = spaces.parse(
        """
        workload: {kind: lightning, run: python train.py}
        baseline: {trainer: {val_check_interval: 0.25}, loader: {batch_size: 8}}
        knobs:
          trainer.val_check_interval: {choice: [0.25, 0.5], moves: [speed]}
        training: {samples_per_epoch: 6400}
        objective: {minimize: val_loss, speed: wall}
        """,
        "test",
    )
    name = "trainer.val_check_interval"
    assert [space.samples_per_evaluation({name: part}) for part in (0.25, 0.5)] == [1600, 3200]
    by_token = space.model_copy(update={"unit": "tokens"})
    assert by_token.samples_per_evaluation({}) is None, "a sample has now more of them, now fewer"
