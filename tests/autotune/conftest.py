"""What the tuner's tests share: a space, and trials with given figures."""

from collections.abc import Callable
from typing import Any

import pytest

from autotune import space as spaces
from autotune.space import Space
from autotune.trial import Failure, Measurement, Outcome, Status, Throughput, Trial

SPACE = """
workload: r2gen
baseline: {micro_batch_size: 16, accumulation_steps: 1, precision: fp32, num_workers: 2, learning_rate: 1e-4}
knobs:
  micro_batch_size:   {choice: [4, 8, 16, 32, 64]}
  accumulation_steps: {choice: [1, 2, 4]}
  precision:          {choice: [fp32, tf32, bf16, fp16, fp8]}
  num_workers:        {choice: [0, 2, 4, 8]}
  learning_rate:      {scale: sqrt, multiplier: {loguniform: [0.5, 2.0]}}
limits: {effective_batch_size: [8, 128], memory_fraction: 0.85}
objective: {speed: throughput, quality: bleu_4, keep: 0.95}
budget: {trials: 40, samples_per_trial: 20000, time: 2h}
"""


@pytest.fixture
def space() -> Space:
    return spaces.complete(spaces.parse(SPACE, "test"), "test")


@pytest.fixture
def make_trial() -> Callable[..., Trial]:
    def make(number: int, speed: float | None = None, quality: float | None = None, **rest: Any) -> Trial:
        throughput = None if speed is None else Throughput(speed, rest.pop("half_width", None), 10, 1.0)
        measurement = Measurement(
            throughput=throughput,
            quality=quality,
            peak_memory_bytes=rest.pop("peak", None),
            memory_limit_bytes=rest.pop("limit", None),
        )
        outcome = Outcome(Status.COMPLETED)
        if failure := rest.pop("failure", None):
            outcome = Outcome(Status.FAILED, Failure(failure), "as made")
        config = {"micro_batch_size": 16, "precision": "fp32"} | rest
        return Trial(number, config, outcome, measurement, seconds=10.0)

    return make
