"""The parameters of a search space that affect peak memory, and their names in the memory model."""

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from autotune.core import common_names
from autotune.core.settings import ACCUMULATION, COMMON, MICRO_BATCH, PRECISION, Config, KnownSetting
from autotune.core.settings import MemoryEffect as Effect

KNOWN = COMMON.with_own(KnownSetting(name, power=power) for name, power in common_names.SIZES.items())
_NOT_MOVING = {
    *(name for name, known in KNOWN.by_name.items() if known.moves_memory in {Effect.NOT, Effect.LOADER}),
    *(ACCUMULATION, common_names.CLIP_NORM, common_names.CLIP_VALUE, common_names.PERSISTENT),
    *(*common_names.ENDS, *common_names.OF_SCHEDULES, *common_names.EPOCHS),
}
_SIZES = {MICRO_BATCH, *common_names.SIZES}


class Parameters:
    """The parameters of a search space that affect peak memory; nested names are joined by "/".

    By default these are the batch size, precision, checkpointing, lengths and widths, and, under unknown
    names, all choices and whole numbers, but no accumulation, learning rates, schedules or fractions.
    """

    def __init__(self, space: Mapping[str, BaseDistribution], chosen: Sequence[str] | None = None) -> None:
        """`chosen` are the parameters that affect memory, if the user has named them."""
        known = [name for name in space if _moves_memory(name, space[name])]
        moving = known if chosen is None else [name for name in chosen if name in space]
        sizes = [n for n in moving if (chosen or _canonical(n) in _SIZES) and _numbers(space[n])]
        batch = next((n for n in sizes if _canonical(n) == MICRO_BATCH), None)
        self.size = batch or next(iter(sizes), None)  # memory grows with it: else a length or width
        self._space = space
        self.names = {name: MICRO_BATCH if name == self.size else f"/{name}" for name in moving}
        for name in moving:
            is_free = _canonical(name) not in {*self.names.values(), *_NOT_MOVING, MICRO_BATCH}
            if is_free and _canonical(name) in KNOWN.by_name:
                self.names[name] = _canonical(name)

    def config(self, values: Mapping[str, Any]) -> Config:
        """Returns the parameters in `values` that affect memory, under the memory model's names."""
        config = {known: values[name] for name, known in self.names.items() if name in values}
        if PRECISION in config:
            word = str(config[PRECISION]).removeprefix("torch.")  # a framework's, or a dtype
            config[PRECISION] = common_names.PRECISIONS.get(word, config[PRECISION])
        return {name: v if isinstance(v, str | int | float | None) else repr(v) for name, v in config.items()}

    def sizes(self, wanted: float) -> list[Any]:
        """Returns `wanted` and the sizes to choose instead, ascending: all choices, or doublings."""
        return [] if self.size is None else sorted({*_numbers(self._space[self.size]), wanted})

    def combinations(self) -> Iterator[dict[str, Any]]:
        """Yields all combinations of the parameters' values; of a range, the lower end and its doublings."""
        options = [_options(self._space[name]) for name in self.names]
        for values in itertools.product(*options):
            yield dict(zip(self.names, values, strict=True))


def _moves_memory(name: str, distribution: BaseDistribution) -> bool:
    may_move = _canonical(name) in KNOWN.by_name or not isinstance(distribution, FloatDistribution)
    return may_move and _canonical(name) not in _NOT_MOVING


def _canonical(name: str) -> str:
    last = name.rpartition("/")[2].lower()
    return common_names.SETTINGS.get(last, last)


def _options(distribution: BaseDistribution) -> Collection[Any]:
    if isinstance(distribution, CategoricalDistribution):
        return distribution.choices
    return _numbers(distribution) or [getattr(distribution, "low", None)]


def _numbers(distribution: BaseDistribution) -> list[Any]:
    """Returns the positive numbers to choose from, ascending; [] if not all choices are such numbers."""
    if isinstance(distribution, CategoricalDistribution):
        choices: list[Any] = [*distribution.choices]
        are_numbers = all(type(choice) in {int, float} and choice > 0 for choice in choices)
        return sorted(choices) if are_numbers else []
    if not isinstance(distribution, IntDistribution | FloatDistribution):
        return []
    step = distribution.step or (1 if isinstance(distribution, IntDistribution) else 0)
    low, number, numbers = distribution.low, distribution.low or step, []
    while 0 < number <= distribution.high:
        numbers.append(number)
        number = low + -(-(2 * number - low) // step) * step if step else 2 * number
    return numbers
