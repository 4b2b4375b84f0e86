"""Ray itself: on this machine alone and in silence, or the cluster that the user named."""

import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from autotune import telemetry
from autotune.errors import InputError
from autotune.telemetry import Hardware

_CONNECT_S = 5.0
_OBJECT_STORE_BYTES = 128 * 2**20  # nothing but small reports passes through it

# Ray's own voice, network and habits: silent, loopback only, no killing of trials on its own judgement.
_ENVIRONMENT = {
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS": "0",
    "RAY_memory_monitor_refresh_ms": "0",
    "RAY_worker_niceness": "0",  # or else trials give way to whatever else runs, and measure that
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    "TUNE_MAX_PENDING_TRIALS_PG": "1",
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
    "TUNE_WARN_INSUFFICENT_RESOURCE_THRESHOLD_S": "86400",
}


def hardware(address: str) -> Hardware:
    """What trials may use in the cluster at `address`: all its GPUs, and the CPUs of its smallest node.

    Raises InputError where there is no cluster.
    """
    with connected(address):
        nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]
        ask = ray.remote(num_cpus=0)(telemetry.hardware)
        on = [NodeAffinitySchedulingStrategy(node, soft=False) for node in nodes]
        found: list[Hardware] = ray.get([ask.options(scheduling_strategy=node).remote() for node in on])
    return Hardware(
        cpus=min(node.cpus for node in found),
        host_memory_bytes=min(node.host_memory_bytes for node in found),
        gpus=tuple(gpu for node in found for gpu in node.gpus),
        driver=next((node.driver for node in found if node.driver), None),
    )


@contextmanager
def connected(address: str | None, hardware: Hardware | None = None) -> Iterator[None]:
    """The cluster at `address`; None: this machine with its `hardware`, listening on loopback only."""
    os.environ.update(_ENVIRONMENT)
    logging.getLogger("ray").setLevel(logging.CRITICAL)
    settings: dict[str, Any] = {"address": address or "local"}
    if address is not None:
        _require_reachable(address)
    elif hardware is not None:
        settings |= {
            "num_cpus": hardware.cpus,
            "num_gpus": len(hardware.gpus),
            "include_dashboard": False,
            "object_store_memory": _OBJECT_STORE_BYTES,
            "_node_ip_address": "127.0.0.1",
        }
    try:
        ray.init(log_to_driver=False, logging_level=logging.CRITICAL, **settings)
    except (ConnectionError, ValueError, SystemExit) as error:
        if address is None:
            raise
        said = " ".join(str(error).split())
        raise InputError(f"--address {address}: no Ray cluster answers there: {said}") from None
    try:
        yield
    finally:
        ray.shutdown()


def _require_reachable(address: str) -> None:
    """Raises InputError where nobody listens; Ray itself would try for more than a minute."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        return  # "auto", or what Ray refuses at once
    try:
        socket.create_connection((host, int(port)), _CONNECT_S).close()
    except (OSError, OverflowError) as error:
        raise InputError(f"--address {address}: nobody listens there: {error}") from None
