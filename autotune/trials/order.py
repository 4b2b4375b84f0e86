"""Orders: everything that is needed to run one trial or one race, as plain values for any machine."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from autotune.core.metric import Metric
from autotune.core.settings import Setting
from autotune.storage.identity import TrialIdentity
from autotune.storage.trial_dir import TrialDir


@dataclass(frozen=True)
class Order:
    """One trial: its workload and settings, the resources it may use, and when it is over."""

    number: int
    workload: str | dict[str, Any]
    settings: dict[str, Setting]  # the tuner's
    directory: str
    metric: Metric
    samples: int  # of the whole trial; it ends with the first evaluation at or after them
    memory_limit_bytes: int | None = None  # host memory, beyond a process that has imported the workload
    gpus: float = 0.0  # that must be visible; below 1: a share of one GPU
    device_memory_bytes: int | None = None  # the trial's share of each GPU
    memory_cap_bytes: int | None = None  # of the allocator, within that share; None: no cap
    stall_timeout_s: float | None = None  # longest time without progress; None: derived from its records
    target: float | None = None  # stop once the quality reaches this; higher is better internally
    until_learnt: int = 0  # stop once clearly above chance, after at least so many evaluations; 0: never
    until_timed: bool = False  # stop once the speed is known
    threshold_file: str | None = None  # stop early if the threshold in it says so
    stop_file: str | None = None  # once it exists, close and resume another day
    revision: str = ""
    keep_work: bool = False
    identity: TrialIdentity | None = None  # the trial and session; None for a training outside a session
    given: dict[str, Any] | None = None  # passed to the workload, in its names and types; None: `settings`
    outside_s: float = 0.0  # in a race, which has no evaluations: their time per sample
    unsure: float = 0.0  # in a race: relative error of the speed because of `outside_s`
    whole: bool = False  # ends when the workload does, or as above if `samples` > 0; steps kept: one a second
    planned: bool = False  # its settings tell the workload to end after `samples`

    @property
    def place(self) -> TrialDir:
        return TrialDir(Path(self.directory))

    @property
    def caps_process(self) -> bool:
        """True if the process is refused host memory beyond its limit.

        Never on a GPU: memory mapped by CUDA counts too, and the driver would report the GPU as out of
        memory. There the limit is enforced only from outside the process.
        """
        return self.memory_limit_bytes is not None and not self.gpus


@dataclass(frozen=True)
class RaceOrder:
    """A race between `members`."""

    number: int
    directory: str
    members: tuple[Order, ...]
    lengths: tuple[int, ...]  # samples in the training of each member
    together: bool  # all members are alive at once
    most_s: float  # no round begins after so many seconds of rounds
    stop_file: str | None = None
    identity: TrialIdentity | None = None

    @property
    def place(self) -> TrialDir:
        return TrialDir(Path(self.directory))

    @property
    def settings(self) -> dict[str, Setting]:
        """The settings that the others are compared with."""
        return self.members[0].settings


_ORDER: TypeAdapter[Order | RaceOrder] = TypeAdapter(Order | RaceOrder)


def to_dict(order: Order | RaceOrder) -> dict[str, Any]:
    """Returns plain values."""
    values: dict[str, Any] = _ORDER.dump_python(order)
    return values


def from_dict(values: Mapping[str, Any]) -> Order | RaceOrder:
    """Restores an order from `to_dict`; a race is recognized by its members."""
    return _ORDER.validate_python(values)


def is_to_stop(order: Order | RaceOrder) -> bool:
    """Returns True if the trial should close because its search has stopped."""
    return order.stop_file is not None and Path(order.stop_file).exists()
