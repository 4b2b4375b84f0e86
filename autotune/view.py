"""Trials as text: the same words and columns for the live table, the log, `status` and the summary."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from autotune import confirm, objective, units
from autotune.confirm import Claim
from autotune.errors import printable
from autotune.space import Space
from autotune.speeds import Speeds
from autotune.trial import Config, Failure, Measurement, Setting, Status, Trial
from autotune.workloads import Workload

_STYLES = {
    Status.COMPLETED: "green",
    Status.STOPPED: "yellow",
    Status.FAILED: "red",
    Status.INTERRUPTED: "cyan",
}
NO_RESULT = "No result: the baseline has not completed, or shows no throughput or quality."
_SHORT = {"num_workers": "workers", "learning_rate": "lr", "activation_checkpointing": "checkpointing"}


def knobs(config: Config) -> str:
    """A configuration in short: `16x2 bf16 workers 2 lr 1.2e-04`, batch times accumulation first."""
    rest = dict(config)
    words = []
    if "micro_batch_size" in rest:
        accumulation = rest.pop("accumulation_steps", None)
        words.append(f"{rest.pop('micro_batch_size')}" + (f"x{accumulation}" if accumulation else ""))
    if "precision" in rest:
        words.append(str(rest.pop("precision")))
    words += [_knob(name, value) for name, value in rest.items() if value is not False]
    return printable(" ".join(words))


def _knob(name: str, value: Setting) -> str:
    if value is True:
        return name
    shown = f"{value:.2g}" if isinstance(value, float) else str(value)
    return f"{_SHORT.get(name, name)} {shown}"


def speed(measurement: Measurement) -> str:
    """`61.2 ± 0.8` samples per second; no interval where there were too few steps to tell."""
    t = measurement.throughput
    if t is None:
        return "-"
    return f"{t.samples_per_s:.1f}" + ("" if t.half_width_per_s is None else f" ± {t.half_width_per_s:.1f}")


def memory(measurement: Measurement) -> str:
    """`2.4 GiB (31%)`: the peak, and its share of what the trial was allowed."""
    if measurement.peak_memory_bytes is None:
        return "-"
    share = objective.memory_share(measurement)
    return units.format_bytes(measurement.peak_memory_bytes) + ("" if share is None else f" ({share:.0%})")


def quality(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def name(trial: Trial) -> str:
    """What a trial runs: its configuration in short, or what it repeats."""
    config = knobs(trial.config) or "no settings"
    if trial.repeat is not None:
        return f"repeat of {trial.repeat.of}: {config}"
    return config if trial.way_to is None else f"way to {trial.way_to}: {config}"


def style(trial: Trial) -> str:
    """The colour of a trial's outcome."""
    return _STYLES[trial.outcome.status if trial.outcome else Status.INTERRUPTED]


def counts(trials: Sequence[Trial], state: str = "interrupted") -> str:
    """`12 trials: 9 completed, 2 out of memory, 1 failed; 7 repeats, 2 steps of the way`."""
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
        f"{len(searched)} trials: "
        + (", ".join(f"{n} {what}" for what, n in parts.items() if n) or "none ended")
        + (f"; {others}" if others else "")
    )


def besides(trials: Sequence[Trial]) -> str:
    """`7 repeats, 2 steps of the way`: what was run besides the trials that are searched among."""
    repeats, steps = sum(t.repeat is not None for t in trials), sum(t.way_to is not None for t in trials)
    words = [f"{repeats} repeat{'s' * (repeats > 1)}"] if repeats else []
    words += [f"{steps} step{'s' * (steps > 1)} of the way"] if steps else []
    return ", ".join(words)


def gain(trial: Trial, baseline: Trial, space: Space) -> str:
    """`2.90x the baseline's throughput, 2.71x to 3.10x by the intervals (...), bleu_4 ... against ...`."""
    interval = objective.factor_interval(trial, baseline)
    sure = f", {interval[0]:.2f}x to {interval[1]:.2f}x by the intervals" if interval else ""
    return (
        f"{objective.factor(trial, baseline) or 0:.2f}x the baseline's throughput{sure} "
        f"({speed(trial.measurement)} against {speed(baseline.measurement)} samples/s), "
        f"{space.objective.quality} {quality(trial.quality)} against {quality(baseline.quality)}"
    )


