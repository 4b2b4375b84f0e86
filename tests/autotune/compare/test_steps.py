"""The summary of a training's steps."""

import math

import pytest

from autotune.compare.results import StepSummary, summarise

NAN, INF = math.nan, math.inf


def step(samples, loss, **rest):
    return {"samples": samples, "train_loss": loss, "at_s": 0.0, **rest}


def test_the_final_loss_is_the_mean_of_the_last_tenth():
    found = summarise([step(n, 100.0 - n) for n in range(1, 41)])
    assert (found.count, found.final_loss) == (40, pytest.approx((60 + 61 + 62 + 63) / 4))


def test_a_repeated_step_counts_once_with_its_last_record():
    first = [{"attempt": 1.0, "clock_s": 0.0}, step(8, 4.0), step(16, 3.0), step(24, NAN)]
    again = [{"attempt": 2.0, "clock_s": 0.0}, step(16, 3.0), step(24, 2.0), {"samples": 24, "bleu_4": 0.1}]
    assert summarise([*first, *again]) == StepSummary(3, bad=0, overflows=None, final_loss=2.0)


def test_bad_steps_have_no_finite_loss_or_are_counted_by_the_trainer():
    records = [step(1, 4.0, bad_steps=0), step(2, NAN, bad_steps=1), step(3, 4.0, bad_steps=2), step(4, INF)]
    assert summarise(records).bad == 3


def test_an_overflow_has_a_finite_loss_and_an_infinite_gradient():
    records = [
        step(1, 4.0, grad_norm=1.0, bad_steps=0),
        step(2, 4.0, grad_norm=INF, bad_steps=0),
        step(3, NAN, grad_norm=NAN, bad_steps=1),
        step(4, 4.0, grad_norm=NAN, bad_steps=0),
    ]
    assert (summarise(records).bad, summarise(records).overflows) == (1, 2)


def test_missing_figures_are_unknown():
    assert summarise([{"samples": 8, "at_s": 1.0}]) == StepSummary(0)
    assert summarise([step(8, "lost")]) == StepSummary(1, bad=1, overflows=None, final_loss=None)
