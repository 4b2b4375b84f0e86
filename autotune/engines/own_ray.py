"""Starts Ray on this machine like `ray start --head`, but only the parts that a search needs.

Runs as a script with arguments DIRECTORY CPUS GPUS OBJECT_STORE_BYTES. Ray listens on loopback only and
writes its address to `ray_current_cluster` in DIRECTORY. Like `ray_internals`, it is written for Ray 2.60.
"""

import sys
from pathlib import Path

from ray._private import services, utils
from ray._private.node import Node
from ray._private.parameter import RayParams

_LOOPBACK = "127.0.0.1"
_IDLE = str(Path(__file__).with_name("idle_agent.py"))


def _idle(*_: object, **__: object) -> list[str]:
    """Returns the command for both agents of the raylet, in place of two that import Ray and listen.

    They would serve metrics, which nobody reads, and runtime environments, which our actors do not have.
    """
    return [sys.executable, "-I", "-S", _IDLE]


def main() -> None:
    directory, cpus, gpus, object_store_bytes = sys.argv[1:]
    services._build_python_executable_command_memory_profileable = _idle
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


if __name__ == "__main__":
    main()
