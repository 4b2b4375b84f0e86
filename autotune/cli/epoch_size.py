"""Counts the samples of an epoch, if the length of a training is planned in epochs and nobody says them."""

import sys
from collections.abc import Mapping
from pathlib import Path

from autotune.cli.gpus import Usable
from autotune.core.errors import InputError
from autotune.core.settings import LENGTH, Setting
from autotune.core.trial import Status
from autotune.space import lengths
from autotune.space.space import Space
from autotune.storage.store import Options
from autotune.storage.trial_dir import TrialDir
from autotune.system import passing
from autotune.trials import alone
from autotune.trials.fork_server import ForkServer
from autotune.trials.setup import Training
from autotune.workloads.base import Workload


def is_lacking(space: Space, baseline: Mapping[str, Setting], workload: Workload) -> bool:
    """Returns True if the length of a training counts epochs, and nothing says how many samples one has."""
    of = lengths.knob(space)
    if of is None or not of.epochs or space.training.samples_per_epoch:
        return False
    return workload.samples_per_epoch(baseline) is None


def of_one_epoch(space: Space) -> Space:
    """Returns a space whose baseline trains for one epoch, and that plans no length."""
    knobs = {name: knob for name, knob in space.knobs.items() if name != LENGTH}
    names = of.names if (of := lengths.knob(space)) else ()
    epochs = space.baseline.get(names[0]) if names else None
    shorter: dict[str, Setting] = {}
    if isinstance(epochs, int | float) and epochs > 0:
        shorter = {name: lengths.scaled(space.baseline.get(name), 1 / epochs) for name in names}
    return space.model_copy(update={"knobs": knobs, "baseline": {**space.baseline, **shorter}})


def with_samples(space: Space, samples: int) -> Space:
    """Returns a space whose epochs have so many samples."""
    training = space.training.model_copy(update={"samples_per_epoch": samples})
    return space.model_copy(update={"training": training})


def counted(space: Space, workload: Workload, here: Usable) -> int:
    """Trains the baseline of a complete `space` of one epoch to its end; returns the samples that it saw.

    Raises InputError if it does not come to its end, or shows no samples.
    """
    print("The baseline trains for an epoch, to count its samples ...", file=sys.stderr, flush=True)
    with passing.directory(".epoch-", Path.cwd()) as place:
        training = Training(space, workload, here.hardware, Options(here.gpus_per_trial))
        order = training.whole(space.baseline_config, TrialDir(place))
        outcome, shown = alone.run(order, ForkServer(workload.preload))
    if outcome.status is not Status.COMPLETED or not shown.samples:
        rule = "training.samples_per_epoch: an epoch of the baseline was to show it"
        raise InputError(f"{rule}: {outcome.reason or 'no step was seen'}")
    print(f"An epoch has {shown.samples:,} {space.unit}.", file=sys.stderr, flush=True)
    return shown.samples
