"""Confirms the winner before anything is claimed. Pure functions of the trials.

Speed is cheap to measure: the finalists race against the baseline, side by side. Quality is expensive: only
the winner of the race is trained again, with other seeds, until the answer is clear or the budget is spent.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from autotune.core.settings import Config
from autotune.core.trial import RejectedSuggestion, Repeat, Trial, TrialKind
from autotune.judging.decisions import objective, planning, racing, replanning
from autotune.judging.decisions.claims import Claim, claim, next_seed, next_seed_of, race_of
from autotune.judging.decisions.history import History
from autotune.judging.measurement import curves, turns

_LEAST_DRIFT = 0.05  # of the speed, assumed until some settings have run twice
_CLEARLY = 1.2  # times as fast as the baseline: worth confirming
_BASELINE_RUNS = 3  # needed for a claim about quality
_PATIENCE = 4  # settings in a row that are no better: benchmarks/bench_lengths.py confirms more than with 8
_RACE_S, _RACE_TRIALS = 60.0, 4  # a race takes a minute, or less if trials are short


@dataclass(frozen=True)
class Proposal:
    """A trial to begin; the fields have the same meaning as in `Trial`."""

    config: Config
    repeat: Repeat | None = None
    ablation_of: int | None = None
    race: tuple[int, ...] = ()
    passed: Sequence[RejectedSuggestion] = ()  # the suggestions rejected before it


def noise_repeat() -> Repeat:
    """Returns the baseline's early repeat, which shows by how much equal runs differ."""
    return Repeat(0, 0)


def baseline_repeat(history: History) -> Proposal | None:
    """Returns another run of the baseline once some settings seem clearly faster; None if none is needed.

    Confirming them takes these runs anyway. Run before, they show how much seeds vary, and so how long a
    training has to be for a few seeds to confirm it.
    """
    begun = [t for t in history.trials if t.original == 0 and t.kind in (TrialKind.SEARCHED, TrialKind.SEED)]
    is_enough = len(begun) >= min(_BASELINE_RUNS, 1 + history.space.budget.repeats)
    if is_enough or _promising(history) is None:
        return None
    return Proposal(history.trial(0).config, next_seed_of(0, history))


def trials_without_gain(history: History, first: int = 0) -> int:
    """Returns how many other settings ended since the best ones were found, from trial `first` on.

    0 if lengths are not planned, and while no settings seem clearly faster than the baseline. A refuted
    finalist starts the count anew.
    """
    if (leader := _promising(history)) is None:
        return 0
    alike = {t.number for t in history.trained_alike(leader.config)}
    refuted_numbers = {trial.number for trial, _ in refuted(history)}
    in_vain = (t.number for t in history.trials if refuted_numbers & {t.original, *t.race})
    after = max([min(alike), first - 1, *in_vain])
    ended = (t for t in history.searched if t.outcome is not None)
    return sum(t.number > after and t.number not in alike for t in ended)


def has_plateaued(history: History, first: int = 0) -> bool:
    """Returns True if enough trials since the best settings were no better: these should be confirmed."""
    return trials_without_gain(history, first) >= max(_PATIENCE, len(history.space.drawn_knobs))


def _promising(history: History) -> Trial | None:
    """Returns the best settings if their training is clearly shorter than the baseline's, else None."""
    if not planning.is_wanted(history.space) or history.baseline is None or history.needs.rate is None:
        return None
    leader, usual = replanning.best(history), history.equal_trainings_per_s(history.baseline)
    # Above 0, as the lower end of a disturbed speed may not be.
    return leader if leader and 0 < _CLEARLY * usual <= history.equal_trainings_per_s(leader) else None


def next_step(history: History) -> Proposal | None:
    """Returns the next trial that helps to decide a claim, None when none is needed."""
    if not history.space.budget.repeats or history.baseline is None:
        return None
    known = finalists(history)
    standing = [t for t in known if not (claim(t.number, history).why_not or _lost_its_race(t, history))]
    if not standing:
        return None
    tested = _tested(standing, history)  # finished first: until then the time spent on them shows nothing
    if again := _quickest_again(history):
        return again
    undecided = [t for t in _contenders(standing, history) if race_of(t.number, history) is None]
    leader = tested[0] if tested else _leader(standing, history)
    unraced = [t for t in undecided if not _was_behind(t, standing, history)]
    if leader is None:  # even the champion may have been behind one that is no contender
        unraced = unraced or undecided
    if unraced and not tested:
        members = tuple(t.number for t in unraced)
        before = {number for t in history.trials if t.outcome is not None for number in t.race}
        if before & set(members):  # a larger race failed
            members = members[:1]
        return Proposal(history.trial(0).config, race=(0, *members))
    if leader is None or claim(leader.number, history).is_done:
        return None
    seed = next_seed(leader, history)
    return Proposal(history.trial(seed.of).config, seed) if seed else None


