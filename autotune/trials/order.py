"""What to run: all that one trial, or one race, needs. Plain values, for any machine."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from autotune.core.settings import Setting
from autotune.storage.identity import Card
from autotune.storage.trial_dir import TrialDir


@dataclass(frozen=True)
class Order:
    """One trial: a workload, what it is called with, what it may take and when it is over.

    `settings` are the tuner's, `given` what the workload takes for them: its user's names, shape and words;
    None where they are the same. `quality` is the key that tells the record of an evaluation, one to
    `minimize` where lower is better; `samples` are those of the whole trial, by the figure of a record that
    is called `unit`. `memory_limit_bytes` is of the host's, on top of what a process holds that has imported
    the workload. `gpus` are the GPUs that it has to find, a part of one below 1 and 0 for none;
    `device_memory_bytes` is what is its share of each, and `memory_cap_bytes` what its allocator may take of
    that, None for whatever is free. `stall_timeout_s` is how long it may go without a record, None for a time
    that its own records set. It ends at the quality `target`, too, of which higher is better as everywhere
    inside, and when it has learnt, after `until_learnt` evaluations at least, 0 for never; or, `until_timed`,
    once its speed is known. Where it `counts_evaluations` they are part of that: one after every
    `samples_per_evaluation` samples, None for as many as come; in a race, where none does, `outside_s` for
    every sample, which may make the speed wrong by a part of `unsure`. As soon as there is a `stop_file` it
    should close, to be resumed another day. `card` says which trial of which session it is, None for a
    training by itself. A `whole` training is over when its workload ends it,
    or where it has `samples` with the first evaluation after them; of its steps no more are kept than one a
    second. A `planned` one was told by its settings to end after its samples.
    """

    number: int
    workload: str | dict[str, Any]
    settings: dict[str, Setting]
    directory: str
    quality: str
    samples: int
    memory_limit_bytes: int | None = None
    minimize: bool = False
    unit: str = "samples"
    gpus: float = 0.0
    device_memory_bytes: int | None = None
    memory_cap_bytes: int | None = None
    stall_timeout_s: float | None = None
    target: float | None = None
    until_learnt: int = 0
    until_timed: bool = False
    threshold_file: str | None = None
    stop_file: str | None = None
    revision: str = ""
    keep_work: bool = False
    card: Card | None = None
    given: dict[str, Any] | None = None
    counts_evaluations: bool = False
    samples_per_evaluation: int | None = None
    outside_s: float = 0.0
    unsure: float = 0.0
    whole: bool = False
    planned: bool = False

    @property
    def place(self) -> TrialDir:
        return TrialDir(Path(self.directory))

    @property
    def caps_process(self) -> bool:
        """Whether the process itself is refused more host memory than its limit.

        Not on a GPU: what CUDA maps counts as well, and the driver would report an out-of-memory of the GPU.
        There the limit is kept from outside alone.
        """
        return self.memory_limit_bytes is not None and not self.gpus

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "card": self.card.to_dict() if self.card else None}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        return cls(**{**values, "card": _card(values)})


@dataclass(frozen=True)
class RaceOrder:
    """A race between `members`, all of them alive at once if they are `together`.

    Their trainings have so many samples as `lengths` says, in the same order. After `most_s` seconds of
    rounds no further one begins.
    """

    number: int
    directory: str
    members: tuple[Order, ...]
    lengths: tuple[int, ...]
    together: bool
    most_s: float
    stop_file: str | None = None
    card: Card | None = None

    @property
    def place(self) -> TrialDir:
        return TrialDir(Path(self.directory))

    @property
    def settings(self) -> dict[str, Setting]:
        """Those that the others are compared with."""
        return self.members[0].settings

    def to_dict(self) -> dict[str, Any]:
        members = [order.to_dict() for order in self.members]
        return {**asdict(self), "members": members, "card": self.card.to_dict() if self.card else None}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        members = tuple(Order.from_dict(order) for order in values["members"])
        lengths = tuple(values["lengths"])
        return cls(**{**values, "members": members, "lengths": lengths, "card": _card(values)})


def _card(values: Mapping[str, Any]) -> Card | None:
    known = values.get("card")
    return Card.from_dict(known) if known else None


def is_to_stop(order: Order | RaceOrder) -> bool:
    """Whether what runs should close, because its search has stopped."""
    return order.stop_file is not None and Path(order.stop_file).exists()


def from_dict(values: Mapping[str, Any]) -> Order | RaceOrder:
    """The order whose `to_dict` gave `values`; a race is recognized by its members."""
    return RaceOrder.from_dict(values) if "members" in values else Order.from_dict(values)
