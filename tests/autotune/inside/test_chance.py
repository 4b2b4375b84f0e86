"""Steps and samples of random trainings match the trainings' own ledgers."""

import itertools

import pytest

from tests.autotune.inside.chance import Training
from tests.autotune.inside.conftest import hearing


@pytest.fixture(scope="module")
def hear(tmp_path_factory):
    return hearing("chance", "trainer", tmp_path_factory.mktemp("chance"))


@pytest.mark.parametrize(
    "seed", [*range(5), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(5, 24))]
)
def test_steps_and_samples_are_those_of_the_script(hear, seed):
    check(hear, seed)


@pytest.mark.soak
def test_of_many_trainings_none_is_miscounted(hear):
    for seed in range(24, 624):
        check(hear, seed)


def check(hear, seed):
    training = Training.drawn(seed)
    heard = hear(str(seed), AUTOTUNE_STEP_SAMPLES=str(training.effective_batch))
    assert heard.said, (training, heard.errors)
    told = [training.effective_batch if samples is None else samples for samples in heard.samples]
    own = heard.said
    if training.updates == "by_hand":  # the hook holds the first passes back
        told, own = told[1:], own[len(own) - len(told) + 1 :]
    assert len(told) == len(own), training
    # With several passes per batch, a prefetched next batch is counted too early.
    early = training.batch * training.processes if training.passes > 1 and training.fetch == "ahead" else 0
    totals = zip(itertools.accumulate(told), itertools.accumulate(own), strict=True)
    apart = [told - own for told, own in totals]
    assert 0 <= apart[-1] <= early, training
    assert max(map(abs, apart)) <= 2 * training.effective_batch, (
        "it takes three steps to know how a loop draws"
    )
