import pytest

from autotune.system import cgroup
from tests.autotune.system.fake_cgroups import tree

__all__ = ["tree"]


def test_v2_takes_the_tightest_limit_of_the_group_and_its_parents(tree) -> None:
    tree(
        "0::/pod/container",
        {
            "pod/cpu.max": "150000 100000",
            "pod/container/cpu.max": "400000 100000",
            "pod/memory.max": "max",
            "pod/memory.current": "9000",
            "pod/container/memory.max": "8000",
            "pod/container/memory.current": "5000",
            "pod/container/memory.stat": "anon 1000\ninactive_file 3000\nactive_file 1000",
        },
    )
    assert cgroup.cpu_quota() == 1.5
    assert cgroup.memory() == cgroup.GroupMemory(limit_bytes=8000, used_bytes=2000)


def test_v1_has_a_tree_for_each_controller(tree) -> None:
    tree(
        "5:memory:/job\n4:cpu,cpuacct:/\n0::/",
        {
            "cpu/cpu.cfs_quota_us": "200000",
            "cpu/cpu.cfs_period_us": "100000",
            "memory/job/memory.limit_in_bytes": "7000",
            "memory/job/memory.usage_in_bytes": "600",
            "memory/job/memory.stat": "inactive_file 1\ntotal_inactive_file 100",
        },
    )
    assert cgroup.cpu_quota() == 2.0
    assert cgroup.memory() == cgroup.GroupMemory(7000, 500)


def test_v1_has_a_very_large_number_for_no_limit(tree) -> None:
    files = {"memory.limit_in_bytes": "9223372036854771712", "memory.usage_in_bytes": "600"}
    tree("5:memory:/job", {f"memory/job/{name}": text for name, text in files.items()})
    assert cgroup.memory() is None


def test_the_hosts_path_seen_inside_a_container_leads_to_the_containers_own_limits(tree) -> None:
    tree("0::/../../docker/abc", {"memory.max": "5000", "memory.current": "10"})
    assert cgroup.memory() == cgroup.GroupMemory(5000, 10)


def test_without_limits_no_limit_is_reported(tree) -> None:
    unlimited = {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000", "cpu.max": "max 100000"}
    tree("1:cpu:/\n0::/", unlimited)
    assert cgroup.cpu_quota() is None
    tree("0::/", {"memory.max": "max", "memory.current": "1"})
    assert cgroup.memory() is None


@pytest.mark.usefixtures("tree")
def test_without_control_groups_there_is_none() -> None:
    assert cgroup.cpu_quota() is None
    assert cgroup.memory() is None


def test_it_reads_this_machine() -> None:
    quota, memory = cgroup.cpu_quota(), cgroup.memory()
    assert quota is None or quota > 0
    assert memory is None or 0 < memory.used_bytes <= memory.limit_bytes


SCOPE = {
    "user/cgroup.controllers": "cpu memory",
    "user/cgroup.procs": "",
    "user/cgroup.subtree_control": "memory pids",
    "user/scope/cgroup.controllers": "cpu memory",
    "user/scope/cgroup.procs": "7",
    "user/scope/cgroup.subtree_control": "",
    "user/scope/memory.max": "max",
}


def test_v1_makes_groups_for_trials_in_its_own(tree) -> None:
    root = tree("4:memory:/job", {"memory/job/cgroup.procs": "7"})
    assert cgroup.group_for_trials() == root / "memory/job"
    (root / "memory/job/memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n")
    assert cgroup.kills(root / "memory/job") == 3


def test_v2_creates_groups_for_trials_next_to_its_own(tree) -> None:
    root = tree("0::/user/scope", SCOPE)
    assert cgroup.group_for_trials() == root / "user"
    assert cgroup.own_group() == root / "user/scope"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("user/scope/memory.max", "1000"),
        ("user/scope/cpu.max", "50000 100000"),
        ("user/cgroup.subtree_control", "pids"),
    ],
)
def test_a_trial_does_not_get_around_a_limit(tree, name: str, text: str) -> None:
    """The last case is a parent that does not delegate memory."""
    tree("0::/user/scope", SCOPE | {name: text})
    assert cgroup.group_for_trials() is None


def test_v2_counts_kills_with_and_without_descendants(tree) -> None:
    root = tree(
        "0::/x",
        {
            "x/cgroup.controllers": "memory",
            "x/memory.events": "oom 5\noom_kill 4",
            "x/memory.events.local": "oom_kill 1",
        },
    )
    assert cgroup.kills(root / "x") == 4
    assert cgroup.kills(root / "x", below=False) == 1
    assert cgroup.kills(root / "none") == 0
