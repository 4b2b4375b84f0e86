"""Decides which optimizer calls are steps, and counts the samples of loaders' batches. No torch, no clock."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Mapping
from typing import Any, Callable, Iterator, NamedTuple  # noqa: UP035 - for Python 3.8

_DEEPEST = 3
_MOST_UNFED = 100  # consecutive steps without a new batch; with more, the data come from elsewhere
_ROWS = 2  # dimensions of a mask of tokens; one with more says which tokens attend to which
_STEADY = 3  # consecutive doubtful steps before the doubt is reported
_OTHERS = 20  # consecutive passes that end in another optimizer's step: GANs make up to ten
_UNSEEN = 16  # consecutive steps without a visible backward pass
_BY_HAND = 10  # passes: some scripts make a few before training, to summarise the model, say
_padding: list[int] = []  # the padding token, if known


class Steps:
    """Counts backward passes; calls are steps of the first optimizer, or of a later one once that stops."""

    def __init__(self) -> None:
        self.passes = 0
        self._leader: Any = lambda: None  # a weak reference to the optimizer whose steps count
        self._ended_at = -1  # number of passes at the last step
        self._others, self._other_at = 0, -1  # passes without the leader; the last of them
        self._unseen = 0
        self._has_optimizer = False

    def make_optimizer(self, init: Any, *args: Any, **kwargs: Any) -> None:
        self._has_optimizer = True
        init(*args, **kwargs)

    def passed(self) -> bool:
        """Notes the end of a backward pass; returns True if it is a step, because no optimizer exists."""
        self.passes += 1
        return not self._has_optimizer and self.passes >= _BY_HAND

    def stepped(self, optimizer: Any) -> bool:
        """Returns True if this call of an optimizer ends a step of the training."""
        self._has_optimizer = True
        leader = self._leader()
        if leader is not None and leader is not optimizer:
            self._others += self._other_at != self.passes
            self._other_at = self.passes
            if self._others <= _OTHERS:
                return False
        self._leader = weakref.ref(optimizer)
        # If passes are invisible (`torch.func`, a replayed CUDA graph), each call counts.
        self._unseen = self._unseen + 1 if self.passes == self._ended_at else 0
        if 0 < self._unseen <= _UNSEEN and self.passes:
            return False  # after the same pass: one of several optimizers, such as one for each parameter
        self._ended_at, self._others = self.passes, 0
        return True


class Seen(NamedTuple):
    """The samples and tokens of a batch or a step, None if unknown."""

    samples: int | None
    tokens: int | None = None


class Tally:
    """Counts the samples and tokens of each step, from the batches that loaders gave since the last one.

    Batches fetched ahead count with the backward pass that uses them. Batches whose iterator ended without a
    backward pass belong to an evaluation. If a step draws from several loaders, as with labelled and
    unlabelled data, it is counted by the one that most steps have drawn from, or else by the one closest to
    the samples that the settings imply.
    """

    def __init__(self) -> None:
        # By weak references, in a plain dict: other threads may add a loader while its values are read.
        self._feeds: dict[Any, _Feed] = {}
        self._counted: _Feed | None = None  # the feed of the last step
        self._passes = 0  # since the last step
        self._unfed = self._doubtful = 0  # consecutive steps
        self.note = ""  # a doubt about the counts, for the user

    def fetched(self, loader: Any, iterator: Any, samples: int, tokens: int | None = None) -> None:
        feed = self._feeds.get(weakref.ref(loader))
        if feed is None:
            feed = self._feeds[weakref.ref(loader, lambda gone: self._feeds.pop(gone, None))] = _Feed()
        feed.give(iterator, Seen(samples, tokens))

    def ended(self, loader: Any, iterator: Any) -> None:
        feed = self._feeds.get(weakref.ref(loader))
        if feed is not None:
            feed.end(iterator)

    def backward(self) -> None:
        self._passes += 1
        for feed in list(self._feeds.values()):  # a loader may be collected at any moment
            feed.use()

    def stepped(self, expected: int = 0) -> Seen:
        """Returns the counts of the step that ends; `expected`: its samples by the settings, 0 if unknown."""
        drawn = [feed for feed in list(self._feeds.values()) if feed.new]
        self._counted = self._chosen(drawn, expected) or self._counted
        taken = self._counted.take(self._passes) if self._counted else []
        for feed in drawn:
            feed.next_step(is_counted=feed is self._counted)
        self._passes, self._unfed = 0, 0 if drawn else self._unfed + 1
        if not self._counted or (not taken and self._unfed > _MOST_UNFED):
            return Seen(None)
        tokens = [batch.tokens for batch in taken if batch.tokens is not None]
        is_known = taken and len(tokens) == len(taken)
        return Seen(sum(batch.samples or 0 for batch in taken), sum(tokens) if is_known else None)

    def _chosen(self, drawn: list[_Feed], expected: int) -> _Feed | None:
        if len(drawn) < 2:
            return drawn[0] if drawn else None
        steady = [feed for feed in drawn if feed.steps == max(feed.steps for feed in drawn)]
        if len(steady) < 2:
            return steady[0]
        sizes = [sum(batch.samples or 0 for _, batch in feed.new) for feed in steady]
        best = min(reversed(range(len(sizes))), key=lambda at: _ratio(sizes[at], expected))
        is_doubtful = len(set(sizes)) > 1 and sizes[best] != expected
        self._doubtful = self._doubtful + 1 if is_doubtful else 0
        if self._doubtful == _STEADY:
            self.note = (
                f"each step draws {' and '.join(map(str, sizes))} samples from {len(sizes)} loaders: "
                f"{sizes[best]} are counted; to count another one, name its batch size in roles, as "
                "micro_batch_size"
            )
        return steady[best]


class _Feed:
    """The batches of one loader, in order, until steps have trained on them."""

    def __init__(self) -> None:
        self.steps = 0  # number of steps that have drawn from it
        self.new: list[tuple[_Iterated, Seen]] = []  # given since the last step
        self._ahead: list[tuple[_Iterated, Seen]] = []  # given before, not yet used
        self._iterated: _Iterated | None = None  # iteration that gave the last batch
        self._left = 0  # unused batches when a step last drew new ones
        self._growths: list[int] = []  # of `_left`, from one such step to the next
        # Batches fetched ahead by a loop that trains on several per pass; None: one per pass.
        self._depth: int | None = None

    def give(self, iterator: Any, batch: Seen) -> None:
        """Adds a batch; drops those of an earlier iterator if no backward pass followed them."""
        if self._iterated is None or self._iterated.iterator() is not iterator:
            self._drop(lambda iterated: not iterated.is_used)
            self._iterated = _Iterated(weakref.ref(iterator))
        self.new.append((self._iterated, batch))

    def end(self, iterator: Any) -> None:
        """Drops the batches of an ended iterator if no backward pass followed: an evaluation used them."""
        self._drop(lambda iterated: iterated.iterator() is iterator and not iterated.is_used)

    def use(self) -> None:
        for iterated, _ in (*self._ahead, *self.new):
            iterated.is_used = True

    def take(self, passes: int) -> list[Seen]:
        """Returns the batches of a step: one for each of its `passes`, as the others may be fetched ahead."""
        waiting = [*self._ahead, *self.new]
        if self.new and self._depth is None:
            growth, self._left = len(self._ahead) - self._left, len(self._ahead)
            self._growths = [*self._growths[-1:], growth] if growth > 0 else []
            if len(self._growths) == 2:  # ever more are left: the loop trains on several batches per pass
                self._depth = max(0, self._left - 2 * min(self._growths))
        count = passes if self._depth is None else max(0, len(waiting) - self._depth)
        self._ahead = waiting[count:]
        return [batch for _, batch in waiting[:count]]

    def next_step(self, *, is_counted: bool) -> None:
        """Begins the next step; discards batches of a step that another feed has counted."""
        self.steps += 1
        self.new = []
        if not is_counted:
            self._ahead = []

    def _drop(self, is_dropped: Callable[[_Iterated], bool]) -> None:
        self.new = [one for one in self.new if not is_dropped(one[0])]
        self._ahead = [one for one in self._ahead if not is_dropped(one[0])]


class _Iterated:
    def __init__(self, iterator: Any) -> None:
        self.iterator = iterator  # a weak reference
        self.is_used = False  # a backward pass followed its first remaining batch


def _ratio(samples: int, expected: int) -> float:
    """Returns the factor between `samples` and `expected`, at least 1; 1 if nothing is expected."""
    if not expected or not samples:
        return 1.0 if not expected else float("inf")
    return max(samples / expected, expected / samples)


class Total:
    """The samples and tokens of a training so far; `unit` is the unit of its length."""

    def __init__(self, unit: str, begun: Seen) -> None:
        self._unit = unit
        self.samples, self.tokens = begun.samples or 0, begun.tokens

    @property
    def seen(self) -> int:
        """The total in the unit of the training's length."""
        return getattr(self, self._unit) or 0

    def add(self, seen: Seen) -> None:
        self.samples += seen.samples or 0
        if seen.tokens is not None:
            self.tokens = (self.tokens or 0) + seen.tokens


