"""Reduces configurations to the settings that affect peak memory, and compares these needs."""

from typing import NamedTuple

from autotune.core import settings
from autotune.core.settings import PRECISIONS, Config, Knowledge, MemoryEffect, Setting

# Activations kept for the backward pass with checkpointing, relative to without: a tenth to three quarters in
# practice, depending on what is checkpointed.
_RECOMPUTED_SHARE = 0.5
_UNLABELLED = {MemoryEffect.NOT, MemoryEffect.LOADER}


class Label(NamedTuple):
    """A setting that affects memory; `kind` is its type (1 is not True), `power` as declared for it."""

    name: str
    value: Setting
    kind: type
    power: int = 0


class Need(NamedTuple):
    """A configuration reduced to the settings that affect memory."""

    group: frozenset[Label]  # the settings without a known order
    recomputes: bool
    accumulates: bool
    micro_batch_size: float

    @property
    def labels(self) -> frozenset[Label]:
        """All settings that affect memory, except the micro-batch."""
        ordered = (Label("recomputes", self.recomputes, bool), Label("accumulates", self.accumulates, bool))
        return self.group.union(ordered)


def need_of(config: Config, known: Knowledge = settings.COMMON) -> Need:
    labels = set()
    for name, value in config.items():
        is_switch = value is None or isinstance(value, bool)  # named checkpointing modes have no known order
        is_ordered = name in settings.BATCH or (name == settings.CHECKPOINTING and is_switch)
        if is_ordered or known[name].moves_memory in _UNLABELLED:
            continue
        is_precision = name == settings.PRECISION and value in PRECISIONS
        stored = PRECISIONS[str(value)].stored_as if is_precision else value
        labels.add(Label(name, stored, stored.__class__, known[name].power))
    return Need(
        frozenset(labels),
        config.get(settings.CHECKPOINTING) is True,
        number(config, settings.ACCUMULATION, 1) > 1,  # gradients stay allocated, however many steps add up
        number(config, settings.MICRO_BATCH, 1),
    )


def number(config: Config, name: str, otherwise: float) -> float:
    value = config.get(name)
    return otherwise if value is None else float(value)


def needs_no_less(need: Need, other: Need) -> bool:
    """Returns True if `need` is at least `other` for any model and data."""
    return (
        need.micro_batch_size >= other.micro_batch_size
        and need.accumulates >= other.accumulates
        and need.recomputes <= other.recomputes
        and need.group == other.group
    )


def per_sample(need: Need) -> float:
    """Returns the expected need per sample, relative to fp32 without checkpointing at length and side 1.

    A prior guess, by which settings other than the precision and numbers with a power have no effect.
    """
    ratio = _RECOMPUTED_SHARE if need.recomputes else 1.0
    for name, value, _, power in need.group:
        if name == settings.PRECISION and value in PRECISIONS:
            ratio *= PRECISIONS[str(value)].activation_bytes / PRECISIONS["fp32"].activation_bytes
        elif power and isinstance(value, int | float) and value > 0:
            ratio *= float(value) ** power
    return ratio
