"""The way from the baseline to the confirmed winner, one knob at a time: what each of them brings. Pure.

What lies in between is measured as the winner's repeats were: alone on the device. What the search has
measured like that already is not measured again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from autotune import confirm
from autotune.feasibility import MemoryModel
from autotune.history import History
from autotune.space import Space
from autotune.trial import SAME_SPEED, Config, Failure, Key, Setting, Status, Throughput, Trial, settings_key

_MOST_ORDERED = 12  # knobs: 4,096 configurations lie between
_FAILS_AGAIN = frozenset({Failure.ERROR, Failure.TIMEOUT})

_Price = tuple[int, int]  # gaps, and runs


@dataclass(frozen=True)
class Step:
    """One knob: its value before and after, the configuration after it, and what the change has brought.

    `trial` has measured that configuration; `throughput` is that of all its equals, and `factor` what it is
    times the last one known before. A step that could not be measured has a `reason` instead, and the factor
    of the next one is of both changes together. One with neither is still to be measured.
    """

    knob: str
    before: Setting
    after: Setting
    config: Config
    trial: Trial | None = None
    reason: str = ""
    throughput: Throughput | None = None
    factor: float | None = None


def steps(history: History) -> list[Step]:
    """The way to the confirmed winner, in order; empty where none is confirmed, or nothing makes it faster.

    Settings that change no speed are no steps: in between, they are the baseline's.
    """
    found = confirm.confirmed(history)
    if found is None:
        return []
    winner, space, speeds = found[0], history.space, history.speeds
    known = _Known(history, winner)
    start = known.measured(space.baseline_config)
    last = speeds.of(start) if start else None
    before: Config = space.baseline_config
    way, taken = [], []
    for knob in _order(winner, history):
        taken.append(knob)
        config = _config(winner, taken, space)
        trial = known.measured(config)
        throughput = speeds.of(trial) if trial else None
        factor = throughput.samples_per_s / last.samples_per_s if throughput and last else None
        reason = "" if trial else known.why_not(config) or ""
        way.append(Step(knob, before[knob], config[knob], config, trial, reason, throughput, factor))
        before, last = config, throughput or last
    return way


def next_step(history: History) -> tuple[Config, int] | None:
    """What is to be measured next, and the number of the winner that it leads to; None where all is said.

    The baseline, too, where it was measured only beside other trials, and the winner alone.
    """
    way, found = steps(history), confirm.confirmed(history)
    if found is None or not way:
        return None
    known, start = _Known(history, found[0]), history.space.baseline_config
    left = [s.config for s in way if s.trial is None and not s.reason]
    if known.measured(start) is None and known.why_not(start) is None:
        left = [start, *left]
    return next(((config, found[0].number) for config in left), None)


class _Known:
    """What a `history` says of configurations on the way to `winner`."""

    def __init__(self, history: History, winner: Trial) -> None:
        self._space = history.space
        self._memory = MemoryModel(history.trials, fraction=history.space.limits.memory_fraction)
        like = next((t for t in reversed(history.trials) if _confirms(t, winner)), winner)
        self._measured: dict[Key, Trial] = {}
        self._failed: dict[Key, Trial] = {}
        for trial in history.trials:
            key = settings_key(trial.config, SAME_SPEED)
            if _is_measured_like(trial, like):
                self._measured.setdefault(key, trial)
            elif _is_not_run_again(trial):
                self._failed.setdefault(key, trial)

    def measured(self, config: Config) -> Trial | None:
        """A trial of equal speed that may be held against the winner's repeats."""
        return self._measured.get(settings_key(config, SAME_SPEED))

    def why_not(self, config: Config) -> str | None:
        """Why `config`, which is not measured, is not going to be; None where it can be."""
        if trial := self._failed.get(settings_key(config, SAME_SPEED)):
            return _told(trial)
        return self._space.violation(config) or self._memory.why_unfit(config)

    def price(self, config: Config) -> _Price:
        """What a way through `config` costs: a gap where it cannot be measured, a run where it is to be."""
        if self.measured(config):
            return 0, 0
        return (1, 0) if self.why_not(config) else (0, 1)


def _confirms(trial: Trial, winner: Trial) -> bool:
    return (
        trial.completed
        and confirm.is_alone(trial)
        and bool(trial.repeat and trial.repeat.of == winner.number)
    )


def _is_measured_like(trial: Trial, like: Trial) -> bool:
    """Whether the throughput of `trial` is known, and can be held against that of `like`."""
    ours, theirs = trial.measurement, like.measurement
    return (
        trial.outcome is not None
        and trial.outcome.status in {Status.COMPLETED, Status.STOPPED}
        and ours.throughput is not None
        and (ours.shared, ours.origin) == (theirs.shared, theirs.origin)
    )


def _is_not_run_again(trial: Trial) -> bool:
    """Whether its configuration is not to be begun: it was, as a step, or would fail in the same way."""
    has_failed = trial.outcome is not None and trial.outcome.failure in _FAILS_AGAIN
    return has_failed or trial.way_to is not None


def _told(trial: Trial) -> str:
    if trial.outcome is None:
        return f"trial {trial.number} has not ended"
    if trial.measurement.throughput is None or trial.outcome.status is Status.FAILED:
        return (
            f"trial {trial.number} {trial.outcome}: {trial.outcome.reason or 'its throughput is not known'}"
        )
    return f"trial {trial.number} was measured on another device, or with other code, than the winner"


def _order(winner: Trial, history: History) -> list[str]:
    """The knobs in the order of the way: the one with the fewest gaps, then the fewest runs, that are left.

    Of equal ones the first in the space's own order of knobs, which alone counts where there are too many to
    compare. The order is that of the moment when the first step is begun, and stays: what the steps and later
    trials show does not change it.
    """
    space, baseline = history.space, history.space.baseline_config
    knobs = [n for n in space.knobs if n not in SAME_SPEED and repr(baseline[n]) != repr(winner.config[n])]
    if len(knobs) > _MOST_ORDERED:
        return knobs
    begun = next((t.number for t in history.trials if t.way_to == winner.number), None)
    before = [t for t in history.trials if begun is None or t.number < begun]
    known = _Known(History(before, space), winner)

    def price(taken: int) -> _Price:
        return known.price(_config(winner, [k for place, k in enumerate(knobs) if taken >> place & 1], space))

    return [knobs[place] for place in _cheapest(len(knobs), price)]


def _cheapest(count: int, price: Callable[[int], _Price]) -> tuple[int, ...]:
    """The order in which to take so many things so that the sum of prices on the way is the lowest.

    Each set of things, a bit for each, has its price: from the whole set backwards, the best that follows is
    known of every larger one.
    """
    whole = (1 << count) - 1
    best: dict[int, tuple[_Price, tuple[int, ...]]] = {whole: ((0, 0), ())}
    prices = {taken: price(taken) for taken in range(1, whole + 1)}
    for taken in range(whole - 1, -1, -1):
        choices = []
        for place in range(count):
            after = taken | 1 << place
            if after != taken:
                (gaps, runs), rest = best[after]
                choices.append(((gaps + prices[after][0], runs + prices[after][1]), (place, *rest)))
        best[taken] = min(choices)
    return best[0][1]


def _config(winner: Trial, taken: Sequence[str], space: Space) -> Config:
    """The baseline with the winner's values of the knobs that are `taken`; the winner's own with all."""
    drawn, theirs = space.drawn(space.baseline_config), space.drawn(winner.config)
    config = space.config({**drawn, **{name: theirs[name] for name in taken}})
    is_there = settings_key(config, SAME_SPEED) == settings_key(winner.config, SAME_SPEED)
    return winner.config if is_there else config
