"""Peak memory as an affine function of the micro-batch in every group, fitted to the peaks of trials.

Bayesian linear regression with conjugate priors (Gelman et al., "Bayesian Data Analysis", 3rd ed., chapters
14 and 15): peak = a + b * x, where x is the micro-batch times what a sample is expected to need. A group's
(a, b) are what all have in common, plus what each of its settings adds, plus what is the group's own; so a
group without a trial is predicted from the others, with the doubt that is due.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from autotune.memory.memory_needs import Label, Need, per_sample

Array = NDArray[np.floating]

_NOISE = 0.02  # of a peak: what differs from run to run, and how far a peak is off a straight line
_NOISE_BYTES = 16 * 2**20
_RISING_NOISE = 0.15  # of a peak that was still rising: it says no more than about where the peak will be
_WIDTH = 3.0  # half an interval, in standard deviations: 99.7% of a normal, 99% of a t with 8 degrees
_CENTRE, _COMMON_SD = 0.5, 0.5  # of a and b, in units of the smallest and of the largest peak
_OWN_SD = np.array([0.03, 0.06])  # of what is a group's own
_SETTING_SD = np.array([0.15, 0.25])  # of what one value of a setting adds
_NUMBER_SD = np.array([1.0, 1.0])  # of one value of a number of which nothing is known: layers, widths
_MOST_VALUES = 8  # a setting with more values than that has no effect by value, but is the group's own
_DOUBT = 4.0  # how many peaks the prior's word on the noise is worth


@dataclass(frozen=True)
class Prediction:
    """Peak memory in bytes: what is expected, and the bounds between which it almost certainly lies."""

    expected_bytes: float
    low_bytes: float
    high_bytes: float


class Peak(NamedTuple):
    """The peak of a trial in bytes; `is_rising` says that it was still growing when the trial ended."""

    need: Need
    peak_bytes: float
    is_rising: bool = False


class _Affine(NamedTuple):
    """Mean and covariance of (a, b), of one group or of each of several."""

    mean: Array
    covariance: Array


class Peaks:
    """The peaks of trials, one for each group and micro-batch, and what they say about others.

    Runs of the same size repeat their deviation from the line too: their mean counts as one peak.
    """

    def __init__(self, peaks: Iterable[Peak]) -> None:
        """`peaks`, at least one. One that was still rising says little, and nothing next to a settled one."""
        cells: dict[tuple[frozenset[Label], float], list[Peak]] = {}
        needs: dict[frozenset[Label], Need] = {}
        for peak in peaks:
            labels = peak.need.labels
            needs.setdefault(labels, peak.need)
            cells.setdefault((labels, peak.need.micro_batch_size), []).append(peak)
        self._index = {labels: i for i, labels in enumerate(needs)}
        ratios = {labels: per_sample(need) for labels, need in needs.items()}
        y, noise = (np.array(each) for each in zip(*map(_cell, cells.values()), strict=True))
        x = np.array([ratios[labels] * size for labels, size in cells])
        self._x_scale = x.max()
        self._units = np.array([y.min(), y.max()])
        self._values = _values(self._index)
        several = [found for found in self._values.values() if 2 <= len(found) <= _MOST_VALUES]
        telling = sorted((label for found in several for label in found), key=repr)
        self._columns = {label: i for i, label in enumerate(telling, start=1)}
        prior_sd = np.array([np.full(2, _COMMON_SD), *(_sd(label) for label in telling)])
        group = np.array([self._index[labels] for labels, _ in cells])
        self._fit(self._line(x), y, 1 / _noise_variance(y, noise), group, prior_sd)

    def _fit(self, lines: Array, y: Array, weight: Array, group: NDArray[np.int64], prior_sd: Array) -> None:
        """The posterior of what is common and of what settings add, and with it of every group's (a, b)."""
        residual = y - lines @ np.full(2, _CENTRE)
        information = np.zeros((len(self._index), 2, 2))
        np.add.at(information, group, np.einsum("n,ni,nj->nij", weight, lines, lines))
        pull = np.zeros((len(self._index), 2))
        np.add.at(pull, group, (weight * residual)[:, None] * lines)

        # A group's own part is integrated out first: what is left has a column for each setting's value.
        own = np.diag(_OWN_SD**-2)
        apart = np.linalg.inv(information + own)
        shrink = apart @ own
        rows = self._rows(self._index)
        flat = rows.reshape(-1, rows.shape[-1])
        precision = np.diag(prior_sd.T.ravel() ** -2)
        precision += flat.T @ ((own - own @ shrink) @ rows).reshape(flat.shape)
        total = flat.T @ np.einsum("gji,gj->gi", shrink, pull).ravel()
        covariance = np.linalg.inv(precision)
        self._common = _Affine(covariance @ total, covariance)
        self._groups = _Affine(
            _CENTRE
            + np.einsum("gij,gj->gi", apart, pull)
            + np.einsum("gij,gj->gi", shrink, rows @ self._common.mean),
            apart + shrink @ (rows @ covariance @ rows.mT) @ shrink.mT,
        )
        explained = np.einsum("gi,gij,gj->", pull, apart, pull) + total @ self._common.mean
        surprise = weight @ residual**2 - explained
        off = y - (lines * self._groups.mean[group]).sum(axis=1)
        taken = weight * np.einsum("ni,nij,nj->n", lines, self._groups.covariance[group], lines)
        free = len(y) - taken.sum()
        # Peaks that the prior did not expect, or that scatter more than assumed around what was fitted, widen
        # every interval; ones that scatter less narrow none.
        unexpected = (_DOUBT + surprise) / (_DOUBT + len(y))
        scattered = (_DOUBT + weight @ off**2) / (_DOUBT + free)
        self._inflation = max(1.0, float(unexpected), float(scattered))

    def _line(self, x: Array) -> Array:
        """What (a, b), in units of the peaks, are multiplied with to give the peak at `x`."""
        return np.asarray(np.stack([np.ones_like(x), x / self._x_scale], axis=-1) * self._units)

    def _rows(self, groups: Iterable[frozenset[Label]]) -> Array:
        """Which of the common effects add up to every group's a, and which to its b."""
        places = [[0, *map(self._columns.__getitem__, labels & self._columns.keys())] for labels in groups]
        width = 1 + len(self._columns)
        rows = np.zeros((len(places), 2, 2 * width))
        for row, columns in zip(rows, places, strict=True):
            row[0, columns] = 1.0
        rows[:, 1, width:] = rows[:, 0, :width]
        return rows

    def predict(self, need: Need) -> Prediction:
        labels = need.labels
        index = self._index.get(labels)
        mean, covariance = (
            self._unseen(labels)
            if index is None
            else (self._groups.mean[index], self._groups.covariance[index])
        )
        line = self._line(np.asarray(per_sample(need) * need.micro_batch_size))
        expected = float(line @ mean)
        variance = float(line @ covariance @ line) + float(_noise_variance(expected))
        half = _WIDTH * float(np.sqrt(self._inflation * variance))
        return Prediction(expected, max(0.0, expected - half), expected + half)

    def _unseen(self, labels: frozenset[Label]) -> _Affine:
        """A group without a peak. A value that is new adds doubt, unless most trials have their own."""
        row = self._rows([labels])[0]
        variance = _OWN_SD**2
        for label in labels:
            values = self._values.get(label.name, set())
            if label not in values and len(values) <= _MOST_VALUES:
                variance = variance + 2 * _sd(label) ** 2  # it may be off, and so may the values seen so far
        return _Affine(
            _CENTRE + row @ self._common.mean, row @ self._common.covariance @ row.T + np.diag(variance)
        )


def _cell(peaks: Sequence[Peak]) -> tuple[float, float]:
    """The mean of the peaks of one size, and how uncertain each is; only settled ones count."""
    settled = [peak for peak in peaks if not peak.is_rising]
    found = settled or peaks
    return sum(p.peak_bytes for p in found) / len(found), _NOISE if settled else _RISING_NOISE


def _noise_variance(peak: Array | float, share: Array | float = _NOISE) -> Array:
    return np.asarray((share * peak) ** 2 + _NOISE_BYTES**2)


def _values(groups: Iterable[frozenset[Label]]) -> dict[str, set[Label]]:
    values: dict[str, set[Label]] = {}
    for label in {label for labels in groups for label in labels}:
        values.setdefault(label.name, set()).add(label)
    return values


def _sd(label: Label) -> Array:
    is_number = isinstance(label.value, int | float) and not isinstance(label.value, bool)
    return _NUMBER_SD if is_number and not label.power else _SETTING_SD