class SyncSchedule:
    """The steps at which processes synchronize their totals: few, because each time they wait for the GPU."""

    def __init__(self, every: int) -> None:
        self._every = every
        self._step = self._seen = self._next = 0

    def is_due(self, step: int) -> bool:
        return step >= self._next

    def synced(self, step: int, seen: int) -> None:
        """Notes a synchronization at `step`, up to which `seen` samples or tokens were trained."""
        pace = (seen - self._seen) / max(1, step - self._step)
        left = self._every - seen % self._every
        self._step, self._seen = step, seen
        # After half of the steps left: the last one is exactly at the evaluation unless the pace doubles.
        self._next = step + (max(1, int(left / pace / 2)) if pace > 0 else 1)


def size(batch: Any, usual: int | None = None) -> int | None:
    """Returns the samples in a batch, None if unknown: `usual` if it has that length, else the commonest."""
    every = list(_lengths(batch))
    tensors = [length for is_tensor, length in every if is_tensor]
    lengths = [length for _, length in every]
    if usual in lengths:
        return usual
    counted = Counter(tensors or lengths).most_common(1)
    return counted[0][0] if counted else None


def _lengths(value: Any, depth: int = 0) -> Iterator[tuple[bool, int]]:
    """Yields the lengths in a batch, each with True if a tensor has it; a scalar tensor has length 1."""
    if hasattr(value, "shape"):
        yield True, int(value.shape[0]) if len(value.shape) else 1
    elif isinstance(value, (Mapping, list, tuple)) and depth < _DEEPEST:
        for field in value.values() if isinstance(value, Mapping) else value:
            yield from _lengths(field, depth + 1)
        if not isinstance(value, Mapping):
            yield False, len(value)


def pads_with(token: int | None) -> None:
    """Sets the padding token of the following batches, None if unknown."""
    _padding[:] = [] if token is None else [token]


def count_tokens(batch: Any) -> int | None:
    """Returns the non-padding tokens of a mapping with `input_ids`, by its `attention_mask` if it has one."""
    if isinstance(batch, (list, tuple)) or not isinstance(batch, Mapping):  # the first test is the faster one
        return None
    ids: Any = batch.get("input_ids")
    mask: Any = batch.get("attention_mask")
    if getattr(getattr(ids, "device", None), "type", None) != "cpu":
        return None  # counting would wait for the GPU
    if mask is not None and mask.ndim == _ROWS:
        return int((mask != 0).sum())
    return int((ids != _padding[0]).sum()) if _padding else int(ids.numel())
