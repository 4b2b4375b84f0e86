"""Starts a private, silent Ray on this machine, or connects to the cluster that the user named."""

import logging
import os
import secrets
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import ray

from autotune.core.errors import InputError, SearchAborted
from autotune.engines import ray_internals
from autotune.system.guardian import Guardian, StartError
from autotune.system.telemetry import Hardware

_CONNECT_S = 5.0
TOKEN = "RAY_AUTH_TOKEN"  # noqa: S105 - the name of the variable
_MODE = "RAY_AUTH_MODE"
# Ray listens on loopback, and a lost GCS server stays lost. Work that the daemons do ten times a second by
# default is useless to a search on one machine and takes time from trials, so it is made rare.
_ALONE = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_gcs_rpc_server_reconnect_timeout_s": "20",
    "RAY_local_fs_monitor_interval_ms": "10000",
    "RAY_kill_idle_workers_interval_ms": "2000",
    "RAY_object_manager_timer_freq_ms": "1000",
    "RAY_raylet_check_gc_period_milliseconds": "10000",
    "RAY_gcs_pull_resource_loads_period_milliseconds": "10000",
    "RAY_task_events_report_interval_ms": "0",
    "RAY_raylet_report_resources_period_milliseconds": "1000",
    "RAY_io_context_monitor_probe_interval_ms": "60000",
    "RAY_report_worker_backlog_interval_ms": "10000",
    "RAY_enable_metrics_collection": "0",
    "RAY_event_stats": "0",
}
# Makes Ray silent, and keeps it from killing trials by its own judgement.
_ENVIRONMENT = {
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS": "0",
    "RAY_memory_monitor_refresh_ms": "0",
    "RAY_prestart_worker_first_driver": "0",  # these would stay idle: supervisors get workers of their own
    "RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES": "0",  # otherwise every trial uses the first GPU
    "RAY_worker_niceness": "0",  # otherwise trials yield to other processes, which distorts their speed
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    "TUNE_MAX_PENDING_TRIALS_PG": "100000",  # as many as the slots, which may become more; by default one
    "TUNE_GLOBAL_CHECKPOINT_S": "inf",  # no snapshots: they grow with the trials, and the study is the record
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
    "TUNE_WARN_INSUFFICENT_RESOURCE_THRESHOLD_S": "86400",
}


@contextmanager
def connect(address: str, lost: Callable[[str], None] | None = None) -> Iterator[None]:
    """Connects to the cluster at `address` with the user's token; calls `lost` if it dies.

    Raises InputError if it refuses the token or does not answer.
    """
    _silence()
    ray_internals.use_known_token()
    _require_reachable(address)
    try:
        ray.init(address, log_to_driver=False, logging_level=logging.CRITICAL)
        ray_internals.silence()
    except (ConnectionError, ValueError, SystemExit) as error:
        message = " ".join(str(error).split())
        raise InputError(f"--address {address}: no Ray cluster answers there: {message}") from None
    ended = threading.Event()
    if lost is not None:  # Ray would end this process without telling the user why

        def watch() -> None:
            is_alive, missed = ray_internals.heartbeat(), 0
            while missed < 3:  # failed checks in a row: the user hears of it within 30 s
                if ended.wait(4.0):
                    return
                missed = 0 if is_alive() else missed + 1
            lost(f"the Ray cluster at {address} does not answer any more")

        threading.Thread(target=watch, name="cluster", daemon=True).start()
    try:
        yield
    finally:
        ended.set()
        ray.shutdown()


def token_warning(address: str) -> list[str]:
    """Returns a warning if this process has reached the cluster at `address` without a token, else []."""
    if ray_internals.has_token():
        return []
    open_to_all = "whoever reaches it can run code as its user"
    return [f"the Ray cluster at {address} asks for no token: {open_to_all}; start it with {_MODE}=token"]


def _silence() -> None:
    os.environ.update(_ENVIRONMENT)
    logging.getLogger("ray").setLevel(logging.CRITICAL)


@contextmanager
def private_cluster(hardware: Hardware, guardian: Guardian, lost: Callable[[str], None]) -> Iterator[None]:
    """Runs a private Ray with `hardware` below `guardian`; calls `lost`, maybe in a thread, if it dies."""
    _silence()
    directory = guardian.directory / "ray"  # world-readable by Ray; its parent stays private
    store_bytes = 128 * 2**20  # only small reports pass through Ray's object store
    script = Path(__file__).with_name("own_ray.py")
    arguments = map(str, (script, directory, hardware.cpus, len(hardware.gpus), store_bytes))
    start = [sys.executable, "-P", *arguments]
    try:
        token = {_MODE: "token", TOKEN: secrets.token_hex(32)}
        with guardian.running(start, os.environ | _ALONE | token, lambda: lost("Ray died")):
            address = (directory / "ray_current_cluster").read_text(encoding="ascii").strip()
            ray_internals.stay_on_loopback()
            with _token_in_environment(token):
                ray.init(
                    address, log_to_driver=False, logging_level=logging.CRITICAL, _node_ip_address="127.0.0.1"
                )
            ray_internals.silence()
            try:
                yield
            finally:
                ray.shutdown()
    except StartError as error:
        probe = guardian.directory / "room"
        try:
            probe.write_bytes(bytes(2**20))  # without room for its first logs, Ray waits forever
        except OSError as full:
            where = f"TMPDIR: {guardian.directory.parent}: cannot be written: {full.strerror}"
            raise InputError(f"{where}; nothing is lost. Make room there, and resume the session") from None
        finally:
            probe.unlink(missing_ok=True)
        lost(f"Ray does not start: {error}")
        raise SearchAborted(f"Ray does not start: {error}") from None


@contextmanager
def _token_in_environment(token: Mapping[str, str]) -> Iterator[None]:
    """Puts `token` into the environment only while Ray connects: other children do not need it."""
    names = (*token, f"{TOKEN}_PATH")
    before = {name: os.environ.pop(name) for name in names if name in os.environ}
    os.environ.update(token)
    ray_internals.read_token()
    try:
        yield
    finally:
        for name in token:
            del os.environ[name]
        os.environ.update(before)


def _require_reachable(address: str) -> None:
    """Raises InputError if nothing answers at `address`, or if it refuses; Ray would try for minutes."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        return  # "auto", or invalid, which Ray refuses at once
    try:
        socket.create_connection((host, int(port)), _CONNECT_S).close()
    except (OSError, OverflowError, ValueError) as error:
        raise InputError(f"--address {address}: nothing listens there: {error}") from None
    if ray_internals.is_refused(address, _CONNECT_S):
        asked = f"give it in {TOKEN}, or its file in {TOKEN}_PATH"
        raise InputError(f"--address {address}: the cluster asks for its own token: {asked}")
