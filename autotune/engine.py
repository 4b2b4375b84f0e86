"""Ray Tune runs the trials of a search. Ray is only the executor: what happened is in the study.

A supervisor (an actor, reused from trial to trial) attends to one child process at a time. Tune can abort
as a whole - when Ray's memory monitor kills a supervisor, say - so it is started again from the study.
"""

import math
import os
import re
import shutil
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import ray
from ray import tune
from ray.tune.search import Searcher

from autotune import confirm, engine_cluster, orders
from autotune.attempt import Attempt, Order
from autotune.child import ForkServer
from autotune.errors import SearchAborted
from autotune.search import Search
from autotune.space import Space
from autotune.store import Options, Session
from autotune.telemetry import Hardware
from autotune.trial import Outcome, Status, Trial
from autotune.workloads import Workload

_REPORT_S = 1.0
_LOW_ON_MEMORY = re.compile(r"running low on memory|OutOfMemoryError")
_KILLED_BY_RAY = "Ray's memory monitor killed it: the machine was running out of memory"
_MOST_ABORTS = 3


class TrialFailed(Exception):  # noqa: N818 - what Ray shows as the trial's error
    """Makes Ray's status of a failed trial ERROR; the outcome was reported before it."""


class Supervisor(tune.Trainable):
    """Runs one order at a time in a child process of its own."""

    def setup(self, config: dict[str, Any]) -> None:
        if not config["gpu"]:
            os.environ["CUDA_VISIBLE_DEVICES"] = ""  # Ray hides GPUs only from who has asked for some
        self._server = ForkServer(config["preload"])
        self._begin(config)

    def _begin(self, config: dict[str, Any]) -> None:
        self._attempt: Attempt | None = Attempt(Order.from_dict(config["order"]), self._server)
        self._failure: str | None = None

    def step(self) -> dict[str, Any]:
        if self._failure is not None:
            raise TrialFailed(self._failure)
        if self._attempt is None:
            raise RuntimeError("the trial has ended already")
        report = self._attempt.step(_REPORT_S)
        if "outcome" in report:
            outcome = Outcome.from_dict(report["outcome"])
            self._attempt = None
            if outcome.status is Status.FAILED:
                self._failure = f"{outcome}: {outcome.reason}"  # raised by the next step, after this report
            else:
                report["done"] = True
        return report

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self._stop()
        self._begin(new_config)
        return True

    def cleanup(self) -> None:
        self._stop()

    def _stop(self) -> None:
        if self._attempt is not None:
            self._attempt.stop()
            self._attempt = None

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Nothing: the workload keeps its own checkpoint."""

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Nothing: the workload keeps its own checkpoint."""

    @classmethod
    def default_resource_request(cls, config: dict[str, Any]) -> tune.PlacementGroupFactory:
        return tune.PlacementGroupFactory([{"CPU": config["cpu"], "GPU": config["gpu"]}])


@dataclass(frozen=True)
class Job:
    """What the trials of a search are: of which workload, in which session, on what hardware."""

    session: Session
    workload: Workload
    hardware: Hardware

    @cached_property
    def options(self) -> Options:
        return self.session.options()

    def order(self, trial: Trial, space: Space) -> Order:
        device_bytes = min((gpu.memory_bytes for gpu in self.hardware.gpus), default=None)
        return orders.order(trial, self.session, space, self.workload, device_bytes)


