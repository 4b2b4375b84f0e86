"""Trials as text: the same words and columns for the live table, the log, `status` and the summary."""

import itertools
import shlex
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from autotune.core import units
from autotune.core.errors import printable
from autotune.core.settings import ACCUMULATION, COMMON, MICRO_BATCH, PRECISION, Config, Setting
from autotune.core.trial import Failure, Measurement, Status, Trial
from autotune.judging import confirm, objective, racing
from autotune.judging.confirm import Claim
from autotune.judging.history import History
from autotune.space.space import Space
from autotune.workloads import Workload

_STYLES = {
    Status.COMPLETED: "green",
    Status.STOPPED: "yellow",
    Status.FAILED: "red",
    Status.INTERRUPTED: "cyan",
}
NO_RESULT = "No result: the baseline has not completed, or shows no throughput or quality."
_NO_SCORES = frozenset({"samples", "epoch", "memory_peak_bytes", "memory_peak_allocated_bytes"})


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


def speed(measurement: Measurement) -> str:
    """`61.2 ± 0.8` samples per second; no interval where there were too few steps to tell."""
    t = measurement.throughput
    if t is None:
        return "-"
    return f"{t.samples_per_s:.1f}" + ("" if t.half_width_per_s is None else f" ± {t.half_width_per_s:.1f}")


def memory(measurement: Measurement) -> str:
    """`2.4 GiB (31%)`: the peak, and its share of what the trial was allowed.

    `at least 2.4 GiB (31%), still rising` where a longer training takes more.
    """
    if measurement.peak_memory_bytes is None:
        return "not measured"
    share = objective.memory_share(measurement)
    peak = units.format_bytes(measurement.peak_memory_bytes) + ("" if share is None else f" ({share:.0%})")
    return f"at least {peak}, still rising" if measurement.memory_is_rising else peak


