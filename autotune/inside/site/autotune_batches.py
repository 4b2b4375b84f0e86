"""What an optimizer step has seen, by what the data loaders gave. Pure: no torch, no clock."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Mapping
from typing import Any, Iterator, NamedTuple  # noqa: UP035 - for Python 3.8

_DEEPEST = 3


class Seen(NamedTuple):
    """Of a batch, or of a step: its samples and its tokens, None where they are not known."""

    samples: int | None
    tokens: int | None = None


class Tally:
    """The samples and tokens of the batches that were trained on since the last optimizer step.

    A batch was trained on when a backward pass came after it. One that several came after counts once. Of
    several batches in a row each backward pass takes the last that is left, so that what is fetched ahead
    counts, and accumulated batches do; what was fetched for an evaluation does not. What was left before one
    is still there after it.
    """

    def __init__(self) -> None:
        self._source: Any = _nothing
        self._unused: list[Seen] = []
        self._trained_on: Any = weakref.WeakKeyDictionary()  # what is left of sources that were
        self._before: tuple[Any, list[Seen]] = (_nothing, [])  # the last of them
        self._counted: list[Seen] = []

    def fetched(self, source: Any, samples: int, tokens: int | None = None) -> None:
        """An iterator, the `source`, gave a batch."""
        if self._source() is not source:
            self._source = weakref.ref(source)
            self._unused = self._trained_on.get(source, [])
        self._unused.append(Seen(samples, tokens))

    def ended(self, source: Any) -> None:
        """An iterator has no more to give; where no backward pass ever came after, it was an evaluation's."""
        if self._source() is source and source not in self._trained_on:
            self._source, self._unused = self._before

    def backward(self) -> None:
        """A backward pass begins."""
        if self._unused:
            self._counted.append(self._unused.pop())
            source = self._source()
            if source is not None:  # next(iter(loader)) leaves none
                self._trained_on[source] = self._unused
                self._before = (self._source, self._unused)

    def stepped(self) -> Seen:
        """What the step has seen that has ended now; no samples are None, as where no batch was seen."""
        counted, self._counted = self._counted, []
        tokens = [batch.tokens for batch in counted if batch.tokens is not None]
        is_known = counted and len(tokens) == len(counted)
        samples = sum(batch.samples or 0 for batch in counted)
        return Seen(samples or None, sum(tokens) if is_known else None)


class Total:
    """All that a trial has seen up to now, by the `unit` that it is counted in: samples or tokens."""

    def __init__(self, unit: str, begun: Seen) -> None:
        self._unit, self.begun = unit, begun
        self.seen: int = getattr(begun, unit, None) or 0

    def add(self, seen: Seen) -> None:
        """A step has ended."""
        self.seen += getattr(seen, self._unit, None) or 0


def size(batch: Any, usual: int | None = None) -> int | None:
    """How many samples a batch has; None where unknown.

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
