"""The winner is confirmed before anything is claimed. Pure functions of the trials.

Speed is cheap to measure: the finalists race against the baseline, side by side. Quality is expensive: only
the winner of the race is trained again, with seeds of its own, until the answer is clear or the budget spent.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from autotune.core.rejected_suggestion import RejectedSuggestion
from autotune.core.settings import Config, settings_key
from autotune.core.trial import Repeat, Trial, TrialKind
from autotune.judging.decisions import objective, planning, racing, replanning
from autotune.judging.decisions.claims import Claim, claim, next_seed, race_of
from autotune.judging.decisions.history import History
from autotune.judging.measurement import curves, turns

_LEAST_DRIFT = 0.05  # of which little is known before anything has run twice
_RACE_S, _RACE_TRIALS = 60.0, 4  # what a race takes: a minute, and less where a whole trial takes little


@dataclass(frozen=True)
class Proposal:
    """A trial to begin: what it is to run, and what it is for, as in `Trial`."""

    config: Config
    repeat: Repeat | None = None
    ablation_of: int | None = None
    race: tuple[int, ...] = ()
    passed: Sequence[RejectedSuggestion] = ()  # the suggestions that were passed over before it


def noise_repeat() -> Repeat:
    """One run more of the baseline, which shows by how much equal runs differ."""
    return Repeat(0, 0)


def next_step(history: History) -> Proposal | None:
    """Returns what to run next to decide a claim, None when nothing more is needed."""
    if not history.space.budget.repeats or history.baseline is None:
        return None
    standing = [t for t in finalists(history) if not claim(t.number, history).why_not]
    if not standing:
        return None
    unraced = [t for t in _contenders(standing, history) if race_of(t.number, history) is None]
    if unraced:
        return Proposal(history.of(0).config, race=_members(unraced, history))
    leader = _leader(standing, history)
    if claim(leader.number, history).is_done:
        return None
    seed = next_seed(leader, history)
    return Proposal(history.of(seed.of).config, seed) if seed else None


def _members(unraced: Sequence[Trial], history: History) -> tuple[int, ...]:
    """Returns whom to race: the baseline and all these, or only the first if a larger race settled none."""
    numbers = tuple(t.number for t in unraced)
    before = {number for t in history.trials if t.race and t.outcome is not None for number in t.race}
    return (0, *(numbers[:1] if before & set(numbers) else numbers))


def _contenders(standing: Sequence[Trial], history: History) -> list[Trial]:
    """The champion, and those that may be as good; of those that must be equally fast only the best.

    If the time to a quality counts, those raced already are finished before another one joins.
    """
    target, neutral = history.space.objective.target, history.space.known.same_speed
    if target is not None and any(race_of(t.number, history) for t in standing):
        return []
    champion, *others = standing
    found = [champion]
    for trial in others:
        keys = {settings_key(t.config, neutral) for t in found}
        if settings_key(trial.config, neutral) not in keys and _may_be_as_good(trial, champion, history):
            found.append(trial)
    return found


def _may_be_as_good(trial: Trial, champion: Trial, history: History) -> bool:
    """Returns True if `trial` may only seem slower because the machine's speed moved between the two runs."""
    target, speeds = history.space.objective.target, history.speeds
    moved = 1 + curves.SURE * max(speeds.drift, _LEAST_DRIFT)
    if target is not None:
        ours, best = map(history.to_target.seconds, (trial, champion))
        return ours is not None and best is not None and ours <= best * moved
    throughput = speeds.of(trial)
    if throughput is None:
        return False
    most = throughput.samples_per_s + (throughput.half_width_per_s or 0.0)
    return most * moved / history.length(trial) >= history.trainings_per_s(champion)


def _leader(standing: Sequence[Trial], history: History) -> Trial:
    """Returns whose quality to look at next: the race's winner, or who would be the first at the target."""
    raced = [t for t in standing if race_of(t.number, history) is not None]
    return max(raced, key=lambda t: _place(t, history))


def _place(trial: Trial, history: History) -> tuple[bool, float]:
    """Returns how good a raced trial is: being left at the end of its race counts first.

    However fast another one seemed while it ran: it was beaten while both did. If the time to a quality
    counts, a beaten one may need fewer samples: its speed is divided by what all runs have needed.
    """
    race = race_of(trial.number, history)
    slices = race.measurement.slices if race else ()
    speed = turns.ratio(slices, trial.number, 0)
    if speed is None:
        return False, 0.0
    if history.space.objective.target is not None:
        samples = history.to_target.samples(trial)
        return True, speed.value / samples if samples else 0.0
    factor = speed.value * history.shorter(trial)
    if planning.is_wanted(history.space):  # a slower one may have the shorter training
        return True, factor
    return turns.rounds(slices, trial.number, 0) >= max(one.round for one in slices), factor


