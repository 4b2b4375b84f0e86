"""Starts a search: creates a session from the options, or opens an existing one."""

import multiprocessing
import os
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from autotune.core import secrecy
from autotune.core.errors import InputError
from autotune.core.settings import LENGTH
from autotune.core.trial import Status
from autotune.sessions import gpus, option_values, prepare, probing
from autotune.sessions.gpus import Usable
from autotune.sessions.prepare import GivenSpace
from autotune.sessions.requests import ResumeRequest, SearchRequest
from autotune.sessions.supervision import Job, supervise
from autotune.space import builtin, configurations, lengths, spaces
from autotune.space.knobs import PlannedLength
from autotune.space.space import Space
from autotune.storage import provenance
from autotune.storage.layout import TrialDir
from autotune.storage.store import WANDB_MODES, Options, StoredSession
from autotune.system import scratch
from autotune.system.node_kinds import NodeKind
from autotune.system.telemetry import Hardware
from autotune.trackers import registry as tracker_registry
from autotune.trackers.tracker import check_tags
from autotune.trials import attempt
from autotune.trials.fork_server import ForkServer
from autotune.trials.setup import TrainingSetup
from autotune.workloads import registry
from autotune.workloads.base import Workload

_CHECKED_LATER = {"--training", "--content"}  # as a command line, and as a search space


def search(asked: SearchRequest) -> int:
    """Creates a session and runs it; creates nothing if an option is invalid."""
    root = asked.session or default_session()
    require_utf8(root)
    asked_by = {f"--{name.replace('_', '-')}": value for name, value in vars(asked).items()}
    secrecy.refuse_secrets(
        {name: asked_by[name] for name in asked_by.keys() - _CHECKED_LATER}, "command line"
    )
    check_wandb(asked.wandb)
    here = hardware(asked.address, asked.gpus_per_trial, asked.device_type)
    found = here.hardware
    options = _options(asked, here)
    overrides = _overrides(asked)
    option_values.require_options(overrides, {"select": "--promise"} if asked.promise else {})
    given = given_space(asked, found)
    space, workload, notes = prepared(asked, prepare.read_space(given, overrides), given, here)
    facts = provenance.collect(root.name, space, workload, found, options.seed)
    if options.warm_start:
        prepare.warm_start(StoredSession.open(Path(options.warm_start)), facts, workload.places)
    notes += [*here.notes, *_demonstration(asked, found)]
    opened = StoredSession.create(root, space, options, facts)
    if here.cluster:
        opened.write_cluster(here.cluster)
    with opened.lock() as held:
        job = Job(opened, root, space, workload, found, held, notes, as_json=asked.as_json)
        return supervise(job, _drive)


def _drive(job: Job) -> int:
    with scratch.private() as guardian:  # before importing W&B, which creates directories there
        from autotune.sessions import run  # noqa: PLC0415 - Ray and Optuna take seconds to import; errors come first

        return run.run(job, guardian)


def default_session() -> Path:
    return Path("runs", f"{datetime.now().astimezone():%Y%m%d-%H%M%S}")


def prepared(
    asked: SearchRequest, space: Space, given: GivenSpace, here: Usable
) -> tuple[Space, Workload, list[str]]:
    """Returns the completed `space`, which was read from `given`, its workload, and notes for the user.

    Raises InputError if a training of its baseline cannot start.
    """
    source = prepare.source_of(given)
    workload = registry.load(space.workload)
    workload.require_gpus(here.gpus_per_trial)
    settings = prepare.settings(
        workload, space, asked.model, asked.baseline, asked.data, skip_bad_samples=asked.skip_bad_samples
    )
    length = lengths.knob(space)
    if length and length.epochs and not space.training.samples_per_epoch:
        baseline = prepare.whole_baseline(space, settings, workload)
        if workload.samples_per_epoch(baseline) is None:
            one_epoch = _of_one_epoch(space, length)
            short, _ = prepare.complete(one_epoch, settings, workload, here.machine, source)
            gpus.require_script(workload.python, here)
            samples = _samples_of_epoch(short, workload, here)
            space = space.revised(training={"samples_per_epoch": samples})
    space, notes = prepare.complete(space, settings, workload, here.machine, source)
    gpus.require_script(workload.python, here)
    return space, workload, notes


def _of_one_epoch(space: Space, length: PlannedLength) -> Space:
    """Returns the space with a baseline of one epoch and without the length knob."""
    knobs = {name: knob for name, knob in space.knobs.items() if name != LENGTH}
    baseline, epochs = dict(space.baseline), space.baseline.get(length.names[0])
    if isinstance(epochs, int | float) and epochs > 0:
        baseline |= {name: lengths.scaled(baseline.get(name), 1 / epochs) for name in length.names}
    return space.model_copy(update={"knobs": knobs, "baseline": baseline})


def _samples_of_epoch(space: Space, workload: Workload, here: Usable) -> int:
    """Trains the one-epoch baseline of a complete `space` to its end; returns the samples seen."""
    print("The baseline trains for an epoch, to count its samples ...", file=sys.stderr, flush=True)
    with scratch.directory(".epoch-", Path.cwd()) as place:
        training = TrainingSetup(space, workload, here.hardware, Options(here.gpus_per_trial))
        order = training.whole_training(space.baseline_config, TrialDir(place))
        outcome, measurement = attempt.run_alone(order, ForkServer(workload.preload))
    if outcome.status is not Status.COMPLETED or not measurement.samples:
        rule = "training.samples_per_epoch: an epoch of the baseline should have shown it"
        raise InputError(f"{rule}: {outcome.reason or 'no step was seen'}")
    print(f"An epoch has {measurement.samples:,} {space.unit}.", file=sys.stderr, flush=True)
    return measurement.samples


