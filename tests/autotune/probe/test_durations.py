"""Trials are miniatures of a training that is too long to be run in every trial."""

from dataclasses import replace

import pytest

from autotune.probe import durations, proposal
from autotune.probe.durations import Duration, ShortTraining
from autotune.probe.effects import Candidate
from autotune.probe.options import Option
from autotune.probe.proposal import ProbeResult
from autotune.probe.runs import CommandLine
from autotune.probe.scores import Score
from autotune.probe.watching import Watched, WatchedStep
from autotune.space import spaces


def result(unit: str, count: int, training_s: float | None) -> ProbeResult:
    option = Option("count", "--count {}", count)
    return ProbeResult(
        words=("python", "train.py"),
        directory="/",
        python=None,
        environment={},
        kind="command",
        score=Score("val_loss", "", "", "val_loss (.*)", (2.0, 1.0)),
        minimize=True,
        length=(unit, (option,)),
        samples_per_epoch=50_000,
        training_s=training_s,
        samples=1_000_000,
    )


@pytest.mark.parametrize(
    ("unit", "count", "training_s", "time_s", "share"),
    [
        ("steps", 10_000, 60.0, 1200.0, None),  # a dozen fit
        ("steps", 10_000, 120.0, 1200.0, None),  # nearly
        ("steps", 10_000, 1000.0, 1200.0, 0.1),
        ("steps", 10_000, 1e6, 1200.0, 0.01),  # at least 100 steps
        ("epochs", 20, 1000.0, 1200.0, 0.2),  # at least four epochs
        ("epochs", 5, 1000.0, 1200.0, None),
        ("steps", 10_000, None, 1200.0, None),
    ],
)
def test_a_dozen_trials_fit_into_the_time(unit, count, training_s, time_s, share):
    found = durations.miniature(result(unit, count, training_s), time_s)
    assert found == (None if share is None else share * 1_000_000)


def test_an_epoch_takes_its_evaluation_too() -> None:
    steps = tuple(WatchedStep(10.0 + 0.5 * n, (0.1,), 1, (4,), "float32", None) for n in range(20))
    seen = Watched(begun_s=5.0, steps=steps)
    line = CommandLine(("python", "train.py"))
    short = ShortTraining(line, replace(seen, lines=(("val loss 1.0", 24.0),)))
    epochs = Duration(seen, "", ("epochs", (Option("epochs", "--epochs {}", 10),)), short)
    assert epochs.training_s == 5.0 + 10 * 14.0
    steps_alone = Duration(
        seen, "", ("epochs", (Option("epochs", "--epochs {}", 10),)), ShortTraining(line, seen)
    )
    assert steps_alone.training_s == 5.0 + 10 * 20 * 0.5


def test_steps_are_forecast_with_their_evaluations() -> None:
    """A step takes 0.5 s, and the short training of 12 steps evaluates for 3 s, twice or at its end."""
    steps = tuple(WatchedStep(10.0 + 0.5 * n, (0.1,), 1, (4,), "float32", None) for n in range(12))
    seen = Watched(begun_s=5.0, steps=steps, lines=(("val loss 1.0", 10.0 + 12 * 0.5 + 3.0),))
    short = ShortTraining(CommandLine(("python", "train.py")), seen)
    length = "steps", (Option("steps", "--steps {}", 1000),)
    assert Duration(seen, "", length, short, every=100).training_s == 5.0 + 500.0 + 10 * 1.5
    assert Duration(seen, "", length, short).training_s == 5.0 + 500.0 + 3.0


def test_a_miniature_is_a_budget_of_samples():
    found = replace(result("epochs", 20, 1000.0), trial_samples=200_000)
    space = spaces.complete(spaces.parse(proposal.text(found, []), "found"), "found")
    assert (space.budget.samples_per_trial, space.training.samples) == (200_000, 1_000_000)


@pytest.mark.parametrize(("batch", "baseline"), [(6, 6), (None, 1)])
def test_a_space_without_a_knob_for_the_batch_has_the_batch_in_its_baseline(batch, baseline):
    rate = Candidate("learning_rate", Option("lr", "--lr {}", 0.01), 0.02, {})
    found = replace(
        result("steps", 1000, 60.0), knobs=(rate,), batch=batch, every=Option("every", "--e {}", 9)
    )
    space = spaces.complete(spaces.parse(proposal.text(found, []), "found"), "found")
    assert space.baseline["micro_batch_size"] == baseline
    assert set(space.knobs) == {"learning_rate", "length"}


def test_accumulated_batches_are_parts_of_a_step():
    parts = Candidate("accumulation_steps", Option("accum", "--accum {}", 4), 8, {})
    found = replace(result("steps", 1000, 60.0), knobs=(parts,), batch=32)
    assert proposal.space(found)["baseline"] == {"accum": 4, "count": 1000, "micro_batch_size": 8}
