"""Settings derived from others: step counts and further learning rates. Pure."""

from autotune.core.settings import LEARNING_RATE, LENGTH, Config, Setting, effective_batch
from autotune.space.space import Space


def settings(space: Space, given: Config) -> dict[str, Setting]:
    """Returns the `given` settings, with step counts and learning rates derived from them."""
    plain = {name: value for name, value in given.items() if name != LENGTH or name not in space.knobs}
    return {**plain, **_steps(space, given), **_other_rates(space, given)}


def _steps(space: Space, given: Config) -> dict[str, Setting]:
    """Returns step counts rescaled to span the same number of samples as in the baseline."""
    ratio = space.effective_batch_size({}) / effective_batch(given)
    return {
        name: max(1, round(value * ratio))
        for name in (*space.counted_in_steps, *([space.evaluate_every] if space.evaluate_every else []))
        if isinstance(value := given.get(name), int) and value > 0 and ratio != 1
    }


def _other_rates(space: Space, given: Config) -> dict[str, Setting]:
    """Returns further learning rates, scaled by the given learning rate relative to the baseline's."""
    if not space.follow_learning_rate:
        return {}
    rate, baseline_rate = (float(config.get(LEARNING_RATE) or 0) for config in (given, space.baseline))
    if rate == baseline_rate:
        return {}
    rates = {name: float(given.get(name) or 0) * rate / baseline_rate for name in space.follow_learning_rate}
    return {name: float(f"{rate:.4g}") for name, rate in rates.items()}


def evaluation_interval(space: Space, config: Config) -> tuple[str, int | float] | None:
    """Returns the user's name of the evaluation interval and its value under `config`; None if not set."""
    name, settings = space.interval_setting, space.settings(config)
    value = {**settings, **_steps(space, settings)}.get(name) if name else None
    return (space.naming.path(name), value) if name and isinstance(value, int | float) and value else None