def given_space(asked: SearchRequest, found: Hardware) -> GivenSpace:
    """Returns the search space that is asked for: found by running a command line, in a file, or built in."""
    if asked.training and probing.is_command(asked.training):
        if asked.space or asked.content:
            rule = "not together with a command line, whose search space is found by running it"
            raise InputError(f"--space: {rule}")
        time_s = option_values.duration_s("--time", asked.time)
        values = spaces.parse_mapping(probing.space(asked.training, asked, found, time_s), "search space")
        if asked.target is not None:  # a single evaluation does not show when it is reached
            values["budget"].pop("evaluations_per_trial", None)
        return values
    if asked.content is not None and not asked.training:
        return asked.content
    if name := asked.training[0] if asked.training else asked.space:
        return builtin.space_file(name)
    return builtin.space_for(found, drawn=_is_demonstration(asked))


def _is_demonstration(asked: SearchRequest) -> bool:
    """Returns True if no space, data or baseline is given, which starts a demonstration on synthetic data."""
    given = (asked.space, asked.content, asked.data, asked.baseline)
    return not asked.training and all(one is None for one in given) and asked.model != "full"


def _demonstration(asked: SearchRequest, found: Hardware) -> list[str]:
    if not found.gpus or not _is_demonstration(asked):
        return []
    return [
        "this tunes a small model on drawn X-rays; to tune the published one, give --data DIR or --model full"
    ]


def _options(asked: SearchRequest, here: Usable) -> Options:
    return Options(
        gpus_per_trial=here.gpus_per_trial,
        cpus_per_trial=option_values.cpus_per_trial(asked.cpus_per_trial, here.hardware),
        memory_limit_bytes=option_values.size_bytes("--memory-limit", asked.memory_limit),
        stall_timeout_s=option_values.duration_s("--stall-timeout", asked.stall_timeout),
        wandb=asked.wandb,
        trackers=tracker_registry.check(asked.tracker or ()),
        seed=asked.seed,
        warm_start=str(asked.warm_start.resolve()) if asked.warm_start else None,
        keep_checkpoints=asked.keep_checkpoints,
        tags=check_tags(asked.tag or ()),
    )


def _overrides(asked: SearchRequest) -> dict[str, dict[str, Any]]:
    return {
        "budget": {
            "trials": asked.trials,
            "time": option_values.duration_s("--time", asked.time),
            "worth": option_values.duration_s("--worth", asked.worth),
            **option_values.samples(asked.samples),
            "finalists": asked.finalists,
            "repeats": asked.repeats,
        },
        "objective": {
            "keep": asked.keep,
            "within": asked.within,
            "select": option_values.select(asked.promise, asked.select),
            "target": asked.target,
        },
        "limits": {"memory_fraction": asked.memory_fraction},
    }


def resume(asked: ResumeRequest) -> int:
    """Runs the remaining trials of a session, and further ones if requested; returns the exit code."""
    session, time_s = asked.session, option_values.duration_s("--time", asked.time)
    opened = StoredSession.open(session)
    require_utf8(session)
    space = opened.space()
    workload = registry.load(space.workload)
    with opened.lock() as held:  # a second process fails at once
        options, then = opened.options(), opened.provenance()
        notes = workload.check(configurations.for_workload(space, space.baseline))
        kind, address = (opened.cluster.kind, opened.cluster.address) if opened.cluster else (None, "")
        if opened.cluster and not (asked.address or address):
            raise InputError("--address: must name the Ray cluster, which the session does not")
        here = hardware(asked.address or address or None, options.gpus_per_trial, kind=kind)
        gpus.require_script(workload.python, here)
        found = here.hardware
        now = provenance.collect(session.name, space, workload, found, options.seed)
        notes += provenance.require_same(session, then, now, workload.places)
        opened.require_whole()
        if here.cluster:
            opened.write_cluster(here.cluster)
        notes += here.notes
        more = asked.trials, time_s, asked.as_json
        return supervise(Job(opened, session, space, workload, found, held, notes, *more), _drive)


def hardware(
    address: str | None,
    gpus_per_trial: float | None,
    device_type: str | None = None,
    kind: NodeKind | None = None,
) -> Usable:
    """Returns the hardware for trials: here, or the nodes of one kind in the cluster at `address`."""
    if address is None and device_type is not None:
        raise InputError("--device-type: chooses nodes of a cluster, which --address names")
    if address is None:
        return gpus.usable(gpus_per_trial)
    # In a process of its own: Ray would not survive the fork of the driver.
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
        asked = pool.submit(_survey, address, device_type, kind, on_gpu=gpus_per_trial != 0)
        cluster, found, notes = asked.result()
    here = gpus.of_cluster(found, gpus_per_trial, replace(cluster, address=address))
    return replace(here, notes=(*notes, *here.notes))


def _survey(*asked: Any, **on: Any) -> Any:
    from autotune.engines import nodes  # noqa: PLC0415 - importing Ray takes a second

    return nodes.survey(*asked, **on)


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
