"""Models peak memory per group as an affine function of the micro-batch, fitted to the peaks of trials.

Bayesian linear regression with conjugate priors (Gelman et al., "Bayesian Data Analysis", 3rd ed., chapters
14 and 15): peak = a + b * x, with x = micro-batch * expected need per sample. The (a, b) of a group are the
sum of a common part, an effect of each of its settings, and a part of its own, so a group without trials is
predicted from the others, with wider intervals.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from autotune.memory.memory_needs import Label, Need, per_sample

Array = NDArray[np.floating]

_NOISE = 0.02  # relative: variation from run to run, and deviation from a straight line
_NOISE_BYTES = 16 * 2**20
_RISING_NOISE = 0.15  # relative, of a peak that was still rising and so is only a rough guide
_WIDTH = 3.0  # half-width of an interval in SDs: 99.7% of a normal, 99% of a t with 8 degrees
_CENTRE, _COMMON_SD = 0.5, 0.5  # prior mean and SD of a and b, in units of the smallest and largest peak
_OWN_SD = np.array([0.03, 0.06])  # prior SD of a group's own part
_SETTING_SD = np.array([0.15, 0.25])  # prior SD of the effect of one value of a setting
_NUMBER_SD = np.array([1.0, 1.0])  # the same for a number of unknown effect: layers, widths
_MOST_VALUES = 8  # with more values, the effect of a setting belongs to the group's own part
_DOUBT = 4.0  # weight of the prior on the noise, in peaks


@dataclass(frozen=True)
class Prediction:
    """Expected peak memory in bytes, and bounds between which it almost certainly lies."""

    expected_bytes: float
    low_bytes: float
    high_bytes: float


class Peak(NamedTuple):
    """The peak of a trial in bytes; `is_rising`: it was still growing when the trial ended."""

    need: Need
    peak_bytes: float
    is_rising: bool = False


class _Affine(NamedTuple):
    """Mean and covariance of (a, b), of one group or stacked for several."""

    mean: Array
    covariance: Array


class Peaks:
    """A regression on the peaks of trials, one peak per group and micro-batch.

    Runs of the same size repeat the same deviation from the line, so their mean counts as one peak.
    """

    def __init__(self, peaks: Iterable[Peak]) -> None:
        """`peaks`: at least one. A rising peak weighs little, and nothing if its size has a settled one."""
        by_need: dict[Need, list[Peak]] = {}
        for peak in peaks:
            by_need.setdefault(peak.need, []).append(peak)
        ratios: dict[frozenset[Label], float] = {}
        cells: dict[tuple[frozenset[Label], float], list[Peak]] = {}
        for need, cell in by_need.items():
            labels = need.labels
            if labels not in ratios:
                ratios[labels] = per_sample(need)
            cells[labels, need.micro_batch_size] = cell
        self._index = {labels: i for i, labels in enumerate(ratios)}
        y, noise = (np.array(values) for values in zip(*map(_cell, cells.values()), strict=True))
        x = np.array([ratios[labels] * size for labels, size in cells])
        self._x_scale = x.max()
        self._units = np.array([y.min(), y.max()])
        self._values: dict[str, set[Label]] = defaultdict(set)
        for label in {label for labels in self._index for label in labels}:
            self._values[label.name].add(label)
        several = [values for values in self._values.values() if 2 <= len(values) <= _MOST_VALUES]
        labels_with_effect = sorted((label for values in several for label in values), key=repr)
        self._columns = {label: i for i, label in enumerate(labels_with_effect, start=1)}
        prior_sd = np.array([np.full(2, _COMMON_SD), *map(_sd, labels_with_effect)])
        group = np.array([self._index[labels] for labels, _ in cells])
        self._fit(self._line(x), y, 1 / _noise_variance(y, noise), group, prior_sd)

    def _fit(self, lines: Array, y: Array, weight: Array, group: NDArray[np.int64], prior_sd: Array) -> None:
        """Computes the posterior of the common part and the settings' effects, and of each group's (a, b)."""
        residual = y - lines @ np.full(2, _CENTRE)
        information = np.zeros((len(self._index), 2, 2))
        np.add.at(information, group, np.einsum("n,ni,nj->nij", weight, lines, lines))
        pull = np.zeros((len(self._index), 2))
        np.add.at(pull, group, (weight * residual)[:, None] * lines)

        # The groups' own parts are integrated out first, which leaves one column per value of a setting.
        precision_of_own = np.diag(_OWN_SD**-2)
        apart = np.linalg.inv(information + precision_of_own)
        shrink = apart @ precision_of_own
        rows = self._rows(self._index)
        flat = rows.reshape(-1, rows.shape[-1])
        precision = np.diag(prior_sd.T.ravel() ** -2)
        precision += flat.T @ ((precision_of_own - precision_of_own @ shrink) @ rows).reshape(flat.shape)
        total = flat.T @ np.einsum("gji,gj->gi", shrink, pull).ravel()
        covariance = np.linalg.inv(precision)
        self._common = _Affine(covariance @ total, covariance)
        mean = _CENTRE + np.einsum("gij,gj->gi", apart, pull)
        mean = mean + np.einsum("gij,gj->gi", shrink, rows @ self._common.mean)
        self._groups = _Affine(mean, apart + shrink @ (rows @ covariance @ rows.mT) @ shrink.mT)
        explained = np.einsum("gi,gij,gj->", pull, apart, pull) + total @ self._common.mean
        surprise = weight @ residual**2 - explained
        off = y - (lines * self._groups.mean[group]).sum(axis=1)
        leverage = weight * np.einsum("ni,nij,nj->n", lines, self._groups.covariance[group], lines)
        free = len(y) - leverage.sum()
        # Peaks that the prior did not expect, or that scatter around the fit more than assumed, widen all
        # intervals; less scatter does not narrow them.
        unexpected = (_DOUBT + surprise) / (_DOUBT + len(y))
        scattered = (_DOUBT + weight @ off**2) / (_DOUBT + free)
        self._inflation = max(1.0, float(unexpected), float(scattered))

    def _line(self, x: Array) -> Array:
        """Returns the factors by which a and b, in units of the peaks, add up to the peak at `x`."""
        return np.asarray(np.stack([np.ones_like(x), x / self._x_scale], axis=-1) * self._units)

    def _rows(self, groups: Iterable[frozenset[Label]]) -> Array:
        """Returns the design matrix (groups, 2, effects): which effects add up to each group's a and b."""
        places = [[0, *map(self._columns.__getitem__, labels & self._columns.keys())] for labels in groups]
        width = 1 + len(self._columns)
        rows = np.zeros((len(places), 2, 2 * width))
        for row, columns in zip(rows, places, strict=True):
            row[0, columns] = 1.0
        rows[:, 1, width:] = rows[:, 0, :width]
        return rows

    def predict(self, need: Need) -> Prediction:
        labels = need.labels
        if (index := self._index.get(labels)) is not None:
            mean, covariance = self._groups.mean[index], self._groups.covariance[index]
        else:
            mean, covariance = self._unseen(labels)
        line = self._line(np.asarray(per_sample(need) * need.micro_batch_size))
        expected = float(line @ mean)
        variance = float(line @ covariance @ line) + float(_noise_variance(expected))
        half = _WIDTH * float(np.sqrt(self._inflation * variance))
        return Prediction(expected, max(0.0, expected - half), expected + half)

    def _unseen(self, labels: frozenset[Label]) -> _Affine:
        """Returns (a, b) of a group without peaks, less certain the fewer values of a setting were seen."""
        row = self._rows([labels])[0]
        variance = _OWN_SD**2
        for label in labels:
            values = self._values.get(label.name, set())
            if label not in values and len(values) <= _MOST_VALUES:
                variance = variance + 2 * _sd(label) ** 2  # its own effect, and that of the values seen
        covariance = row @ self._common.covariance @ row.T + np.diag(variance)
        return _Affine(_CENTRE + row @ self._common.mean, covariance)


def _cell(peaks: Sequence[Peak]) -> tuple[float, float]:
    """Returns the mean peak of one size and its relative noise; uses only settled peaks if there are any."""
    settled = [peak for peak in peaks if not peak.is_rising]
    counted = settled or peaks
    return sum(p.peak_bytes for p in counted) / len(counted), _NOISE if settled else _RISING_NOISE


def _noise_variance(peak: Array | float, share: Array | float = _NOISE) -> Array:
    return np.asarray((share * peak) ** 2 + _NOISE_BYTES**2)


def _sd(label: Label) -> Array:
    is_number = isinstance(label.value, int | float) and not isinstance(label.value, bool)
    return _NUMBER_SD if is_number and not label.power else _SETTING_SD
