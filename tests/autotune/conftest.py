"""What the tuner's tests share: a space, curves, trials with given figures, and a table made up."""

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from autotune import space as spaces
from autotune.space import Space
from autotune.table import Header, Run, Table
from autotune.trial import Evaluation, Failure, Measurement, Outcome, Status, Throughput, Trial

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


def curve_of(qualities: Sequence[float]) -> tuple[Evaluation, ...]:
    """Evaluations after 100, 200, ... samples, and 10, 20, ... seconds."""
    return tuple(Evaluation(100 * i, 10.0 * i, quality) for i, quality in enumerate(qualities, start=1))


@pytest.fixture
def make_trial() -> Callable[..., Trial]:
    def make(number: int, speed: float | None = None, quality: float | None = None, **rest: Any) -> Trial:
        half_width, curve = rest.pop("half_width", None), curve_of(rest.pop("curve", ()))
        beside = {"repeat": rest.pop("repeat", None), "way_to": rest.pop("way_to", None)}
        measurement = Measurement(
            throughput=None if speed is None else Throughput(speed, half_width, 10, 1.0),
            quality=curve[-1].quality if curve and quality is None else quality,
            curve=curve,
            peak_memory_bytes=rest.pop("peak", None),
            memory_limit_bytes=rest.pop("limit", None),
            shared=rest.pop("shared", False),
        )
        outcome = Outcome(Status.STOPPED if rest.pop("stopped", False) else Status.COMPLETED)
        if failure := rest.pop("failure", None):
            outcome = Outcome(Status.FAILED, Failure(failure), "as made")
        config = {"micro_batch_size": 16, "precision": "fp32"} | rest
        return Trial(number, config, outcome, measurement, seconds=10.0, **beside)

    return make


GRID = """
workload: some.module:fit
baseline: {micro_batch_size: 4, num_workers: 0, learning_rate: 1e-3}
knobs:
  micro_batch_size: {choice: [4, 8, 16, 32]}
  num_workers:      {choice: [0, 1]}
  learning_rate:    {scale: sqrt, multiplier: {choice: [1.0, 2.0]}}
objective: {quality: bleu_4, keep: 0.9}
budget: {trials: 8, samples_per_trial: 400}
"""


@pytest.fixture
def grid() -> Space:
    return spaces.complete(spaces.parse(GRID, "grid"), "grid")


@pytest.fixture
def recorded(grid: Space) -> Table:
    """A table made up: the larger the batch the faster, but 32 does not fit; the doubled rate spoils it."""
    rng, table = random.Random(0), Table(Header(grid, {}))
    for config in grid.every() or []:
        for seed in range(3):
            table.add(made_up_run(grid, config, seed, rng))
    return table


def made_up_run(space: Space, config: dict[str, Any], seed: int, rng: random.Random) -> Run:
    batch, workers = config["micro_batch_size"], config["num_workers"]
    multiplier = space.drawn(config)["learning_rate"]
    if batch > 16:
        outcome = Outcome(Status.FAILED, Failure.OOM, "made up")
        return Run(config, seed, outcome, timed=True, start_s=1.0, memory_limit_bytes=2**30)
    step_s = 0.4 + 0.01 * batch - 0.05 * workers
    best = 0.2 if multiplier == 1.0 else 0.1
    seen = [-(-n // batch) * batch for n in (100, 200, 300, 400)]  # after the step that gets so far
    return Run(
        config,
        seed,
        Outcome(Status.COMPLETED),
        timed=True,
        start_s=1.0,
        step_samples=(batch,) * 60,
        step_s=tuple(step_s * rng.gauss(1, 0.01) for _ in range(60)),
        evaluations=tuple((n, 0.5, best * n / 400 * rng.gauss(1, 0.01)) for n in seen),
        peak_memory_bytes=2**24 * batch,
        memory_limit_bytes=2**30,
    )
