"""Finds the training settings that are fastest on this hardware at the same quality, and proves it.

`search`, `resume` and `open` run and read searches as the command line does. A training script may call the
other functions: `report` sends a step or an evaluation, `should_stop` tells whether to end, and `workdir` and
`settings` return the trial's directory and settings.
"""

TYPE_CHECKING = False  # as in `typing`
if TYPE_CHECKING:
    from typing import Any

    from autotune.inside.client import report, settings, should_stop, workdir
    from autotune.sessions.api import open_session as open  # noqa: A004 - as it is called: autotune.open
    from autotune.sessions.api import resume, search
    from autotune.sessions.session import Evidence, Session

__all__ = ["Evidence", "Session", "open", "report", "resume", "search", "settings", "should_stop", "workdir"]


def __getattr__(name: str) -> "Any":
    """Imports public names on first use: `python -m autotune` must set its path before any import."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in {"Evidence", "Session"}:
        from autotune.sessions import session  # noqa: PLC0415 - see above

        return getattr(session, name)
    if name in {"open", "resume", "search"}:
        from autotune.sessions import api  # noqa: PLC0415 - see above

        return getattr(api, "open_session" if name == "open" else name)
    from autotune.inside import client  # noqa: PLC0415 - see above

    return getattr(client, name)
