"""Stands in for the two agents that a raylet requires: serves nothing, and ends with the raylet.

It runs as a script in every search, so it imports next to nothing that Python has not imported already.
"""

import os
import sys
import time
from pathlib import Path

# The files from which the raylet and its clients read the ports of an agent; -1: none.
_PORTS = (
    "metrics_agent_port",
    "metrics_export_port",
    "dashboard_agent_listen_port",
    "runtime_env_agent_port",
)
_LOOK_S = 1.0


def _publish_no_ports(session: Path, node: str) -> None:
    for name in _PORTS:
        file = session / f"{name}_{node}"
        whole = file.with_name(f"{file.name}.{os.getpid()}")
        whole.write_text("-1", encoding="ascii")
        whole.replace(file)


def main() -> None:
    raylet = os.getppid()
    given = dict(argument.removeprefix("--").split("=", 1) for argument in sys.argv if "=" in argument)
    _publish_no_ports(Path(given["session-dir"]), given["node-id"])
    while os.getppid() == raylet:
        time.sleep(_LOOK_S)


if __name__ == "__main__":
    main()