def summary(trials: Sequence[Trial], space: Space, workload: Workload, session: Path) -> list[str]:
    """What came out of a search, and what to run next."""
    baseline = objective.baseline_of(trials)
    best = confirm.recommended(trials, space)
    if baseline is None or best is None:
        return [NO_RESULT]
    lines = _front(trials, space, baseline) if space.objective.select == "pareto" else []
    lines += [*refuted(trials, space), *cautions(trials)]
    trial, claim = best
    if trial.number == 0:
        return [*lines, nothing_better(trial, space)]
    lines.append(f"Best: trial {trial.number}: {knobs(trial.config)}")
    if claim is not None:
        lines += [confirmed(claim, space)]
    else:
        lines += [gain(trial, baseline, space), unconfirmed(trial, space)]
    return [*lines, "Run next:", *(f"  {command}" for command in next_commands(session, workload))]


def nothing_better(baseline: Trial, space: Space) -> str:
    """What a search says that has found nothing to recommend but the baseline."""
    kept = f"{space.objective.keep:.0%} of its {space.objective.quality}"
    figures = (
        f"{speed(baseline.measurement)} samples/s, {space.objective.quality} {quality(baseline.quality)}"
    )
    return f"The baseline is the best so far ({figures}): nothing faster has kept {kept}."


def unconfirmed(trial: Trial, space: Space) -> str:
    """What the gain of a trial that was not repeated rests on."""
    shared = " Measured beside other trials." if trial.measurement.shared else ""
    return f"Not confirmed: each was measured once, over {space.budget.samples_per_trial} samples.{shared}"


def refuted(trials: Sequence[Trial], space: Space) -> list[str]:
    """The finalists that did not hold, and why, a sentence each."""
    return [
        f"Trial {t.number} did not hold when it was repeated: {reason}."
        for t, reason in confirm.refuted(trials, space)
    ]


def confirmed(claim: Claim, space: Space) -> str:
    """What the repeats of the winner say, in a sentence."""
    what = (
        "throughput"
        if space.objective.target is None
        else f"speed to {space.objective.quality} {space.objective.target:g}"
    )
    return (
        f"Confirmed: {claim.factor:.2f}x the baseline's {what} ({claim.low:.2f}x to {claim.high:.2f}x "
        f"at 95%, {claim.pairs} pairs of runs, alone on the device), "
        f"{space.objective.quality} {quality(claim.quality)} against {quality(claim.baseline_quality)}"
    )


def measured(trial: Trial, trials: Sequence[Trial], space: Space) -> str:
    """What is known of a completed trial against the baseline: from its repeats, or else from its one run."""
    claim = confirm.claim(trial, trials, space)
    baseline = objective.baseline_of(trials)
    if claim.holds:
        return confirmed(claim, space)
    return f"{gain(trial, baseline, space)}, measured once" if baseline and trial.number else "the baseline"


def _front(trials: Sequence[Trial], space: Space, baseline: Trial) -> list[str]:
    return [f"The front of throughput and {space.objective.quality}, fastest first:"] + [
        f"  trial {t.number}: {knobs(t.config)}: {gain(t, baseline, space)}" for t in objective.pareto(trials)
    ]


def cautions(trials: Sequence[Trial]) -> list[str]:
    """What makes the figures less than they seem."""
    lines = []
    if apart := Speeds(trials).disagreements():
        slower, faster, share = apart[0]
        lines.append(
            f"Figures move on this machine: trials {slower.number} and {faster.number} ran the same "
            f"at speeds {share:.0%} apart (pairs more than 2% apart: {len(apart)})."
        )
    throttled = [t.number for t in trials if t.measurement.throttled]
    if throttled:
        lines.append(f"Thermally throttled, and slower for it: trials {', '.join(map(str, throttled))}.")
    return lines


def next_commands(session: Path, workload: Workload) -> list[str]:
    """The two commands that turn a search into a training run."""
    config = Path("best.yaml")
    train = workload.train_command(config)
    return [
        f"python -m autotune export {shlex.quote(str(session))} -o {config}",
        *([train] if train else []),
    ]
