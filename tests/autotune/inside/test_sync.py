"""Several processes evaluate at the same step, with little communication."""

import itertools
import random

import pytest

from autotune.inside.site.autotune_batches import SyncSchedule

EVERY = 1000


@pytest.mark.parametrize(("least", "most"), [(16, 16), (10, 19), (1500, 2500)])
def test_processes_sync_at_every_step_that_an_evaluation_is_due_at_and_at_few_others(least, most):
    schedule, sizes = SyncSchedule(EVERY), random.Random(0)
    totals = list(itertools.accumulate((sizes.randint(least, most) for _ in range(2000)), initial=0))
    due = [step for step, (a, b) in enumerate(itertools.pairwise(totals), 1) if b // EVERY > a // EVERY]
    synced = []
    for step, seen in enumerate(totals):
        if schedule.is_due(step):
            schedule.synced(step, seen)
            synced.append(step)
    assert set(due) <= set(synced)
    assert len(synced) <= 10 * len(due)
