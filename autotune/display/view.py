"""Trials as text: the same words and columns for the live table, the log, `status` and the summary."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from autotune.core import units
from autotune.core.errors import printable
from autotune.core.settings import ACCUMULATION, COMMON, MICRO_BATCH, PRECISION, Config, Setting
from autotune.core.shell import quoted
from autotune.core.trial import Status, Trial, TrialKind
from autotune.display import advice, words
from autotune.display.cautions import cautions, contention, spending
from autotune.judging.accounts import costs, overhead, reasons
from autotune.judging.decisions import claims, confirm
from autotune.judging.decisions import quality as qualities
from autotune.judging.decisions.claims import Claim
from autotune.judging.decisions.history import History
from autotune.judging.measurement import turns
from autotune.judging.measurement.estimates import Figure
from autotune.space import configurations, lengths
from autotune.space.naming import flatten
from autotune.space.sections import Objective
from autotune.workloads.base import Workload

_KINDS = {
    TrialKind.PILOT: "repeat",
    TrialKind.SEED: "repeat",
    TrialKind.RACE: "race",
    TrialKind.STEP: "ablation",
}
NO_RESULT = "No result: the baseline has not completed, or shows no throughput or quality."


def knobs(config: Config) -> str:
    """Returns a configuration in short: `batch 32 (2 x 16 accumulated) bf16 workers 2 lr 1.2e-04`."""
    rest, parts = dict(config), []
    if MICRO_BATCH in rest:
        parts.append(batch(rest.pop(MICRO_BATCH), rest.pop(ACCUMULATION, None) or 1))
    if PRECISION in rest:
        parts.append(str(rest.pop(PRECISION)))
    for name, value in rest.items():
        if value is True:
            parts.append(name)
        elif value is not False:
            text = f"{float(f'{value:.2g}'):g}" if isinstance(value, float) else str(value)
            parts.append(f"{COMMON[name].short or name} {text}")
    return printable(" ".join(parts))


def batch(size: Setting, accumulation: Setting) -> str:
    """Returns the samples of an optimizer step in one process."""
    if accumulation == 1:
        return f"batch {size}"
    return f"batch {int(size or 0) * int(accumulation or 1)} ({accumulation} x {size} accumulated)"


def _measured(trial: Trial, history: History) -> tuple[str, str]:
    figure = history.quality(trial)
    quality = qualities.in_users_sign(figure.value if figure else None, history.space.objective)
    return words.rate(history.throughput(trial)), words.score(quality)


def name(trial: Trial) -> str:
    """Returns the configuration of a trial in short, or the trials that it measures again."""
    if trial.race:
        return f"speed comparison of trials {' and '.join(map(str, trial.race))}"
    if trial.repeat is not None:
        return f"{f'trial {trial.repeat.of}' if trial.repeat.of else 'baseline'}'s settings, another seed"
    config = knobs(trial.config) or "no settings"
    return config if trial.ablation_of is None else f"ablation of trial {trial.ablation_of}: {config}"


def where(trial: Trial) -> str:
    """Returns ` on NODE`, the node of a cluster that runs a trial; nothing on one machine."""
    return printable(f" on {trial.measurement.node}") if trial.measurement.node else ""


def counts(trials: Sequence[Trial], state: str = "interrupted") -> str:
    """Returns `12 trials: 9 completed, 2 out of memory; also 7 runs with another seed`."""
    searched = [t for t in trials if t.kind is TrialKind.SEARCHED]
    failed = sum(t.outcome is not None and t.outcome.status is Status.FAILED for t in searched)
    oom = sum(t.out_of_memory for t in searched)
    parts = {
        "completed": sum(t.completed for t in searched),
        "stopped early": sum(t.stopped for t in searched),
        "out of memory": oom,
        "failed otherwise": failed - oom,
        state: sum(t.outcome is None for t in searched),
    }
    text = ", ".join(f"{n} {what}" for what, n in parts.items() if n) or "none ended"
    others = count_others(map(kind, trials))
    return f"{words.plural(len(searched), 'trial')}: {text}{f'; also {others}' if others else ''}"


def out_of_time(trials: Sequence[Trial], planned: int, *, is_confirmed: bool) -> str:
    """Returns `Out of time after 3 of 40 trials.`; finalists of other lengths may exceed the plan."""
    ended = sum(t.kind is TrialKind.SEARCHED and t.outcome is not None for t in trials)
    if not ended:
        return "Out of time before any trial ended."
    if ended < planned:
        return f"Out of time after {ended:,} of {words.plural(planned, 'trial')}."
    when = "after" if is_confirmed else "before"
    return f"Out of time after {words.plural(ended, 'trial')}, {when} the winner was confirmed."


def kind(trial: Trial) -> str:
    """Returns the purpose of a trial: baseline, trial, race, repeat or ablation (a step of it)."""
    return _KINDS.get(trial.kind) or ("trial" if trial.number else "baseline")


def count_others(kinds: Iterable[str]) -> str:
    """Returns `1 speed comparison, 7 runs with another seed`: what was run besides the searched trials."""
    counted, with_seed = Counter(kinds), " with another seed"
    nouns = {"race": ("speed comparison", ""), "repeat": ("run", with_seed), "ablation": ("ablation run", "")}
    return ", ".join(
        words.plural(counted[each], noun) + more for each, (noun, more) in nouns.items() if counted[each]
    )


def gain(trial: Trial, history: History) -> str:
    """Returns `2.90x faster (2.71x to 3.10x), 61.2 samples/s instead of 21.1, bleu_4 ... instead of ...`."""
    goal, figure = history.space.objective, costs.gain(trial, history)
    if figure is None:
        return "gain over the baseline unknown"
    if goal.target is not None:
        return _reaches(figure, goal)
    (speed, quality), (old_speed, old_quality) = (_measured(t, history) for t in (trial, history.trial(0)))
    interval = words.factor.interval(figure)
    sure = f" ({interval})" if interval else ""
    turns_taken = ", measured alternately with the baseline" if history.relative.raced(trial) else ""
    scores = f", {goal.quality} {quality} instead of {old_quality}" if history.quality(trial) else ""
    speeds = f"{speed} {history.space.unit}/s instead of {old_speed}"
    return f"{speedup(figure)}{sure}, {speeds}{turns_taken}{scores}"


def speedup(factor: Figure | None) -> str:
    """Returns `2.26x faster`, or `0.87x as fast`."""
    return f"{words.factor(factor)} {'faster' if _is_gain(factor) else 'as fast'}"


def _is_gain(factor: Figure | None) -> bool:
    return factor is not None and round(factor.value, 2) > 1  # two decimals show it


def _reaches(factor: Figure | None, goal: Objective) -> str:
    than = "than" if _is_gain(factor) else "as"
    return f"reaches {goal.quality} {goal.target:g} {speedup(factor)} {than} the baseline"


def summary(history: History, workload: Workload, session: Path, go_on: str = "") -> list[str]:
    """Returns the result of a search, and what to run next; `go_on` is the command that continues it."""
    space, best = history.space, confirm.recommended(history)
    if history.baseline is None or best is None:
        return [NO_RESULT]
    lines = [promise(history)]
    if space.objective.select == "pareto":
        lines.append(f"Best trade-offs between speed and {space.objective.quality}, fastest first:")
        lines += [f"  trial {t.number}, {knobs(t.config)}: {gain(t, history)}" for t in history.front]
    lines += cautions(history)
    trial, claim = best
    if trial.number == 0:
        return [*lines, no_improvement(history), *spending(history)]
    if advice.is_unconfirmed(history):
        return [*lines, *spending(history), advice.possible_gain(history, go_on)]
    lines.append(f"Best{'' if claim else ', not confirmed'}: trial {trial.number}, {knobs(trial.config)}")
    if claim is not None:
        lines += [confirmation(claim, history), *_break_even(trial, history)]
        lines += _your_command(trial, history, workload)
    else:
        lines += [gain(trial, history), missing_confirmation(trial, history)]
    commands = (f"  {command}" for command in next_commands(session, workload))
    return [*lines, *spending(history), "Run next:", *commands]


def _break_even(trial: Trial, history: History) -> list[str]:
    """Returns how many trainings, or how long a training, would pay off the trials; empty if none would."""
    if history.space.objective.target is not None:  # its factor is not that of whole trainings
        return []
    spent_s = math.fsum(each.seconds for each in history.trials)
    trials = history.trial(0), trial
    before_s, after_s = history.runs_s(*trials) or overhead.trainings_s(history, *trials)[0] or (0.0, 0.0)
    if after_s >= before_s:
        return []
    saved_s = before_s - after_s
    spent, saved, long = map(units.format_seconds, (spent_s, saved_s, spent_s * before_s / saved_s))
    count = words.plural(math.ceil(spent_s / saved_s), "training")
    pays = f"the search pays off after {count}, or in one of {long}"
    return [f"The trials took {spent}. Each training saves {saved}, so {pays}."]


def _your_command(trial: Trial, history: History, workload: Workload) -> list[str]:
    """Returns the user's command line with a winner's settings, if it can say them, and the old values."""
    from autotune.judging.decisions import ablation  # noqa: PLC0415 - imports NumPy, which `--help` does not

    space, values = history.space, configurations.for_workload
    settings = values(space, space.settings(trial.config))
    command = workload.own_file.command(settings)
    before = dict(flatten(values(space, space.settings({}))))
    factors = {step.knob: step.factor for step in ablation.steps(history) if not step.together}
    changes = [
        f"{path} {words.setting(value)}, was {words.setting(before.get(path))}"
        + (f" ({words.factor(factor)})" if (factor := factors.get(space.naming.name(path))) else "")
        for path, value in flatten(settings)
        if before.get(path) != value
    ]
    if command is None:
        return ["Changed settings:", *(f"  {change}" for change in changes)]
    return ["Your command:", f"  {command}", *(f"  # {change}" for change in changes)]


def promise(history: History) -> str:
    """Returns the goal of the search, in a sentence, and what counts as speed."""
    goal = history.space.objective
    sense = f"; lower {goal.minimize} is better" if goal.minimize else ""
    if goal.select == "same-training":
        text = "the same training, only faster: effective batch and learning rate stay the baseline's"
    elif goal.target is not None:
        text = f"{goal.quality} {goal.target:g} in the least time{sense}"
    elif goal.asks_for_speed_alone:
        text = f"the shortest training, whatever its {goal.quality}"
    else:
        front = ", and the best trade-offs between speed and quality" if goal.select == "pareto" else ""
        text = f"the shortest training that {qualities.format_requirement(goal)}{front}{sense}"
    return f"Goal: {text}." + (" Evaluations are part of the speed." if goal.counts_evaluations else "")


def no_improvement(history: History) -> str:
    """Returns why a search recommends nothing but the baseline."""
    speed, quality = _measured(history.trial(0), history)
    figures = f"{speed} {history.space.unit}/s, {history.space.objective.quality} {quality}"
    return f"The baseline is the best so far ({figures}): {reasons.summary(history)}."


def missing_confirmation(trial: Trial, history: History) -> str:
    """Returns how few runs show the gain of a trial that was not confirmed."""
    shared = " Other trials ran at the same time." if trial.measurement.shared else ""
    return f"Not confirmed: {describe_runs(trial, history)}.{shared}"


def describe_runs(trial: Trial, history: History) -> str:
    """Returns `the trial and the baseline ran once, over 400 samples each`."""
    runs = [len(history.runs_of(number)) for number in (trial.number, 0)]
    samples = f"over {history.space.budget.samples_per_trial:,} {history.space.unit} each"
    if max(runs) <= 1:
        return f"the trial and the baseline ran once, {samples}"
    ours, theirs = ("once" if count == 1 else f"{count} times" for count in runs)
    return f"the trial ran {ours}, the baseline {theirs}, {samples}"


def confirmation(claim: Claim, history: History) -> str:
    """Returns the result of the winner's confirmation, in a sentence."""
    goal, race = history.space.objective, claims.race_of(claim.number, history)
    others = contention([race] if race else [])
    sure, while_busy = words.factor.interval(claim.factor), f", {others}" if others else ""
    if goal.target is not None:
        seeds = words.plural(claim.seeds, "seed")
        return f"Confirmed: {_reaches(claim.factor, goal)} ({sure}; {seeds}{while_busy})"
    trials = history.trial(claim.number), history.trial(0)
    speed = f"Confirmed: {speedup(claim.factor)} ({sure}{while_busy}){_times(trials, history)}"
    return f"{speed}. {final_qualities(claim, history)}" if claim.seeds else speed


