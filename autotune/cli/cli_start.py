"""Starts a search: creates a session from the options, or opens an existing one."""

import os
import sys
import tempfile
from datetime import datetime
from pathlib import Path
from typing import Any

from autotune.cli import epoch_size, gpus, import_room, option_values, prepare
from autotune.cli.cli_options import Goal, Length, Output, Running, Tuned
from autotune.cli.gpus import Usable
from autotune.cli.job import Job
from autotune.core import secrecy
from autotune.core.errors import InputError
from autotune.space import builtin
from autotune.space.space import Space
from autotune.storage import provenance
from autotune.storage.store import WANDB_MODES, Options, Session
from autotune.system import scratch
from autotune.system.telemetry import Hardware
from autotune.trackers import tags
from autotune.workloads import registry
from autotune.workloads.base import Workload


def search(tuned: Tuned, output: Output, length: Length, goal: Goal, running: Running) -> int:
    """Creates a session and runs it; creates nothing if an option is invalid."""
    root = output.session or Path("runs", f"{datetime.now().astimezone():%Y%m%d-%H%M%S}")
    require_utf8(root)
    check_wandb(output.wandb)
    here = hardware(running.address, running.gpus_per_trial)
    found = here.hardware
    options = _options(tuned, output, running, here)
    overrides = _overrides(length, goal)
    option_values.require_options(overrides, {"select": "--promise"} if goal.promise else {})
    file = space_file(tuned, found)
    space, workload, notes = prepared(tuned, prepare.read_space(file, overrides), file, here)
    if running.address is None:
        settings = space.for_workload(space.baseline)
        import_room.require(running.memory_limit, workload, settings, here.gpus_per_trial)
    facts = provenance.collect(root.name, space, workload, found, options.seed)
    if options.warm_start:
        prepare.warm_start(Session.open(Path(options.warm_start)), facts, workload.places)
    notes += [*here.notes, *_warnings(running.address), *_demonstration(tuned, found)]
    opened = Session.create(root, space, options, facts)
    with opened.lock() as held:
        return _run(Job(opened, root, space, workload, found, held, notes, as_json=output.as_json))


def prepared(tuned: Tuned, asked: Space, file: Path, here: Usable) -> tuple[Space, Workload, list[str]]:
    """Returns the completed space of `file`, its workload, and notes for the user.

    Raises InputError if a training of its baseline cannot start.
    """
    prepare.require_said(asked, file)
    workload = registry.load(asked.workload)
    workload.require_gpus(here.gpus_per_trial)
    settings = prepare.settings(
        workload, asked, tuned.model, tuned.baseline, tuned.data, skip_bad_samples=tuned.skip_bad_samples
    )
    if epoch_size.is_lacking(asked, prepare.whole_baseline(asked, settings, workload), workload):
        one_epoch = epoch_size.of_one_epoch(asked)
        short, _ = prepare.complete(one_epoch, settings, workload, here.machine, str(file))
        gpus.require_script(workload.python, here)
        asked = epoch_size.with_samples(asked, epoch_size.counted(short, workload, here))
    space, notes = prepare.complete(asked, settings, workload, here.machine, str(file))
    gpus.require_script(workload.python, here)
    return space, workload, notes


def space_file(tuned: Tuned, found: Hardware) -> Path:
    """Returns the file of the named search space, or of the built-in one for this machine."""
    if tuned.space:
        return builtin.space_file(tuned.space)
    return builtin.space_for(found, drawn=_is_demonstration(tuned))


def _is_demonstration(tuned: Tuned) -> bool:
    """Returns True if no space, data or baseline is given, so that a demonstration on synthetic data runs."""
    given = (tuned.space, tuned.data, tuned.baseline)
    return all(one is None for one in given) and tuned.model != "full"


def _demonstration(tuned: Tuned, found: Hardware) -> list[str]:
    """Returns a note on tuning the published model, if this is a demonstration on a GPU."""
    if not found.gpus or not _is_demonstration(tuned):
        return []
    return [
        "this tunes a small model on drawn X-rays; to tune the published one: --data DIR, or --model full"
    ]