def peak(measurement: Measurement) -> str:
    """`2.4 GiB`, `>2.4 GiB` where it was still rising: the peak in a narrow column."""
    if measurement.peak_memory_bytes is None:
        return "-"
    return f"{'>' if measurement.memory_is_rising else ''}{units.format_bytes(measurement.peak_memory_bytes)}"


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
    searched = [t for t in trials if t.searched]
    failed = [t for t in searched if t.outcome and t.outcome.status is Status.FAILED]
    oom = sum(t.outcome.failure is Failure.OOM for t in failed if t.outcome)
    parts = {
        "completed": sum(t.completed for t in searched),
        "stopped early": sum(t.outcome is not None and t.outcome.status is Status.STOPPED for t in searched),
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


def besides(trials: Sequence[Trial]) -> str:
    """`7 repeats, 2 ablation steps`: what was run besides the trials that are searched among."""
    repeats, steps = sum(t.repeat is not None for t in trials), sum(t.ablation_of is not None for t in trials)
    races = sum(bool(t.race) for t in trials)
    words = [f"{races} race{'s' * (races > 1)}"] if races else []
    words += [f"{repeats} repeat{'s' * (repeats > 1)}"] if repeats else []
    words += [f"{steps} ablation step{'s' * (steps > 1)}"] if steps else []
    return ", ".join(words)


def gain(trial: Trial, baseline: Trial, space: Space) -> str:
    """`2.90x the baseline's throughput, 2.71x to 3.10x by the intervals (...), bleu_4 ... against ...`."""
    goal = space.objective
    if goal.target is not None:
        factor = objective.factor(trial, baseline, goal.target)
        return f"{factor or 0:.2f}x as soon at {goal.quality} {goal.target:g} as the baseline"
    interval = objective.factor_interval(trial, baseline)
    sure = f", {interval[0]:.2f}x to {interval[1]:.2f}x by the intervals" if interval else ""
    return (
        f"{objective.factor(trial, baseline) or 0:.2f}x the baseline's throughput{sure} "
        f"({speed(trial.measurement)} against {speed(baseline.measurement)} samples/s), "
        f"{goal.quality} {quality(objective.final_quality(trial, space))} against {quality(baseline.quality)}"
    )


def summary(history: History, workload: Workload, session: Path) -> list[str]:
    """What came out of a search, and what to run next."""
    space, baseline, best = history.space, history.baseline, confirm.recommended(history)
    if baseline is None or best is None:
        return [NO_RESULT]
    lines = [promise(space)]
    lines += _front(history, baseline) if space.objective.select == "pareto" else []
    lines += [*refuted(history), *cautions(history)]
    trial, claim = best
    if trial.number == 0:
        return [*lines, nothing_better(trial, space)]
    lines.append(f"Best: trial {trial.number}: {knobs(trial.config)}")
    if claim is not None:
        lines += [confirmed(claim, history)]
    else:
        lines += [gain(trial, baseline, space), unconfirmed(trial, space)]
    return [*lines, "Run next:", *(f"  {command}" for command in next_commands(session, workload))]


def promise(space: Space) -> str:
    """What a winner of the search means, in a sentence."""
    goal, samples = space.objective, space.budget.samples_per_trial
    if goal.select == "same-training":
        return (
            "Promise: the same training, only faster: effective batch and learning rate stay the baseline's."
        )
    if goal.select == "time-to-quality":
        target = "what the baseline reaches" if goal.target is None else f"{goal.target:g}"
        return f"Promise: the same quality, sooner: {goal.quality} {target} in the least time."
    what = "and the front of both" if goal.select == "pareto" else ""
    return (
        f"Promise: the fastest that keeps {goal.keep:.0%} of the baseline's {goal.quality} after {samples} "
        f"samples{what and f', {what}'}."
    )


def nothing_better(baseline: Trial, space: Space) -> str:
    """What a search says that has found nothing to recommend but the baseline."""
    goal = space.objective
    kept = f"has kept {goal.keep:.0%} of its {goal.quality}"
    if goal.select == "same-training":
        kept = "trains the same"
    if goal.target is not None:
        kept = f"is surely sooner at {goal.quality} {goal.target:g}"
    figures = (
        f"{speed(baseline.measurement)} samples/s, {space.objective.quality} {quality(baseline.quality)}"
    )
    others = "else" if goal.target is not None else "faster"
    return f"The baseline is the best so far ({figures}): nothing {others} {kept}."


def unconfirmed(trial: Trial, space: Space) -> str:
    """What the gain of a trial that was not repeated rests on."""
    shared = " Measured beside other trials." if trial.measurement.shared else ""
    return f"Not confirmed: each was measured once, over {space.budget.samples_per_trial} samples.{shared}"


def refuted(history: History) -> list[str]:
    """The finalists that did not hold, and why, a sentence each."""
    return [
        f"Trial {t.number} did not hold when it was repeated: {reason}."
        for t, reason in confirm.refuted(history)
    ]


def confirmed(claim: Claim, history: History) -> str:
    """What confirming the winner has shown, in a sentence."""
    goal = history.space.objective
    beside = company(confirm.rests_on(claim.number, history))
    sure = f"{claim.low:.2f}x to {claim.high:.2f}x at {claim.level:.3g}%"
    raced = f"{sure}, {claim.rounds} rounds side by side, {beside}"
    seeds = f"{claim.seeds} seed{'s' * (claim.seeds != 1)} of its own"
    if goal.target is not None:
        return (
            f"Confirmed: {claim.factor:.2f}x as soon at {goal.quality} {goal.target:g} as the baseline "
            f"({raced}, {seeds})"
        )
    figures = f"{goal.quality} {quality(claim.quality)} against {quality(claim.baseline_quality)}"
    if claim.share is not None:
        figures += f", {claim.share[0]:.0%} to {claim.share[1]:.0%} of it at 95% with {seeds}"
    speed = f"{claim.factor:.2f}x the baseline's throughput ({raced})"
    return f"Confirmed: {speed}" + (f", {figures}" if claim.seeds else "")


def raced(race: Trial) -> str:
    """`trial 5 2.24x as fast as trial 0 (2.15x to 2.33x), 14 rounds`: what a race has shown."""
    first, *others = race.race
    slices = race.measurement.slices
    found = [(number, racing.ratio(slices, number, first)) for number in others]
    told = [
        f"trial {number} {ratio.factor:.2f}x as fast as trial {first} "
        f"({ratio.low:.2f}x to {ratio.high:.2f}x), {ratio.rounds} rounds"
        for number, ratio in found
        if ratio
    ]
    return "; ".join(told)


def company(rests_on: Sequence[Trial]) -> str:
    """`alone on the device`, or what others have used of it during the trials that a claim rests on."""
    used = [f"{_part(what, found)} of the {what}" for what, found in _disturbed(rests_on).items()]
    return f"while others used {' and '.join(used)}" if used else "alone on the device"


def _disturbed(trials: Sequence[Trial]) -> dict[str, list[Trial]]:
    """The trials during which others used the device, by what of it they used."""
    used = dict.fromkeys(what for t in trials for what in t.measurement.others)
    return {what: [t for t in trials if what in t.measurement.others] for what in used}


def _part(what: str, trials: Sequence[Trial]) -> str:
    """`38%`, or `up to 38%`: what others used."""
    most = max(t.measurement.others[what] for t in trials)
    return f"{'up to ' if len(trials) > 1 else ''}{most:.0%}"


def measured(trial: Trial, history: History) -> str:
    """What is known of a completed trial against the baseline: from its repeats, or else from its one run."""
    claim, baseline = confirm.claim(trial, history), history.baseline
    if claim.holds:
        return confirmed(claim, history)
    if baseline is None or not trial.number:
        return "the baseline"
    return f"{gain(trial, baseline, history.space)}, measured once"


def _front(history: History, baseline: Trial) -> list[str]:
    space = history.space
    return [f"The front of throughput and {space.objective.quality}, fastest first:"] + [
        f"  trial {t.number}: {knobs(t.config)}: {gain(t, baseline, space)}" for t in history.front
    ]


def cautions(history: History) -> list[str]:
    """What makes the figures less than they seem."""
    lines, trials = [], history.trials
    if apart := history.speeds.disagreements():
        slower, faster, share = apart[0]
        lines.append(
            f"Figures move on this machine: trials {slower.number} and {faster.number} ran the same "
            f"at speeds {share:.0%} apart (pairs more than 2% apart: {len(apart)})."
        )
    throttled = [t for t in trials if t.measurement.throttled]
    if throttled:
        lines.append(f"Thermally throttled, and slower for it: trials {_listed(throttled)}.")
    lines += [_meanwhile(what, found) for what, found in _disturbed(trials).items()]
    return lines + _unused(history)


def _meanwhile(what: str, trials: Sequence[Trial]) -> str:
    """`Others used this machine meanwhile: up to 38% of its CPUs during trials 0, 3, 7 (most in trial 3).`"""
    during = f"{_part(what, trials)} of its {what} during trial{'s' * (len(trials) > 1)} {_listed(trials)}"
    most = max(trials, key=lambda t: t.measurement.others[what]).number
    where = f" (most in trial {most})" if len(trials) > 1 else ""
    return f"Others used this machine meanwhile: {during}{where}."


def _listed(trials: Sequence[Trial]) -> str:
    return ", ".join(str(t.number) for t in trials)


def _unused(history: History) -> list[str]:
    """What the workload seems not to use: its seed, or a knob, where figures are the same to the last bit."""
    lines: dict[str, str] = {}
    for one, other in _read_the_same(history.trials):
        pair = f"{one.number} and {other.number}"
        differ = [name for name in one.config if repr(one.config[name]) != repr(other.config.get(name))]
        if not differ and confirm.seed_of(one) != confirm.seed_of(other):
            what = "have different seeds and the very same figures: does the workload use its seed?"
            lines.setdefault("", f"Trials {pair} {what}")
        if len(differ) == 1 and differ[0] not in history.space.known.same_figures:
            knob = printable(differ[0])
            line = f"{knob} changes nothing: trials {pair} differ in it alone and have the very same figures."
            lines.setdefault(knob, line)
    return list(lines.values())


def _read_the_same(trials: Sequence[Trial]) -> Iterator[tuple[Trial, Trial]]:
    """Pairs of completed trials that have the very same scores, or curve. A collapsed model says nothing."""
    groups: dict[object, list[Trial]] = defaultdict(list)
    for trial in trials:
        found = _figures(trial.measurement)
        if trial.completed and found is not None and objective.no_quality(trial.measurement) is None:
            groups[found].append(trial)
    for group in groups.values():
        yield from itertools.combinations(group, 2)


def _figures(measurement: Measurement) -> object:
    """What a trial's evaluations found, to be compared; None where it is one number, same by chance."""
    scores = {k: v for k, v in measurement.scores.items() if k not in _NO_SCORES}
    if len(set(scores.values())) > 1:
        return frozenset(scores.items())
    qualities = [point.quality for point in measurement.curve]
    return tuple(qualities) if len(set(qualities)) > 1 else None


def next_commands(session: Path, workload: Workload) -> list[str]:
    """The two commands that turn a search into a training run."""
    config, program = Path("best.yaml"), workload.program
    export = f"python -m autotune export {shlex.quote(str(session))} -o {config}"
    return [export] if program is None else [export, program.train(config)]
