"""What fits in memory, as far as the trials so far show it."""

from collections.abc import Iterable, Mapping

from autotune import failures
from autotune.trial import Setting, Trial

# Settings that move a training process's peak memory by nothing.
_NEUTRAL = frozenset({"learning_rate", "pin_memory", "seed"})
# Settings that move the memory of the loader's workers, which counts where the whole machine ran out of it.
_LOADING = frozenset({"num_workers", "prefetch_factor"})
_ORDERED = frozenset({"micro_batch_size", "accumulation_steps"})

Settings = Mapping[str, Setting]


def dominating(config: Settings, trials: Iterable[Trial]) -> Trial | None:
    """The trial whose out-of-memory shows that `config` cannot fit either, None if none does.

    It takes no less memory than a trial that failed when every setting that moves memory is the same and its
    micro-batch is no smaller. Accumulating keeps the gradients alive during the forward passes, but not more
    of them with more steps: so only whether it accumulates at all counts.
    """
    return next((t for t in trials if t.out_of_memory and _needs_no_less(config, t)), None)


def _needs_no_less(config: Settings, failed: Trial) -> bool:
    return (
        _group(config) == _group(failed.config)
        and _number(config, "micro_batch_size", 1) >= _number(failed.config, "micro_batch_size", 1)
        and _accumulates(config) >= _accumulates(failed.config)
        and (not _counts_loading(failed) or _loads_no_less(config, failed.config))
    )


def _group(config: Settings) -> frozenset[tuple[str, str]]:
    """Every setting that moves memory, but for the ordered ones; values by their text: 1 is not True."""
    return frozenset((k, repr(v)) for k, v in config.items() if k not in _NEUTRAL | _LOADING | _ORDERED)


def _counts_loading(failed: Trial) -> bool:
    return failed.outcome is not None and failures.is_of_whole_machine(failed.outcome)


def _loads_no_less(config: Settings, failed: Settings) -> bool:
    return all(_number(config, name, 0) >= _number(failed, name, 0) for name in _LOADING)


def _accumulates(config: Settings) -> bool:
    return _number(config, "accumulation_steps", 1) > 1


def _number(config: Settings, name: str, otherwise: int) -> int:
    value = config.get(name)
    return otherwise if value is None else int(value)
