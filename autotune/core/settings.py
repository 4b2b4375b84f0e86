"""Settings: their values, and `COMMON`, the one table of what the tuner knows about them by name.

Code that treats a setting specially asks the table instead of naming it. Settings that the tuner computes
with have their names here as constants.
"""

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from functools import cached_property
from typing import Any

Setting = str | bool | int | float | None
Config = Mapping[str, Setting]
Key = frozenset[tuple[str, str]]

MICRO_BATCH, ACCUMULATION, PROCESSES = "micro_batch_size", "accumulation_steps", "processes"
LEARNING_RATE, SEED = "learning_rate", "seed"
LENGTH = "length"  # of a training, in samples
WORKERS, PREFETCH = "num_workers", "prefetch_factor"
PRECISION, CHECKPOINTING, COMPILE = "precision", "activation_checkpointing", "compile"
BATCH = frozenset({MICRO_BATCH, ACCUMULATION})
EFFECTIVE_BATCH = (MICRO_BATCH, ACCUMULATION, PROCESSES)  # the product of these

# The largest values that the sampler and the arithmetic can handle.
LARGEST_BATCH, MOST_ACCUMULATED = 2**30, 2**20
LARGEST_INT = 2**53  # every whole number up to here is exact as a float
MOST_COUNTED = 10**6
_PREFETCHED = 2  # batches per worker, PyTorch's default


def settings_key(config: Config, left_out: Collection[str]) -> Key:
    """Returns a hashable key of `config` without the settings `left_out`; uses `repr`, because 1 == True."""
    return frozenset((name, repr(value)) for name, value in config.items() if name not in left_out)


def effective_batch(settings: Config) -> int:
    """Returns the samples of an optimizer step; a missing setting counts as 1."""
    return math.prod(int(settings.get(name) or 1) for name in EFFECTIVE_BATCH)


def workers(settings: Config) -> int:
    """Returns the number of processes that load batches alongside the training process."""
    return int(settings.get(WORKERS) or 0)


def prefetched_batches(settings: Config) -> int:
    """Returns how many micro-batches the workers may have ready."""
    return workers(settings) * int(settings.get(PREFETCH) or _PREFETCHED)


class Result(IntEnum):
    """The effect of a setting on a training's result, from bit-identical to different."""

    EQUAL = 0  # bit-identical: only the loading of batches changes
    REORDERED = 1  # bit-identical unless operations are reordered
    ROUNDED = 2  # equal up to rounding, at the same effective batch
    OTHER = 3


class MemoryEffect(StrEnum):
    """The effect of a setting on the peak memory of the process that trains."""

    NOT = "no"
    LOADER = "only of the workers"
    KNOWN_WAY = "yes, predictably"
    SOMEHOW = "yes"


@dataclass(frozen=True)
class Needs:
    cuda: bool = False
    compute_capability: tuple[int, int] | None = None  # the least, if there is a CUDA device
    torchao: bool = False
    compiler: bool = False
    is_for_cuda: bool = False  # runs without a CUDA device too, but gains nothing there


FOR_CUDA = Needs(is_for_cuda=True)


@dataclass(frozen=True)
class Precision:
    activation_bytes: int  # of a number kept for the backward pass
    stored_as: str  # the precision whose stored tensors have the same size
    needs: Needs = Needs()


# Widest first. tf32 only multiplies differently and stores fp32. torch-default is PyTorch with nothing set:
# fp32, with TF32 in convolutions on a GPU. fp8 keeps activations in bf16, but not everything that it stores
# is known to have that size.
PRECISIONS: Mapping[str, Precision] = {
    "fp32": Precision(4, "fp32"),
    "torch-default": Precision(4, "fp32", FOR_CUDA),
    "tf32": Precision(4, "fp32", Needs(cuda=True, compute_capability=(8, 0))),
    "bf16": Precision(2, "bf16", Needs(compute_capability=(8, 0))),
    "fp16": Precision(2, "bf16", Needs(cuda=True, compute_capability=(5, 3))),
    "fp8": Precision(2, "fp8", Needs(cuda=True, compute_capability=(8, 9), torchao=True)),
}


@dataclass(frozen=True)
class KnownSetting:
    """The tuner's knowledge of one setting. The defaults assume nothing: it may change everything."""

    name: str
    about: str = ""  # for the reference
    moves_speed: bool = True
    moves_result: Result = Result.OTHER
    moves_memory: MemoryEffect = MemoryEffect.SOMEHOW
    power: int = 0  # of the value, with which the memory of a sample grows
    whole: tuple[int, int] | None = None  # lowest and highest value of a setting that is a whole number
    needs: Mapping[Setting, Needs] = field(default_factory=dict)  # of single values
    needs_else: Needs = Needs()  # of all other values
    at_most_cpus: bool = False  # a value above the number of CPUs is not worth trying
    short: str = ""  # its name in a trial's line; only for `COMMON`, as those lines do not know the workload

    @classmethod
    def declared(cls, name: str, moves: Collection[str]) -> "KnownSetting":
        """Returns a setting that the user declared to affect speed, memory or quality, and nothing else."""
        return cls(
            name,
            moves_speed="speed" in moves,
            moves_result=Result.OTHER if "quality" in moves else Result.EQUAL,
            moves_memory=MemoryEffect.SOMEHOW if "memory" in moves else MemoryEffect.NOT,
        )

    def needs_for(self, value: Setting) -> Needs:
        return self.needs.get(value, self.needs_else)


