"""Asks the nodes of a Ray cluster what they are, and whether they can run the trials of a session."""

import time
from dataclasses import replace
from functools import partial
from typing import Any

import ray
from ray import ObjectRef
from ray.exceptions import GetTimeoutError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from autotune.engines import engine_cluster
from autotune.searcher.search import Search
from autotune.storage import provenance
from autotune.system import node_kinds
from autotune.system.node_kinds import Cluster, ClusterNode, NodeKind
from autotune.system.telemetry import Hardware
from autotune.trials import on_node
from autotune.trials.setup import Setup

Question = partial[Any]

# The longest that a node may take to answer. It first starts a process that imports PyTorch, which takes more
# than half a minute on a busy node, or if the environment is on a cold network disk.
_ANSWER_S = 120.0
_LOOK_S = 2.0
_CHECKED, _GONE = "it is being checked", "it is gone"


def survey(
    address: str, device_type: str | None, kind: NodeKind | None, *, on_gpu: bool
) -> tuple[Cluster, Hardware, list[str]]:
    """Returns the cluster at `address`, its hardware, and notes; raises InputError if no node is usable."""
    with engine_cluster.connect(address):
        asked = {_ask(node, partial(on_node.describe, on_gpu=on_gpu)): node for node in _alive().values()}
        ray.wait([*asked], num_returns=len(asked), timeout=_ANSWER_S)
        found = [_described(node, answer) for answer, node in asked.items()]
        cluster = node_kinds.choose([node for node, _ in found], device_type, kind)
        each = [its for node, its in found if its is not None and node.id in cluster.names]
        hardware = replace(
            each[0],
            cpus=min(one.cpus for one in each),
            host_memory_bytes=min(one.host_memory_bytes for one in each),
            gpus=tuple(gpu for one in each for gpu in one.gpus),
            refused=tuple(device for one in each for device in one.refused),
            nodes=len(each),
        )
        return cluster, hardware, [*engine_cluster.token_warning(address), *cluster.choice]


def _alive() -> dict[str, ClusterNode]:
    alive = {}
    found: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    for node in found:
        if node["Alive"]:
            cpus, gpus = (int(node["Resources"].get(what, 0)) for what in ("CPU", "GPU"))
            alive[node["NodeID"]] = ClusterNode(node["NodeID"], node["NodeName"], cpus=cpus, gpus=gpus)
    return alive


def is_gone(name: str) -> bool:
    """Returns True if no node of that name exists any more."""
    return bool(name) and all(node.name != name for node in _alive().values())


def _ask(node: ClusterNode, question: Question) -> ObjectRef[Any]:
    """Makes a node run `question`, in a process of its own."""
    where = NodeAffinitySchedulingStrategy(node.id, soft=False)
    remote: Any = ray.remote(num_cpus=0, max_calls=1, max_retries=0)
    task = remote(question.func).options(scheduling_strategy=where)
    answer: ObjectRef[Any] = task.remote(*question.args, **question.keywords)
    return answer


def _answer(answer: ObjectRef[Any]) -> tuple[Any, str]:
    """Returns a node's answer, or None and the reason that there is none."""
    try:
        return ray.get(answer, timeout=0), ""
    except GetTimeoutError:
        return None, f"it has not answered within {_ANSWER_S:g} s"
    except RayError as error:
        lines = str(getattr(error, "cause", None) or error).strip().splitlines()
        return None, lines[-1] if lines else type(error).__name__


def _described(node: ClusterNode, answer: ObjectRef[Any]) -> tuple[ClusterNode, Hardware | None]:
    """Returns the node with its kind, and the part of its hardware that Ray offers to trials."""
    facts, fault = _answer(answer)
    if fault:
        return replace(node, fault=fault), None
    found, probe_s = facts
    found = replace(found, gpus=found.gpus[: node.gpus])
    kind = NodeKind(found.device, found.cpus, found.driver if found.gpus else None, probe_s)
    fault = "" if node.cpus else "Ray has no CPU there"
    described = replace(node, kind=kind, gpus=len(found.gpus), fault=fault)
    return described, replace(found, cpus=min(found.cpus, node.cpus))


class Places:
    """The nodes on which the trials of a session run. Nodes may die and join: call `look` regularly."""

    def __init__(self, search: Search, setup: Setup) -> None:
        """Waits until every node is checked; ends the search if none can run its trials."""
        self._search = search
        self._session, self._on_gpu = setup.session, setup.options.gpus_per_trial > 0
        wanted = provenance.code_facts(setup.space, setup.workload)
        self._check = partial(on_node.unfit, str(setup.session.root), setup.session.key, wanted)
        self.cluster = setup.session.cluster or Cluster(NodeKind(), ())
        self._asked: dict[ObjectRef[Any], tuple[ClusterNode, Question, float]] = {}
        for node in self.cluster.used:
            self._put(node, self._check)
        self._take_in()
        while self._asked:
            ray.wait([*self._asked], timeout=_LOOK_S)
            self._take_in()
        self._require_one()
        for line in self.cluster.faults if self.cluster.used else ():
            search.say(line)

    def look(self) -> None:
        """Updates the nodes every few seconds, and tells the user what has changed."""
        if time.monotonic() - self._looked_s < _LOOK_S:
            return
        for line in self._take_in():
            self._search.say(line)
        self._require_one()

    def _require_one(self) -> None:
        if not self.cluster.used and not self._asked:
            faults = "; ".join(self.cluster.faults)
            self._search.break_off(f"trials can run on no node of the cluster: {faults}")

    def _take_in(self) -> list[str]:
        """Takes in deaths, new nodes and answers; returns a line on every node that changed."""
        self._looked_s = time.monotonic()
        before, alive = self.cluster, _alive()
        known = {node.id: node for node in before.nodes}
        late_s = time.monotonic() - _ANSWER_S
        late = {answer for answer, (_, _, asked_s) in self._asked.items() if asked_s < late_s}
        ready = ray.wait([*self._asked], num_returns=len(self._asked), timeout=0)[0] if self._asked else []
        for answer in late.union(ready):
            self._take(answer)
        for node in self.cluster.nodes:
            if node.id not in alive:
                self._set(node, _GONE)
        for new in alive.keys() - known.keys():
            self._put(alive[new], partial(on_node.describe, on_gpu=self._on_gpu))
        if self.cluster != before:
            self._session.write_cluster(self.cluster)
        changed = [node for node in self.cluster.nodes if node != known.get(node.id)]
        return [
            f"node {node.name} " + (f"left out: {node.fault}" if node.fault else "takes part from now on")
            for node in changed
            if node.fault != _CHECKED
        ]

    def _take(self, answer: Any) -> None:
        node, question, _ = self._asked.pop(answer)
        if question is self._check:
            self._set(node, "".join(filter(None, _answer(answer))))
            return
        described, _ = _described(node, answer)
        if fault := described.fault or described.kind.difference(self.cluster.kind):
            self._set(described, fault)
        else:
            self._put(described, self._check)

    def _set(self, node: ClusterNode, fault: str) -> None:
        nodes = {one.id: one for one in self.cluster.nodes} | {node.id: replace(node, fault=fault)}
        self.cluster = replace(self.cluster, nodes=tuple(nodes.values()))

    def _put(self, node: ClusterNode, question: Question) -> None:
        self._set(node, _CHECKED)
        self._asked[_ask(node, question)] = node, question, time.monotonic()
