"""How often a framework's trainer evaluates, by its own arguments. Pure."""

from collections.abc import Mapping

from autotune.core.settings import MICRO_BATCH, PROCESSES, Setting, effective_batch
from autotune.workloads.base import Cadence

_INTERVAL, _EPOCHS = "trainer.val_check_interval", "trainer.check_val_every_n_epoch"
_STEPS, _STRATEGY = "trainer.eval_steps", "trainer.eval_strategy"


def _of_lightning(settings: Mapping[str, Setting], epoch: int | None) -> int | None:
    """A whole `val_check_interval` counts batches of each process, a fraction is that of an epoch.

    `check_val_every_n_epoch` counts epochs. Arguments that the search space does not name are the script's
    own, and not known.
    """
    interval, epochs = settings.get(_INTERVAL), settings.get(_EPOCHS, 1)
    if isinstance(interval, int):
        return interval * _batches_of_all(settings) if MICRO_BATCH in settings else None
    if epoch is None or not isinstance(epochs, int) or not {_INTERVAL, _EPOCHS} & settings.keys():
        return None
    return max(1, round(epoch * epochs * float(interval or 1.0)))


def _batches_of_all(settings: Mapping[str, Setting]) -> int:
    """The samples of a micro-batch of every process."""
    return int(settings[MICRO_BATCH] or 1) * int(settings.get(PROCESSES) or 1)


def _of_transformers(settings: Mapping[str, Setting], epoch: int | None) -> int | None:
    """`eval_steps` counts optimizer steps where `eval_strategy` is steps; below 1 it is a part of all."""
    match settings.get(_STRATEGY), settings.get(_STEPS):
        case "epoch", _:
            return epoch
        case "steps", int(steps) if steps >= 1 and MICRO_BATCH in settings:
            return steps * effective_batch(settings)
    return None


CADENCES = {
    "lightning": Cadence(_INTERVAL, _of_lightning),
    "transformers": Cadence(_STEPS, _of_transformers),
}
