"""The nodes of a cluster, and the one kind that a search uses: figures of two kinds do not compare."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from autotune.core.errors import InputError

ALIKE = 0.03  # the most by which probes of nodes of one kind differ


@dataclass(frozen=True)
class NodeKind:
    """The properties of a node on which its figures depend."""

    device: str = ""  # the names of its GPUs, or its CPU model
    cpus: int = 0
    driver: str | None = None
    probe_s: tuple[float, ...] = ()  # the time of fixed work on a CPU, and on a GPU if trials use any

    def __str__(self) -> str:
        cpus = f"{self.cpus} CPU{'s' * (self.cpus != 1)}"
        return ", ".join([self.device, cpus, *([f"driver {self.driver}"] if self.driver else [])])

    def difference(self, used: "NodeKind") -> str:
        """Returns why figures of this kind are not comparable with the kind `used`; "" if they are."""
        if str(self) != str(used):
            return f"of another kind: {self}"
        times = [mine / theirs for mine, theirs in zip(self.probe_s, used.probe_s, strict=False)]
        unlike = [ratio for ratio in times if not 1 <= ratio * (1 + ALIKE) <= (1 + ALIKE) ** 2]
        return f"a probe takes {unlike[0]:.2f} times as long there as on the nodes in use" if unlike else ""


@dataclass(frozen=True)
class ClusterNode:
    """A node of a cluster, with the resources that Ray offers to trials there."""

    id: str
    name: str
    kind: NodeKind = NodeKind()
    cpus: int = 0
    gpus: int = 0
    fault: str = ""  # why no trial runs on it


@dataclass(frozen=True)
class Cluster:
    """The nodes of a cluster. Trials run on the nodes of one kind that have no fault."""

    kind: NodeKind
    nodes: tuple[ClusterNode, ...]
    address: str = ""  # where it was last reached

    @property
    def used(self) -> tuple[ClusterNode, ...]:
        return tuple(node for node in self.nodes if not node.fault)

    @property
    def names(self) -> dict[str, str]:
        """The names of the nodes that trials run on, by ID."""
        return {node.id: node.name for node in self.used}

    @property
    def choice(self) -> list[str]:
        """A line on the kind in use, if the cluster has other kinds."""
        others = {n.kind.device for n in self.nodes if n.kind.device and n.kind.difference(self.kind)}
        count = f"{len(self.used)} of the {len(self.nodes)} nodes"
        choice = f"{count} used, of one kind: {self.kind}; --device-type chooses others: "
        return [choice + ", ".join(sorted(others))] if others else []

    @property
    def faults(self) -> list[str]:
        """One line for each reason that nodes are left out."""
        names: dict[str, list[str]] = defaultdict(list)
        for node in self.nodes:
            if node.fault:
                names[node.fault].append(node.name)
        return [f"node{'s' * (len(n) > 1)} {', '.join(n)} left out: {fault}" for fault, n in names.items()]


def slots(nodes: Sequence[ClusterNode], cpus: int, gpus: float) -> int:
    """Returns how many trials, each with `cpus` and `gpus`, can run at once."""
    return sum(min(node.cpus // cpus, trials_on_gpus(node, gpus) if gpus else node.cpus) for node in nodes)


def trials_on_gpus(node: ClusterNode, gpus: float) -> int:
    """Returns how many trials of `gpus` GPUs each fit on the GPUs of a node."""
    return int(node.gpus * (int(1 / gpus) if gpus < 1 else 1 / gpus))


def choose(
    nodes: Sequence[ClusterNode], device_type: str | None = None, kind: NodeKind | None = None
) -> Cluster:
    """Returns a cluster that uses one kind of these nodes: `kind`, or else the one of most GPUs, then CPUs.

    `device_type` is a part of the device's name. Raises InputError if no node can be used.
    """
    able = [node for node in nodes if not node.fault]
    asked = [node for node in able if (device_type or "").lower() in node.kind.device.lower()]
    if able and not asked:
        devices = ", ".join(sorted({node.kind.device for node in able}))
        raise InputError(f"--device-type: must be a part of one of these: {devices}, got {device_type!r}")

    def size(one: NodeKind) -> tuple[float, ...]:
        alike = [node for node in asked if not node.kind.difference(one)]
        return sum(node.gpus for node in alike), sum(node.cpus for node in alike), -sum(one.probe_s)

    used = kind or max((node.kind for node in asked), key=size, default=NodeKind())
    cluster = Cluster(used, tuple(replace(n, fault=n.fault or n.kind.difference(used)) for n in nodes))
    if not cluster.used:
        of = f" of the session's kind ({kind})" if kind else ""
        raise InputError(f"the cluster has no node{of} that can be used: {'; '.join(cluster.faults)}")
    return cluster
