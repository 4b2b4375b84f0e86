"""Trials as text: the same words and columns for the live table, the log, `status` and the summary."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from autotune.core import units
from autotune.core.errors import printable
from autotune.core.settings import ACCUMULATION, COMMON, MICRO_BATCH, PRECISION, Config, Setting
from autotune.core.shell import quoted
from autotune.core.trial import Failure, Measurement, Status, Trial, TrialKind
from autotune.display import advice, spending
from autotune.display.cautions import cautions, company
from autotune.judging import claims, confirm, gains, objective, racing, reasons
from autotune.judging import quality as qualities
from autotune.judging.claims import Claim
from autotune.judging.estimates import Figure
from autotune.judging.history import History
from autotune.space.sections import Objective
from autotune.workloads.base import Workload

_STYLES = {
    Status.COMPLETED: "green",
    Status.STOPPED: "yellow",
    Status.FAILED: "red",
    Status.INTERRUPTED: "cyan",
}
NO_RESULT = "No result: the baseline has not completed, or shows no throughput or quality."


def knobs(config: Config) -> str:
    """A configuration in short: `16x2 bf16 workers 2 lr 1.2e-04`, batch times accumulation first."""
    rest = dict(config)
    words = []
    if MICRO_BATCH in rest:
        accumulation = rest.pop(ACCUMULATION, None)
        words.append(f"{rest.pop(MICRO_BATCH)}" + (f"x{accumulation}" if accumulation else ""))
    if PRECISION in rest:
        words.append(str(rest.pop(PRECISION)))
    words += [_knob(name, value) for name, value in rest.items() if value is not False]
    return printable(" ".join(words))


def _knob(name: str, value: Setting) -> str:
    if value is True:
        return name
    shown = f"{value:.2g}" if isinstance(value, float) else str(value)
    return f"{COMMON[name].short or name} {shown}"


def speed(found: Figure | None) -> str:
    """`61.2 ± 0.8` samples per second; no interval where there were too few steps to tell.

    Where it is less than one, with more digits.
    """
    if found is None:
        return "-"
    form = ".1f" if found.value >= 1 else ".3f"
    return f"{found.value:{form}}" + ("" if found.part is None else f" ± {found.part * found.value:{form}}")


def factor(found: Figure | None) -> str:
    """`2.90x`, empty where it is not known."""
    return "" if found is None else f"{found.value:.2f}x"


def interval(found: Figure | None) -> str:
    """`2.71x to 3.10x`, empty where it is not known."""
    if found is None or found.low is None or found.high is None:
        return ""
    return f"{found.low:.2f}x to {found.high:.2f}x"


def score(trial: Trial, history: History) -> str:
    """The quality of a trial's settings, over its runs that count, in the user's own sign."""
    found = history.quality(trial)
    return quality(qualities.shown(found.value if found else None, history.space.objective))


def memory(measurement: Measurement) -> str:
    """`2.4 GiB (31%)`: the peak, and its share of what the trial was allowed; on a GPU `2.4 GiB of tensors`.

    `at least 2.4 GiB (31%), still rising` where a longer training takes more.
    """
    if measurement.peak_memory_bytes is None:
        return "not measured"
    share = objective.memory_share(measurement)
    of = "" if measurement.peak_reserved_bytes is None else " of tensors"
    peak = (
        units.format_bytes(measurement.peak_memory_bytes) + of + ("" if share is None else f" ({share:.0%})")
    )
    return f"at least {peak}, still rising" if measurement.memory_is_rising else peak


def peak(measurement: Measurement) -> str:
    """`2.4 GiB`, `>2.4 GiB` where it was still rising: the peak in a narrow column."""
    if measurement.peak_memory_bytes is None:
        return "-"
    return f"{'>' if measurement.memory_is_rising else ''}{units.format_bytes(measurement.peak_memory_bytes)}"


def step(shares: Mapping[str, float]) -> str:
    """`forward 61%, data 39%`: what part of a step each phase takes, the largest first; empty if unknown."""
    parts = sorted(shares.items(), key=lambda item: -item[1])
    return ", ".join(f"{name.removesuffix('_s')} {share:.0%}" for name, share in parts if share > 0)


def quality(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def name(trial: Trial) -> str:
    """What a trial runs: its configuration in short, or what it repeats."""
    config = knobs(trial.config) or "no settings"
    if trial.race:
        return f"race of {', '.join(map(str, trial.race))}"
    if trial.repeat is not None:
        return f"repeat of {trial.repeat.of}: {config}"
    return config if trial.ablation_of is None else f"ablation step to {trial.ablation_of}: {config}"


def style(trial: Trial) -> str:
    """The colour of a trial's outcome."""
    return _STYLES[trial.outcome.status if trial.outcome else Status.INTERRUPTED]


