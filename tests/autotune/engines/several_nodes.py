"""A Ray cluster of several nodes on this machine, as by `ray start`, but only what a search needs of it.

Runs as a script with a DIRECTORY, a PORT and its nodes as JSON, and prints the cluster's address.
"""

import ctypes
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psutil

HERE = Path(__file__).parents[1]
_NEW_MOUNTS = 0x20000  # CLONE_NEWNS
_TOKEN = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "a" * 64}
# By default Ray's workers have the lowest priority, and beside other tests they hardly run.
_PRIORITY = {"RAY_worker_niceness": "0"}
# A process that the kernel gives one CPU to has another kind of hardware.
ONE_CPU = (0,)


@dataclass(frozen=True)
class Started:
    """A node: what Ray has there, the CPUs that its processes see, and what they inherit."""

    name: str
    cpus: int = 1
    gpus: int = 0
    sees: tuple[int, ...] = ()
    hides: str = ""  # a directory that is empty there
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class SeveralNodes:
    """A running cluster, and what a search needs to reach it."""

    address: str
    environment: Mapping[str, str]

    def add(self, node: "Started") -> None:
        """Starts a further node; the caller kills it."""
        _run_script(self.environment, self.address, [node])

    def processes(self, node: str) -> list[psutil.Process]:
        """The processes of a node, its trials among them; those of the first have the head among them."""
        return [p for p in psutil.process_iter() if _belongs(p, self.environment["TEST_PLACE"], node)]

    def kill(self, node: str, only: str = "") -> None:
        """Kills a node, or only its processes with that in their command line."""
        found = [p for p in self.processes(node) if only in " ".join(p.cmdline())]
        for process in found:
            process.kill()
        psutil.wait_procs(found, 10)


def _belongs(process: psutil.Process, place: str, node: str) -> bool:
    with suppress(psutil.Error):
        environment = process.environ()
        return (environment.get("TEST_PLACE"), environment.get("TEST_NODE")) == (place, node)
    return False


@contextmanager
def started(*nodes: Started, port: int = 0) -> Iterator[SeveralNodes]:
    """Starts the nodes, the first as the head at `port`; kills what is left of them at the end."""
    with tempfile.TemporaryDirectory(prefix="c-", ignore_cleanup_errors=True) as directory:
        path = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
        shared = {**os.environ, "PYTHONPATH": path, **_TOKEN, **_PRIORITY, "TEST_PLACE": directory}
        cluster = SeveralNodes(_run_script(shared, str(port), nodes), shared)
        try:
            yield cluster
        finally:
            for node in nodes:
                cluster.kill(node.name)


def _run_script(environment: Mapping[str, str], head: str, nodes: Sequence[Started]) -> str:
    """Starts nodes with a process of its own; `head` is the address of the first one, or else its port."""
    asked = [environment["TEST_PLACE"], head, json.dumps([asdict(node) for node in nodes])]
    script = [sys.executable, __file__, *asked]
    done = subprocess.run(script, env=environment, stdout=subprocess.PIPE, text=True, check=True, timeout=120)
    return done.stdout.splitlines()[-1]


def _hide(directory: str) -> None:
    """Mounts an empty file system there, for this process and what it starts from now on."""
    if ctypes.CDLL(None).unshare(_NEW_MOUNTS):
        raise OSError("may not have mounts of its own")
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "hidden", directory], check=True)


def _start(directory: str, head: str, nodes: list[Started]) -> str:
    from ray._private import services
    from ray._private.node import Node
    from ray._private.parameter import RayParams

    from autotune.engines import own_ray

    agent = [sys.executable, "-I", "-S", own_ray.__file__]
    services._build_python_executable_command_memory_profileable = lambda *_, **__: agent
    Node.start_api_server = lambda *_, **__: None
    address, everything = head if ":" in head else None, os.sched_getaffinity(0)
    for node in nodes:
        os.environ.update({"TEST_NODE": node.name, **node.environment})
        os.sched_setaffinity(0, node.sees or everything)
        if node.hides:
            _hide(node.hides)
        parameters = RayParams(
            temp_dir=directory,
            gcs_address=address,
            gcs_server_port=None if address else int(head),
            node_name=node.name,
            num_cpus=node.cpus,
            num_gpus=node.gpus,
            object_store_memory=80 * 2**20,
            min_worker_port=0,
            max_worker_port=0,
            dashboard_agent_listen_port=0,
            include_dashboard=False,
            include_log_monitor=False,
            no_monitor=True,
            resources={},
        )
        made = Node(parameters, head=address is None, shutdown_at_exit=False, spawn_reaper=False)
        address = made.gcs_address
    return str(address)


if __name__ == "__main__":
    print(_start(sys.argv[1], sys.argv[2], [Started(**node) for node in json.loads(sys.argv[3])]))
