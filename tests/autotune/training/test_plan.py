"""The plan of a training, and the conditions for resuming it."""

from dataclasses import replace

import pytest

from autotune.core.errors import InputError
from autotune.core.measurement import Metric
from autotune.judging.accounts.promise import Promise
from autotune.judging.measurement.estimates import Figure
from autotune.storage.layout import TrainingDir
from autotune.training import plan
from autotune.training.plan import TrainingPlan

PROMISE = Promise(
    session="s",
    trial=4,
    samples=1200,
    throughput=Figure(100.0, 95.0, 105.0),
    quality=0.8,
    least=0.76,
    scatter=0.01,
    memory_bytes=2**26,
    origin=("cpu", "abc"),
)
PLAN = TrainingPlan(
    "toy:fit",
    {"micro_batch_size": 8},
    {"micro_batch_size": 8, "data": "x"},
    4000,
    PROMISE,
    metric=Metric("score"),
    device="some CPU",
)


@pytest.fixture
def place(tmp_path):
    return TrainingDir(tmp_path)


@pytest.mark.parametrize("planned", [PLAN, replace(PLAN, samples=None, promise=None)])
def test_a_plan_is_read_as_it_was_written(place, planned):
    plan.write(place, planned)
    assert plan.read(place) == planned


def test_without_a_plan_there_is_none(place):
    assert plan.read(place) is None


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"promise": {"trial": 1}}', "[" * 100_000])
def test_a_corrupt_plan_is_an_input_error(place, text):
    place.plan_file.write_text(text)
    with pytest.raises(InputError, match="is not as it was written"):
        plan.read(place)


def test_promise_and_changes_survive_a_resumption(place):
    known = replace(PLAN, changes={"micro_batch_size": 4, "accumulation_steps": 2})
    now = replace(PLAN, promise=replace(PROMISE, throughput=Figure(1.0)), samples=8000)
    assert plan.resume(known, now, place) == replace(known, samples=8000)


def test_a_training_with_another_metric_is_not_resumed(place):
    now = replace(PLAN, metric=Metric("loss", minimize=True))
    with pytest.raises(InputError, match=r"quality 'score', now 'loss'; minimize False, now True"):
        plan.resume(PLAN, now, place)


def test_another_training_is_not_resumed(place):
    now = replace(PLAN, settings={"micro_batch_size": 16})
    with pytest.raises(InputError, match=r"micro_batch_size 8, now 16; data 'x', now None"):
        plan.resume(PLAN, now, place)
