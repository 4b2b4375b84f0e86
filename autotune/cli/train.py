"""The command `train`, which runs a whole training."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from autotune.cli.options import Trained
from autotune.core import units
from autotune.core.errors import InputError, printable
from autotune.core.settings import Config
from autotune.core.shell import quoted
from autotune.core.trial import Status
from autotune.display import snapshot
from autotune.judging.accounts import promise
from autotune.judging.accounts.promise import Promise
from autotune.sessions import exporting, gpus, prepare, start
from autotune.sessions.requests import SearchRequest
from autotune.space import builtin, configurations
from autotune.space.machine import require
from autotune.space.naming import Naming
from autotune.space.space import Space
from autotune.storage import lock, provenance
from autotune.storage.layout import SessionDir, TrainingDir
from autotune.storage.store import Options, StoredSession, is_session
from autotune.system import scratch, signals, telemetry
from autotune.trackers import registry as tracker_registry
from autotune.trackers.tracker import TRAINING, Context, check_tags, session_tags
from autotune.training import plan
from autotune.training.plan import TrainingPlan
from autotune.training.screen import TrainingScreen
from autotune.training.whole import Whole, is_done, promise_lines
from autotune.trials.setup import TrainingSetup
from autotune.workloads import registry

EXIT_FAILED = 1
_STOPPING = (
    "stopping: the checkpoint is written after the next record; "
    "a second Ctrl-C, or a second SIGTERM, does not wait for it"
)


class TrainingToRun(NamedTuple):
    training: TrainingSetup
    config: Config
    promised: Promise | None
    notes: list[str]


def train(target: str, asked: Trained) -> int:
    """Trains a session's winner, a space's baseline, or a trainer's config; returns the exit code."""
    with scratch.private():
        return _train(target, asked)


def _train(target: str, asked: Trained) -> int:
    root = Path(target) if is_session(Path(target)) else None
    setup = _of_space(target, asked) if root is None else _of_session(root, asked)
    workdir = asked.workdir or _default(target, root, asked)
    place = TrainingDir(workdir.resolve())
    is_new = not place.plan_file.exists()
    try:
        place.root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--workdir {place.root}: cannot be made: {error.strerror}") from None
    shows = TrainingScreen(Console())
    with lock.hold_file(place.lock_file, f"training {place.root}"), _stop_signals(shows.stopping) as stopped:
        planned = _planned(setup, place, resume=asked.resume)
        if is_done(place):
            _say(f"{place.root}: this training has completed already")
            _conclude(place)
            return 0
        if asked.resume and is_new:  # requeued jobs always pass --resume
            _say(f"{workdir}: no training to continue, so this is the first attempt")
        for note in setup.notes:
            _say(note)
        plan.write(place, planned)
        options = setup.training.options
        opened = tracker_registry.open_trackers(_tracked(planned, place, options), options.trackers)
        with opened as trackers, shows:
            trackers.begin(TRAINING, {**planned.settings, **planned.changes})
            whole = Whole(
                setup.training,
                planned,
                place,
                screen=shows,
                # Without its outcome, since the training may go on after this attempt.
                follow=lambda report: trackers.log(TRAINING, replace(report, outcome=None)),
            )
            last = whole.run(retries=asked.retries, is_stopping=lambda: bool(stopped))
            trackers.log(TRAINING, replace(last, records=()))  # logged before
    _conclude(place)
    status = last.outcome.status if last.outcome else Status.INTERRUPTED
    if status is Status.INTERRUPTED:
        where = "" if asked.workdir or root else f"--workdir {quoted(workdir)} "
        _say(f"{'stopped' if stopped else status}; to continue, give the same command with {where}--resume")
        return 128 + stopped[0] if stopped else EXIT_FAILED
    return 0 if status is Status.COMPLETED else EXIT_FAILED


def _of_session(root: Path, asked: Trained) -> TrainingToRun:
    if of_space := [f"--{name}" for name in ("data", "baseline") if getattr(asked, name) is not None]:
        raise InputError(f"{', '.join(of_space)}: only with a search space: {root} is a session")
    session = StoredSession.open(root)
    options = _options(asked, session.options())
    given = session.space()
    workload = registry.load(given.workload)
    state = snapshot.take(session, root)
    trial, history = exporting.find_trial(state, asked.trial), state.history
    usable = gpus.usable(options.gpus_per_trial)
    workload.require_gpus(usable.gpus_per_trial)
    gpus.require_script(workload.python, usable)
    require(f"trial {trial.number} of {root}", given.settings(trial.config), usable.machine, given.known)
    gpus.show_one_trial(usable)
    notes = [*usable.notes, *workload.check(configurations.for_workload(given, given.settings(trial.config)))]
    then = session.provenance()
    now = provenance.collect(session.name, given, workload, usable.hardware, options.seed)
    if changed := provenance.changes(then, now, workload.places):
        notes.append(f"changed since the search, so its promise may not hold: {'; '.join(changed)}")
    training = TrainingSetup(history.space, workload, usable.hardware, options)
    return TrainingToRun(training, trial.config, promise.promised(trial, history, session.name), notes)


