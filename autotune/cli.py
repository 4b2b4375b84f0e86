"""The command line: search, resume, status, report, export, doctor."""

import os
import shlex
import sys
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import optuna
import typer
from rich.console import Console

from autotune import builtin, export, objective, prepare, units, view, workloads
from autotune import study as record
from autotune.errors import InputError
from autotune.space import Space
from autotune.store import Options, Session, is_in_use
from autotune.study import Plan
from autotune.telemetry import Hardware, hardware
from autotune.trial import Setting
from autotune.workloads import Workload

app = typer.Typer(
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    help="Finds the training settings that are fastest on this hardware at the same quality.",
)

SessionArgument = Annotated[Path, typer.Argument(help="the session's directory")]
EXIT_INTERRUPTED = 130
_SELECTS = ("fastest", "pareto")
_WANDB = ("auto", "online", "offline", "off")


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
    select: Annotated[str, typer.Option(help="what to print: fastest or pareto")] = "fastest",
    gpus_per_trial: Annotated[float | None, typer.Option(min=0, help="GPUs of a trial: 0.25, 0.5, 1")] = None,
    cpus_per_trial: Annotated[int | None, typer.Option(min=1, help="CPUs of a trial without GPU")] = None,
    memory_limit: Annotated[str | None, typer.Option(help="host memory of a trial, such as 3GiB")] = None,
    stall_timeout: Annotated[str | None, typer.Option(help="kill a trial silent for so long")] = None,
    skip_bad_samples: Annotated[
        bool, typer.Option("--skip-bad-samples", help="leave bad studies out")
    ] = False,
    wandb: Annotated[str, typer.Option(help="auto, online, offline or off")] = "auto",
    address: Annotated[str | None, typer.Option(help="address of a running Ray cluster")] = None,
    seed: Annotated[int, typer.Option(min=0, help="seed of the search")] = 0,
) -> int:
    """Search for the fastest settings. Example: autotune search --data data/iu_xray --trials 40 --time 2h"""
    _one_of("--select", select, _SELECTS)
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
    )
    budget = {"trials": trials, "time": time, "samples_per_trial": samples}
    file = builtin.space_file(space) if space else builtin.space_for(machine)
    asked = prepare.read_space(file, {"budget": budget, "objective": {"keep": keep}})
    workload = workloads.load(asked.workload)
    workload.require_gpus(gpus)
    settings = _settings(model, baseline, data, skip_bad_samples)
    chosen, notes = prepare.complete(asked, settings, workload, machine, str(file))
    root = session or Path("runs", f"{datetime.now().astimezone():%Y%m%d-%H%M%S}")
    opened = Session.create(root, chosen, options, _provenance(root, machine, seed))
    return _run(opened, root, chosen, workload, machine, notes=notes, select=select)


@app.command()
def resume(
    session: SessionArgument,
    trials: Annotated[int, typer.Option(min=0, help="so many trials more")] = 0,
    time: Annotated[str | None, typer.Option(help="a new time limit, from now")] = None,
    select: Annotated[str, typer.Option(help="what to print: fastest or pareto")] = "fastest",
) -> int:
    """Go on with a search after a kill, a reboot or Ctrl-C. Example: autotune resume runs/iu --trials 20"""
    _one_of("--select", select, _SELECTS)
    time_s = units.seconds(time) if time else None
    opened, chosen, workload = _open(session)
    notes = workload.check(chosen.baseline)
    machine, _ = _machine(opened.options().address, opened.options().gpus_per_trial)
    return _run(
        opened, session, chosen, workload, machine, notes=notes, more=trials, time_s=time_s, select=select
    )


@app.command()
def status(session: SessionArgument) -> int:
    """Show what a session has found so far, running or not. Example: autotune status runs/iu"""
    opened, chosen, workload = _open(session)
    console, study = Console(), _load(opened)
    trials = record.trials(study)
    plan = record.plan(study) or Plan(chosen.budget.trials, chosen.budget.time)
    state = "running" if is_in_use(opened) else "interrupted"
    console.print(view.table(trials, chosen, f"session {view.printable(session)}", state))
    skipped = len(record.skipped(study))
    print(f"{view.counts(trials, state)}; {_left(plan, len(trials))}")
    print(f"{skipped} suggestions were not started: outside the limits, or known not to fit")
    for line in view.summary(trials, chosen, workload, session):
        print(view.printable(line))
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
    best = objective.winner(trials, chosen.objective, chosen.limits.memory_fraction)
    wanted = best if trial is None else next((t for t in trials if t.number == trial and t.completed), None)
    if wanted is None:
        done = ", ".join(str(t.number) for t in trials if t.completed)
        raise InputError(f"--trial {trial}: must be a completed trial of the session: {done}")
    text = export.render(wanted, baseline, chosen, workload, opened.info().get("provenance", {}))
    export.write(output, text)
    print(f"{output}: {view.knobs(wanted.config)}: {view.gain(wanted, baseline, chosen)}")
    if command := workload.train_command(output):
        print(f"Train with: {command}")
    return 0