def _options(tuned: Tuned, output: Output, running: Running, here: Usable) -> Options:
    """Returns the options that are stored with the session."""
    return Options(
        gpus_per_trial=here.gpus_per_trial,
        cpus_per_trial=option_values.cpus_per_trial(running.cpus_per_trial, here.hardware),
        memory_limit_bytes=option_values.size_bytes("--memory-limit", running.memory_limit),
        stall_timeout_s=option_values.duration_s("--stall-timeout", running.stall_timeout),
        wandb=output.wandb,
        address=running.address,
        seed=running.seed,
        warm_start=str(tuned.warm_start.resolve()) if tuned.warm_start else None,
        keep_checkpoints=running.keep_checkpoints,
        tags=tags.check(output.tag or ()),
    )


def _overrides(length: Length, goal: Goal) -> dict[str, dict[str, Any]]:
    """Returns the values that override those of the search space, by section."""
    time_s = option_values.duration_s("--time", length.time)
    budget = {"trials": length.trials, "time": time_s, **option_values.samples(length.samples)}
    rule = option_values.select(goal.promise, goal.select)
    return {
        "budget": {**budget, "finalists": goal.finalists, "repeats": goal.repeats},
        "objective": {
            "keep": goal.keep,
            "within": goal.within,
            "select": rule,
            "target": goal.target,
        },
        "limits": {"memory_fraction": goal.memory_fraction},
    }


def resume(session: Path, *, more: int, time: str | None, as_json: bool) -> int:
    """Opens a session and runs its remaining trials, and `more`."""
    time_s = option_values.duration_s("--time", time)
    opened = Session.open(session)
    require_utf8(session)
    space = opened.space()
    workload = registry.load(space.workload)
    with opened.lock() as held:  # a second process fails at once
        options, then = opened.options(), opened.provenance()
        notes = workload.check(space.for_workload(space.baseline))
        here = hardware(options.address, options.gpus_per_trial)
        gpus.require_script(workload.python, here)
        found = here.hardware
        now = provenance.collect(session.name, space, workload, found, options.seed)
        notes += provenance.require_same(session, then, now, workload.places)
        opened.require_whole()
        notes += [*here.notes, *_warnings(options.address)]
        job = Job(opened, session, space, workload, found, held, notes, more, time_s, as_json=as_json)
        return _run(job)


def _run(job: Job) -> int:
    """Runs a session with a private scratch directory; returns the exit code."""
    with scratch.private() as place:  # before importing W&B, which creates directories there
        from autotune.cli import cli_run  # noqa: PLC0415 - Ray and Optuna take seconds to import; errors come first

        return cli_run.run(job, place)


def _warnings(address: str | None) -> list[str]:
    """Returns warnings about the cluster at `address`, if given."""
    if address is None:
        return []
    from autotune.engines import engine_cluster  # noqa: PLC0415 - imported already

    return engine_cluster.warning(address)


def hardware(address: str | None, gpus_per_trial: float | None) -> Usable:
    """Returns the hardware for trials, here or in the cluster at `address`."""
    if address is None:
        return gpus.usable(gpus_per_trial)
    from autotune.engines import engine_cluster  # noqa: PLC0415 - importing Ray takes a second

    return gpus.of_cluster(engine_cluster.hardware(address), gpus_per_trial)


def require_utf8(session: Path) -> None:
    """Raises InputError if a directory of the search is not valid UTF-8, which Ray requires."""
    encoding = sys.getfilesystemencoding()
    hint = "" if encoding == "utf-8" else f" (Python reads names as {encoding}: unset LC_ALL and PYTHONUTF8)"
    for place in (Path.cwd(), session.resolve(), Path(tempfile.gettempdir())):
        try:
            str(place).encode()
        except UnicodeEncodeError:
            raise InputError(f"{place}: Ray needs a path in UTF-8{hint}") from None


def check_wandb(mode: str) -> None:
    """Raises InputError if `mode` is unknown, or online without a key."""
    option_values.one_of("--wandb", mode, WANDB_MODES)
    secrecy.wandb_is_online(mode, os.environ)
