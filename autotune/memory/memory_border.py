"""Estimates the largest micro-batch that fits, from trials that are only known to have fitted or failed.

Sizes are positions in doublings: log2(micro-batch * expected need per sample). All groups share one border,
from which each deviates a little; the posterior of both is computed on a grid.
"""

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from autotune.memory.memory_needs import Label, Need, per_sample

Array = NDArray[np.float64]

_OWN_SD = 0.5  # doublings: deviation of a group's border from the shared one
_SLACK = 0.1  # doublings: the same size may fit or fail, by accumulation or fragmentation
_STEP = 0.125
_BEYOND = 10.0  # doublings by which the grid extends beyond the sizes tried

_Group = tuple[frozenset[Label], bool]


class Border:
    """The probability that a size fits, from trials that fitted or ran out of memory.

    Accumulation is ignored: it moves the border by the gradients, which are small next to activations.
    """

    def __init__(self, tried: Iterable[tuple[Need, bool]]) -> None:
        """`tried`: at least one size, each with True if it fitted."""
        cells = dict.fromkeys((_group(need), _position(need), fitted) for need, fitted in tried)
        positions = np.array([position for _, position, _ in cells])
        self._grid = np.arange(positions.min() - _BEYOND, positions.max() + _BEYOND, _STEP)
        spread = np.exp(-0.5 * ((self._grid[:, None] - self._grid[None]) / _OWN_SD) ** 2)
        spread /= spread.sum(axis=1, keepdims=True)

        self._index = {group: i for i, group in enumerate(dict.fromkeys(group for group, _, _ in cells))}
        fits = self._fits(positions[:, None])
        fitted = np.array([fitted for _, _, fitted in cells])
        seen = np.log(np.maximum(np.where(fitted[:, None], fits, 1 - fits), 1e-9))
        logs = np.zeros((len(self._index), len(self._grid)))
        np.add.at(logs, [self._index[group] for group, _, _ in cells], seen)
        self._own = np.exp(logs)
        # Log-likelihood of the shared border: per group, and of all groups.
        by_group = np.log(self._own @ spread.T)
        total = by_group.sum(axis=0)
        self._elsewhere = _posterior(total - by_group) @ spread
        self._unknown = _posterior(total) @ spread

    def chance(self, need: Need) -> float:
        index = self._index.get(_group(need))
        place = self._unknown if index is None else _normal(self._elsewhere[index] * self._own[index])
        return float(place @ self._fits(_position(need)))

    def _fits(self, position: Array | float) -> Array:
        """Returns the probability that `position` fits for each grid point as the border."""
        return np.asarray(0.5 + 0.5 * np.tanh((self._grid - position) / (2 * _SLACK)))


def _group(need: Need) -> _Group:
    return need.group, need.recomputes


def _position(need: Need) -> float:
    return math.log2(need.micro_batch_size * per_sample(need))


def _posterior(logs: Array) -> Array:
    return _normal(np.exp(logs - logs.max(axis=-1, keepdims=True)))


def _normal(weights: Array) -> Array:
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True))
