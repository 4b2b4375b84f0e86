"""Estimates time, energy, money and gain of a training with a trial's settings. Pure."""

import math
from dataclasses import dataclass

from autotune.core import units
from autotune.core.trial import Trial
from autotune.judging.decisions.claims import claim
from autotune.judging.decisions.history import History
from autotune.judging.measurement import estimates
from autotune.judging.measurement.estimates import Figure


@dataclass(frozen=True)
class Prices:
    """The prices of an hour on the machine and of a kilowatt-hour; None if not given."""

    per_hour: float | None = None
    per_kwh: float | None = None
    currency: str = ""


@dataclass(frozen=True)
class Cost:
    """The estimated cost of the whole training; intervals are at 95%."""

    hours: Figure
    kwh: Figure | None = None  # of the GPU, at the trials' mean power; None if no trial measured it
    money: Figure | None = None  # None without prices, or if energy has a price and is unknown


def cost(trial: Trial, history: History, whole_s: Figure, prices: Prices | None) -> Cost:
    """Returns the cost of a training that takes `whole_s` seconds with the settings of `trial`."""
    runs = [run.measurement for run in history.runs_of(trial.number)]
    # The GPU's power includes what other processes use.
    unshared = [m for m in runs if not m.shared and m.origin == trial.measurement.origin]
    power_w = estimates.mean([m.telemetry["gpu_power_w"] for m in unshared if "gpu_power_w" in m.telemetry])
    hours, kwh = whole_s.scaled(1 / units.S_PER_HOUR), None
    if power_w is not None and power_w.value > 0:
        kwh = estimates.multiply(hours, power_w.scaled(1 / 1000))  # in kW
    return Cost(hours, kwh, _money(hours, kwh, prices) if prices else None)


def _money(hours: Figure, kwh: Figure | None, prices: Prices) -> Figure | None:
    priced = [(hours, prices.per_hour), (kwh, prices.per_kwh)]
    parts = [(figure, price) for figure, price in priced if price is not None]
    costs = [figure.scaled(price) for figure, price in parts if figure is not None]
    if not parts or len(costs) < len(parts):
        return None
    value = math.fsum(figure.value for figure in costs)
    if any(figure.low is None or figure.high is None for figure in costs):
        return Figure(value)
    low, high = math.fsum(f.low or 0.0 for f in costs), math.fsum(f.high or 0.0 for f in costs)
    return estimates.bounded(value, low, high)  # as if both costs were high together


def gain(trial: Trial, history: History) -> Figure | None:
    """Returns how many times sooner a training ends, or reaches the target, than the baseline's, if known."""
    speed, target = history.factor(trial), history.space.objective.target
    if speed is None:
        return None
    if target is None:
        return speed.scaled(history.length_ratio(trial))
    number = trial.original
    if not number:
        return Figure(1.0)
    claimed = claim(number, history) if history.relative.raced(trial) else None
    if claimed is not None and claimed.factor is not None:
        return claimed.factor
    needed, reference = (history.to_target.samples(history.trial(n)) for n in (number, 0))
    return Figure(speed.value * reference / needed) if needed and reference else None