def _quickest_again(history: History) -> Proposal | None:
    """Returns another run of the settings that may reach the target first; None once they are clear enough.

    The samples to a target vary between seeds, so the quickest of many single runs is mostly a lucky one.
    They are clear if no other computation may be as quick, by a standard error of both, and at the latest
    after the budget's `repeats`.
    """
    if history.space.objective.target is None:
        return None
    needs, ruled_out = history.to_target, {trial.number for trial, _ in refuted(history)}
    candidates = [t for t in history.better if t.number not in ruled_out and needs.seconds(t)]
    if not candidates:
        return None
    quickest = min(candidates, key=lambda t: _bound_s(t, history, -1))
    others = [t for t in candidates if needs.computation(t) != needs.computation(quickest)]
    most_s = _bound_s(quickest, history, +1)
    running = sum(t.outcome is None for t in history.repeats_of(quickest.number))
    is_enough = len(needs.runs(quickest)) + running >= history.space.budget.repeats
    if is_enough or all(_bound_s(t, history, -1) > most_s for t in others):
        return None
    return Proposal(quickest.config, next_seed_of(quickest.number, history))


def _bound_s(trial: Trial, history: History, errors: int) -> float:
    """Returns a bound of a trial's seconds to the target: so many standard errors above the estimate."""
    needs = history.to_target
    error = needs.scatter / math.sqrt(len(needs.runs(trial)))
    return (needs.seconds(trial) or 0.0) * math.exp(errors * error)


def _tested(standing: Sequence[Trial], history: History) -> list[Trial]:
    """Returns the finalists whose runs with new seeds have begun and decide nothing yet, in that order."""
    if history.space.objective.target is not None:  # every run counts for the choice of the quickest, too
        return []
    seeds = [t.original for t in history.trials if t.kind is TrialKind.SEED]
    raced = [t for t in standing if t.number in seeds and race_of(t.number, history) is not None]
    undecided = [t for t in raced if not claim(t.number, history).is_done]
    return sorted(undecided, key=lambda t: seeds.index(t.number))


def _was_behind(trial: Trial, standing: Sequence[Trial], history: History) -> bool:
    """Returns True if another finalist that still stands was certainly ahead of `trial` in a race."""
    for race in (t for t in history.trials if t.completed and trial.number in t.race):
        lengths = {number: history.length(history.trial(number)) for number in race.race}
        trainings = racing.Trainings(race.measurement.slices, lengths)
        others = (t.number for t in standing if t.number in race.race and t.number != trial.number)
        if any(trainings.is_behind(trial.number, other) for other in others):
            return True
    return False


def _contenders(standing: Sequence[Trial], history: History) -> list[Trial]:
    """Returns the champion and the trials that may be as good; of equally fast settings only the best."""
    key = history.space.speed_key
    if history.space.objective.target is not None and any(race_of(t.number, history) for t in standing):
        return []  # those are decided before others join
    champion, *others = standing
    contenders = {key(champion.config): champion}
    for trial in others:
        if _may_be_as_good(trial, champion, history):
            contenders.setdefault(key(trial.config), trial)
    return list(contenders.values())


def _may_be_as_good(trial: Trial, champion: Trial, history: History) -> bool:
    """Returns True if drift of the machine's speed may be why `trial` seems slower than the champion."""
    target, speeds = history.space.objective.target, history.speeds
    moved = 1 + curves.SURE * max(speeds.drift, _LEAST_DRIFT)
    if target is not None:
        needed_s, best_s = map(history.to_target.seconds, (trial, champion))
        return needed_s is not None and best_s is not None and needed_s <= best_s * moved
    throughput = speeds.pooled_throughput(trial)
    if throughput is None:
        return False
    most = throughput.samples_per_s + (throughput.half_width_per_s or 0.0)
    return most * moved / history.length(trial) >= history.trainings_per_s(champion)


def _leader(standing: Sequence[Trial], history: History) -> Trial | None:
    """Returns the trial to repeat next: the race's winner, or the one that would reach the target first."""
    raced = [t for t in standing if race_of(t.number, history) is not None]
    return max(raced, key=lambda t: _place(t, history), default=None)


def _place(trial: Trial, history: History) -> tuple[bool, float]:
    """Returns a sort key of raced trials: staying to the end of the race counts before speed.

    A dropped member was beaten, however fast it seemed. With a target, it may still need fewer samples: the
    key is then the speed divided by the samples that its runs needed.
    """
    race = race_of(trial.number, history)
    slices = race.measurement.slices if race else ()
    speed = turns.ratio(slices, trial.number, 0)
    if speed is None:
        return False, 0.0
    if history.space.objective.target is not None:
        samples = history.to_target.samples(trial)
        return True, speed.value / samples if samples else 0.0
    factor = speed.value * history.length_ratio(trial)
    if planning.is_wanted(history.space):  # a slower one may have the shorter training
        return True, factor
    return turns.count_rounds(slices, trial.number, 0) >= max(turn.round for turn in slices), factor


