"""Several processes evaluate at the step at which it is time, and seldom talk about it."""

import itertools
import random

import pytest

from autotune.inside.site.autotune_sparingly import Sparingly

EVERY = 1000


@pytest.mark.parametrize(("least", "most"), [(16, 16), (10, 19), (1500, 2500)])
def test_an_evaluation_comes_at_its_step_though_few_steps_are_asked_about(least, most):
    asking, sizes = Sparingly(EVERY), random.Random(0)
    totals = list(itertools.accumulate((sizes.randint(least, most) for _ in range(2000)), initial=0))
    due = [step for step, (a, b) in enumerate(itertools.pairwise(totals), 1) if b // EVERY > a // EVERY]
    asked = []
    for step, seen in enumerate(totals):
        if asking.is_due(step):
            asking.heard(step, seen)
            asked.append(step)
    assert set(due) <= set(asked)
    assert len(asked) <= 10 * len(due)