def _times(trials: Sequence[Trial], history: History) -> str:
    """Returns the times behind a factor of two trials: of whole runs, or else of their training alone."""
    counts = history.space.objective.counts_evaluations
    if runs := list(map(units.format_seconds, history.runs_s(*trials))):
        left_out, them = ("start-up", "it") if counts else ("start-up and evaluations", "them")
        return f" without {left_out}; with {them}, a run takes {runs[0]} instead of {runs[1]}"
    seconds, are_counted = overhead.trainings_s(history, *trials)
    took = list(map(units.format_seconds, seconds))
    joint = " without evaluations; with them" if are_counted and not counts else ""
    return f"{joint}, {took[0]} of training instead of {took[1]}" if took else ""


def final_qualities(claim: Claim, history: History) -> str:
    """Returns `Final val_loss 1.884 ± 0.005, not worse than the baseline's 1.903 ± 0.004 (3 seeds each)`."""
    goal, trials = history.space.objective, (history.trial(claim.number), history.trial(0))
    ours, theirs = (words.score(qualities.figure_in_users_sign(history.quality(t), goal)) for t in trials)
    baseline = len(history.runs_of(0))
    each = f"{words.plural(baseline, 'seed')} each"
    runs = each if claim.seeds == baseline else f"{claim.seeds} and {baseline} seeds"
    answer = "not worse than " if claim.answer is qualities.QualityAnswer.KEPT else ""
    share = lengths.miniature(history.space)
    final = f"In trials of {words.share(share)} of the training, final" if share else "Final"
    return f"{final} {goal.quality} {ours}, {answer}the baseline's {theirs} ({runs})"


