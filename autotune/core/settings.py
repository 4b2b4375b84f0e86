"""Settings: their values, and the one table of what is known of them by name. Standard library alone.

A place that treats a setting in its own way asks the table, and names none itself. Settings that the tuner
computes with have their names here as constants.
"""

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from functools import cached_property

Setting = str | bool | int | float | None
Config = Mapping[str, Setting]
Key = frozenset[tuple[str, str]]

MICRO_BATCH, ACCUMULATION, PROCESSES = "micro_batch_size", "accumulation_steps", "processes"
LEARNING_RATE, SEED = "learning_rate", "seed"
LENGTH = "length"  # of a training, in samples
WORKERS, PREFETCH = "num_workers", "prefetch_factor"
PRECISION, CHECKPOINTING, COMPILE = "precision", "activation_checkpointing", "compile"
BATCH = frozenset({MICRO_BATCH, ACCUMULATION})
EFFECTIVE_BATCH = (MICRO_BATCH, ACCUMULATION, PROCESSES)  # which is their product

# What the sampler and the arithmetic carry.
LARGEST_BATCH, MOST_ACCUMULATED = 2**30, 2**20
LARGEST_INT = 2**53  # every whole number up to here is a float
MOST_COUNTED = 10**6
_PREFETCHED = 2  # batches of a worker by default, as in PyTorch


def settings_key(config: Config, left_out: Collection[str]) -> Key:
    """Returns a key of a configuration: every setting but some, by its text, because 1 is not True."""
    return frozenset((name, repr(value)) for name, value in config.items() if name not in left_out)


def effective_batch(settings: Config) -> int:
    """Samples of an optimizer step; a missing setting counts as 1."""
    return math.prod(int(settings.get(name) or 1) for name in EFFECTIVE_BATCH)


def workers(settings: Config) -> int:
    """Processes that load batches alongside the training process."""
    return int(settings.get(WORKERS) or 0)


def prefetched_batches(settings: Config) -> int:
    """Micro-batches that the workers may have ready."""
    return workers(settings) * int(settings.get(PREFETCH) or _PREFETCHED)


class Result(IntEnum):
    """The effect of a setting on a training's result; the higher, the less stays."""

    EQUAL = 0  # to the last bit: only how batches are loaded changes
    REORDERED = 1  # to rounding, and where nothing is computed in another order to the last bit
    ROUNDED = 2  # to rounding, as long as the effective batch stays
    OTHER = 3


class Memory(StrEnum):
    """The effect of a setting on the peak memory of the process that trains."""

    NOT = "no"
    LOADER = "that of the workers alone"
    KNOWN_WAY = "in a known direction"
    SOMEHOW = "yes"


@dataclass(frozen=True)
class Needs:
    """The needs of a value on a machine; `compute_capability` is that of its CUDA device, if it has one.

    A value that `is_for_cuda` runs without a CUDA device, and gains nothing there.
    """

    cuda: bool = False
    compute_capability: tuple[int, int] | None = None
    torchao: bool = False
    compiler: bool = False
    is_for_cuda: bool = False


@dataclass(frozen=True)
class Precision:
    """A number format: `activation_bytes` of what is kept for the backward pass.

    `stored_as` is the precision of which all that is stored has the same size; `needs` are the machine's.
    """

    activation_bytes: int
    stored_as: str
    needs: Needs = Needs()


# Widest first. tf32 is a way to multiply: what is stored is fp32. torch-default is what PyTorch does where
# nothing is set: fp32, and on a GPU TF32 in convolutions. Activations of fp8 stay bf16, only what is
# multiplied is narrower; that all it stores has the size of bf16 is not said.
PRECISIONS: Mapping[str, Precision] = {
    "fp32": Precision(4, "fp32"),
    "torch-default": Precision(4, "fp32", Needs(is_for_cuda=True)),
    "tf32": Precision(4, "fp32", Needs(cuda=True, compute_capability=(8, 0))),
    "bf16": Precision(2, "bf16", Needs(compute_capability=(8, 0))),
    "fp16": Precision(2, "bf16", Needs(cuda=True, compute_capability=(5, 3))),
    "fp8": Precision(2, "fp8", Needs(cuda=True, compute_capability=(8, 9), torchao=True)),
}


@dataclass(frozen=True)
class Known:
    """The effects and needs of the setting called `name`. By default it may move everything.

    `power` says that what a sample needs of the memory grows with that power of the value. `whole` is the
    lowest and highest of whole numbers. `needs` are what the machine must have for single values, and
    `needs_else` for all others; with `at_most_cpus` a value above the number of CPUs is not worth trying.
    `about` is what the reference says, and `short` how a line of a trial calls it: of `COMMON` alone, because
    such lines are written where no workload is known.
    """

    name: str
    about: str = ""
    moves_speed: bool = True
    moves_result: Result = Result.OTHER
    moves_memory: Memory = Memory.SOMEHOW
    power: int = 0
    whole: tuple[int, int] | None = None
    needs: Mapping[Setting, Needs] = field(default_factory=dict)
    needs_else: Needs = Needs()
    at_most_cpus: bool = False
    short: str = ""

    @classmethod
    def said(cls, name: str, moves: Collection[str]) -> "Known":
        """Returns what its user says of a setting: it `moves` speed, memory or quality, and nothing else."""
        return cls(
            name,
            moves_speed="speed" in moves,
            moves_result=Result.OTHER if "quality" in moves else Result.EQUAL,
            moves_memory=Memory.SOMEHOW if "memory" in moves else Memory.NOT,
        )

    def needs_for(self, value: Setting) -> Needs:
        return self.needs.get(value, self.needs_else)


