"""Number of data-parallel processes that a command line starts. Pure."""

import itertools
from collections.abc import Sequence

_LAUNCHERS = ("torchrun", "torch.distributed.run", "torch.distributed.launch", "accelerate", "deepspeed")
_OPTIONS = ("nproc_per_node", "nproc-per-node", "num_processes", "num-processes", "num_gpus", "num-gpus")


def processes(run: Sequence[str]) -> str | None:
    """Returns the launcher's process count as written in `run`, maybe a placeholder; None if not given."""
    launcher = next((place for place, word in enumerate(run) if word.rpartition("/")[2] in _LAUNCHERS), None)
    if launcher is None:
        return None
    words = [word for whole in run[launcher + 1 :] for word in whole.split("=", 1)]
    counts = (number for word, number in itertools.pairwise(words) if _is_option(word))
    return next(counts, None)


def _is_option(word: str) -> bool:
    return word.startswith("-") and word.lstrip("-") in _OPTIONS
