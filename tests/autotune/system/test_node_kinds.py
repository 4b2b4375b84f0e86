"""Which nodes of a cluster are of one kind, and which kind a search uses: made-up nodes."""

import re

import pytest

from autotune.core.errors import InputError
from autotune.system import node_kinds
from autotune.system.node_kinds import ClusterNode, NodeKind

A100 = NodeKind("NVIDIA A100", 16, "550.54", (0.010, 0.002))
T4 = NodeKind("Tesla T4", 16, "550.54", (0.010, 0.009))


def node(name, kind=A100, cpus=16, gpus=2, **rest):
    return ClusterNode(f"id of {name}", name, kind, cpus, gpus, **rest)


def used(cluster):
    return [node.name for node in cluster.used]


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (A100, ""),
        (NodeKind("NVIDIA A100", 16, "550.54", (0.0102, 0.00205)), ""),
        (T4, "of another kind: Tesla T4, 16 CPUs, driver 550.54"),
        (NodeKind("NVIDIA A100", 8, "550.54", (0.010, 0.002)), "another kind: NVIDIA A100, 8 CPUs"),
        (NodeKind("NVIDIA A100", 16, "560.1", (0.010, 0.002)), "another kind: .*driver 560.1"),
        (NodeKind("NVIDIA A100", 16, "550.54", (0.0104, 0.002)), "1.04 times as long there"),
        (NodeKind("NVIDIA A100", 16, "550.54", (0.010, 0.006)), "3.00 times as long there"),
        (NodeKind("NVIDIA A100", 16, "550.54", (0.010, 0.001)), "0.50 times as long there"),
    ],
)
def test_figures_compare_on_the_same_hardware_of_the_same_speed(other, why):
    found = other.difference(A100)
    assert bool(found) == bool(why)
    assert re.search(why, found)


def test_the_kind_with_the_most_gpus_is_used_whatever_the_cpus_of_others():
    large = node("head", NodeKind("AMD EPYC", 128), cpus=128, gpus=0)
    cluster = node_kinds.choose([large, node("a"), node("t", T4, gpus=4), node("b"), node("c")])
    assert used(cluster) == ["a", "b", "c"]
    assert cluster.kind == A100
    (choice,) = cluster.choice
    assert choice.startswith("3 of the 5 nodes used, of one kind: NVIDIA A100, 16 CPUs, driver 550.54; ")
    assert choice.endswith("--device-type chooses others: AMD EPYC, Tesla T4")
    assert cluster.faults == [
        "node head left out: of another kind: AMD EPYC, 128 CPUs",
        "node t left out: of another kind: Tesla T4, 16 CPUs, driver 550.54",
    ]


def test_nodes_are_alike_to_one_of_them_and_not_by_a_chain_of_small_steps():
    by_speed = [node(str(i), NodeKind("CPU", 16, None, (0.010 * 1.025**i,)), gpus=0) for i in range(5)]
    cluster = node_kinds.choose(by_speed)
    assert used(cluster) == ["0", "1", "2"], "the middle one is like both; of kinds as large the fastest"


def test_nodes_that_are_alike_need_no_choice():
    cluster = node_kinds.choose([node("a"), node("b")])
    assert (cluster.choice, cluster.faults) == ([], [])


def test_a_device_type_chooses_a_smaller_kind():
    nodes = [node("a"), node("b"), node("t", T4)]
    assert used(node_kinds.choose(nodes, "t4")) == ["t"]
    with pytest.raises(InputError, match=r"--device-type: .*: NVIDIA A100, Tesla T4, got 'H100'"):
        node_kinds.choose(nodes, "H100")


def test_a_resumed_session_uses_the_kind_that_it_has_used():
    nodes = [node("a"), node("b"), node("t", T4)]
    assert used(node_kinds.choose(nodes, kind=T4)) == ["t"]
    slower = NodeKind("Tesla T4", 16, "550.54", (0.020, 0.009))
    with pytest.raises(InputError, match=r"of the session's kind .* nodes a, b left out: .*2\.00 times"):
        node_kinds.choose([node("a", slower), node("b", slower)], kind=T4)


def test_a_node_with_a_fault_is_left_out_whatever_it_is():
    gone = node("b", fault="it has not answered within 20 s")
    cluster = node_kinds.choose([node("a"), gone])
    assert used(cluster) == ["a"]
    assert cluster.faults == ["node b left out: it has not answered within 20 s"]
    with pytest.raises(InputError, match="no node that can be used: node b left out: it has not"):
        node_kinds.choose([gone])


@pytest.mark.parametrize(
    ("cpus", "gpus", "count"),
    [(4, 0, 4 + 2), (4, 1.0, 2 + 2), (2, 0.5, 4 + 4), (4, 2.0, 1 + 1), (8, 0.3, 2 + 1)],
)
def test_slots_are_what_fits_on_each_node(cpus, gpus, count):
    assert node_kinds.slots([node("a"), node("b", cpus=8)], cpus, gpus) == count
