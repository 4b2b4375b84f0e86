"""Synthetic trials of a search, with outcomes from formulas for speed, memory and quality."""

import math
import random
from dataclasses import replace

from autotune.core.measurement import Evaluation
from autotune.core.settings import Config
from autotune.display import view
from autotune.display.rows import TrialFigures, TrialRow
from autotune.judging.measurement.estimates import Figure

GIB = 2**30
LIMIT = 8 * GIB
BASELINE: Config = {
    "micro_batch_size": 16,
    "accumulation_steps": 1,
    "precision": "fp32",
    "num_workers": 2,
    "compile": "off",
    "channels_last": False,
    "learning_rate": 1e-4,
}
BEST: Config = BASELINE | {
    "micro_batch_size": 64,
    "precision": "bf16",
    "num_workers": 4,
    "channels_last": True,
    "learning_rate": 1.9e-4,
}
SPEED_OF = {"fp32": 1.0, "tf32": 1.35, "bf16": 1.9, "fp16": 1.85, "fp8": 1.7}
HOSTILE = '<script>window.hacked = true</script><img src=x onerror="window.hacked = true"> & \u202e%{x}'
SEEDS = 3


def samples_per_s(config: Config) -> float:
    batch = config["micro_batch_size"]
    faster = SPEED_OF[config["precision"]] * (1.07 if config["channels_last"] else 1)
    device = 150 * faster * batch / (batch + 14) * (1.12 if config["compile"] == "default" else 1)
    loader = 60 * (1 + config["num_workers"])
    return 1 / (1 / device**4 + 1 / loader**4) ** 0.25


def peak_bytes(config: Config) -> float:
    width = {"fp32": 1.0, "tf32": 1.0, "bf16": 0.6, "fp16": 0.6, "fp8": 0.55}[config["precision"]]
    return (0.7 + 0.085 * width * config["micro_batch_size"]) * GIB


def curve(config: Config, rng: random.Random, share: float = 1.0) -> tuple[Evaluation, ...]:
    batch = config["micro_batch_size"] * config["accumulation_steps"]
    rate = config["learning_rate"] / (1e-4 * math.sqrt(batch / 16))
    top = 0.166 - 0.012 * math.log2(rate) ** 2 - 0.006 * max(0.0, math.log2(batch / 64)) ** 2
    speed, found = samples_per_s(config), []
    for n in range(2500, int(20000 * share) + 1, 2500):
        level = top * (1 - math.exp(-n / (5200 + 12 * batch))) + rng.gauss(0, 0.0012)
        found.append(Evaluation(n, n / speed, max(0.0, level)))
    return tuple(found)


def figure(value: float, share: float = 0.012) -> Figure:
    return Figure(value, value * (1 - share), value * (1 + share))


def trial(number: int, config: Config, rng: random.Random, **rest: object) -> TrialRow:
    """Returns a trial: out of memory if it does not fit, stopped if it is slow or its quality is low."""
    row = TrialRow(
        number=number,
        kind="trial",
        repeats=None,
        config=config,
        knobs=view.knobs(config),
        status="completed",
        failure=None,
        stopped_for=None,
        reason="",
        throughput=None,
        factor=None,
        quality=None,
        keeps_quality=None,
        on_front=False,
        peak_memory_bytes=None,
        memory_is_rising=False,
        memory_share=None,
        samples=0,
        seconds=9.0,
        shared=False,
        disturbed=False,
        throttled=False,
        curve=(),
        run=TrialFigures(0, None, None, None, memory_is_rising=False, memory_share=None),
    )
    peak = peak_bytes(config)
    if peak > LIMIT:
        why = "CUDA out of memory: tried to allocate 1.2 GiB"
        return replace(row, status="failed", failure="oom", reason=why, samples=config["micro_batch_size"])
    speed = samples_per_s(config) * rng.gauss(1, 0.01)
    whole = curve(config, rng)
    row = replace(
        row,
        throughput=figure(speed),
        factor=figure(speed / samples_per_s(BASELINE)),
        peak_memory_bytes=int(peak),
        memory_share=peak / LIMIT,
        samples=20000,
        seconds=20000 / speed + 20,
        quality=whole[-1].quality,
        keeps_quality=whole[-1].quality >= 0.152,
        curve=whole,
    )
    if "kind" in rest:
        return replace(row, **rest)
    if speed < 150 and number:
        return stopped(row, 0, "slow", "surely slower than trial 6, which keeps the quality")
    if whole[2].quality < 0.105 and number:
        reason = "bleu_4 0.0931 is surely below what is to be kept of the baseline's 0.1402"
        return stopped(row, 3, "poor", reason)
    return replace(row, **rest)