class _Bridge:
    """What Tune's searcher, callback and stopper share. An error of ours in one of them ends the run.

    Tune pickles and copies what it is given, for a restoring that is never used: this comes back as itself.
    """

    def __init__(self, search: Search, job: Job, slots: int, cpus: int) -> None:
        self.search, self.slots, self.cpus = search, slots, cpus
        self._job = job
        self.error: Exception | None = None

    def __reduce__(self) -> tuple[type[object], tuple[()]]:
        return (object, ())

    @contextmanager
    def guarded(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001 - raised again when Tune has stopped
            self.error = self.error or error
            self.search.stop("an internal error")

    def suggest(self) -> dict[str, Any] | str | None:
        """What Tune is to run next; None: ask later; FINISHED: nothing will follow."""
        if len(self.search.running()) >= self.slots:
            return None
        trial = self.search.next()
        if trial is None:
            return None if self.search.running() else Searcher.FINISHED
        order = self._job.order(trial, self.search.space)
        gpu = self._job.options.gpus_per_trial
        if confirm.is_alone(trial):
            gpu = float(math.ceil(gpu))  # a part of a GPU could get a neighbour
        workers = int(order.settings.get("num_workers") or 0)
        return {
            "number": trial.number,
            "config": order.settings,
            "order": order.to_dict(),
            "preload": self._job.workload.preload,
            "cpu": min(1 + workers, self.cpus) if gpu else self.cpus,
            "gpu": gpu,
        }


class _StudySearcher(Searcher):
    def __init__(self, bridge: _Bridge) -> None:
        super().__init__()
        self._bridge = bridge

    def suggest(self, trial_id: str) -> Any:
        """A dict, None, or FINISHED, which Ray's own annotation forgets."""
        with self._bridge.guarded():
            return self._bridge.suggest()
        return Searcher.FINISHED

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Nothing: the callback has told the search already."""

    def save(self, checkpoint_path: str) -> None:
        """Nothing: the study is the record."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing: a search is resumed from the study."""


class _Recorder(tune.Callback):
    """Tells the search what Tune saw."""

    def __init__(self, bridge: _Bridge) -> None:
        self._bridge = bridge

    def on_trial_result(
        self, iteration: int, trials: Any, trial: Any, result: dict[str, Any], **_: Any
    ) -> None:
        with self._bridge.guarded():
            self._bridge.search.progress(result["number"], result)

    def on_trial_error(self, iteration: int, trials: Any, trial: Any, **_: Any) -> None:
        with self._bridge.guarded():
            said = Path(trial.error_file).read_text(errors="replace") if trial.error_file else ""
            if _LOW_ON_MEMORY.search(said):
                self._bridge.search.lose(trial.config["number"], _KILLED_BY_RAY, out_of_memory=True)
            else:
                self._bridge.search.lose(trial.config["number"], "its supervisor died")


class _Over(tune.Stopper):
    """Stops every trial when the search says so."""

    def __init__(self, bridge: _Bridge) -> None:
        self._bridge = bridge

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        return self._bridge.error is not None or self._bridge.search.is_over()


def run(search: Search, job: Job, callbacks: Sequence[tune.Callback] = ()) -> None:
    """Runs `search` until it is over or interrupted (Ctrl-C, SIGTERM).

    Raises SearchAborted when Ray Tune aborts again and again without a trial ending in between.
    """
    # In this order: Ray takes SIGTERM for itself.
    with engine_cluster.connected(job.options.address, job.hardware), _signals(search):
        bridge = _bridge(search, job)
        aborts, remaining = 0, search.remaining
        while search.remaining > 0 and search.stopping is None:
            try:
                _tune(job.session.ray_dir, bridge, callbacks)
            except Exception as error:
                aborts = aborts + 1 if search.remaining == remaining else 1
                remaining = search.remaining
                _after_abort(search, error)
                if aborts >= _MOST_ABORTS:
                    raise SearchAborted(
                        f"Ray Tune aborted {aborts} times in a row: {_line(error)}"
                    ) from error
            if bridge.error is not None:
                raise bridge.error
        for callback in callbacks:
            callback.on_experiment_end([])  # Tune forgets it when it aborts; twice does no harm


def _tune(storage: Path, bridge: _Bridge, callbacks: Sequence[tune.Callback]) -> None:
    try:
        tune.Tuner(
            Supervisor,
            tune_config=tune.TuneConfig(search_alg=_StudySearcher(bridge), num_samples=-1, reuse_actors=True),
            run_config=tune.RunConfig(
                name="tune",
                storage_path=str(storage),
                callbacks=[_Recorder(bridge), *callbacks],
                stop=_Over(bridge),
                verbose=0,
            ),
        ).fit()
    finally:
        shutil.rmtree(storage, ignore_errors=True)


def _after_abort(search: Search, error: Exception) -> None:
    """Gives up the trial that Ray's memory monitor killed; the others that were running are run again."""
    running = sorted(search.running(), key=lambda t: search.host_memory_bytes(t.number), reverse=True)
    for rank, trial in enumerate(running):
        if rank == 0 and _LOW_ON_MEMORY.search(str(error)):
            search.lose(trial.number, _KILLED_BY_RAY, out_of_memory=True)
        else:
            search.lose(trial.number, _line(error))


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__


def _bridge(search: Search, job: Job) -> _Bridge:
    options, hardware = job.options, job.hardware
    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    has = [node["Resources"] for node in nodes if node["Alive"]]
    gpu = options.gpus_per_trial
    if gpu:
        per_device = int(1 / gpu) if gpu < 1 else 1 / gpu
        slots = sum(int(node.get("GPU", 0) * per_device) for node in has)
        most = max(int(node.get("GPU", 0) * per_device) for node in has)
        cpus = max(1, hardware.cpus // max(1, most))
    else:
        cpus = min(options.cpus_per_trial or hardware.cpus, hardware.cpus)  # those of one node
        slots = sum(int(node.get("CPU", 0)) // cpus for node in has)
    return _Bridge(search, job, max(1, slots), cpus)


@contextmanager
def _signals(search: Search) -> Iterator[None]:
    """The first Ctrl-C or SIGTERM ends the search in good order, the second one at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: Any) -> None:
        search.stop("interrupted")
        signal.signal(number, signal.default_int_handler)

    before = {s: signal.signal(s, interrupt) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
