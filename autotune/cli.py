"""The command line: search, resume, status, report, export, doctor."""

import os
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import optuna
import typer
from rich.console import Console

from autotune import (
    builtin,
    cli_compare,
    cli_tables,
    confirm,
    export,
    objective,
    orders,
    prepare,
    provenance,
    revival,
    stopping,
    units,
    view,
    workloads,
)
from autotune import study as record
from autotune.attempt import read_verdict
from autotune.errors import InputError, SearchAborted, printable
from autotune.space import Space
from autotune.store import Options, Session, going_on, is_in_use, is_session
from autotune.study import Plan
from autotune.telemetry import Hardware, hardware
from autotune.trial import Trial
from autotune.workloads import Workload

if TYPE_CHECKING:
    from autotune.search import Search
    from autotune.tracking import Tracker

app = typer.Typer(
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    help="Finds the training settings that are fastest on this hardware at the same quality.",
)

SessionArgument = Annotated[Path, typer.Argument(help="the session's directory")]
EXIT_INTERRUPTED = 130
_INTERRUPTED = "interrupted"
_WANDB = ("auto", "online", "offline", "off")
_LARGEST_SEED = 2**31 - 1  # of NumPy's generators, with room for a seed of its own in every run


@app.command()
def search(  # noqa: PLR0917 - typer makes an option of every argument
    data: Annotated[Path | None, typer.Option(help="data set in R2Gen's layout; none: drawn X-rays")] = None,
    session: Annotated[Path | None, typer.Option(help="directory to keep the search in")] = None,
    space: Annotated[
        str | None, typer.Option(help="search space: a YAML file, cpu, gpu or laptop-8gb")
    ] = None,
    baseline: Annotated[Path | None, typer.Option(help="YAML file with the settings you run today")] = None,
    model: Annotated[str | None, typer.Option(help="size of the R2Gen model: full or small")] = None,
    trials: Annotated[int | None, typer.Option(min=1, help="configurations to try")] = None,
    time: Annotated[str | None, typer.Option(help="time limit, such as 90m or 2h")] = None,
    samples: Annotated[int | None, typer.Option(min=1, help="training samples per trial")] = None,
    keep: Annotated[float | None, typer.Option(min=0, max=1, help="share of the quality to keep")] = None,
    select: Annotated[str | None, typer.Option(help="what wins: fastest, pareto or time-to-quality")] = None,
    target: Annotated[float | None, typer.Option(help="quality to reach, for time-to-quality")] = None,
    finalists: Annotated[int | None, typer.Option(min=1, help="trials to repeat in the end")] = None,
    repeats: Annotated[int | None, typer.Option(min=0, help="of each of them; 0: do not confirm")] = None,
    memory_fraction: Annotated[
        float | None, typer.Option(min=0, max=1, help="share of the memory to use at most")
    ] = None,
    warm_start: Annotated[
        Path | None, typer.Option(help="earlier session to learn from: same settings, same hardware")
    ] = None,
    gpus_per_trial: Annotated[float | None, typer.Option(min=0, help="GPUs of a trial: 0.25, 0.5, 1")] = None,
    cpus_per_trial: Annotated[int | None, typer.Option(min=1, help="CPUs of a trial without GPU")] = None,
    memory_limit: Annotated[str | None, typer.Option(help="host memory of a trial, such as 3GiB")] = None,
    stall_timeout: Annotated[str | None, typer.Option(help="kill a trial silent for so long")] = None,
    skip_bad_samples: Annotated[
        bool, typer.Option("--skip-bad-samples", help="leave bad studies out")
    ] = False,
    keep_checkpoints: Annotated[
        bool, typer.Option("--keep-checkpoints", help="keep those of trials that completed")
    ] = False,
    wandb: Annotated[str, typer.Option(help="auto, online, offline or off")] = "auto",
    address: Annotated[str | None, typer.Option(help="address of a running Ray cluster")] = None,
    seed: Annotated[int, typer.Option(min=0, max=_LARGEST_SEED, help="seed of the search")] = 0,
) -> int:
    """Search for the fastest settings. Example: autotune search --data data/iu_xray --trials 40 --time 2h"""
    _check_wandb(wandb)
    machine, gpus = _machine(address, gpus_per_trial)
    options = Options(
        gpus_per_trial=gpus,
        cpus_per_trial=prepare.cpus_per_trial(cpus_per_trial, machine),
        memory_limit_bytes=units.size_bytes(memory_limit) if memory_limit else None,
        stall_timeout_s=units.seconds(stall_timeout) if stall_timeout else None,
        wandb=wandb,
        address=address,
        seed=seed,
        warm_start=str(warm_start.resolve()) if warm_start else None,
        keep_checkpoints=keep_checkpoints,
    )
    overrides: dict[str, dict[str, Any]] = {
        "budget": {
            "trials": trials,
            "time": time,
            "samples_per_trial": samples,
            "finalists": finalists,
            "repeats": repeats,
        },
        "objective": {"keep": keep, "select": select, "target": target},
        "limits": {"memory_fraction": memory_fraction},
    }
    file = builtin.space_file(space) if space else builtin.space_for(machine)
    asked = prepare.read_space(file, overrides)
    workload = workloads.load(asked.workload)
    workload.require_gpus(gpus)
    settings = prepare.settings(model, baseline, data, skip_bad_samples=skip_bad_samples)
    chosen, notes = prepare.complete(asked, settings, workload, machine, str(file))
    root = session or Path("runs", f"{datetime.now().astimezone():%Y%m%d-%H%M%S}")
    if warm_start:
        known = Session.open(warm_start)
        prepare.warm_start(known, chosen, workload, machine.description, workload.revision())
    facts = provenance.collect(root.name, chosen, workload, machine, seed)
    opened = Session.create(root, chosen, options, facts)
    return _run(opened, root, chosen, workload, machine, notes=notes)


