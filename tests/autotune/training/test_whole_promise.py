"""The verdict on directories of trainings: ended, stopped, running, and corrupt."""

import re
from dataclasses import replace

import pytest

from autotune.core.errors import InputError
from autotune.core.measurement import Metric
from autotune.core.trial import Failure, Outcome, Status
from autotune.judging.measurement.estimates import Figure
from autotune.storage import identity
from autotune.training import events, plan
from autotune.training.events import Kind, TrainingEvent
from autotune.training.whole import promise_lines

from . import handmade


@pytest.fixture
def ended(tmp_path):
    return handmade.write(tmp_path / "t")


@pytest.fixture
def killed(tmp_path):
    return handmade.write(tmp_path / "t", ended=False)


def answers(place):
    """Returns the answer, and those of each figure by name."""
    first, *rest = promise_lines(place)
    figures = [re.match(r"- (speed|quality|memory) (held|did not hold|not decided)", line) for line in rest]
    return first.partition(",")[0], {found[1]: found[2] for found in figures if found}


ALL_HELD = dict.fromkeys(("speed", "quality", "memory"), "held")


def test_a_training_that_has_ended_is_compared_with_its_promise(ended):
    before = {file: file.read_bytes() for file in ended.root.rglob("*") if file.is_file()}
    assert list(promise_lines(ended)) == [
        "As promised, compared with trial 11 of session iu",
        "- speed held: 16.0 samples/s, as promised (16.0 promised)",
        "- quality held: bleu_4 0.1596 after 400 samples, 0.1600 promised, at least 0.1520 required",
        "- memory held: 4.0 GiB (25% of the limit), 4.0 GiB promised",  # only its last process knew a limit
    ]
    assert {file: file.read_bytes() for file in before} == before


def test_a_killed_training_is_compared_so_far(killed):
    assert answers(killed) == ("As promised", ALL_HELD)


def insert(file, key, field):
    """Inserts a field before `key` in every line."""
    file.write_text(file.read_text().replace(key, f"{field}, {key}"))


def test_memory_is_compared_without_subprocesses(killed):
    insert(killed.records_file, '"memory_peak_bytes"', '"memory_children_bytes": 1073741824')
    assert answers(killed) == ("As promised", ALL_HELD)


def test_a_speed_promised_with_evaluations_is_compared_with_them(killed):
    """A step takes 0.5 s; after every 25 steps an evaluation takes 4 s."""
    known = plan.read(killed)
    metric = Metric("bleu_4", counts_evaluations=True, samples_per_evaluation=handmade.EVERY)
    promise = replace(known.promise, throughput=Figure(12.1, 12.0, 12.2))
    wall = replace(known, metric=metric, promise=promise)
    plan.write(killed, wall)
    assert "- speed held: 12.1 samples/s, as promised (12.1 promised)" in promise_lines(killed)
    plan.write(killed, replace(wall, metric=known.metric))
    assert "- speed held: 16.0 samples/s, 32% faster (12.1 promised)" in promise_lines(killed)


def test_a_training_resumed_on_another_device_is_not_compared_with_the_old_speed(killed):
    plan.write(killed, replace(plan.read(killed), device="another GPU"))
    assert answers(killed)[1]["speed"] == "not decided"
    assert any(
        line.endswith("promise measured on some GPU, trained on another GPU")
        for line in promise_lines(killed)
    )


def test_what_may_explain_a_broken_promise_is_named(ended):
    known, slower = plan.read(ended), "12% slower since 800 samples"
    plan.write(ended, replace(known, promise=replace(known.promise, throughput=Figure(20.0, 19.9, 20.1))))
    outcome, measured = identity.read_verdict(ended)
    busy = replace(measured, telemetry={"others_cpu_percent": 200.0, "allowed_cpus": 4.0})
    identity.write_verdict(ended, outcome, busy)
    events.write(ended.events_file, TrainingEvent(handmade.AGAIN, 900, Kind.DRIFT, slower))
    assert answers(ended) == ("Not as promised", ALL_HELD | {"speed": "did not hold"})
    assert [line for line in promise_lines(ended) if "during" in line] == [
        "- during the training: other programs used 50% of the CPUs",
        f"- during the training: {slower}",
    ]


def test_the_promise_of_a_failed_training_is_undecided(ended):
    _, measured = identity.read_verdict(ended)
    identity.write_verdict(ended, Outcome(Status.FAILED, Failure.DIVERGED, "the loss is nan"), measured)
    assert answers(ended) == ("Not decided yet", ALL_HELD)


def test_an_earlier_attempts_verdict_is_not_an_abandoned_trainings(ended):
    """A killed attempt leaves no verdict."""
    _, measured = identity.read_verdict(ended)
    failed = Outcome(Status.FAILED, Failure.ERROR, "CUDA error")
    identity.write_verdict(ended, failed, replace(measured, samples=700))
    assert answers(ended) == ("As promised", ALL_HELD)


def test_a_training_without_records_is_undecided(killed):
    killed.records_file.unlink()
    assert answers(killed) == ("Not decided yet", dict.fromkeys(ALL_HELD, "not decided"))


def test_nothing_is_said_where_nothing_was_promised(killed, tmp_path):
    plan.write(killed, replace(plan.read(killed), promise=None))
    assert list(promise_lines(killed)) == []
    killed.plan_file.write_text("{")
    with pytest.raises(InputError, match="is not as it was written"):
        list(promise_lines(killed))
