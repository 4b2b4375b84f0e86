"""What of a configuration moves the peak memory of its training, and which needs no less than which."""

from typing import NamedTuple

from autotune.trial import Config, Setting

# Settings that move a training process's peak memory by nothing.
_NEUTRAL = frozenset({"learning_rate", "pin_memory", "seed"})
# Settings that move the memory of the loader's workers, which counts where the whole machine ran out of it.
LOADING = frozenset({"num_workers", "prefetch_factor"})
_CHECKPOINTING = "activation_checkpointing"
_ORDERED = frozenset({"micro_batch_size", "accumulation_steps"})
_APART = _NEUTRAL | LOADING | _ORDERED
# tf32 is a way to multiply: what is stored is fp32. The two half precisions are stored in as many bytes.
_STORED_AS = {"tf32": "fp32", "fp16": "bf16"}
# Bytes of an activation; those of fp8 stay bf16, only what is multiplied is narrower.
_BYTES = {"fp32": 4, "bf16": 2, "fp8": 2}
# What is kept for the backward pass with checkpointing, as a share of what is kept without: from a tenth to
# three quarters in practice, depending on what is checkpointed.
_RECOMPUTED_SHARE = 0.5
# Activations grow with the length, and with the area of an image of that many pixels a side.
POWERS = {"max_seq_length": 1, "image_size": 2}

Label = tuple[str, Setting, type]


class Need(NamedTuple):
    """A configuration as the memory sees it.

    `group` holds every setting that moves memory but has no order, each with its type: 1 is not True.
    Checkpointing and accumulation are apart, because it is known which way they move it.
    """

    group: frozenset[Label]
    recomputes: bool
    accumulates: bool
    micro_batch_size: float

    @property
    def labels(self) -> frozenset[Label]:
        """All that moves memory besides the micro-batch."""
        ordered = (("recomputes", self.recomputes, bool), ("accumulates", self.accumulates, bool))
        return self.group.union(ordered)


def of(config: Config) -> Need:
    """Accumulating keeps the gradients alive during the forward passes, but not more of them with more steps:
    so only whether it accumulates at all counts.
    """
    recomputes = config.get(_CHECKPOINTING)
    ordered = recomputes is None or isinstance(recomputes, bool)  # by name, modes of it have no known order
    labels = [
        (name, value, value.__class__)
        for name, value in config.items()
        if name not in _APART and not (ordered and name == _CHECKPOINTING)
    ]
    stored = _STORED_AS.get(str(config.get("precision")))
    if stored:
        labels = [("precision", stored, str) if label[0] == "precision" else label for label in labels]
    return Need(
        frozenset(labels),
        recomputes is True,
        number(config, "accumulation_steps", 1) > 1,
        number(config, "micro_batch_size", 1),
    )


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
    for name, value, _ in need.group:
        if name == "precision":
            ratio *= _BYTES.get(str(value), 4) / 4
        elif name in POWERS and isinstance(value, int | float) and value > 0:
            ratio *= float(value) ** POWERS[name]
    return ratio