@app.command()
def resume(
    session: SessionArgument,
    trials: Annotated[int, typer.Option(min=0, help="so many trials more")] = 0,
    time: Annotated[str | None, typer.Option(help="a new time limit, from now")] = None,
) -> int:
    """Go on with a search after a kill, a reboot or Ctrl-C. Example: autotune resume runs/iu --trials 20"""
    time_s = units.seconds(time) if time else None
    opened, chosen, workload = _open(session)
    opened.require_current(session)
    with opened.lock():  # who comes second is told so at once
        options, then = opened.options(), opened.info().get("provenance", {})
        notes = workload.check(chosen.baseline)
        machine, _ = _machine(options.address, options.gpus_per_trial)
        now = provenance.collect(session.name, chosen, workload, machine, options.seed)
        notes += provenance.require_same(session, then, now, workload.places)
    return _run(opened, session, chosen, workload, machine, notes=notes, more=trials, time_s=time_s)


@app.command()
def status(session: SessionArgument) -> int:
    """Show what a session has found so far, running or not. Example: autotune status runs/iu"""
    opened, chosen, workload = _open(session)
    console, study = Console(), _load(opened)
    trials = record.trials(study)
    plan = record.plan(study) or Plan(chosen.budget.trials, chosen.budget.time)
    state = "running" if is_in_use(opened) else "interrupted"
    console.print(view.table(trials, chosen, f"session {session}", state))
    passed = len(record.passed_over(study))
    left = _left(plan, sum(t.searched for t in trials))
    print(f"{view.counts(trials, state)}; {left}; {units.format_bytes(opened.size_bytes())} on disk")
    print(f"{passed} suggestions were not started: outside the limits, or known not to fit or not to win")
    for line in view.summary(trials, chosen, workload, session):
        print(printable(line))
    return 0


