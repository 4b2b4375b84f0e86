"""Finds the training settings that are fastest on this hardware at the same quality, and proves it.

A training that is tuned may call these: `report` sends a step or an evaluation, `should_stop` asks whether to
end, `workdir` and `settings` are the trial's.
"""

TYPE_CHECKING = False  # as in `typing`
if TYPE_CHECKING:
    from typing import Any

    from autotune.inside.client import report, settings, should_stop, workdir

__all__ = ["report", "settings", "should_stop", "workdir"]


def __getattr__(name: str) -> "Any":
    """Imports when first asked for: `python -m autotune` must import nothing before it has set its path."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from autotune.inside import client  # noqa: PLC0415 - see above

    return getattr(client, name)