@dataclass(frozen=True)
class Knowledge:
    """The effects and needs of settings, by their names; of other names nothing is known."""

    by_name: Mapping[str, Known]

    def __getitem__(self, name: str) -> Known:
        return self.by_name.get(name) or Known(name)

    def with_own(self, own: Iterable[Known]) -> "Knowledge":
        """The same, and what a workload says of its own settings, which it may call as it likes."""
        return Knowledge({**self.by_name, **{known.name: known for known in own}})

    @cached_property
    def same_speed(self) -> frozenset[str]:
        """Settings that change neither speed nor memory: measured with other values, both are known."""
        return frozenset(
            k.name for k in self.by_name.values() if not k.moves_speed and k.moves_memory is Memory.NOT
        )

    @cached_property
    def same_quality(self) -> frozenset[str]:
        """Settings that do not change what is computed."""
        return self._leaves(Result.EQUAL)

    @cached_property
    def same_figures(self) -> frozenset[str]:
        """Settings with which a training may be the same to the last bit."""
        return self._leaves(Result.REORDERED)

    @cached_property
    def same_training(self) -> frozenset[str]:
        """Settings that leave the training the same, to rounding, as long as the effective batch stays."""
        return self._leaves(Result.ROUNDED)

    @cached_property
    def whole(self) -> dict[str, tuple[int, int]]:
        """The settings that are whole numbers, with the lowest and the highest of each."""
        return {k.name: k.whole for k in self.by_name.values() if k.whole}

    def _leaves(self, most: Result) -> frozenset[str]:
        return frozenset(k.name for k in self.by_name.values() if k.moves_result <= most)

    @cached_property
    def of_loader(self) -> frozenset[str]:
        """Settings that move the memory of the workers, which counts where the whole machine ran out."""
        return frozenset(k.name for k in self.by_name.values() if k.moves_memory is Memory.LOADER)


_COMPILER = Needs(compiler=True)
_CUDA_GRAPHS = Needs(compiler=True, is_for_cuda=True)

_COMMON = (
    Known(
        MICRO_BATCH,
        about="the effective batch is its product with `accumulation_steps` and `processes`; memory is "
        "predicted by it; a larger one is tried first",
        moves_result=Result.ROUNDED,
        moves_memory=Memory.KNOWN_WAY,
        whole=(1, LARGEST_BATCH),
    ),
    Known(
        ACCUMULATION,
        about="the effective batch is its product with `micro_batch_size` and `processes`",
        moves_result=Result.ROUNDED,
        moves_memory=Memory.KNOWN_WAY,
        whole=(1, MOST_ACCUMULATED),
    ),
    Known(
        PROCESSES,
        about="how many train together, each with a micro-batch of its own",
        moves_result=Result.ROUNDED,
        whole=(1, MOST_COUNTED),
    ),
    Known(
        LEARNING_RATE,
        about="it may follow the effective batch",
        moves_speed=False,
        moves_memory=Memory.NOT,
        short="lr",
    ),
    Known(
        LENGTH,
        about="the samples that a training is planned for; its schedule follows",
        moves_speed=False,
        moves_memory=Memory.NOT,
        whole=(1, LARGEST_INT),
    ),
    Known("weight_decay", about="of the optimizer alone", moves_speed=False, moves_memory=Memory.NOT),
    Known(
        SEED,
        about="repeats have their own",
        moves_speed=False,
        moves_memory=Memory.NOT,
        whole=(0, LARGEST_INT),
    ),
    Known(
        WORKERS,
        about="batches that were ready before are no part of the speed",
        moves_result=Result.EQUAL,
        moves_memory=Memory.LOADER,
        whole=(0, MOST_COUNTED),
        at_most_cpus=True,
        short="workers",
    ),
    Known(
        PREFETCH,
        about="batches that were ready before are no part of the speed",
        moves_result=Result.EQUAL,
        moves_memory=Memory.LOADER,
        whole=(0, MOST_COUNTED),
    ),
    Known(
        "pin_memory",
        about="whether this machine gains by it",
        moves_result=Result.EQUAL,
        moves_memory=Memory.NOT,
        needs={True: Needs(is_for_cuda=True)},
    ),
    Known(
        PRECISION,
        about="what this machine can run; how many bytes an activation takes",
        moves_result=Result.ROUNDED,
        needs={name: precision.needs for name, precision in PRECISIONS.items()},
    ),
    Known(
        CHECKPOINTING,
        about="takes less memory",
        moves_result=Result.REORDERED,
        moves_memory=Memory.KNOWN_WAY,
        short="checkpointing",
    ),
    Known(
        COMPILE,
        about="what this machine can run",
        moves_result=Result.REORDERED,
        needs={"off": Needs(), "reduce-overhead": _CUDA_GRAPHS, "max-autotune": _CUDA_GRAPHS},
        needs_else=_COMPILER,
    ),
    Known("channels_last", about="the order in memory alone", moves_result=Result.REORDERED),
    Known("image_size", about="the memory of a sample grows with its square", power=2),
    Known("max_seq_length", about="the memory of a sample grows with it", power=1),
)
COMMON = Knowledge({known.name: known for known in _COMMON})
