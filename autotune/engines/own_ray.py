"""Starts Ray on this machine like `ray start --head`, but only the parts that a search needs.

Runs as a script with arguments DIRECTORY CPUS GPUS OBJECT_STORE_BYTES; like `ray_internals` for Ray 2.60.
It writes Ray's address to ray_current_cluster in DIRECTORY.
The same script stands in for the two agents that a raylet requires, which would import Ray and listen, to
serve metrics, which nobody reads, and runtime environments, which our actors do not have.
"""

import os
import sys
import time
from pathlib import Path

_LOOPBACK = "127.0.0.1"
# The files from which the raylet and its clients read the ports of an agent; -1: none.
_PORTS = (
    "metrics_agent_port",
    "metrics_export_port",
    "dashboard_agent_listen_port",
    "runtime_env_agent_port",
)


def start(directory: str, cpus: str, gpus: str, object_store_bytes: str) -> None:
    """Starts Ray's daemons, and leaves them running."""
    from ray._private import services, utils  # noqa: PLC0415 - not for an agent
    from ray._private.node import Node  # noqa: PLC0415
    from ray._private.parameter import RayParams  # noqa: PLC0415

    agent = [sys.executable, "-I", "-S", __file__]
    services._build_python_executable_command_memory_profileable = lambda *_, **__: agent
    Node.start_api_server = lambda *_, **__: None  # type: ignore[method-assign]  # it would serve a dashboard
    parameters = RayParams(
        temp_dir=directory,
        num_cpus=int(cpus),
        num_gpus=int(gpus),
        object_store_memory=int(object_store_bytes),
        node_ip_address=_LOOPBACK,
        node_name=_LOOPBACK,
        gcs_server_port=0,
        min_worker_port=0,
        max_worker_port=0,
        dashboard_agent_listen_port=0,
        include_dashboard=False,
        include_log_monitor=False,  # type: ignore[arg-type]
        no_monitor=True,
        resources={},
    )
    node = Node(parameters, head=True, shutdown_at_exit=False, spawn_reaper=False)
    utils.write_ray_address(node.address, directory)


def stand_in(session: Path, node: str) -> None:
    """Replaces an agent: serves nothing, and ends with the raylet."""
    raylet = os.getppid()
    for name in _PORTS:
        file = session / f"{name}_{node}"
        temporary = file.with_name(f"{file.name}.{os.getpid()}")
        temporary.write_text("-1", encoding="ascii")
        temporary.replace(file)
    while os.getppid() == raylet:
        time.sleep(1.0)


if __name__ == "__main__":
    options = (argument.removeprefix("--") for argument in sys.argv if argument.startswith("--"))
    given = dict(option.split("=", 1) for option in options if "=" in option)
    if given:
        stand_in(Path(given["session-dir"]), given["node-id"])
    else:
        start(*sys.argv[1:])