@app.command(name="export")
def export_command(
    session: SessionArgument,
    output: Annotated[Path, typer.Option("--output", "-o", help="file to write")] = Path("best.yaml"),
    trial: Annotated[int | None, typer.Option(min=0, help="this trial; none: the winner")] = None,
) -> int:
    """Write the winner as the trainer's config. Example: autotune export runs/iu -o best.yaml"""
    opened, chosen, workload = _open(session)
    trials = record.trials(_load(opened))
    baseline = objective.baseline_of(trials)
    if baseline is None:
        raise InputError(f"session {session}: nothing to export: the baseline has not completed")
    best = confirm.recommended(trials, chosen)
    wanted = best[0] if best else baseline
    if trial is not None:
        named = [t for t in trials if t.number == trial and t.completed]
        if not named:
            done = ", ".join(str(t.number) for t in trials if t.completed)
            raise InputError(f"--trial {trial}: must be a completed trial of the session: {done}")
        wanted = named[0]
    measured = view.measured(wanted, trials, chosen)
    text = export.render(wanted, measured, chosen, workload, opened.info().get("provenance", {}))
    export.write(output, text)
    print(printable(f"{output}: {view.knobs(wanted.config)}: {measured}"))
    if command := workload.train_command(output):
        print(printable(f"Train with: {command}"))
    return 0


app.command()(cli_compare.compare)
app.command()(cli_tables.record)
app.command()(cli_tables.replay)


@app.command()
def doctor() -> int:
    """Say what this machine can run, and what is missing. Example: autotune doctor"""
    from autotune.doctor import examine  # noqa: PLC0415 - it asks torch, which takes a second

    for capability in examine():
        print(f"{'yes' if capability.ok else 'no':3} {capability.name:14} {printable(capability.detail)}")
    return 0


def _run(
    session: Session,
    shown: Path,
    space: Space,
    workload: Workload,
    machine: Hardware,
    *,
    notes: list[str],
    more: int = 0,
    time_s: float | None = None,
) -> int:
    """Runs a new or reopened session to its end and says what came out; the exit code."""
    # Imported here because Ray takes a second, which `status` and `--help` do not have to wait.
    from autotune import engine  # noqa: PLC0415
    from autotune.console import Screen  # noqa: PLC0415
    from autotune.search import Search  # noqa: PLC0415
    from autotune.tensorboard import Board  # noqa: PLC0415

    console = Console(stderr=False)
    with session.lock(), _wandb(session) as tracker:
        study = record.open_study(session.study_file, space)
        _require_a_baseline(study, shown)
        plan = _extended(record.plan(study) or Plan(space.budget.trials, space.budget.time), more, time_s)
        record.set_plan(study, plan)
        session.remove_work(record.trials(study))
        with Screen(console, space, plan.trials, _time_left(plan)) as screen:
            screen.note(f"session {shown}: {plan.trials} trials on {machine.description}")
            for line in notes:
                screen.note(line)
            options = session.options()
            running = Search(
                space,
                study,
                screen,
                seed=options.seed,
                memory_limit_bytes=orders.memory_limit(options, machine),
                earlier=_earlier(options, space, workload, machine),
                verdict_of=lambda number: read_verdict(session.trial_dir(number)),
                publish=lambda bar: stopping.write(session.bar_file, bar),
            )
            screen.known(running.trials())
            trackers = [Board(session.tensorboard_dir, space), *([tracker] if tracker else [])]

            def after_a_loss(reason: str) -> None:
                screen.close()
                if running.stopping == _INTERRUPTED:
                    revival.give_up(f"{_INTERRUPTED}; {revival.how_to_go_on(shown)}", EXIT_INTERRUPTED)
                revival.begin_anew(shown, running.remaining, reason)

            try:
                engine.run(running, engine.Job(session, workload, machine), trackers, after_a_loss)
            except SearchAborted as error:
                raise SearchAborted(f"{error}; {revival.how_to_go_on(shown)}") from error
        session.remove_work(running.trials())
        code = _conclude(running, shown, workload)
        if tracker:
            tracker.summarise(running.trials(), space, session.report_file)
    return code


