"""The winner is confirmed before anything is claimed. Pure functions of the trials.

Speed is cheap to measure: the finalists race against the baseline, side by side. Quality is dear: only who
won the race is trained again, with seeds of its own, until the answer is clear or the budget spent.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from autotune import curves, objective
from autotune.claims import Claim, claim, is_alone, next_seed, race_of, rests_on, seed_of
from autotune.settings import settings_key
from autotune.space import Space
from autotune.speeds import Speeds
from autotune.trial import Repeat, Status, Trial

__all__ = [
    "Claim",
    "Race",
    "claim",
    "confirmed",
    "finalists",
    "is_alone",
    "merit",
    "most_s",
    "next_step",
    "noise_repeat",
    "race_of",
    "recommended",
    "refuted",
    "rests_on",
    "seed_of",
    "trial_s",
]

_RACE_S, _RACE_TRIALS = 60.0, 4  # what a race takes: a minute, and less where a whole trial takes little


@dataclass(frozen=True)
class Race:
    """Trials whose settings are to be held against each other, the baseline first."""

    members: tuple[int, ...]


def noise_repeat() -> Repeat:
    """One run more of the baseline, which shows by how much equal runs differ."""
    return Repeat(of=0, round=0, members=(0,))


def next_step(trials: Sequence[Trial], space: Space) -> Race | Repeat | None:
    """What is to be run next for the sake of a claim, None when all is said."""
    if not space.budget.repeats or objective.baseline_of(trials) is None:
        return None
    standing = [t for t in finalists(trials, space) if claim(t, trials, space).why_not is None]
    if not standing:
        return None
    unraced = [t for t in _contenders(standing, trials, space) if race_of(t.number, trials) is None]
    if unraced:
        return _race(unraced, trials)
    leader = _leader(standing, trials, space)
    if claim(leader, trials, space).is_done:
        return None
    return next_seed(leader, trials, space)


def _race(unraced: Sequence[Trial], trials: Sequence[Trial]) -> Race:
    """A race of all these; of the first alone where a larger race has failed, or left it open."""
    numbers = tuple(t.number for t in unraced)
    before = {number for t in trials if t.race and t.outcome is not None for number in t.race}
    return Race((0, *(numbers[:1] if before & set(numbers) else numbers)))


def _contenders(standing: Sequence[Trial], trials: Sequence[Trial], space: Space) -> list[Trial]:
    """The champion, and who may be as fast; of those that must be equally fast only the best.

    Where the time to a quality counts, it is the champion alone: who is fastest need not be there first.
    """
    if space.objective.target is not None:
        return [_leader(standing, trials, space)]
    champion, *others = standing
    speeds, found = Speeds(trials, space.known), [champion]
    least, neutral = objective.surely_per_s(champion, speeds), space.known.same_speed
    for trial in others:
        throughput = speeds.of(trial)
        keys = {settings_key(t.config, neutral) for t in found}
        if throughput is None or settings_key(trial.config, neutral) in keys:
            continue
        most = throughput.samples_per_s + (throughput.half_width_per_s or 0.0)
        if most * (1 + curves.SURE * speeds.drift) >= least:
            found.append(trial)
    return found


def _leader(standing: Sequence[Trial], trials: Sequence[Trial], space: Space) -> Trial:
    """Whose quality is looked at next: who won the race, or was first at the target."""
    raced = [t for t in standing if race_of(t.number, trials) is not None]
    if space.objective.target is not None:  # who was begun with is finished, wherever it ranks by now
        return next(iter(raced), standing[0])
    return max(raced, key=lambda t: claim(t, trials, space).factor)


def finalists(trials: Sequence[Trial], space: Space) -> list[Trial]:
    """Who is confirmed, best first: at most so many as the budget says, those included that were begun.

    A finalist that was refuted is none any more once new configurations have been tried.
    """
    ranked = _candidates(trials, space)
    last = max(t.number for t in trials if t.searched)
    begun = _begun([t for t in trials if t.number > last])
    refuted = {n for n in _begun(trials) - begun if claim(_of(trials, n), trials, space).why_not}
    fresh = [t.number for t in ranked if t.number not in begun | refuted]
    chosen = begun | set(fresh[: max(0, space.budget.finalists - len(begun))])
    dropped = chosen - {t.number for t in ranked}  # begun, and by now no faster than the baseline
    return [t for t in ranked if t.number in chosen] + [_of(trials, n) for n in sorted(dropped)]


def trial_s(trials: Sequence[Trial]) -> float:
    """The time that a trial takes to its end, 0 while it is not known.

    Neither races nor ablation steps count: what they take must not open a search again that is done.
    """
    seconds = [
        t.seconds for t in trials if t.completed and t.seconds and t.ablation_of is None and not t.race
    ]
    return objective.mean(seconds) or 0.0


def most_s(trials: Sequence[Trial], space: Space) -> float:
    """The time that confirming one finalist takes: a race, and the seeds of it and of the baseline."""
    each_s, repeats = trial_s(trials), space.budget.repeats
    race_s = min(_RACE_S, _RACE_TRIALS * each_s) if repeats else 0.0
    return race_s + 2 * repeats * each_s


def _begun(trials: Sequence[Trial]) -> set[int]:
    """The trials that were raced or repeated to confirm them."""
    raced = {number for t in trials for number in t.race if number}
    return raced | {t.repeat.of for t in trials if is_alone(t) and t.repeat and t.repeat.of}


def _of(trials: Sequence[Trial], number: int) -> Trial:
    return next(t for t in trials if t.number == number)


def _candidates(trials: Sequence[Trial], space: Space) -> list[Trial]:
    """Who may be better than the baseline, best first.

    A trial that was stopped for being slower than another one is one again when that one does not hold.
    """
    goal, fraction = space.objective, space.limits.memory_fraction
    eligible = objective.ranked(trials, goal, fraction, space.known)
    better = eligible[: next((i for i, t in enumerate(eligible) if t.number == 0), 0)]
    if goal.target is not None:
        return better
    speeds, baseline = Speeds(trials, space.known), objective.baseline_of(trials)
    least = objective.surely_per_s(baseline, speeds) if baseline else math.inf
    reference, noise = objective.baseline_curve(trials), objective.noise(trials)
    stopped = [
        t
        for t in trials
        if t.outcome
        and t.outcome.status is Status.STOPPED
        and t.searched
        and baseline
        and t.measurement.origin == baseline.measurement.origin
        and objective.surely_per_s(t, speeds) > least
        and not objective.over_memory(t.measurement, fraction)
        and not curves.is_out_of_reach(
            t.measurement.curve, reference, goal.keep, noise, space.budget.samples_per_trial
        )
    ]
    return sorted([*better, *stopped], key=lambda t: objective.surely_per_s(t, speeds), reverse=True)


def merit(trial: Trial, space: Space) -> float | None:
    """What is compared: samples per second, or the inverse of the time to the target; None if never there."""
    target = space.objective.target
    if target is None:
        return trial.samples_per_s
    seconds = objective.seconds_to(trial, target)
    return 1 / seconds if seconds else None


def confirmed(trials: Sequence[Trial], space: Space) -> tuple[Trial, Claim] | None:
    """The finalist that holds, the best where several do, and its claim; None where none does, or not yet."""
    claims = [claim(_of(trials, number), trials, space) for number in _begun(trials)]
    best = max((c for c in claims if c.holds), key=lambda c: c.factor, default=None)
    return (_of(trials, best.number), best) if best else None


def refuted(trials: Sequence[Trial], space: Space) -> list[tuple[Trial, str]]:
    """The finalists that did not hold, and why."""
    claims = [claim(_of(trials, number), trials, space) for number in sorted(_begun(trials))]
    return [(_of(trials, c.number), c.why_not) for c in claims if c.why_not]


def recommended(trials: Sequence[Trial], space: Space) -> tuple[Trial, Claim | None] | None:
    """What to run: the confirmed winner, or the baseline where none holds.

    Without a claim, and only the best by its single run, as long as confirming is not done. None before the
    baseline has completed.
    """
    if found := confirmed(trials, space):
        return found
    best = objective.winner(trials, space.objective, space.limits.memory_fraction, space.known)
    if best is None:
        return None
    if not _begun(trials):
        return best, None
    standing = (t for t in finalists(trials, space) if t.completed and not claim(t, trials, space).why_not)
    return next(standing, _of(trials, 0)), None
