"""The number of samples in a batch of any structure."""

import numpy as np
import pytest

from autotune.inside.site.autotune_batches import Tally, size

X, Y, SCALAR = np.zeros((4, 3)), np.zeros(4), np.zeros(())


@pytest.mark.parametrize(
    ("batch", "usual", "samples"),
    [
        (X, None, 4),
        ((X, Y), None, 4),
        ([X, {"a": Y, "b": [Y, Y]}], None, 4),
        ((("a", "b", "c", "d"), X, X), None, 4),
        (((X, X), Y), None, 4),
        (SCALAR, None, 1),
        (["a", "b"], None, 2),
        ([X, X, X, X, X], 5, 5),  # a list of images
        ([X, X], 2, 2),
        ("text", None, None),
        (None, None, None),
        ({}, None, None),
    ],
)
def test_the_most_common_length_is_the_size_of_a_batch(batch, usual, samples):
    assert size(batch, usual) == samples


class Source:
    """An iterator."""


def test_a_batch_counts_once_and_only_if_a_backward_pass_came_after_it():
    tally, training, evaluation = Tally(), Source(), Source()
    assert tally.stepped().samples is None, "there is no loader"
    tally.fetched(training, training, 4)
    tally.backward()
    tally.backward()
    assert tally.stepped().samples == 4
    for _ in range(3):
        tally.fetched(evaluation, evaluation, 10)
    tally.ended(evaluation, evaluation)
    tally.backward()
    assert tally.stepped().samples == 0, "it has trained on the same batch again"


def test_batches_without_a_backward_pass_are_not_counted():
    tally, training = Tally(), Source()
    looked, iterator = Source(), Source()
    tally.fetched(training, looked, 4)
    tally.fetched(training, iterator, 3)
    tally.backward()
    assert tally.stepped().samples == 3


def test_a_training_that_continues_without_a_loader_falls_back_to_the_settings():
    tally, training = Tally(), Source()
    tally.fetched(training, training, 4)
    seen = []
    for _ in range(103):
        tally.backward()
        seen.append(tally.stepped().samples)
    assert seen == [4, *[0] * 100, None, None]


def test_counting_continues_after_an_evaluation():
    """A prefetching loader has fetched a batch before the evaluation, and fetches none after its last one."""
    tally, training, evaluation = Tally(), Source(), Source()
    seen = []
    for ahead in ([4, 4], [4], [2], []):
        for samples in ahead:
            tally.fetched(training, training, samples, 10 * samples)
        tally.backward()
        seen.append(tally.stepped())
        tally.fetched(evaluation, evaluation, 8)
        tally.ended(evaluation, evaluation)
    assert sum(step.samples for step in seen) == 14
    assert sum(step.tokens for step in seen) == 140


def test_the_tokens_of_a_step_are_unknown_if_those_of_a_batch_are():
    tally, training = Tally(), Source()
    for tokens in (10, None):
        tally.fetched(training, training, 4, tokens)
        tally.backward()
    assert tally.stepped() == (8, None)
