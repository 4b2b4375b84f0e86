"""What the shell completes: search spaces, sessions, and the options that take one of a few values.

Where nothing is returned the shell completes files by itself.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from autotune.space import builtin
from autotune.storage.store import is_session
from autotune.workloads import registry

_USUAL = Path("runs")  # where sessions are kept by default


def one_of(values: Sequence[str]) -> Callable[[str], list[str]]:
    """Completes one of `values`."""

    def complete(incomplete: str) -> list[str]:
        return [value for value in values if value.startswith(incomplete)]

    return complete


def models(incomplete: str) -> list[str]:
    """Models of the built-in workload."""
    return one_of(tuple(registry.load(registry.BUILTIN).models))(incomplete)


def spaces(incomplete: str) -> list[str]:
    """Search spaces that come with the tuner, and files."""
    files = [str(file) for file in _beside(incomplete) if file.suffix in {".yaml", ".yml"}]
    return [name for name in (*builtin.names(), *files) if name.startswith(incomplete)]


def sessions(incomplete: str) -> list[str]:
    """Sessions next to what was typed; before anything was, those in the usual place, too."""
    found = [*_beside(incomplete), *([] if incomplete else _below(_USUAL))]
    return [str(place) for place in found if str(place).startswith(incomplete) and is_session(place)]


def _beside(incomplete: str) -> Iterator[Path]:
    """The files that the name may be meant to be one of."""
    parent = Path(incomplete) if incomplete.endswith("/") else Path(incomplete).parent
    return _below(parent)


def _below(directory: Path) -> Iterator[Path]:
    with suppress(OSError):
        yield from sorted(directory.iterdir())
