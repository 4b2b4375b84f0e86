"""Shared by the tuner's tests: a space, curves, trials with given figures, and a made-up table."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from autotune.core.measurement import Evaluation, Measurement, Slice, Throughput
from autotune.core.trial import Failure, Outcome, Repeat, Status, Trial
from autotune.space import configurations, spaces
from autotune.space.space import Space
from lab.replay.table import Header, Point, Run, Table

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
objective: {speed: throughput, quality: bleu_4, keep: 0.95, select: same-quality}
budget: {trials: 40, samples_per_trial: 20000, repeats: 3, time: 2h}
"""


@pytest.fixture
def space() -> Space:
    return spaces.complete(spaces.parse(SPACE, "test"), "test")


@pytest.fixture
def planned() -> Space:
    """The same space with planned lengths; the baseline has 1250 steps of 16 samples."""
    text = SPACE.replace("baseline: {", "baseline: {max_iters: 1250, warmup_iters: 100, ")
    text = text.replace("knobs:\n", "knobs:\n  length: {steps: [max_iters, warmup_iters]}\n")
    return spaces.complete(spaces.parse(text, "test"), "test")


def curve_of(qualities: Sequence[float], **fields: Any) -> tuple[Evaluation, ...]:
    """Evaluations after 100, 200, ... samples and 10, 20, ... seconds, all with these further `fields`."""
    return tuple(Evaluation(100 * i, 10.0 * i, q, **fields) for i, q in enumerate(qualities, start=1))


def reaching(trial: Trial, samples: float, target: float = 0.2) -> Trial:
    """Returns `trial` with a quality that reached `target` after so many samples."""
    curve = (Evaluation(round(samples / 2), 1.0, target), Evaluation(round(samples), 2.0, target))
    return replace(trial, measurement=replace(trial.measurement, curve=curve, quality=target))


def slices_of(factors: Mapping[int, float], rounds: int = 20, apart: float = 0.0) -> tuple[Slice, ...]:
    """A race in which trials are `factors` times as fast as the baseline, give or take `apart` by round.

    Every round is a launch. With 20 rounds 2% apart, the ends of the intervals are 2% from the factors.
    """
    return tuple(
        Slice(number, i, 100, 1 / (factor * (1 + apart * (-1) ** i if number else 1)), 10, launch=i)
        for i in range(1, rounds + 1)
        for number, factor in {0: 1.0, **factors}.items()
    )


@pytest.fixture
def make_trial() -> Callable[..., Trial]:
    def make(number: int, speed: float | None = None, quality: float | None = None, **rest: Any) -> Trial:
        fields = {name: rest.pop(name) for name in ("chance", "collapsed") if name in rest}
        half_width, curve = rest.pop("half_width", None), curve_of(rest.pop("curve", ()), **fields)
        references = {name: rest.pop(name) for name in ("repeat", "ablation_of", "race") if name in rest}
        measurement = Measurement(
            throughput=None if speed is None else Throughput(speed, half_width, 10, 1.0),
            quality=curve[-1].quality if curve and quality is None else quality,
            curve=curve,
            peak_memory_bytes=rest.pop("peak", None),
            memory_limit_bytes=rest.pop("limit", None),
            memory_is_rising=rest.pop("rising", False),
            shared=rest.pop("shared", False),
            telemetry=rest.pop("telemetry", {}),
            **{name: rest.pop(name) for name in ("items", "slices", "scores") if name in rest},
        )
        outcome = Outcome(Status.STOPPED if rest.pop("stopped", False) else Status.COMPLETED)
        if failure := rest.pop("failure", None):
            outcome = Outcome(Status.FAILED, Failure(failure), "as made")
        config = {"micro_batch_size": 16, "precision": "fp32"} | rest
        return Trial(number, config, outcome, measurement, seconds=10.0, **references)

    return make


@pytest.fixture
def confirming(make_trial: Callable[..., Trial]) -> Callable[..., list[Trial]]:
    """Trials that confirm one of `trials` as faster by `factor`: a race, and three seeds of both sides.

    The finalist's seeds have the other figures given, and qualities `apart` from each other. Numbers begin at
    `start`, or follow those of `trials`.
    """

    def make(
        trials: Sequence[Trial],
        of: int,
        factor: float = 3.0,
        start: int | None = None,
        apart: float = 0.0,
        **figures_of_seeds: Any,
    ) -> list[Trial]:
        known = {t.number: t for t in trials}
        first = max(known) + 1 if start is None else start
        made = [make_trial(first, race=(0, of), slices=slices_of({of: factor}, apart=0.01))]
        for seed in (1, 2, 3):
            for number in (0, of):
                like, repeat = known[number], Repeat(number, seed)
                curve = [point.quality for point in like.measurement.curve] or [0.2]
                figures = {"speed": like.samples_per_s, "curve": curve, "half_width": 0.1}
                if number:
                    figures |= figures_of_seeds
                    figures["curve"] = [quality + (seed - 2) * apart for quality in figures["curve"]]
                made.append(make_trial(first + len(made), **figures, **like.config, repeat=repeat))
        return made

    return make


GRID = """
workload: some.module:fit
baseline: {micro_batch_size: 4, num_workers: 0, learning_rate: 1e-3}
knobs:
  micro_batch_size: {choice: [4, 8, 16, 32]}
  num_workers:      {choice: [0, 1]}
  learning_rate:    {scale: sqrt, multiplier: {choice: [1.0, 2.0]}}
objective: {quality: bleu_4, keep: 0.9, select: same-quality}
budget: {trials: 8, samples_per_trial: 400}
"""


@pytest.fixture
def grid() -> Space:
    return spaces.complete(spaces.parse(GRID, "grid"), "grid")


@pytest.fixture
def recorded(grid: Space) -> Table:
    """A made-up table: larger batches are faster, but 32 does not fit; a doubled rate halves the quality."""
    rng, table = random.Random(0), Table(Header(grid, {}))
    for config in configurations.allowed(grid) or []:
        for seed in range(3):
            table.add(made_up_run(grid, config, seed, rng))
    return table


def made_up_run(space: Space, config: dict[str, Any], seed: int, rng: random.Random) -> Run:
    batch, workers = config["micro_batch_size"], config["num_workers"]
    multiplier = configurations.drawn_values(space, config)["learning_rate"]
    if batch > 16:
        outcome = Outcome(Status.FAILED, Failure.OOM, "made up")
        return Run(config, seed, outcome, timed=True, start_s=1.0, memory_limit_bytes=2**30)
    step_s = 0.4 + 0.01 * batch - 0.05 * workers
    best = 0.2 if multiplier == 1.0 else 0.1
    # After the step that reaches it. The run is longer than a trial, as one to a target may be.
    seen = [-(-n // batch) * batch for n in range(100, 900, 100)]
    return Run(
        config,
        seed,
        Outcome(Status.COMPLETED),
        timed=True,
        start_s=1.0,
        step_samples=(batch,) * 60,
        step_s=tuple(step_s * rng.gauss(1, 0.01) for _ in range(60)),
        evaluations=tuple(Point(n, 0.5, best * min(1, n / 400) * rng.gauss(1, 0.01)) for n in seen),
        peak_memory_bytes=2**24 * batch,
        memory_limit_bytes=2**30,
    )
