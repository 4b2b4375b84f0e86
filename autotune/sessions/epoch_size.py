"""Measures the samples of an epoch, if a training's length counts epochs of unknown size."""

import sys
from collections.abc import Mapping
from pathlib import Path

from autotune.core.errors import InputError
from autotune.core.settings import LENGTH, Setting
from autotune.core.trial import Status
from autotune.sessions.gpus import Usable
from autotune.space import lengths
from autotune.space.space import Space
from autotune.storage.store import Options
from autotune.storage.trial_dir import TrialDir
from autotune.system import scratch
from autotune.trials import attempt
from autotune.trials.fork_server import ForkServer
from autotune.trials.setup import TrainingSetup
from autotune.workloads.base import Workload


def is_lacking(space: Space, baseline: Mapping[str, Setting], workload: Workload) -> bool:
    """Returns True if the length of a training counts epochs of unknown size."""
    length = lengths.knob(space)
    if length is None or not length.epochs or space.training.samples_per_epoch:
        return False
    return workload.samples_per_epoch(baseline) is None


def of_one_epoch(space: Space) -> Space:
    """Returns the space with a baseline of one epoch and without the length knob."""
    knobs = {name: knob for name, knob in space.knobs.items() if name != LENGTH}
    names = length.names if (length := lengths.knob(space)) else ()
    epochs = space.baseline.get(names[0]) if names else None
    shorter: dict[str, Setting] = {}
    if isinstance(epochs, int | float) and epochs > 0:
        shorter = {name: lengths.scaled(space.baseline.get(name), 1 / epochs) for name in names}
    return space.model_copy(update={"knobs": knobs, "baseline": {**space.baseline, **shorter}})


def counted(space: Space, workload: Workload, here: Usable) -> int:
    """Trains the one-epoch baseline of a complete `space` to its end; returns the samples seen.

    Raises InputError if it does not complete, or no samples were seen.
    """
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
