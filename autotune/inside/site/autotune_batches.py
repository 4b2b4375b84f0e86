"""How many samples an optimizer step has seen, by what the data loaders gave. Pure: no torch, no clock."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Mapping
from typing import Any, Iterator  # noqa: UP035 - for Python 3.8

_DEEPEST = 3


class Tally:
    """The samples of the batches that were trained on since the last optimizer step.

    A batch was trained on when a backward pass came after it. One that several came after counts once. Of
    several batches in a row each backward pass takes the last that is left, so that what is fetched ahead
    counts, and accumulated batches do; what was fetched for an evaluation does not.
    """

    def __init__(self) -> None:
        self._source: Any = _nothing
        self._unused: list[int] = []
        self._trained_on: Any = weakref.WeakSet()  # the sources of which a batch was
        self._counted = 0

    def fetched(self, source: Any, samples: int) -> None:
        """An iterator, the `source`, gave a batch."""
        if self._source() is not source:
            self._source = weakref.ref(source)
            self._unused.clear()
        self._unused.append(samples)

    def ended(self, source: Any) -> None:
        """An iterator has no more to give; where no backward pass ever came after, it was an evaluation's."""
        if self._source() is source and source not in self._trained_on:
            self._unused.clear()

    def backward(self) -> None:
        """A backward pass begins."""
        if self._unused:
            self._counted += self._unused.pop()
            source = self._source()
            if source is not None:  # next(iter(loader)) leaves none
                self._trained_on.add(source)

    def stepped(self) -> int | None:
        """The samples of the step that has ended now; None where no batch was seen."""
        counted, self._counted = self._counted, 0
        return counted or None


def size(batch: Any, usual: int | None = None) -> int | None:
    """How many samples a batch has; None where nothing tells.

    That is `usual` where something in it has as many, or what the first dimension of most of its tensors is;
    where it has none, the length of most of its sequences.
    """
    found = list(_lengths(batch))
    tensors = [length for is_tensor, length in found if is_tensor]
    lengths = [length for _, length in found]
    if usual in lengths:
        return usual
    counted = Counter(tensors or lengths).most_common(1)
    return counted[0][0] if counted else None


def _lengths(value: Any, depth: int = 0) -> Iterator[tuple[bool, int]]:
    """The lengths of what is in a batch, and whether they are a tensor's; one without dimensions is 1."""
    if hasattr(value, "shape"):
        yield True, int(value.shape[0]) if len(value.shape) else 1
    elif isinstance(value, (Mapping, list, tuple)) and depth < _DEEPEST:
        for field in value.values() if isinstance(value, Mapping) else value:
            yield from _lengths(field, depth + 1)
        if not isinstance(value, Mapping):
            yield False, len(value)


def _nothing() -> None:
    """A reference to nothing."""