def stopped(row: TrialRow, evaluations: int, stopped_for: str, reason: str) -> TrialRow:
    reached = row.curve[:evaluations]
    share = (evaluations + 0.5) / 8
    return replace(
        row,
        status="stopped",
        stopped_for=stopped_for,
        reason=reason,
        curve=reached,
        quality=reached[-1].quality if reached else None,
        keeps_quality=None,
        samples=int(20000 * share),
        seconds=row.seconds * share,
    )


def drawn(rng: random.Random) -> Config:
    batch = rng.choice([8, 16, 32, 64, 128, 256])
    accumulation = rng.choice([1, 1, 2, 4])
    return {
        "micro_batch_size": batch,
        "accumulation_steps": accumulation,
        "precision": rng.choice(["fp32", "tf32", "bf16", "bf16", "fp16", "fp8"]),
        "num_workers": rng.choice([0, 2, 4, 8]),
        "compile": rng.choice(["off", "off", "default"]),
        "channels_last": rng.random() < 0.6,
        "learning_rate": 1e-4 * math.sqrt(batch * accumulation / 16) * 2 ** rng.uniform(-1, 1),
    }


def searched(count: int) -> tuple[TrialRow, ...]:
    """Returns `count` trials, the baseline and the winner included, and their repeats."""
    rng = random.Random(7)
    rows = [replace(trial(0, BASELINE, rng), kind="baseline", keeps_quality=True)]
    rows += [trial(n, drawn(rng), rng, shared=n % 5 == 0, throttled=n == 17) for n in range(1, count)]
    rows[11] = replace(trial(11, BEST, rng), kind="winner", keeps_quality=True, status="completed")
    failed = {"status": "failed", "quality": None, "curve": ()}
    rows[5] = replace(rows[5], failure="error", reason=HOSTILE, throughput=None, **failed)
    rows[7] = replace(rows[7], failure="diverged", reason="the loss is no number", **failed)
    fastest = rows[11].throughput.value
    for n, row in enumerate(rows):
        if n != 11 and row.throughput and row.keeps_quality and row.throughput.value >= fastest:
            rows[n] = replace(row, keeps_quality=False, quality=row.quality * 0.87, curve=())
    rows[2] = replace(rows[2], status="", reason="", keeps_quality=None)
    for member in (0, 11, 22):
        for _ in range(SEEDS):
            again = trial(len(rows), rows[member].config, rng, kind="repeat", repeats=member)
            rows.append(replace(again, keeps_quality=None))
    for config in between():
        rows.append(replace(trial(len(rows), config, rng, kind="ablation", repeats=None), keeps_quality=None))
    return tuple(_with_front(rows))


def _with_front(rows: list[TrialRow]) -> list[TrialRow]:
    best, front = 0.0, set()
    searched = [r for r in rows if r.kind not in {"repeat", "ablation"}]
    ended = [r for r in searched if r.status == "completed" and r.quality is not None]
    for row in sorted(ended, key=lambda r: r.throughput.value, reverse=True):
        if row.quality > best:
            best = row.quality
            front.add(row.number)
    return [replace(r, on_front=r.number in front) for r in rows]


def between() -> list[Config]:
    """Returns the configurations of the ablation, each with one more of the winner's settings."""
    knobs = ("micro_batch_size", "precision", "num_workers", "channels_last")
    return [BASELINE | {knob: BEST[knob] for knob in knobs[:n]} for n in range(1, 5)]
