"""Runs a session to its end: search, engine, display and trackers. Imports Ray and Optuna."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import optuna
from rich.console import Console

from autotune.core import units
from autotune.core.errors import InputError, SearchAborted
from autotune.core.trial import Trial
from autotune.display import advice, events, view, words
from autotune.display.console import Screen, screen
from autotune.display.snapshot import RUNNING, Snapshot
from autotune.engines import engine
from autotune.judging.decisions import confirm, pilot
from autotune.judging.decisions.history import History
from autotune.judging.decisions.stopping import Threshold
from autotune.memory import room
from autotune.searcher.ports import Environment, SearchOptions
from autotune.searcher.search import TIME_UP, Search
from autotune.sessions import faults, prepare, reporting
from autotune.sessions.supervision import Job, RayDied
from autotune.space.space import Space
from autotune.storage import studies
from autotune.storage.json_file import JsonFile
from autotune.storage.lock import Held
from autotune.storage.store import StoredSession, resume_command
from autotune.storage.study_file import SearchPlan
from autotune.system.guardian import Guardian
from autotune.trackers import ray_callback
from autotune.trackers import registry as tracker_registry
from autotune.trackers.tracking import Trackers
from autotune.trials import failures
from autotune.trials.setup import Setup
from autotune.workloads.base import Workload

EXIT_NO_WINNER = 1


def run(job: Job, guardian: Guardian) -> int:
    """Runs a session to its end and reports its result; returns the exit code."""
    session, space, shown, hardware = job.session, job.space, job.shown, job.hardware
    with _in_place(job.held, shown), tracker_registry.open_session(session) as trackers:
        study = _opened(session, space)
        known = studies.read(study)
        if (failed := History(known.trials, space).failed_baseline) and failed.outcome:
            raise InputError(
                f"session {shown}: its baseline {failed.outcome}, and nothing can be compared without it: "
                f"{failed.outcome.reason}; fix that and start a new session"
            )
        plan = known.plan or SearchPlan(space.budget.trials, space.budget.time)
        limit_s = plan.time_s if job.time_s is None else plan.spent_s + job.time_s
        plan = replace(plan, trials=plan.trials + job.more, time_s=limit_s, ended=False)
        studies.set_plan(study, plan)
        session.remove_work(known.trials)
        begun = Snapshot(str(shown), hardware.description, RUNNING, space, plan, cluster=session.cluster)
        with screen(Console(), begun, as_json=job.as_json) as shows:
            limit = "" if plan.left_s is None else f" in {units.exact(plan.left_s)}"
            most = f"at most {words.plural(plan.trials, 'trial')}{limit}"
            shows.note(f"session {shown}: {most} on {hardware.description}")
            for line in job.notes:
                shows.note(line)
            setup = Setup(session, space, job.workload, hardware, room.context_bytes(known.trials))
            running = _search(setup, study, shows, job.held)
            _execute(running, setup, job, trackers, guardian=guardian, shows=shows)
        session.remove_work(running.history.trials)
        has_ended = not running.is_interrupted and not running.fault
        studies.set_plan(study, replace(running.plan, ended=has_ended))
        code = _conclude(running, shown, job.workload, shows)
        trackers.summarise(running.history, session.report_file)
    return code


def _opened(session: StoredSession, space: Space) -> optuna.Study:
    """Returns the study of a session; raises DamagedError if Optuna cannot read it."""
    try:
        study = studies.open_study(session.study_file, space, session.key)
        studies.read(study)
    except Exception as error:
        if failures.study_fault(error) or failures.disk_fault(error, failures.OUR_DISK_ERRNOS):
            raise
        raise session.damaged_error(f"is damaged: {' '.join(str(error).split())}") from error
    return study


@contextmanager
def _in_place(held: Held, shown: Path) -> Iterator[None]:
    """Raises InputError, in place of any other error, if the session is deleted or replaced meanwhile."""
    try:
        yield
    except Exception:
        if held.is_in_place:
            raise
    if not held.is_in_place:
        with suppress(OSError):  # left by Ray Tune, which creates its directory again
            held.root.rmdir()
        gone = "its directory was deleted, moved or replaced during the search, which has ended"
        raise InputError(f"session {shown}: {gone}")


def _search(setup: Setup, study: optuna.Study, shows: Screen, held: Held) -> Search:
    session = setup.session
    running = Search(
        setup.space,
        study,
        shows,
        SearchOptions(
            seed=setup.options.seed,
            memory_limit_bytes=setup.memory_limit_bytes,
            earlier=earlier_trials(setup, shows),
        ),
        Environment(
            verdict_of=session.verdict_of,
            publish=partial(JsonFile(Threshold).write, session.threshold_file),
            clear=session.clear,
            settle=partial(studies.checkpoint, session.study_file),
            is_in_place=lambda: held.is_in_place,
        ),
    )
    shows.restore(running.history.trials)
    return running


def earlier_trials(setup: Setup, shows: Screen) -> list[Trial]:
    """Returns the trials to warm-start from; none, with a note, if they are gone or no longer comparable."""
    if (warm_start := setup.options.warm_start) is None:
        return []
    try:
        now = setup.session.provenance()
        return prepare.warm_start(StoredSession.open(Path(warm_start)), now, setup.workload.places)
    except InputError as error:
        shows.note(f"nothing is learnt from the earlier session any more: {error}")
        return []


def _execute(
    running: Search, setup: Setup, job: Job, trackers: Trackers, *, guardian: Guardian, shows: Screen
) -> None:
    """Runs the trials of a search; if Ray dies, ends all that it has started, and then this process."""

    def after_a_loss(reason: str) -> None:
        trackers.break_off()  # before W&B's service is killed
        shows.close()
        guardian.end_orphans_below()
        interrupted = KeyboardInterrupt(f"interrupted; {job.how_to_go_on}")
        job.give_up(interrupted if running.is_interrupted else RayDied(reason))

    try:
        callbacks = [ray_callback.callback(trackers)]
        engine.run(running, setup, guardian, callbacks, after_a_loss, interrupts=job.interrupts)
    except SearchAborted as error:
        raise SearchAborted(f"{error}; {job.how_to_go_on}") from error


def _conclude(search: Search, shown: Path, workload: Workload, shows: Screen) -> int:
    """Reports the result of a search, and how to resume it; returns the exit code."""
    if search.fault:
        raise InputError(f"{search.fault}; nothing is lost. Fix that, then run: {resume_command(shown)}")
    history, is_interrupted = search.history, search.is_interrupted
    best, has_winner = confirm.recommended(history), advice.has_winner(history)
    why, tries = "", []
    if not has_winner and not is_interrupted:
        why = advice.no_winner_reason(history)
        fallback = pilot.fallback_reason(search.asked)
        tries = advice.what_to_try(
            history, search.plan, shown, exhausted=search.is_exhausted, fallback_reason=fallback
        )
    code = faults.EXIT_INTERRUPTED if is_interrupted else 0 if has_winner else EXIT_NO_WINNER
    go_on = advice.continue_command(history, search.plan, shown)
    lines = [*_ending(search), view.counts(history.trials)]
    if best or not why:
        lines += view.summary(history, workload, shown, "" if is_interrupted else go_on)
    if why and not advice.is_unconfirmed(history):
        is_in_summary = best is not None and not best[0].number  # the baseline, with the reason
        lines.append("What may help:" if is_in_summary else f"{why}. What may help:")
        for one in tries:
            lines += [f"- {one.what}:", f"  {one.command}"] if one.command else [f"- {one.what}"]
    lines += reporting.conclude(shown, history.trials)
    if not why and search.remaining:
        lines.append(f"Continue with: {go_on}")
    facts: dict[str, Any] = {
        "exit_code": code,
        "stopped": search.stopping,
        "why": why,
        "try": [asdict(one) for one in tries],
        **events.result(history, best),
    }
    shows.conclude(lines, facts)
    return code


def _ending(search: Search) -> list[str]:
    if search.stopping == TIME_UP:
        is_confirmed = confirm.confirmed(search.history) is not None
        lines = [view.out_of_time(search.history.trials, search.plan.trials, is_confirmed=is_confirmed)]
    else:
        lines = [f"Stopped: {search.stopping}"] if search.stopping else []
    if search.kept_time:
        lines.append("Fewer trials than planned, because time was kept for confirming the best.")
    if search.has_plateaued and not search.stopping:
        lines.append("The search ended early: the last settings tried were no better than the best so far.")
    if not search.another_pays and not search.stopping:
        training = units.format_seconds(search.space.budget.worth or 0.0)
        lines.append(f"Another trial would probably cost more than it saves of {training} of training.")
    if search.is_exhausted:
        lines.append("Every configuration was tried, or is known not to fit or not to win.")
    return lines
