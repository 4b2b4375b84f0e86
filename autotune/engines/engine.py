"""Runs the trials of a search with Ray Tune. Ray only executes; the study is the record."""

import math
import re
import shutil
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import ray
from ray import tune
from ray.tune.search import Searcher

from autotune.core.errors import SearchAborted
from autotune.core.trial import Trial, TrialKind
from autotune.engines import engine_cluster, nodes, ray_internals
from autotune.engines.nodes import Places
from autotune.engines.supervisor import REPORT_S, Supervisor
from autotune.searcher import allowance
from autotune.searcher.search import Search
from autotune.system import node_kinds
from autotune.system.guardian import Guardian
from autotune.system.node_kinds import ClusterNode
from autotune.system.signals import INTERRUPTS, interrupting
from autotune.trials import order as orders
from autotune.trials.order import Order, RaceOrder
from autotune.trials.report import REPORT
from autotune.trials.setup import Setup

_SILENT_S = 600.0  # limit for a supervisor, silent only while a workload starts or closes
_LOW_ON_MEMORY = re.compile(r"running low on memory|OutOfMemoryError")
_KILLED_BY_RAY = "Ray's memory monitor killed it: the machine was running out of memory"
MOST_ABORTS = 3  # in a row, without a trial ending in between


class _Bridge:
    """State shared by the objects that Tune calls. Tune pickles it; an error in one object ends the run."""

    def __init__(
        self, search: Search, setup: Setup, slots: int, cpus: int, places: Places | None = None
    ) -> None:
        self.search, self.cpus, self.places = search, cpus, places
        self._setup, self._slots = setup, slots
        self._waiting_s: dict[int, float] = {}  # since when trials wait for a node of a cluster
        self.error: Exception | None = None
        self.failing: set[str] = set()  # Ray's IDs of failed trials, until Ray knows
        self._closes_until_s: float | None = None

    def __reduce__(self) -> tuple[type[object], tuple[()]]:
        return (object, ())

    @contextmanager
    def guarded(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001 - raised again when Tune has stopped
            self.error = self.error or error
            self.search.stop("an internal error")

    def has_closed(self) -> bool:
        """Returns True once the trials of a finished search have closed, or their time to close is over."""
        if not {trial.number for trial in self.search.running()} - self._waiting_s.keys():
            return True
        # Otherwise Tune would end them after five seconds: a longer step or a checkpoint would be lost.
        if self._closes_until_s is None:
            self._closes_until_s = time.monotonic()
            with suppress(OSError):  # trials cannot see the file, so Tune ends them
                self._setup.session.stop_file.touch()
                self._closes_until_s += 75.0  # a trial may take a minute to close
                press = "a second Ctrl-C" if self.search.is_interrupted else "Ctrl-C, pressed twice,"
                self.search.say(f"running trials write their checkpoints; {press} does not wait for that")
        return time.monotonic() > self._closes_until_s

    def suggest(self) -> dict[str, Any] | str | None:
        """Returns Tune's next trial, None to be asked later, or FINISHED if none will follow."""
        if len(self.search.running()) >= self.slots:
            return None
        trial = self.search.next()
        if trial is None:
            return None if self.search.running() else Searcher.FINISHED
        if self.places is not None:
            self._waiting_s[trial.number] = time.monotonic()
        setup = replace(self._setup, space=self.search.space)  # with what the search has settled by now
        if trial.kind is TrialKind.RACE:
            members = [self.search.history.trial(number) for number in trial.race]
            order: Order | RaceOrder = setup.race(trial, members)
        else:
            order = setup.order(trial)
        gpu = setup.options.gpus_per_trial
        if trial.runs_alone:
            gpu = float(math.ceil(gpu))  # a share of a GPU could be given a neighbour
        return {
            "number": trial.number,
            "config": order.settings,
            "order": orders.ORDER.dump_python(order),
            "preload": setup.workload.preload,
            "cpu": self.cpus,  # fixed, whatever its loaders need, so that any supervisor can take any trial
            "gpu": gpu,
            "nodes": self.places.cluster.names if self.places else {},
        }

    @property
    def slots(self) -> int:
        """The number of trials that can run at once, 0 while a cluster has no node for them."""
        if self.places is None:
            return self._slots
        return node_kinds.slots(self.places.cluster.used, self.cpus, self._setup.options.gpus_per_trial)

    def heard(self, number: int) -> None:
        """Notes that a node has begun to run the trial."""
        self._waiting_s.pop(number, None)

    def look(self) -> None:
        """Updates the nodes of a cluster, and warns if a trial has waited long for a node."""
        if self.places is not None:
            self.places.look()
        if self._waiting_s and time.monotonic() - min(self._waiting_s.values()) > 20.0:
            self.search.say("a trial waits for a node: others use the CPUs or GPUs it needs", once="waits")


class _StudySearcher(Searcher):
    def __init__(self, bridge: _Bridge) -> None:
        super().__init__()
        self._bridge = bridge

    def suggest(self, trial_id: str) -> Any:
        """Returns a dict, None or FINISHED; Ray's annotation omits the last."""
        with self._bridge.guarded():
            return self._bridge.suggest()
        return Searcher.FINISHED

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Does nothing: the callback has told the search already."""

    def save(self, checkpoint_path: str) -> None:
        """Does nothing: the study is the record."""


class _SupervisorWatch(tune.Callback):
    """Tells the search about supervisors that died, and kills silent ones."""

    def __init__(self, bridge: _Bridge) -> None:
        self._bridge = bridge
        self._silent_s: dict[str, float] = defaultdict(float)
        self._looked_s = time.monotonic()

    def on_step_begin(self, iteration: int, trials: Any, **_: Any) -> None:
        """Looks at the cluster; kills a hanging supervisor, for which Tune would wait: its trial is lost."""
        with self._bridge.guarded():
            self._bridge.look()
        now_s = time.monotonic()
        # A second at most, because a driver that was suspended received no reports meanwhile.
        passed_s, self._looked_s = min(now_s - self._looked_s, REPORT_S), now_s
        for trial in trials:
            if (supervisor := ray_internals.supervisor_of(trial)) is None:
                continue
            self._silent_s[trial.trial_id] += passed_s
            if self._silent_s[trial.trial_id] > _SILENT_S:
                del self._silent_s[trial.trial_id]
                ray.kill(supervisor)

    def on_trial_result(
        self, iteration: int, trials: Any, trial: Any, result: dict[str, Any], **_: Any
    ) -> None:
        self._silent_s.pop(trial.trial_id, None)

    def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **_: Any) -> None:
        ray_internals.forget_reports(trial)

    def on_trial_error(self, iteration: int, trials: Any, trial: Any, **_: Any) -> None:
        """Tells the search about a dead supervisor; a trial's own failure was in its last report."""
        self._bridge.failing.discard(trial.trial_id)
        has_ended = ray_internals.last_report(trial).get("outcome") is not None
        ray_internals.forget_reports(trial)
        if has_ended:
            return
        with self._bridge.guarded():
            error_text = Path(trial.error_file).read_text(errors="replace") if trial.error_file else ""
            number, search = trial.config["number"], self._bridge.search
            last = search.last_report(number)
            node = last.measurement.node if last else ""
            self._bridge.heard(number)
            if _LOW_ON_MEMORY.search(error_text):
                search.lose(number, _KILLED_BY_RAY, out_of_memory=True)
            elif nodes.is_gone(node):
                search.put_back(number, f"node {node} is gone")
            else:
                search.lose(number, f"its supervisor on node {node} died" if node else "its supervisor died")


class _Stopper(tune.Stopper):
    """Passes reports to the search; stops ended trials, and everything once the search is over."""

    def __init__(self, bridge: _Bridge) -> None:
        self._bridge = bridge

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        report, search = REPORT.validate_python(result), self._bridge.search
        self._bridge.heard(report.number)
        with self._bridge.guarded():
            search.progress(report)
            if report.outcome is not None and not report.number:
                reach = allowance.forecast(search.asked, search.plan, self._bridge.slots)
                search.say(reach, once="forecast")
            if report.outcome is not None and search.has_failed(report.number):
                self._bridge.failing.add(trial_id)  # its next step raises, so that Ray counts it as failed
        return report.outcome is not None and trial_id not in self._bridge.failing

    def stop_all(self) -> bool:
        if self._bridge.error is not None:
            return True
        is_over = self._bridge.search.is_over() and self._bridge.has_closed()
        return is_over and not self._bridge.failing


def run(
    search: Search,
    setup: Setup,
    guardian: Guardian,
    callbacks: Sequence[tune.Callback] = (),
    lost: Callable[[str], None] = lambda _: None,
    *,
    interrupts: Collection[int] = INTERRUPTS,
) -> None:
    """Runs `search` until it is over or a signal interrupts it, on a Ray below the `guardian`.

    Raises SearchAborted if Ray Tune aborts repeatedly without a trial ending in between. If Ray dies, `lost`
    is called, perhaps in another thread, and this thread may hang.
    """
    # In this order, because Ray installs its own SIGTERM handler.
    cluster: AbstractContextManager[None] = nullcontext()
    if search.remaining > 0 and (known := setup.session.cluster) is not None:
        cluster = engine_cluster.connect(known.address, lost)
    elif search.remaining > 0:
        cluster = engine_cluster.private_cluster(setup.hardware, guardian, lost)
    with cluster, interrupting(partial(search.stop, "interrupted", interrupted=True), interrupts):
        try:
            if search.remaining > 0:
                _run(search, setup, callbacks)
        finally:
            with suppress(OSError):
                setup.session.stop_file.unlink(missing_ok=True)
            for callback in callbacks:
                callback.on_experiment_end([])  # Tune skips it when it aborts; calling it twice is harmless


def _run(search: Search, setup: Setup, callbacks: Sequence[tune.Callback]) -> None:
    setup.session.stop_file.unlink(missing_ok=True)
    bridge = _bridge(search, setup)
    aborts, remaining = 0, search.remaining
    while search.remaining > 0 and search.stopping is None:
        try:
            _tune(setup.session.ray_dir, bridge, callbacks)
        except Exception as error:  # Tune as a whole, as when Ray's memory monitor kills a supervisor
            aborts = aborts + 1 if search.remaining == remaining else 1
            remaining = search.remaining
            _after_abort(search, error)
            if aborts >= MOST_ABORTS:
                raise SearchAborted(f"Ray Tune aborted {aborts} times in a row: {_line(error)}") from error
        if bridge.error is not None:
            raise bridge.error


def _tune(storage: Path, bridge: _Bridge, callbacks: Sequence[tune.Callback]) -> None:
    try:
        tuner = tune.Tuner(
            Supervisor,
            tune_config=tune.TuneConfig(
                search_alg=_StudySearcher(bridge),
                num_samples=-1,
                reuse_actors=True,
                # The default is made of the settings, and may be no valid file name.
                trial_dirname_creator=lambda trial: str(trial.trial_id),
            ),
            run_config=tune.RunConfig(
                name="tune",
                storage_path=str(storage),
                callbacks=[_SupervisorWatch(bridge), *callbacks],
                stop=_Stopper(bridge),
                verbose=0,
            ),
        )
        ray_internals.change_tune()
        tuner.fit()
    finally:
        bridge.failing.clear()
        shutil.rmtree(storage, ignore_errors=True)


def _after_abort(search: Search, error: Exception) -> None:
    """Gives up the trial that Ray's memory monitor killed; puts back the others, which are not to blame."""

    def memory_bytes(trial: Trial) -> float:
        last = search.last_report(trial.number)
        return last.telemetry.get("host_rss_bytes", 0.0) if last else 0.0

    running = sorted(search.running(), key=memory_bytes, reverse=True)
    if running and _LOW_ON_MEMORY.search(str(error)):
        search.lose(running.pop(0).number, _KILLED_BY_RAY, out_of_memory=True)
    for trial in running:
        search.put_back(trial.number, _line(error))


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__


def _bridge(search: Search, setup: Setup) -> _Bridge:
    options, hardware = setup.options, setup.hardware
    places = Places(search, setup) if setup.session.cluster is not None else None
    here = ClusterNode("", "", cpus=hardware.cpus, gpus=len(hardware.gpus))
    used, gpu = places.cluster.used if places else (here,), options.gpus_per_trial
    cpus = min(options.cpus_per_trial or hardware.cpus, hardware.cpus)  # at most one node's
    if gpu:
        most = max((node_kinds.trials_on_gpus(node, gpu) for node in used), default=1)
        cpus = max(1, hardware.cpus // max(1, most))
    return _Bridge(search, setup, max(1, node_kinds.slots(used, cpus, gpu)), cpus, places)