def counts(trials: Sequence[Trial], state: str = "interrupted") -> str:
    """`12 trials: 9 completed, 2 out of memory, 1 failed; 7 repeats, 2 ablation steps`."""
    searched = [t for t in trials if t.kind is TrialKind.SEARCHED]
    failed = [t for t in searched if t.outcome and t.outcome.status is Status.FAILED]
    oom = sum(t.outcome.failure is Failure.OOM for t in failed if t.outcome)
    parts = {
        "completed": sum(t.completed for t in searched),
        "stopped early": sum(t.stopped for t in searched),
        "out of memory": oom,
        "failed otherwise": len(failed) - oom,
        state: sum(t.outcome is None for t in searched),
    }
    others = besides(trials)
    return (
        f"{len(searched)} trial{'s' * (len(searched) != 1)}: "
        + (", ".join(f"{n} {what}" for what, n in parts.items() if n) or "none ended")
        + (f"; {others}" if others else "")
    )


def out_of_time(trials: Sequence[Trial], planned: int) -> str:
    """`Out of time after 3 trials of 40.`"""
    ended = sum(t.kind is TrialKind.SEARCHED and t.outcome is not None for t in trials)
    after = f"after {ended} trial{'s' * (ended > 1)} of {planned}" if ended else "before any trial ended"
    return f"Out of time {after}."


def besides(trials: Sequence[Trial]) -> str:
    """`7 repeats, 2 ablation steps`: what was run besides the searched trials."""
    kinds = Counter(trial.kind for trial in trials)
    found = {
        "race": kinds[TrialKind.RACE],
        "repeat": kinds[TrialKind.PILOT] + kinds[TrialKind.SEED],
        "ablation step": kinds[TrialKind.STEP],
    }
    return ", ".join(f"{n} {what}{'s' * (n > 1)}" for what, n in found.items() if n)


def gain(trial: Trial, history: History) -> str:
    """`2.90x the baseline's throughput, 2.71x to 3.10x (...), bleu_4 ... against ...`."""
    goal, found = history.space.objective, gains.gain(trial, history)
    times = factor(found)
    if not times:
        return "gain over the baseline unknown"
    if goal.target is not None:
        return f"{times} as soon at {goal.quality} {goal.target:g} as the baseline"
    ours, theirs = ((speed(history.throughput(t)), score(t, history)) for t in (trial, history.of(0)))
    sure = f", {interval(found)}" if interval(found) else ""
    raced = history.relative.rounds(trial)
    rounds = f", {raced} rounds side by side" if raced else ""
    scores = f", {goal.quality} {ours[1]} against {theirs[1]}" if history.quality(trial) else ""
    speeds = f"{ours[0]} against {theirs[0]} {history.space.unit}/s"
    return f"{times} the baseline's throughput{sure}{rounds} ({speeds}){scores}"


def summary(history: History, workload: Workload, session: Path, go_on: str = "") -> list[str]:
    """What came out of a search, and what to run next; `go_on` is what continues it, if that can be run."""
    space, baseline, best = history.space, history.baseline, confirm.recommended(history)
    if baseline is None or best is None:
        return [NO_RESULT]
    lines = [promise(history)]
    lines += _front(history) if space.objective.select == "pareto" else []
    lines += [*refuted(history), *cautions(history)]
    trial, claim = best
    if trial.number == 0:
        return [*lines, nothing_better(history), *spending.lines(history)]
    if advice.is_unconfirmed(history):
        return [*lines, *spending.lines(history), advice.possibly(history, go_on)]
    lines.append(f"Best: trial {trial.number}: {knobs(trial.config)}")
    if claim is not None:
        lines += [confirmed(claim, history)]
    else:
        lines += [gain(trial, history), unconfirmed(trial, history)]
    lines += spending.lines(history)
    return [*lines, "Run next:", *(f"  {command}" for command in next_commands(session, workload))]


def promise(history: History) -> str:
    """What a winner of the search means, in a sentence, and what counts as its speed."""
    counted = " Evaluations are part of the speed." if history.space.objective.counts_evaluations else ""
    return _promise(history) + counted


def _promise(history: History) -> str:
    goal = history.space.objective
    if goal.select == "same-training":
        return (
            "Promise: the same training, only faster: effective batch and learning rate stay the baseline's."
        )
    if goal.target is not None:
        return f"Promise: {goal.quality} {goal.target:g} in the least time{_sense(goal)}."
    what = ", and the front of both" if goal.select == "pareto" else ""
    if goal.asks_for_speed_alone:
        return f"Promise: the shortest training, whatever its {goal.quality}."
    return f"Promise: the shortest training that {qualities.keeps(goal)}{what}{_sense(goal)}."


def _sense(goal: Objective) -> str:
    """`; lower val_loss is better`, where that needs saying."""
    return f"; lower {goal.minimize} is better" if goal.minimize else ""


