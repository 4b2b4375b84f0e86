"""A search at one moment, whether it runs in this process, in another one, or has ended."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from autotune.core.trial import RejectedSuggestion, Trial
from autotune.display import advice, estimate
from autotune.display.estimate import Remaining
from autotune.judging.decisions import confirm
from autotune.judging.decisions.claims import Claim
from autotune.judging.decisions.history import History
from autotune.space.space import Space
from autotune.storage.records import is_mark, seconds_of
from autotune.storage.store import StoredSession, is_in_use
from autotune.storage.study_file import SearchPlan
from autotune.system.node_kinds import Cluster
from autotune.trials.progress import Phase, Progress

RUNNING, INTERRUPTED, ENDED = "running", "interrupted", "ended"


@dataclass(frozen=True)
class RunningTrial:
    """A trial without an outcome, with its measurement so far."""

    trial: Trial
    phase: str  # a `Phase`, or interrupted
    seconds: float


@dataclass(frozen=True)
class Snapshot:
    """A search at one moment."""

    session: str
    device: str
    state: str  # running, interrupted or ended
    space: Space
    plan: SearchPlan
    trials: tuple[Trial, ...] = ()  # those that have an outcome
    running: tuple[RunningTrial, ...] = ()
    passed_over: Sequence[RejectedSuggestion] = ()
    best: tuple[Trial, Claim | None] | None = None  # recommended so far, with its claim
    remaining: Remaining | None = None  # time to the end
    cluster: Cluster | None = None  # that trials run on; None if they run on one machine

    @cached_property
    def history(self) -> History:
        """All trials that were begun, in order."""
        begun = [*self.trials, *(r.trial for r in self.running)]
        return History(sorted(begun, key=lambda t: t.number), self.space)

    @property
    def go_on(self) -> str:
        """The command that continues the search, "" while it runs."""
        if self.state == RUNNING:
            return ""
        return advice.continue_command(self.history, self.plan, Path(self.session))


def take(session: StoredSession, path: Path, *, is_over: bool = False) -> Snapshot:
    """Reads a session's directory as it is now; writes nothing. Raises InputError before its first trial."""
    study = session.study()
    history = session.history_of(study)
    trials, space = history.trials, history.space
    plan = study.plan or SearchPlan(space.budget.trials, space.budget.time)
    is_running = is_in_use(session) and not is_over  # when it is over, a process may still hold the session
    state = ENDED if plan.ended else RUNNING if is_running else INTERRUPTED
    running = [_so_far(session, space, trial, state) for trial in trials if trial.outcome is None]
    running_s = {r.trial.number: r.seconds for r in running}
    if state == RUNNING:  # the study has the time spent until the last trial ended
        plan = replace(plan, spent_s=plan.spent_s + min(running_s.values(), default=0.0))
    return Snapshot(
        session=str(path),
        device=str(session.provenance().get("hardware", "")),
        state=state,
        space=space,
        plan=plan,
        trials=tuple(t for t in trials if t.outcome is not None),
        running=tuple(running),
        passed_over=study.passed_over,
        best=confirm.recommended(history),
        remaining=estimate.remaining(history, running_s, plan, max(1, len(running))),
        cluster=session.cluster,
    )


def _so_far(session: StoredSession, space: Space, trial: Trial, state: str) -> RunningTrial:
    records = session.records_of(trial)
    progress = Progress(space.metric_of(trial.config), space.settings(trial.config))
    for record in records:
        progress.count(record)
    # A peak that still rises is known when the trial ends, here as on the screen of the search.
    so_far = replace(progress.measurement(), shared=trial.measurement.shared, memory_is_rising=False)
    trial = replace(trial, measurement=so_far)
    if state != RUNNING:
        return RunningTrial(trial, INTERRUPTED, seconds_of(records))
    if not records and session.cluster is not None:
        return RunningTrial(trial, Phase.WAITING, 0.0)
    silent_s = 0.0  # since the last record; the attempt's mark relates its clock to this machine's
    if mark := next((r for r in reversed(records) if is_mark(r)), None):
        last_s = mark["clock_s"] if is_mark(records[-1]) else records[-1]["at_s"]
        silent_s = max(0.0, time.time() - float(mark["attempt"]) - float(last_s - mark["clock_s"]))
    return RunningTrial(trial, progress.phase(silent_s), seconds_of(records) + silent_s)