@dataclass(frozen=True, eq=False)
class Knowledge:
    """Looks up settings by name, and assumes nothing about unknown ones."""

    by_name: Mapping[str, KnownSetting]

    def __getitem__(self, name: str) -> KnownSetting:
        return self.by_name.get(name) or KnownSetting(name)

    def with_own(self, own: Iterable[KnownSetting]) -> "Knowledge":
        """Returns this knowledge with a workload's own settings added, which override common ones."""
        return Knowledge({**self.by_name, **{known.name: known for known in own}})

    @cached_property
    def same_speed(self) -> frozenset[str]:
        """Settings that change neither speed nor memory: a measurement holds for all of their values."""
        return frozenset(
            k.name for k in self.by_name.values() if not k.moves_speed and k.moves_memory is MemoryEffect.NOT
        )

    @cached_property
    def same_quality(self) -> frozenset[str]:
        """Settings that do not change what is computed."""
        return self._up_to(Result.EQUAL)

    @cached_property
    def same_figures(self) -> frozenset[str]:
        """Settings whose values a training can change and stay bit-identical."""
        return self._up_to(Result.REORDERED)

    @cached_property
    def same_training(self) -> frozenset[str]:
        """Settings that leave the training the same up to rounding, at an equal effective batch."""
        return self._up_to(Result.ROUNDED)

    @cached_property
    def whole(self) -> dict[str, tuple[int, int]]:
        return {k.name: k.whole for k in self.by_name.values() if k.whole}

    def _up_to(self, effect: Result) -> frozenset[str]:
        return frozenset(k.name for k in self.by_name.values() if k.moves_result <= effect)

    @cached_property
    def of_loader(self) -> frozenset[str]:
        """Settings that affect the loader workers' memory, which counts if the machine ran out of memory."""
        return frozenset(k.name for k in self.by_name.values() if k.moves_memory is MemoryEffect.LOADER)


def result_setting(name: str, about: str = "concerns only the optimizer", **more: Any) -> KnownSetting:
    """Returns a setting that changes a training's result, and neither its speed nor its memory."""
    return KnownSetting(name, about, moves_speed=False, moves_memory=MemoryEffect.NOT, **more)


def side_setting(name: str, about: str, **more: Any) -> KnownSetting:
    """Returns a setting that changes only the time between steps, and no memory."""
    return KnownSetting(name, about, moves_result=Result.EQUAL, moves_memory=MemoryEffect.NOT, **more)


def loader_setting(name: str, about: str, **more: Any) -> KnownSetting:
    """Returns a setting that changes only the data loader's workers."""
    return KnownSetting(name, about, moves_result=Result.EQUAL, moves_memory=MemoryEffect.LOADER, **more)


def pinning_setting(name: str) -> KnownSetting:
    """Returns a setting that makes a data loader pin the memory of its batches."""
    return side_setting(name, "left out if this machine gains nothing by it", needs={True: FOR_CUDA})


_TUNED = Needs(compiler=True, is_for_cuda=True)
_READY = "batches that the loader had ready do not count for the speed"

_COMMON = (
    KnownSetting(
        MICRO_BATCH,
        "times `accumulation_steps` and `processes` it is the effective batch; memory is predicted from it, "
        "and larger ones are tried first",
        moves_result=Result.ROUNDED,
        moves_memory=MemoryEffect.KNOWN_WAY,
        whole=(1, LARGEST_BATCH),
    ),
    KnownSetting(
        ACCUMULATION,
        "times `micro_batch_size` and `processes` it is the effective batch",
        moves_result=Result.ROUNDED,
        moves_memory=MemoryEffect.KNOWN_WAY,
        whole=(1, MOST_ACCUMULATED),
    ),
    KnownSetting(
        PROCESSES,
        "processes that train together, each with its own micro-batch",
        moves_result=Result.ROUNDED,
        whole=(1, MOST_COUNTED),
    ),
    result_setting(LEARNING_RATE, "may follow the effective batch", short="lr"),
    result_setting(
        LENGTH, "samples that a training is planned for; its schedule follows", whole=(1, LARGEST_INT)
    ),
    result_setting("weight_decay"),
    result_setting(SEED, "every repeat has its own", whole=(0, LARGEST_INT)),
    loader_setting(WORKERS, _READY, whole=(0, MOST_COUNTED), at_most_cpus=True, short="workers"),
    loader_setting(PREFETCH, _READY, whole=(0, MOST_COUNTED)),
    pinning_setting("pin_memory"),
    KnownSetting(
        PRECISION,
        "left out if this machine cannot run it; decides the bytes of an activation",
        moves_result=Result.ROUNDED,
        needs={name: precision.needs for name, precision in PRECISIONS.items()},
    ),
    KnownSetting(
        CHECKPOINTING,
        "takes less memory",
        moves_result=Result.REORDERED,
        moves_memory=MemoryEffect.KNOWN_WAY,
        short="checkpointing",
    ),
    KnownSetting(
        COMPILE,
        "left out if this machine cannot run it",
        moves_result=Result.REORDERED,
        needs={"off": Needs(), "reduce-overhead": _TUNED, "max-autotune": _TUNED},
        needs_else=Needs(compiler=True),
    ),
    KnownSetting("channels_last", "changes only the order in memory", moves_result=Result.REORDERED),
    KnownSetting("image_size", "memory per sample grows with its square", power=2),
    KnownSetting("max_seq_length", "memory per sample grows with it", power=1),
)
COMMON = Knowledge({known.name: known for known in _COMMON})
