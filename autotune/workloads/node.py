"""Values in a text, by path, each with its place."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autotune.core.errors import InputError

Step = str | int

_STEP = re.compile(r"(?:^|\.)([^.\[\]]+)|\[(\d+)\]")
_PATH = re.compile(f"(?:{_STEP.pattern})+")


@dataclass(frozen=True)
class Node:
    """Value at the characters from `start` to `end` of a text."""

    start: int
    end: int
    value: Any = None  # of a scalar
    inner: Mapping[Step, "Node"] | None = None  # children by name or list index
    is_list: bool = False
    is_block: bool = False  # YAML block style, without brackets
    last_key: int = 0  # start of the last name in a mapping

    @property
    def data(self) -> Any:
        if self.inner is None:
            return self.value
        data = {name: node.data for name, node in self.inner.items()}
        return list(data.values()) if self.is_list else data

    def leaves(self, above: Sequence[Step] = ()) -> Iterator[tuple[str, Any]]:
        """Yields the path and the value of every scalar below this node."""
        for step, node in (self.inner or {}).items():
            path = (*above, step)
            yield from [(path_of(path), node.value)] if node.inner is None else node.leaves(path)


def steps(path: str) -> list[Step]:
    """Returns the names and indices in a path such as `optim.betas[0]`; raises InputError if malformed."""
    if not _PATH.fullmatch(path):
        raise InputError(f"a path must be such as optim.lr or betas[0], got {path!r}")
    return [name or int(index) for name, index in _STEP.findall(path)]


def path_of(names: Sequence[Step]) -> str:
    """Returns the path that consists of these names and indices."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in names).removeprefix(".")
