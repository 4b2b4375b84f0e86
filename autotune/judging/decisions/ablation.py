"""Ablation: turns the baseline into the confirmed winner one knob at a time. Pure.

The path is greedy as in Fawcett and Hoos, "Analysing differences between algorithm configurations through
ablation" (Journal of Heuristics 22, 2016). They try every remaining knob at each step and take the best. Here
a step costs at most one run: it prefers a knob whose effect is already measured, then one that can be.

Steps run alone. Searched trials and repeats that ran alone count as steps.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from autotune.core.settings import Config, Key, Setting
from autotune.core.trial import Failure, Status, Trial, TrialKind
from autotune.judging.decisions import confirm
from autotune.judging.decisions.confirm import Proposal
from autotune.judging.decisions.history import History
from autotune.judging.measurement import estimates
from autotune.judging.measurement.estimates import Figure
from autotune.memory.feasibility import MemoryModel
from autotune.space import configurations
from autotune.space.space import Space

_FAILS_AGAIN = frozenset({Failure.ERROR, Failure.TIMEOUT})


@dataclass(frozen=True)
class AblationStep:
    """The change of one knob, and its effect; not measured yet if it has neither `trial` nor `reason`."""

    knob: str
    before: Setting
    after: Setting
    trial: int | None = None  # the one that measured `config`
    throughput: Figure | None = None
    factor: Figure | None = None  # relative to the last measured step; the product is the winner's factor
    reason: str = ""  # why it cannot be measured; the next factor then covers both changes
    together: tuple[str, ...] = ()  # earlier knobs that the factor covers as well
    config: Config = field(default_factory=dict)  # after the change


def steps(history: History) -> list[AblationStep]:
    """Returns the steps from the baseline to the confirmed winner; none if no knob of it changes speed."""
    confirmed = confirm.confirmed(history)
    if confirmed is None:
        return []
    winner, space = confirmed[0], history.space
    runs, previous = _PathRuns(history, winner), history.baseline
    before: Config = space.baseline_config
    path: list[AblationStep] = []
    taken: list[str] = []
    gap: tuple[str, ...] = ()
    for knob in _order(winner, history):
        taken.append(knob)
        config = _config(winner, taken, space)
        step = AblationStep(knob, before[knob], config[knob], config=config)
        if trial := runs.measured(config):
            factor = _factor(trial, previous, history)
            speed, together, previous, gap = history.throughput(trial), gap, trial, ()
            step = replace(step, trial=trial.number, throughput=speed, factor=factor, together=together)
        else:
            step, gap = replace(step, reason=runs.explain_unmeasured(config) or ""), (*gap, knob)
        path.append(step)
        before = config
    return path


def _factor(trial: Trial, before: Trial | None, history: History) -> Figure | None:
    if before is None or before is history.baseline:
        return history.factor(trial)
    speed, previous = history.throughput(trial), history.throughput(before)
    return estimates.divide(speed, previous) if speed and previous else None


def next_step(history: History) -> Proposal | None:
    """Returns the next step to measure on the path to the winner; None when all are measured."""
    path, confirmed = steps(history), confirm.confirmed(history)
    if confirmed is None or not path:
        return None
    runs, start = _PathRuns(history, confirmed[0]), history.space.baseline_config
    configs = [s.config for s in path if s.trial is None and not s.reason]
    # If the baseline ran only alongside other trials, it runs alone first, as the winner did.
    if runs.measured(start) is None and runs.explain_unmeasured(start) is None:
        configs = [start, *configs]
    return Proposal(configs[0], ablation_of=confirmed[0].number) if configs else None


class _PathRuns:
    """Looks up the configurations between the baseline and `winner` in a `history`."""

    def __init__(self, history: History, winner: Trial) -> None:
        space = self._space = history.space
        self._memory = MemoryModel(history.trials, fraction=space.limits.memory_fraction, known=space.known)
        seeds = [t for t in history.trials if t.kind is TrialKind.SEED and t.original == winner.number]
        like = next((t for t in reversed(seeds) if t.completed), winner)
        self._measured: dict[Key, Trial] = {}
        self._failed: dict[Key, Trial] = {}
        for trial in history.trials:
            key, measured = trial.key_without(space.known.same_speed), trial.measurement
            is_alike = not measured.shared and measured.origin == like.measurement.origin
            if trial.ended_well and measured.throughput is not None and is_alike:
                self._measured.setdefault(key, trial)
            elif trial.kind is TrialKind.STEP or (trial.outcome and trial.outcome.failure in _FAILS_AGAIN):
                self._failed.setdefault(key, trial)

    def measured(self, config: Config) -> Trial | None:
        """Returns a trial of equal speed, measured like the winner's repeats; None if there is none."""
        return self._measured.get(self._space.speed_key(config))

    def explain_unmeasured(self, config: Config) -> str | None:
        """Returns the reason that an unmeasured `config` will not be measured; None if it can be."""
        trial = self._failed.get(self._space.speed_key(config))
        if trial is None:
            return self._space.violation(config) or self._memory.explain_misfit(config)
        if trial.outcome is None:
            return f"trial {trial.number} has not ended"
        if trial.measurement.throughput is None or trial.outcome.status is Status.FAILED:
            reason = trial.outcome.reason or "its throughput is not known"
            return f"trial {trial.number} {trial.outcome}: {reason}"
        return f"trial {trial.number} was measured on another device, or with other code, than the winner"

    def cost(self, config: Config) -> int:
        """Returns the cost of a step to `config`: 0 if it is measured, 1 if it can be, 2 if it cannot."""
        if self.measured(config):
            return 0
        return 2 if self.explain_unmeasured(config) else 1


def _order(winner: Trial, history: History) -> list[str]:
    """Returns the knobs in the order in which they are changed: at each step the cheapest one."""
    space, baseline = history.space, history.space.baseline_config
    # Settings without effect on speed keep the baseline's values along the path.
    names = [n for n in space.drawn_knobs if n not in space.known.same_speed]
    remaining = [n for n in names if repr(baseline[n]) != repr(winner.config[n])]
    begun = next((t.number for t in history.trials if t.ablation_of == winner.number), None)
    # Trials that run later than the first step do not change the order.
    before = [t for t in history.trials if begun is None or t.number < begun]
    runs = _PathRuns(History(before, space), winner)
    taken: list[str] = []
    while remaining:
        knob = min(remaining, key=lambda name: runs.cost(_config(winner, [*taken, name], space)))
        taken.append(knob)
        remaining.remove(knob)
    return taken


def _config(winner: Trial, taken: Sequence[str], space: Space) -> Config:
    """Returns the baseline with the winner's values of the knobs in `taken`: with all of them, the winner."""
    values = configurations.drawn_values(space, winner.config)
    config = configurations.changed(space, space.baseline_config, {name: values[name] for name in taken})
    return winner.config if space.speed_key(config) == space.speed_key(winner.config) else config