def _wandb(session: Session) -> AbstractContextManager["Tracker | None"]:
    """What logs a session to W&B, None where it was told not to."""
    mode = session.options().wandb
    if mode == "off":
        return nullcontext()
    from autotune.tracking import Tracker  # noqa: PLC0415 - W&B takes a second

    return Tracker(session.root, session.name, mode)


def _conclude(search: "Search", shown: Path, workload: Workload) -> int:
    """Says what came out of a search that has ended, and how to go on; the exit code."""
    ended, trials = search.stopping, search.trials()
    if search.fault:
        raise InputError(f"{search.fault}; nothing is lost: mend that, then: {going_on(shown)}")
    if ended:
        print(f"Stopped: {printable(ended)}")
    if search.kept_time:
        print("Fewer trials than planned: the time that was left went into confirming the winner.")
    if search.is_exhausted:
        print("Every configuration was tried, or is known not to fit or not to win.")
    print(view.counts(trials))
    for line in view.summary(trials, search.space, workload, shown):
        print(printable(line))
    if search.remaining and not objective.failed_baseline(trials):
        print(printable(f"Go on with: {going_on(shown)}"))
    if ended == _INTERRUPTED:
        return EXIT_INTERRUPTED
    return 0 if objective.baseline_of(trials) else 1


def _earlier(options: Options, space: Space, workload: Workload, machine: Hardware) -> list[Trial]:
    """What a session was told to learn from; nothing where that is gone since, or is of another machine."""
    if options.warm_start is None or not is_session(Path(options.warm_start)):
        return []
    known = Session.open(Path(options.warm_start))
    return prepare.warm_start(known, space, workload, machine.description, workload.revision())


def _machine(address: str | None, gpus_per_trial: float | None) -> tuple[Hardware, float]:
    """What trials may use, here or in the cluster at `address`, and the GPUs of each."""
    if address is None:
        found = hardware()
    else:
        from autotune import engine_cluster  # noqa: PLC0415 - Ray takes a second

        found = engine_cluster.hardware(address)
    gpus = prepare.gpus_per_trial(gpus_per_trial, found)
    if not gpus:
        return replace(found, gpus=()), gpus
    if address is None:
        from autotune.doctor import torch  # noqa: PLC0415 - it starts a process that imports torch

        if not (seen := torch(found)).ok:
            raise InputError(f"torch {seen.detail}; --gpus-per-trial 0 searches on the CPU")
    return found, gpus


def _require_a_baseline(study: optuna.Study, shown: Path) -> None:
    if failed := objective.failed_baseline(record.trials(study)):
        raise InputError(
            f"session {shown}: its baseline {failed.outcome}, and without it nothing can be compared: "
            f"{failed.outcome.reason if failed.outcome else ''}; mend that and start a new session"
        )


def _check_wandb(mode: str) -> None:
    prepare.one_of("--wandb", mode, _WANDB)
    if mode == "online" and not os.environ.get("WANDB_API_KEY"):
        raise InputError("--wandb online: needs WANDB_API_KEY in the environment, which is not set")


def _open(root: Path) -> tuple[Session, Space, Workload]:
    session = Session.open(root)
    space = session.space()
    return session, space, workloads.load(space.workload)


def _load(session: Session) -> optuna.Study:
    """The study of a session that has one; a session killed at once has none yet."""
    try:
        return record.load_study(session.study_file)
    except KeyError:
        raise InputError(
            f"session {session.root}: nothing was run yet; start it with: {going_on(session.root)}"
        ) from None


def _extended(plan: Plan, more: int, time_s: float | None) -> Plan:
    limit = plan.time_s if time_s is None else plan.spent_s + time_s
    return replace(plan, trials=plan.trials + more, time_s=limit)


def _left(plan: Plan, started: int) -> str:
    trials = f"{max(0, plan.trials - started)} of {plan.trials} trials left"
    left_s = _time_left(plan)
    return trials if left_s is None else f"{trials}, {units.format_seconds(left_s)} of time"


def _time_left(plan: Plan) -> float | None:
    return None if plan.time_s is None else max(0.0, plan.time_s - plan.spent_s)
