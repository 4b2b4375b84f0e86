"""What of a configuration moves the peak memory of its training, and which needs no less than which."""

from typing import NamedTuple

from autotune.core.settings import (
    ACCUMULATION,
    BATCH,
    CHECKPOINTING,
    COMMON,
    MICRO_BATCH,
    PRECISION,
    PRECISIONS,
    Config,
    Knowledge,
    Memory,
    Setting,
)

# What is kept for the backward pass with checkpointing, as a share of what is kept without: from a tenth to
# three quarters in practice, depending on what is checkpointed.
_RECOMPUTED_SHARE = 0.5


class Label(NamedTuple):
    """A setting that moves memory; `kind` is its type, because 1 is not True, and `power` that of `Known`."""

    name: str
    value: Setting
    kind: type
    power: int = 0


class Need(NamedTuple):
    """A configuration as the memory sees it.

    `group` holds every setting that moves memory but has no order. Checkpointing and accumulation are apart,
    because it is known which way they move it.
    """

    group: frozenset[Label]
    recomputes: bool
    accumulates: bool
    micro_batch_size: float

    @property
    def labels(self) -> frozenset[Label]:
        """All that moves memory besides the micro-batch."""
        ordered = (Label("recomputes", self.recomputes, bool), Label("accumulates", self.accumulates, bool))
        return self.group.union(ordered)


def of(config: Config, known: Knowledge = COMMON) -> Need:
    """Accumulating keeps the gradients alive during the forward passes, but not more of them with more steps:
    so only whether it accumulates at all counts.
    """
    labels = [_label(name, value, known) for name, value in config.items()]
    return Need(
        frozenset(label for label in labels if label),
        config.get(CHECKPOINTING) is True,
        number(config, ACCUMULATION, 1) > 1,
        number(config, MICRO_BATCH, 1),
    )


def _label(name: str, value: Setting, known: Knowledge) -> Label | None:
    """A setting as a part of a group; None where it moves no memory of the process, or has a known order."""
    if known[name].moves_memory in {Memory.NOT, Memory.LOADER} or _is_ordered(name, value):
        return None
    if name == PRECISION and value in PRECISIONS:
        value = PRECISIONS[str(value)].stored_as
    return Label(name, value, value.__class__, known[name].power)


def _is_ordered(name: str, value: Setting) -> bool:
    """Whether it is apart from the group; of checkpointing by name, modes of it have no known order."""
    is_switch = value is None or isinstance(value, bool)
    return name in BATCH or (name == CHECKPOINTING and is_switch)


def number(config: Config, name: str, otherwise: float) -> float:
    value = config.get(name)
    return otherwise if value is None else float(value)


def no_less(need: Need, other: Need) -> bool:
    """Whether `need` is known to be at least `other`, whatever the model and the data."""
    return (
        need.micro_batch_size >= other.micro_batch_size
        and need.accumulates >= other.accumulates
        and need.recomputes <= other.recomputes
        and need.group == other.group
    )


def per_sample(need: Need) -> float:
    """What a sample is expected to need, relative to fp32 without checkpointing at length and side 1.

    It is the guess before any trial has shown it: storage width times the share that is kept, times the
    numeric settings to their powers; everything else is expected to leave it alone.
    """
    ratio = _RECOMPUTED_SHARE if need.recomputes else 1.0
    for name, value, _, power in need.group:
        if name == PRECISION and value in PRECISIONS:
            ratio *= PRECISIONS[str(value)].activation_bytes / PRECISIONS["fp32"].activation_bytes
        elif power and isinstance(value, int | float) and value > 0:
            ratio *= float(value) ** power
    return ratio
