"""What fits in memory, as far as the trials so far show it."""

from collections.abc import Iterable, Mapping

from autotune.trial import Setting, Trial

# Settings that move a trial's peak memory by nothing, or by host memory outside the trial's own process.
MEMORY_NEUTRAL = frozenset({"learning_rate", "num_workers", "prefetch_factor", "pin_memory", "seed"})
_ORDERED = frozenset({"micro_batch_size", "accumulation_steps"})

Settings = Mapping[str, Setting]


def dominating(config: Settings, trials: Iterable[Trial]) -> Trial | None:
    """The trial whose out-of-memory shows that `config` cannot fit either, None if none does.

    It takes no less memory than a trial that failed when every setting that moves memory is the same and its
    micro-batch is no smaller. Accumulating keeps the gradients alive during the forward passes, but not more
    of them with more steps: so only whether it accumulates at all counts.
    """
    return next((t for t in trials if t.out_of_memory and _needs_no_less(config, t.config)), None)


def _needs_no_less(config: Settings, failed: Settings) -> bool:
    return (
        group(config) == group(failed)
        and int(config.get("micro_batch_size") or 1) >= int(failed.get("micro_batch_size") or 1)
        and _accumulates(config) >= _accumulates(failed)
    )


def group(config: Settings) -> frozenset[tuple[str, str]]:
    """Every setting that moves memory, but for the ordered ones; values by their text: 1 is not True."""
    return frozenset((k, repr(v)) for k, v in config.items() if k not in MEMORY_NEUTRAL | _ORDERED)


def _accumulates(config: Settings) -> bool:
    return int(config.get("accumulation_steps") or 1) > 1
