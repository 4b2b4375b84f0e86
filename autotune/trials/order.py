"""Orders: everything that is needed to run one trial or one race, as plain values for any machine."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from autotune.core.measurement import Metric
from autotune.core.settings import Setting
from autotune.inside import stop_request
from autotune.judging.measurement import curves
from autotune.storage.identity import TrialIdentity
from autotune.storage.layout import TrialDir
from autotune.trials.progress import Progress

NEVER = 2**31  # samples: more than any trial trains, for workloads that must be told a number


@dataclass(frozen=True)
class Ends:
    """When a trial ends: as soon as one of these conditions is met, or its workload ends."""

    samples: int = 0  # with the first evaluation at or after so many; 0: with its workload
    target: float | None = None  # once the quality reaches this; higher is better internally
    until_learnt: int = 0  # once clearly above chance, after at least so many evaluations; 0: never
    until_timed: bool = False  # once the speed is known
    planned: bool = False  # its settings tell the workload to end after `samples`

    def are_reached(self, progress: Progress) -> bool:
        curve = progress.curve
        return (
            0 < self.samples <= progress.evaluated_samples
            or (self.target is not None and curves.samples_to_reach(curve, self.target) is not None)
            or (self.until_learnt > 0 and curves.has_learnt(curve, self.until_learnt))
            or (self.until_timed and progress.has_known_speed())
        )


@dataclass(frozen=True)
class TrialLimits:
    """The memory and time that a trial may use."""

    host_bytes: int | None = None  # host memory, beyond a process that has imported the workload
    gpus: float = 0.0  # that must be visible; below 1: a share of one GPU
    device_bytes: int | None = None  # the trial's share of each GPU
    allocator_bytes: int | None = None  # cap of the allocator, within that share; None: no cap
    stall_timeout_s: float | None = None  # longest time without progress; None: derived from its records
    closing_s: float = stop_request.CLOSING_S  # from the request to stop until it is killed

    @property
    def caps_process(self) -> bool:
        """True if the process is refused host memory beyond its limit."""
        # Not on a GPU: memory mapped by CUDA counts, and the driver would report the GPU as out of memory.
        return self.host_bytes is not None and not self.gpus


@dataclass(frozen=True)
class Order:
    """One trial: its workload and settings, the resources it may use, and when it is over."""

    number: int
    workload: str | dict[str, Any]
    settings: dict[str, Setting]  # under the tuner's names
    directory: str
    metric: Metric
    ends: Ends
    limits: TrialLimits = field(default_factory=TrialLimits)
    given: dict[str, Any] | None = None  # passed to the workload, in its names and types; None: `settings`
    identity: TrialIdentity | None = None  # the trial and session; None for a training outside a session
    revision: str = ""  # of the workload's code
    threshold_file: str | None = None  # stop early if the threshold in it says so
    stop_file: str | None = None  # once it exists, close and resume another day
    keep_work: bool = False  # keep the workload's directory of a completed trial
    whole: bool = False  # a whole training, which evaluates and ends as it does without the tuner
    node: str = ""  # of a cluster

    @property
    def place(self) -> TrialDir:
        return TrialDir(Path(self.directory))


@dataclass(frozen=True)
class Racer:
    """One member of a race."""

    order: Order
    samples: int  # of its training
    outside_s: float = 0.0  # added per sample, for the evaluations of its trial: none runs in a race
    unsure: float = 0.0  # share of the speed by which that may be wrong


@dataclass(frozen=True)
class RaceOrder:
    """A race between `members`; the others are compared with the first."""

    number: int
    directory: str
    members: tuple[Racer, ...]
    together: bool  # all members are alive at once
    most_s: float  # no round begins after so many seconds, starts included
    trials_s: float = 0.0  # the longest of the members' trials
    stop_file: str | None = None
    identity: TrialIdentity | None = None
    node: str = ""  # of a cluster

    @property
    def place(self) -> TrialDir:
        return TrialDir(Path(self.directory))

    @property
    def settings(self) -> dict[str, Setting]:
        return self.members[0].order.settings


ORDER: TypeAdapter[Order | RaceOrder] = TypeAdapter(Order | RaceOrder)  # a race is known by its members


def should_stop(order: Order | RaceOrder) -> bool:
    """Returns True if the trial should close because its search has stopped."""
    return order.stop_file is not None and Path(order.stop_file).exists()
