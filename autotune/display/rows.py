"""A trial as one row, for the terminal, lines, `--json`, trackers and reports. Pure."""

from dataclasses import dataclass

from autotune.core.measurement import Evaluation, Measurement
from autotune.core.settings import Config
from autotune.core.trial import StoppedFor, Trial
from autotune.display import view, words
from autotune.judging.accounts import costs, reasons
from autotune.judging.decisions import objective, quality
from autotune.judging.decisions.history import History
from autotune.judging.measurement import estimates
from autotune.judging.measurement.estimates import Figure
from autotune.space.sections import Objective

_STOPPED_FOR = {
    StoppedFor.SLOW: "another is certainly faster",
    StoppedFor.POOR: "the quality to keep is out of reach",
    StoppedFor.DOMINATED: "another is certainly faster, and its quality out of reach",
    StoppedFor.LATE: "another reached the target earlier",
}


@dataclass(frozen=True)
class TrialFigures:
    """The figures of one run, or of a trial's settings. The quality has the user's own sign."""

    samples: int
    throughput: Figure | None
    quality: float | None
    peak_memory_bytes: int | None
    memory_is_rising: bool  # the peak still grew when the run ended: a longer training takes more
    memory_share: float | None  # of the trial's limit

    @property
    def peak(self) -> str:
        """The peak and its share of the trial's limit, such as `2.4 GiB (31%)`."""
        return words.peak(self.peak_memory_bytes, self.memory_share, is_rising=self.memory_is_rising)

    def line(self, unit: str, quality: str) -> str:
        """Returns `61.2 ± 0.8 samples/s, bleu_4 0.1623, memory 2.4 GiB (31%)`."""
        score = words.score(self.quality)
        return f"{words.rate(self.throughput)} {unit}/s, {quality} {score}, memory {self.peak}"


@dataclass(frozen=True)
class TrialRow(TrialFigures):
    """A trial as every surface shows it: its settings' figures over all valid runs, or a repeat's own run."""

    number: int
    kind: str  # baseline, winner, trial, race, repeat or ablation (a step of it)
    repeats: int | None  # the trial that it repeats
    config: Config
    knobs: str
    status: str  # completed, stopped, failed, interrupted; "" while it has not ended
    failure: str | None
    stopped_for: str | None  # None if the search did not stop it
    reason: str  # for its end; if it breaks a constraint of the user, that constraint
    factor: Figure | None  # the gain of its settings over the baseline
    keeps_quality: bool | None  # None if unknown
    on_front: bool
    seconds: float  # by the search's clock
    shared: bool  # other trials ran alongside it
    disturbed: bool  # other programs did
    throttled: bool
    curve: tuple[Evaluation, ...]
    run: TrialFigures
    breaks_constraint: bool = False

    @property
    def why(self) -> str:
        """The reason for the trial's end, without figures if the search stopped it."""
        return _STOPPED_FOR[StoppedFor(self.stopped_for)] if self.stopped_for else self.reason


def rows(history: History, winner: int | None) -> tuple[TrialRow, ...]:
    """Returns every trial, in order; `winner` is the number of the recommended one, None if unknown."""
    front = {trial.number for trial in history.front}
    return tuple(row(t, history, winner, is_on_front=t.number in front) for t in history.trials)


def row(trial: Trial, history: History, winner: int | None = None, *, is_on_front: bool = False) -> TrialRow:
    """Returns the row of a trial; the caller knows the winner and the front."""
    m, outcome, space = trial.measurement, trial.outcome, history.space
    run, figure, memory = run_figures(m, space.objective), history.quality(trial), history.memory(trial)
    throughput, reached = history.throughput(trial), figure.value if figure else None
    if trial.repeat:
        throughput, reached, memory = run.throughput, objective.final_quality(trial, space), m
    score = quality.in_users_sign(reached, space.objective)
    return TrialRow(
        number=trial.number,
        kind="winner" if trial.number == winner and trial.number else view.kind(trial),
        repeats=trial.repeat.of if trial.repeat else None,
        config=trial.config,
        knobs=view.knobs(trial.config),
        status=outcome.status.value if outcome else "",
        failure=outcome.failure.value if outcome and outcome.failure else None,
        stopped_for=outcome.stopped_for.value if outcome and outcome.stopped_for else None,
        reason=reasons.explain(trial, history),
        throughput=throughput,
        factor=costs.gain(trial, history),
        quality=score,
        keeps_quality=_keeps_quality(trial, score, history),
        on_front=is_on_front,
        peak_memory_bytes=memory.peak_memory_bytes,
        memory_is_rising=memory.memory_is_rising,
        memory_share=objective.memory_share(memory),
        samples=m.samples,
        seconds=trial.seconds,
        shared=m.shared,
        disturbed=m.disturbed,
        throttled=m.throttled,
        curve=quality.curve_in_users_sign(m.curve, space.objective),
        run=run,
        breaks_constraint=history.broken_constraint(trial) is not None,
    )


def run_figures(measured: Measurement, goal: Objective) -> TrialFigures:
    """Returns the figures of a single run; the quality is that of its last evaluation."""
    return TrialFigures(
        samples=measured.samples,
        throughput=estimates.throughput_figure(measured.throughput),
        quality=quality.in_users_sign(measured.quality, goal),
        peak_memory_bytes=measured.peak_memory_bytes,
        memory_is_rising=measured.memory_is_rising,
        memory_share=objective.memory_share(measured),
    )


def _keeps_quality(trial: Trial, score: float | None, history: History) -> bool | None:
    """Returns True if the `score` of a trial is enough; None if unknown, or if it has not completed."""
    least, goal = history.least_quality, history.space.objective
    if not trial.completed or least is None or score is None:
        return None
    if trial.repeat or goal.target is not None:
        return history.keeps_quality(trial)
    return not trial.number or goal.takes_any_quality or goal.turned(score) >= least