def nothing_better(history: History) -> str:
    """What to say of a search that found nothing to recommend but the baseline, and why."""
    baseline = history.of(0)
    figures = (
        f"{speed(history.throughput(baseline))} {history.space.unit}/s, "
        f"{history.space.objective.quality} {score(baseline, history)}"
    )
    return f"The baseline is the best so far ({figures}): {reasons.summary(history)}."


def unconfirmed(trial: Trial, history: History) -> str:
    """What the gain of a trial that was not confirmed rests on."""
    shared = " Measured beside other trials." if trial.measurement.shared else ""
    return f"Not confirmed: {rests_on(trial, history)}.{shared}"


def rests_on(trial: Trial, history: History) -> str:
    """`each was measured once, over 400 samples`: what the figures of a trial and of the baseline rest on."""
    ours, theirs = (len(history.runs_of(number)) for number in (trial.number, 0))
    samples = f"over {history.space.budget.samples_per_trial} {history.space.unit}"
    if max(ours, theirs) <= 1:
        return f"each was measured once, {samples}"
    return f"it ran {_often(ours)}, the baseline {_often(theirs)}, {samples} each"


def _often(runs: int) -> str:
    return "once" if runs == 1 else f"{runs} times"


def refuted(history: History) -> list[str]:
    """The finalists that did not hold, and why, a sentence each."""
    return [
        f"Trial {t.number} did not hold in its confirmation: {reason}."
        for t, reason in confirm.refuted(history)
    ]


def confirmed(claim: Claim, history: History) -> str:
    """What confirming the winner has shown, in a sentence."""
    goal = history.space.objective
    race = claims.race_of(claim.number, history)
    beside = company([race] if race else [])
    times, sure = factor(claim.factor), interval(claim.factor)
    raced = f"{sure} at {claim.level:.3g}%, {claim.rounds} rounds side by side, {beside}"
    seeds = f"{claim.seeds} seed{'s' * (claim.seeds != 1)} of its own"
    if goal.target is not None:
        return (
            f"Confirmed: {times} as soon at {goal.quality} {goal.target:g} as the baseline ({raced}, {seeds})"
        )
    seconds = [history.training_s(trial) for trial in (history.of(claim.number), history.of(0))]
    took = [units.format_seconds(value) for value in seconds if value is not None]
    training = f": {took[0]} of training instead of {took[1]}" if len(took) == 2 else ""
    while_busy = f", {beside}" if beside.startswith("while") else ""
    speed = f"Confirmed: {times} faster ({sure}{while_busy}){training}"
    return f"{speed}. {final_qualities(claim, history)}" if claim.seeds else speed


def final_qualities(claim: Claim, history: History) -> str:
    """`Final val_loss 1.884 ± 0.005, baseline 1.903 ± 0.004 (3 and 3 trainings, a seed each): not worse`."""
    goal, trials = history.space.objective, (history.of(claim.number), history.of(0))
    ours, theirs = (_with_interval(qualities.shown_figure(history.quality(t), goal)) for t in trials)
    runs = f"{claim.seeds} and {len(history.runs_of(0))} trainings, a seed each"
    answer = ": not worse" if claim.answer is qualities.Answer.KEPT else ""
    return f"Final {goal.quality} {ours}, baseline {theirs} ({runs}){answer}"


def _with_interval(figure: Figure | None) -> str:
    if figure is None or figure.low is None or figure.high is None:
        return quality(figure.value if figure else None)
    return f"{figure.value:.4f} ± {(figure.high - figure.low) / 2:.4f}"


def raced(race: Trial) -> str:
    """`trial 5 2.24x as fast as trial 0 (2.15x to 2.33x), 14 rounds`: what a race has shown."""
    first, *others = race.race
    slices = race.measurement.slices
    found = [(number, racing.ratio(slices, number, first)) for number in others]
    told = [
        f"trial {number} {factor(ratio)} as fast as trial {first}"
        f"{f' ({interval(ratio)})' if interval(ratio) else ''}, {racing.rounds(slices, number, first)} rounds"
        for number, ratio in found
        if ratio
    ]
    return "; ".join(told)


def measured(trial: Trial, history: History) -> str:
    """What is known of a completed trial, or of what it repeats, compared with the baseline."""
    number = trial.original
    claim = claims.claim(number, history)
    if claim.holds:
        return confirmed(claim, history)
    if not number:
        return "the baseline"
    return f"{gain(trial, history)}; not confirmed: {rests_on(history.of(number), history)}"


def _front(history: History) -> list[str]:
    return [f"The front of throughput and {history.space.objective.quality}, fastest first:"] + [
        f"  trial {t.number}: {knobs(t.config)}: {gain(t, history)}" for t in history.front
    ]


def next_commands(session: Path, workload: Workload) -> list[str]:
    """The two commands that turn a search into a training run."""
    own = workload.own_file
    file = Path(own.name)
    train = own.trains_with(file)
    return [f"python -m autotune export {quoted(session)} -o {file}", *([train] if train else [])]