def race_result(race: Trial) -> str:
    """Returns `trial 5 is 2.2x as fast as trial 0, measured alternately, 20 times each, in 5 starts`."""
    first, *others = race.race
    slices, comparisons = race.measurement.slices, []
    for number in others:
        if ratio := turns.ratio(slices, number, first):
            interval = words.factor.interval(ratio)
            times = f"trial {number} is {words.factor(ratio)} as fast as trial {first}"
            rounds = words.plural(turns.count_rounds(slices, number, first), "time")
            starts = words.plural(turns.count_launches(slices, number, first), "start")
            sure = f" ({interval})" if interval else ""
            comparisons.append(f"{times}{sure}, measured alternately, {rounds} each, in {starts}")
    return "; ".join(comparisons)


def compare_with_baseline(trial: Trial, history: History) -> str:
    """Compares a completed trial, or the trial that it repeats, with the baseline."""
    number = trial.original
    claim = claims.claim(number, history)
    if claim.holds:
        return confirmation(claim, history)
    if not number:
        return "the baseline"
    return f"Not confirmed: {gain(trial, history)}; {describe_runs(history.trial(number), history)}"


def next_commands(session: Path, workload: Workload) -> list[str]:
    """Returns the commands that turn a search into a training."""
    own = workload.own_file
    file = Path(own.name)
    train = own.trains_with(file)
    return [f"python -m autotune export {quoted(session)} -o {file}", *([train] if train else [])]
