"""The actor that attends to a trial. It runs in a process of its own, with the imports of this module."""

import os
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import ray
from ray import tune

from autotune.engines.engine_cluster import TOKEN
from autotune.engines.ray_internals import TrialFailedError
from autotune.system import devices
from autotune.trials.attempt import Attempt
from autotune.trials.fork_server import ForkServer
from autotune.trials.order import ORDER, RaceOrder
from autotune.trials.race import Race
from autotune.workloads import registry

REPORT_S = 1.0
_THREADS = "OMP_NUM_THREADS"
_LATER_S, _LATE_S = 2.0, 20.0  # report interval from that age on: each report takes time from the trial


class Supervisor(tune.Trainable):
    """Runs one order at a time, in a child process."""

    def setup(self, config: dict[str, Any]) -> None:
        if not config["gpu"]:
            os.environ[devices.VISIBLE] = ""  # Ray does not hide the GPUs from actors that asked for none
        devices.number_by_bus(os.environ)
        os.environ["PL_DISABLE_FORK"] = "1"  # as in Tune: Lightning must not fork Ray's threads
        os.environ.pop(TOKEN, None)  # Ray has read it, and no trial should be able to print it
        registry.look_here_last()  # Ray puts it first on the path
        self._server = ForkServer(config["preload"])
        self._attempt: Attempt | Race | None = None
        self._ended, self._begun_s = "", 0.0
        nodes = config.get("nodes")
        self._node = nodes[ray.get_runtime_context().get_node_id()] if nodes else ""
        self._order: Mapping[str, Any] | None = config["order"]

    def step(self) -> dict[str, Any]:
        # Not in `setup`: Tune may create a supervisor for a trial and then give the trial to a free one.
        if self._order is not None:
            values, self._order = self._order, None
            self._attempt, self._begun_s = _start_order(values, self._node, self._server), time.monotonic()
        if self._attempt is None:  # if the trial failed, the driver asks for this step
            raise TrialFailedError(self._ended)
        is_young = time.monotonic() - self._begun_s < _LATE_S
        report = self._attempt.step(REPORT_S if is_young else _LATER_S)
        if report.outcome is not None:
            self._attempt, self._ended = None, f"{report.outcome}: {report.outcome.reason}"
        return asdict(report)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self.cleanup()
        self._order = new_config["order"]
        return True

    def cleanup(self) -> None:
        if self._attempt is not None:
            self._attempt.stop()
            self._attempt = None

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Does nothing: the workload keeps its own checkpoint."""

    @classmethod
    def default_resource_request(cls, config: dict[str, Any]) -> tune.PlacementGroupFactory:
        where = {"ray.io/node-id": f"in({','.join(config['nodes'])})"}
        only: dict[str, Any] = {"bundle_label_selector": [where]} if config["nodes"] else {}
        return tune.PlacementGroupFactory([{"CPU": config["cpu"], "GPU": config["gpu"]}], **only)


def _start_order(values: Mapping[str, Any], node: str, server: ForkServer) -> Attempt | Race:
    """Starts the trial or race without the number of threads that Ray sets, unless the user has set one.

    It matters even if it is the number of CPUs: with 2 on two CPUs, a small GPT-2 in fp32 trained 1.5 times
    as fast as without, and in bf16 as fast (TRL 1.16, PyTorch 2.13, one run each).
    """
    begun_with = Path("/proc/self/environ").read_bytes()  # not changed by what this process sets itself
    if not any(variable.startswith(f"{_THREADS}=".encode()) for variable in begun_with.split(b"\0")):
        os.environ.pop(_THREADS, None)
    given = replace(ORDER.validate_python(values), node=node)
    return Race(given, server) if isinstance(given, RaceOrder) else Attempt(given, server)
