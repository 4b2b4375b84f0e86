"""Stands in for one of the two agents that a raylet insists on: it serves nothing, and ends with the raylet.

It runs as a script, in every search: it imports nothing but what Python has imported already, or all but.
"""

import os
import sys
import time
from pathlib import Path

# The files in which the raylet and its clients read where an agent listens; -1: nowhere.
_PORTS = (
    "metrics_agent_port",
    "metrics_export_port",
    "dashboard_agent_listen_port",
    "runtime_env_agent_port",
)
_LOOK_S = 1.0


def _say_that_nothing_listens(session: Path, node: str) -> None:
    for name in _PORTS:
        file = session / f"{name}_{node}"
        whole = file.with_name(f"{file.name}.{os.getpid()}")
        whole.write_text("-1", encoding="ascii")
        whole.replace(file)


def main() -> None:
    raylet = os.getppid()
    given = dict(argument.removeprefix("--").split("=", 1) for argument in sys.argv if "=" in argument)
    _say_that_nothing_listens(Path(given["session-dir"]), given["node-id"])
    while os.getppid() == raylet:
        time.sleep(_LOOK_S)


if __name__ == "__main__":
    main()