def finalists(history: History) -> list[Trial]:
    """Returns the finalists, best first: those already begun, and more up to the budget's number."""
    ranked = _candidates(history)
    last = max((t.number for t in history.searched if t.outcome is not None), default=0)
    begun = _begun([t for t in history.trials if t.number > last])
    # Refuted, and others have been tried since.
    dropped_before = {trial.number for trial, _ in refuted(history)} - begun
    fresh = [t.number for t in ranked if t.number not in begun | dropped_before]
    chosen = begun | set(fresh[: max(0, history.space.budget.finalists - len(begun))])
    dropped = chosen - {t.number for t in ranked}  # begun, but no longer faster than the baseline
    return [t for t in ranked if t.number in chosen] + [history.trial(n) for n in sorted(dropped)]


def confirming_s(history: History, seeds: int) -> float:
    """Returns the time for a race and `seeds` runs of a finalist and of the baseline; 0 without seeds."""
    each_s = history.trial_s
    return min(_RACE_S, _RACE_TRIALS * each_s) + 2 * seeds * each_s if seeds else 0.0


@lru_cache(maxsize=4)  # histories are immutable, and a proposal asks twice
def most_s(history: History) -> float:
    """Returns the time to reserve for confirming a finalist, 0 while there is no candidate."""
    if history.baseline is None:
        return 0.0
    if replanning.next_config(history) is not None:
        return history.trial_s + confirming_s(history, history.space.budget.repeats)
    refuted_numbers = {trial.number for trial, _ in refuted(history)}
    if all(trial.number in refuted_numbers for trial in _candidates(history)):
        return 0.0
    return confirming_s(history, history.space.budget.repeats)


def _begun(trials: Sequence[Trial]) -> set[int]:
    raced = {number for t in trials for number in t.race if number}
    return raced | {t.original for t in trials if t.kind is TrialKind.SEED and t.original}


def _candidates(history: History) -> list[Trial]:
    """Returns the trials that may be better than the baseline, best first."""
    if history.space.objective.target is not None:
        return list(history.better)
    if planning.is_wanted(history.space):
        ranked = [trial for trial in history.ranked if history.is_long_enough(trial)]
        return [t for t in ranked if _may_be_sooner(t, history) and not _lost_its_race(t, history)]
    # Stopped as another one was faster, which may have been refuted since.
    baseline, space, fraction = history.baseline, history.space, history.space.limits.memory_fraction
    any_training = space.objective.select != "same-training"
    stopped = [
        t
        for t in history.searched
        if t.stopped
        and baseline is not None
        and t.measurement.origin == baseline.measurement.origin
        and (any_training or objective.trains_alike(t.config, baseline.config, space.known))
        and history.trainings_per_s(t) > history.trainings_per_s(baseline)
        and not objective.over_memory(t.measurement, fraction)
        and not history.is_out_of_reach(t)
    ]
    return sorted([*history.better, *stopped], key=history.trainings_per_s, reverse=True)


def _may_be_sooner(trial: Trial, history: History) -> bool:
    """Returns True if a trial's training may end sooner than the baseline's, by its speed's upper end."""
    baseline, key = history.trial(0), history.space.speed_key
    if history.length_ratio(trial) <= 1 and key(trial.config) == key(baseline.config):
        return False  # as fast, and no shorter
    usual, speed = map(history.speeds.pooled_throughput, (baseline, trial))
    if usual is None or speed is None:
        return False
    most = speed.samples_per_s + (speed.half_width_per_s or 0.0)
    return most * history.length_ratio(trial) > (1 + racing.EQUAL) * usual.samples_per_s


def _lost_its_race(trial: Trial, history: History) -> bool:
    """Returns True if a trial seemed slower side by side: racing it again would take time from others."""
    return history.relative.raced(trial) is not None and history.seems_slower(trial)


def _claims(history: History) -> list[tuple[Trial, Claim]]:
    return [(history.trial(number), claim(number, history)) for number in sorted(_begun(history.trials))]


def confirmed(history: History) -> tuple[Trial, Claim] | None:
    """Returns the best confirmed finalist and its claim; None if there is none yet."""
    holding = [(trial, claimed) for trial, claimed in _claims(history) if claimed.holds]
    return max(holding, key=lambda pair: _place(pair[0], history), default=None)


def refuted(history: History) -> list[tuple[Trial, str]]:
    return [(trial, claimed.why_not) for trial, claimed in _claims(history) if claimed.why_not]


def recommended(history: History) -> tuple[Trial, Claim | None] | None:
    """Returns the trial to recommend: the confirmed winner, or the baseline if all finalists are refuted.

    Until confirmation is done it is the best so far, without a claim. None before the baseline has completed.
    """
    if winner := confirmed(history):
        return winner
    if history.best is None:
        return None
    if not _begun(history.trials):
        return history.best, None
    standing = [t for t in finalists(history) if t.completed and not claim(t.number, history).why_not]
    if leader := _leader(standing, history):
        return leader, None
    return next((t for t in standing if not history.seems_slower(t)), history.trial(0)), None