def finalists(history: History) -> list[Trial]:
    """The finalists to confirm, best first: at most as many as the budget says, including those begun.

    A finalist that was refuted is none any more once new configurations have been tried.
    """
    ranked = _candidates(history)
    last = max(t.number for t in history.searched)
    begun = _begun([t for t in history.trials if t.number > last])
    gone = {trial.number for trial, _ in refuted(history)} - begun
    fresh = [t.number for t in ranked if t.number not in begun | gone]
    chosen = begun | set(fresh[: max(0, history.space.budget.finalists - len(begun))])
    dropped = chosen - {t.number for t in ranked}  # begun, and by now no faster than the baseline
    return [t for t in ranked if t.number in chosen] + [history.of(n) for n in sorted(dropped)]


def trial_s(history: History) -> float:
    """The time that a trial takes to its end, 0 while it is not known.

    Neither races nor ablation steps count: what they take must not open a search again that is done.
    """
    counted = (t for t in history.trials if t.completed and t.kind not in (TrialKind.RACE, TrialKind.STEP))
    seconds = [t.seconds for t in counted if t.seconds]
    return objective.mean(seconds) or 0.0


def confirming_s(history: History, seeds: int) -> float:
    """Returns the time for a race, and for so many seeds of a finalist and of the baseline; 0 without any."""
    each_s = trial_s(history)
    return min(_RACE_S, _RACE_TRIALS * each_s) + 2 * seeds * each_s if seeds else 0.0


def most_s(history: History) -> float:
    """Returns the time to keep for confirming a finalist, 0 while no trial is a candidate."""
    if history.baseline is None:
        return 0.0
    if replanning.next_config(history) is not None:
        return trial_s(history) + confirming_s(history, history.space.budget.repeats)
    gone = {trial.number for trial, _ in refuted(history)}
    if all(trial.number in gone for trial in _candidates(history)):
        return 0.0
    return confirming_s(history, history.space.budget.repeats)


def _begun(trials: Sequence[Trial]) -> set[int]:
    """The trials that were raced or repeated to confirm them."""
    raced = {number for t in trials for number in t.race if number}
    return raced | {t.original for t in trials if t.kind is TrialKind.SEED and t.original}


def _candidates(history: History) -> list[Trial]:
    """The trials that may be better than the baseline, best first.

    A trial that was stopped for being slower than another one is a candidate again when that one does not
    hold.
    """
    if history.space.objective.target is not None:
        return list(history.better)
    if planning.is_wanted(history.space):
        ranked = [trial for trial in history.ranked if history.is_long_enough(trial)]
        return [trial for trial in ranked if _may_be_sooner(trial, history)]
    stopped = [t for t in history.searched if _may_have_been_better(t, history)]
    return sorted([*history.better, *stopped], key=history.trainings_per_s, reverse=True)


def _may_be_sooner(trial: Trial, history: History) -> bool:
    """Returns True if the training of a trial may end sooner than the baseline's, by all that is known.

    Others that used the machine may have made its speed very uncertain: a race, side by side, then decides.
    """
    baseline, neutral = history.of(0), history.space.known.same_speed
    if history.shorter(trial) <= 1 and settings_key(trial.config, neutral) == settings_key(
        baseline.config, neutral
    ):
        return False  # as fast, and no shorter
    ours, its = history.speeds.of(baseline), history.speeds.of(trial)
    if ours is None or its is None:
        return False
    most = its.samples_per_s + (its.half_width_per_s or 0.0)
    return most * history.shorter(trial) > (1 + racing.EQUAL) * ours.samples_per_s


def _may_have_been_better(trial: Trial, history: History) -> bool:
    """Returns True if a stopped trial is surely faster than the baseline, and nothing else is wrong."""
    baseline, shown = history.baseline, trial.measurement
    return (
        trial.stopped
        and baseline is not None
        and shown.origin == baseline.measurement.origin
        and history.trainings_per_s(trial) > history.trainings_per_s(baseline)
        and not objective.over_memory(shown, history.space.limits.memory_fraction)
        and not history.is_out_of_reach(trial)
    )


def _claims(history: History) -> list[tuple[Trial, Claim]]:
    """Returns the trials that were begun to be confirmed, and their claims."""
    return [(history.of(number), claim(number, history)) for number in sorted(_begun(history.trials))]


def confirmed(history: History) -> tuple[Trial, Claim] | None:
    """Returns the finalist that holds, the best of several, and its claim; None if none does, or not yet."""
    holding = [(trial, found) for trial, found in _claims(history) if found.holds]
    return max(holding, key=lambda one: _place(one[0], history), default=None)


def refuted(history: History) -> list[tuple[Trial, str]]:
    """Returns the finalists that did not hold, and why."""
    return [(trial, found.why_not) for trial, found in _claims(history) if found.why_not]


def recommended(history: History) -> tuple[Trial, Claim | None] | None:
    """Returns what to run: the confirmed winner, or the baseline if none holds.

    Without a claim, and only the best by its single run, as long as confirming is not done. None before the
    baseline has completed.
    """
    if found := confirmed(history):
        return found
    if history.best is None:
        return None
    if not _begun(history.trials):
        return history.best, None
    standing = [t for t in finalists(history) if t.completed and not claim(t.number, history).why_not]
    if any(race_of(t.number, history) for t in standing):
        return _leader(standing, history), None
    return next(iter(standing), history.of(0)), None