@app.command()
def doctor() -> int:
    """Say what this machine can run, and what is missing. Example: autotune doctor"""
    from autotune.doctor import examine  # noqa: PLC0415 - it asks torch, which takes a second

    for capability in examine():
        print(
            f"{'yes' if capability.ok else 'no':3} {capability.name:14} {view.printable(capability.detail)}"
        )
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
    select: str = "fastest",
) -> int:
    """Runs a new or reopened session to its end and says what came out; the exit code."""
    # Imported here because Ray and W&B take a second, which `status` and `--help` do not have to wait.
    from autotune import engine  # noqa: PLC0415
    from autotune.console import Screen  # noqa: PLC0415
    from autotune.search import Search  # noqa: PLC0415
    from autotune.tracking import Tracker  # noqa: PLC0415

    console = Console(stderr=False)
    with session.lock():
        study = record.open_study(session.study_file)
        _require_a_baseline(study, shown)
        plan = _extended(record.plan(study) or Plan(space.budget.trials, space.budget.time), more, time_s)
        record.set_plan(study, plan)
        with Screen(console, space, plan.trials, _time_left(plan)) as screen:
            screen.note(f"session {shown}: {plan.trials} trials on {machine.description}")
            for line in notes:
                screen.note(line)
            running = Search(session, space, workload, study, screen)
            screen.known(running.trials())
            mode = session.options().wandb
            trackers = [] if mode == "off" else [Tracker(session.root, session.name, mode)]
            engine.run(running, machine, trackers)
        stopping, trials = running.stopping, running.trials()
    if running.fault:
        raise InputError(
            f"{running.fault}; nothing is lost: mend that, then: python -m autotune resume {shown}"
        )
    if stopping:
        print(f"Stopped: {view.printable(stopping)}")
    print(view.counts(trials))
    for line in view.summary(trials, space, workload, shown, select):
        print(view.printable(line))
    if running.remaining and not objective.failed_baseline(trials):
        print(f"Go on with: python -m autotune resume {shown}")
    if stopping == "interrupted":
        return EXIT_INTERRUPTED
    return 0 if objective.baseline_of(trials) else 1


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


def _settings(
    model: str | None, baseline: Path | None, data: Path | None, skip_bad_samples: bool
) -> dict[str, Setting]:
    """What the command line says about the baseline, the more specific the later."""
    settings: dict[str, Setting] = {}
    if model is not None:
        from autotune.workloads.r2gen import MODELS  # noqa: PLC0415

        _one_of("--model", model, tuple(MODELS))
        settings |= MODELS[model]
    if baseline is not None:
        settings |= prepare.baseline_file(baseline)
    if data is not None:
        settings["data"] = str(data)
    return settings | ({"skip_bad_samples": True} if skip_bad_samples else {})


def _one_of(option: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise InputError(f"{option}: one of {', '.join(allowed)}: got {value!r}")


def _check_wandb(mode: str) -> None:
    _one_of("--wandb", mode, _WANDB)
    if mode == "online" and not os.environ.get("WANDB_API_KEY"):
        raise InputError("--wandb online: needs WANDB_API_KEY in the environment, which is not set")


def _provenance(root: Path, machine: Hardware, seed: int) -> dict[str, Any]:
    packages = ("autotune-r2gen", "torch", "ray", "optuna")
    return {
        "session": root.name,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": shlex.join(["python", "-m", "autotune", *sys.argv[1:]]),
        "hardware": machine.description,
        "versions": ", ".join(f"{name} {version(name)}" for name in packages),
        "seed": seed,
    }


def _open(root: Path) -> tuple[Session, Space, Workload]:
    session = Session.open(root)
    space = session.space()
    return session, space, workloads.load(space.workload)


def _load(session: Session) -> optuna.Study:
    """The study of a session that has one; a session killed at once has none yet."""
    if not session.study_file.exists():
        raise InputError(f"session {session.root}: nothing was run yet; python -m autotune resume starts it")
    return record.load_study(session.study_file)


def _extended(plan: Plan, more: int, time_s: float | None) -> Plan:
    limit = plan.time_s if time_s is None else plan.spent_s + time_s
    return replace(plan, trials=plan.trials + more, time_s=limit)


def _left(plan: Plan, started: int) -> str:
    trials = f"{max(0, plan.trials - started)} of {plan.trials} trials left"
    left_s = _time_left(plan)
    return trials if left_s is None else f"{trials}, {units.format_seconds(left_s)} of time"


def _time_left(plan: Plan) -> float | None:
    return None if plan.time_s is None else max(0.0, plan.time_s - plan.spent_s)