def _default(target: str, root: Path | None, asked: Trained) -> Path:
    if root is not None:
        return SessionDir(root).training_dir(asked.trial).root
    if asked.resume:
        raise InputError(
            f"--resume: {target} is not a session, so name the training's directory with --workdir"
        )
    return Path("runs", f"train-{datetime.now().astimezone():%Y%m%d-%H%M%S}")


def _conclude(place: TrainingDir) -> None:
    for line in promise_lines(place):
        _say(line)


def _of_space(name: str, asked: Trained) -> TrainingToRun:
    """Builds the training from a search space's baseline, or from a trainer's config file."""
    given, file = space_of(name, asked.data)
    if asked.trial is not None:
        raise InputError(f"--trial {asked.trial}: needs a session, and {name} is none")
    options = _options(asked, Options())
    here = start.hardware(None, asked.gpus_per_trial)
    request = SearchRequest(data=asked.data, baseline=asked.baseline)
    space, workload, notes = start.prepared(request, given, file, here)
    gpus.show_one_trial(here)
    options = replace(options, gpus_per_trial=here.gpus_per_trial)
    training = TrainingSetup(space, workload, here.hardware, options)
    return TrainingToRun(training, space.baseline_config, None, [*here.notes, *notes])


def space_of(name: str, data: Path | None) -> tuple[Space, Path]:
    """Returns the search space `name` and its file; a trainer's own config becomes a space without knobs.

    `data` replaces the data set of the config. Raises InputError if the file is neither.
    """
    try:
        file = builtin.space_file(name)
    except InputError:
        with suppress(OSError):  # a name that is too long for a file
            if plan.is_training(Path(name)):
                how = f"with --workdir {quoted(name)} --resume"
                rule = "is a training; to continue it, give its session, search space or config"
                raise InputError(f"train {name}: {rule} {how}") from None
        raise InputError(
            f"train {name}: no session, search space or config is there; "
            f"search spaces: {', '.join(builtin.names())}, or a file"
        ) from None
    values = prepare.settings_file(file, "train")
    if values.keys() & Space.model_fields.keys():
        return prepare.read_space(file, {}), file
    settings = values if data is None else {**values, "data": str(data)}
    if not registry.load(registry.BUILTIN).own_file.recognises(settings):
        raise InputError(
            f"train {name}: must be a search space, which says its workload and its baseline, or a config of "
            f"{registry.BUILTIN} with its data, got {units.quote(list(values))}"
        )
    try:
        baseline = Naming().named(settings)
    except ValueError as error:
        raise InputError(f"train {name}: {error}") from None
    # Not validated: a search needs a knob, and nothing is searched here.
    return Space.model_construct(workload=registry.BUILTIN, baseline=baseline, knobs={}), file


def _options(asked: Trained, kept: Options) -> Options:
    """Returns the options `kept` in the session, overridden by those given for the training."""
    wandb = asked.wandb or ("auto" if kept.wandb == "online" else kept.wandb)  # the key may be gone
    start.check_wandb(wandb)
    count = kept.gpus_per_trial if asked.gpus_per_trial is None else asked.gpus_per_trial
    return replace(
        kept,
        gpus_per_trial=count,
        wandb=wandb,
        trackers=tracker_registry.check(asked.tracker or kept.trackers),
        tags=check_tags(asked.tag or kept.tags),
    )


def _planned(setup: TrainingToRun, place: TrainingDir, *, resume: bool) -> TrainingPlan:
    """Returns the plan of the training in `place`; raises InputError if `place` holds anything else."""
    space = setup.training.space
    planned = TrainingPlan(
        workload=registry.label(space.workload),
        config=dict(setup.config),
        settings=space.settings(setup.config),
        samples=setup.training.training_samples(setup.config),
        promise=setup.promised,
        device=telemetry.device(),
        metric=space.metric_of(setup.config),
    )
    known = plan.read(place)
    if known is None and {*place.root.iterdir()} - {place.lock_file}:
        raise InputError(
            f"--workdir {place.root}: must be empty or hold a training, but it holds other files"
        )
    if known is None:
        return planned
    if not resume:
        raise InputError(f"{place.root}: already holds a training: add --resume to continue it")
    return plan.resume(known, planned, place)


def _tracked(planned: TrainingPlan, place: TrainingDir, options: Options) -> Context:
    return Context(
        place,
        group=planned.promise.session if planned.promise else place.root.name,
        metric=planned.metric,
        tags=session_tags(planned.workload, planned.device, options.tags),
        wandb=options.wandb,
    )


@contextmanager
def _stop_signals(stopping: Callable[[str], None]) -> Iterator[list[int]]:
    """Provides a list that receives the first Ctrl-C or SIGTERM; a second signal ends the process."""
    noted: list[int] = []

    def note(number: int, _: object) -> None:
        noted.append(number)
        signal.signal(number, before[number])
        stopping(_STOPPING)

    with signals.handling(dict.fromkeys((signal.SIGINT, signal.SIGTERM), note)) as before:
        yield noted


def _say(line: str) -> None:
    print(printable(line), flush=True)
