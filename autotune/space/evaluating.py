"""How often the user's own training is evaluated, by its settings. Pure.

A trial is evaluated when the tuner wants to know its quality, which says nothing of that.
"""

from typing import TYPE_CHECKING

from autotune import workloads
from autotune.core.settings import Config

if TYPE_CHECKING:  # whose checks ask here
    from autotune.space.space import Space


def setting(space: "Space") -> str | None:
    """The setting that says how often a training is evaluated, by the tuner's name; None where none does."""
    return space.evaluate_every or workloads.evaluation_setting(workloads.label(space.workload))


def samples(space: "Space", config: Config) -> int | None:
    """Training samples between two evaluations of a training with `config`; None where it is not known.

    What counts optimizer steps counts those of the baseline's effective batch: with another one it is
    rescaled.
    """
    name = setting(space)
    said = space.settings(config).get(name) if name else None
    if not isinstance(said, int) or said < 1:
        return space.training.samples_per_evaluation
    return said * space.effective_batch_size({}) if name == space.evaluate_every else said


def interval(space: "Space", config: Config) -> tuple[str, int] | None:
    """The setting's name to its user, and its value in a training with `config`; None where there is none."""
    name, settings = setting(space), space.settings(config)
    said = {**settings, **space.steps(settings)}.get(name) if name else None
    return (space.naming.path(name), said) if name and isinstance(said, int) and said > 0 else None
