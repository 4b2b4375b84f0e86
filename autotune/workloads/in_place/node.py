"""A value with its place in a text, and the paths to those in it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from autotune.core.errors import InputError

Step = str | int
Inner = Mapping[Step, "Node"]

_STEP = re.compile(r"(?:^|\.)([^.\[\]]+)|\[(\d+)\]")


@dataclass(frozen=True)
class Node:
    """The characters from `start` to `end` of a text, and what they stand for.

    A scalar has a `value`. A mapping or a list has `inner` nodes, by their names or from 0 on. It `is_block`
    where YAML shows it by its lines; `last_key` is where the last name in a mapping begins. It `is_shared`
    where other places of the text stand for the same by an alias.
    """

    start: int
    end: int
    value: Any = None
    inner: Inner | None = None
    is_list: bool = False
    is_block: bool = False
    last_key: int = 0
    is_shared: bool = False

    @property
    def data(self) -> Any:
        """What a reader of the text gets."""
        if self.inner is None:
            return self.value
        if self.is_list:
            return [node.data for node in self.inner.values()]
        return {name: node.data for name, node in self.inner.items()}

    @property
    def is_mapping(self) -> bool:
        return self.inner is not None and not self.is_list

    @property
    def is_nothing(self) -> bool:
        """Whether it is a null, in whose place a mapping may be."""
        return self.inner is None and self.value is None


def steps(path: str) -> list[Step]:
    """The names and indices of a path such as `optim.betas[0]`; raises InputError where it is none."""
    found: list[Step] = []
    end = 0
    for match in _STEP.finditer(path):
        if match.start() != end:
            break
        end = match.end()
        found.append(match[1] if match[2] is None else int(match[2]))
    if end != len(path) or not found:
        raise InputError(f"a path must be such as optim.lr or betas[0]: got {path!r}")
    return found


def path_of(found: list[Step]) -> str:
    """The path that has these `steps`."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in found).removeprefix(".")


def leaves(node: Node, above: list[Step] | None = None) -> list[tuple[str, Any]]:
    """Every scalar in `node` that has a path, with that."""
    here = above or []
    if node.inner is None:
        return [(path_of(here), node.value)] if here else []
    return [leaf for step, inner in node.inner.items() for leaf in leaves(inner, [*here, step])]
