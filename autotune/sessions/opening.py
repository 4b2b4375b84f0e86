"""Opens a session for a command that reads it."""

from pathlib import Path

from autotune.display import advice
from autotune.display.snapshot import RUNNING, Snapshot
from autotune.space.space import Space
from autotune.storage import store
from autotune.workloads import registry
from autotune.workloads.base import Workload


def opened(root: Path) -> tuple[store.StoredSession, Space, Workload]:
    """Returns the session in `root`, its search space and its workload, whose code need not exist."""
    session = store.StoredSession.open(root)
    space = session.space()
    return session, space, registry.named(space.workload)


def continue_command(shown: Snapshot) -> str:
    """Returns the command that continues a search, "" while it runs."""
    if shown.state == RUNNING:
        return ""
    return advice.continue_command(shown.history, shown.plan, Path(shown.session))
