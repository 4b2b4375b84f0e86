"""What the control groups around this process allow it: a container's share of the machine (v1 and v2)."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_MEMBERSHIP = Path("/proc/self/cgroup")
_NO_LIMIT_BYTES = 2**60  # v1 says for none the largest number of whole pages; v2 says "max"


@dataclass(frozen=True)
class Memory:
    """A limit, and what is used of it without the page cache that the kernel would drop first."""

    limit_bytes: int
    used_bytes: int


def cpu_quota(root: Path = _ROOT, membership: Path = _MEMBERSHIP) -> float | None:
    """How many CPUs the tightest quota is worth, None where there is no quota."""
    quotas = [q for group in _groups("cpu", root, membership) if (q := _quota(group))]
    return min(quotas, default=None)


def memory(root: Path = _ROOT, membership: Path = _MEMBERSHIP) -> Memory | None:
    """The tightest memory limit and its use, None where there is no limit."""
    group = tightest_group(root, membership)
    return None if group is None else memory_of(group)


def tightest_group(root: Path = _ROOT, membership: Path = _MEMBERSHIP) -> Path | None:
    """The group with the tightest memory limit, None where there is no limit."""
    limits = {g: limit for g in _groups("memory", root, membership) if (limit := _limit_bytes(g)) is not None}
    return min(limits, key=lambda group: limits[group], default=None)


def own_group(root: Path = _ROOT, membership: Path = _MEMBERSHIP) -> Path | None:
    """The group that counts this process's memory, None where that cannot be seen."""
    return next(_groups("memory", root, membership), None)


def group_for_trials(root: Path = _ROOT, membership: Path = _MEMBERSHIP) -> Path | None:
    """The group in which this process can make others for memory, None where there is none.

    Its own; in v2 that cannot have processes and groups in it, so that it is the nearest one above, but none
    beyond a limit that a trial would get around.
    """
    for group in _groups("memory", root, membership):
        if _can_hold_groups(group):
            return group
        if not is_v2(group) or _limits(group):
            return None
    return None


def is_v2(group: Path) -> bool:
    return (group / "cgroup.controllers").exists()


def _can_hold_groups(group: Path) -> bool:
    is_ours = os.access(group, os.W_OK) and os.access(group / "cgroup.procs", os.W_OK)
    return is_ours and (not is_v2(group) or "memory" in _read(group / "cgroup.subtree_control").split())


def _limits(group: Path) -> bool:
    """Whether a group of v2 sets a limit of its own."""
    limits = (_read(group / name) for name in ("memory.max", "memory.high", "cpu.max"))
    return any(limit and limit.split()[0] != "max" for limit in limits)


def kills(group: Path, *, below: bool = True) -> int:
    """How many of its processes the kernel has killed for memory since it was made.

    In v2 those of groups `below` it count, too, unless that is not asked for; in v1 they never do.
    """
    events = "memory.events" if below else "memory.events.local"
    text = _read(group / (events if is_v2(group) else "memory.oom_control"))
    fields = (line.split() for line in text.splitlines())
    return next((int(count) for name, count in fields if name == "oom_kill"), 0)


def _groups(controller: str, root: Path, membership: Path) -> Iterator[Path]:
    """The directories of this process's groups for `controller`, from its own up to the outermost."""
    for line in _read(membership).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        top = root / controller if controllers else root  # v2 has one tree and names no controller
        group = top / path.lstrip("/")
        # A container without its own cgroup namespace sees the host's path here, which is not mounted in it.
        yield from (g for g in (group, *group.parents) if g.is_relative_to(top) and g.is_dir())


def _quota(group: Path) -> float | None:
    text = _read(group / "cpu.max")
    if not text:
        text = f"{_read(group / 'cpu.cfs_quota_us')} {_read(group / 'cpu.cfs_period_us')}"
    match text.split():
        case [quota, period] if quota.isdigit():  # v2 says "max", v1 says -1 where there is none
            return int(quota) / int(period)
    return None


def memory_of(group: Path) -> Memory | None:
    """The memory limit of a group and its use, None where it has no limit."""
    v2, limit_bytes = _limits_as_v2(group), _limit_bytes(group)
    used = _read(group / ("memory.current" if v2 else "memory.usage_in_bytes"))
    if limit_bytes is None or not used.isdigit():
        return None
    return Memory(limit_bytes, max(0, int(used) - _droppable_bytes(group, v2)))


def _limit_bytes(group: Path) -> int | None:
    limit = _read(group / ("memory.max" if _limits_as_v2(group) else "memory.limit_in_bytes"))
    return int(limit) if limit.isdigit() and int(limit) < _NO_LIMIT_BYTES else None


def _limits_as_v2(group: Path) -> bool:
    return (group / "memory.max").exists()


def _droppable_bytes(group: Path, v2: bool) -> int:
    name = "inactive_file" if v2 else "total_inactive_file"
    fields = (line.split() for line in _read(group / "memory.stat").splitlines())
    return next((int(value) for key, value in fields if key == name), 0)


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii").strip()
    except OSError:
        return ""
