"""Probes a command line: watches its training, tries its settings, and proposes a search space for it."""

import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from autotune.core import settings, units
from autotune.core.errors import InputError
from autotune.probe import durations, effects, options, scores
from autotune.probe.durations import ShortTraining
from autotune.probe.effects import Candidate
from autotune.probe.proposal import ProbeResult
from autotune.probe.runs import Prober
from autotune.probe.scores import Score
from autotune.probe.watching import Watched
from autotune.workloads.command.line import processes

_STEPS = 8  # of a run that tries settings
_WATCHED_STEPS = 40  # of the user's own training, if no evaluation comes earlier
_WATCHED_S, _TRIED_S, _EVALUATED_S = 120.0, 60.0, 60.0
_LOOK_S = 2.0  # between two looks for scores
_NO_EFFECT = "no effect seen"

# Options for the lowest rate of a schedule, which follows the learning rate.
_LOWEST_RATES = ("min_lr", "lr_min", "min_learning_rate", "final_lr", "eta_min")
_GROUPS: Mapping[str, tuple[str, ...]] = {
    "batch": (settings.MICRO_BATCH, settings.ACCUMULATION),
    "lr": (settings.LEARNING_RATE,),
    "length": (settings.LENGTH,),
    "workers": (settings.WORKERS, settings.PREFETCH),
    "precision": (settings.PRECISION,),
    "compile": (settings.COMPILE,),
}
ROLES = (settings.SEED, *(role for group in _GROUPS.values() for role in group))


def roles(only: str | None) -> frozenset[str]:
    """Returns the roles of groups such as `batch,lr`, by default all; raises InputError for unknown ones."""
    if only is None:
        return frozenset(ROLES)
    groups = [one.strip() for one in only.split(",")]
    if unknown := [one for one in groups if one not in _GROUPS]:
        raise InputError(f"--only: one or more of {', '.join(_GROUPS)}, got {', '.join(unknown)}")
    return frozenset((settings.SEED, *(role for one in groups for role in _GROUPS[one])))


@dataclass(frozen=True)
class Wishes:
    """The user's choices for a probe."""

    score: str = ""  # "": to be found
    minimize: bool | None = None
    roles: frozenset[str] = frozenset(ROLES)  # of settings that may be tuned


class Choose:
    """Answers questions that a probe cannot answer; this class refuses, for a session without a terminal."""

    def score(self, candidates: Sequence[Score]) -> Score:
        """Returns the one of several scores that measures the quality."""
        listed = dict.fromkeys(one.described for one in candidates)
        raise InputError(f"--score NAME: which of these counts? {'; '.join(listed)}")

    def is_minimized(self, score: Score) -> bool:
        """Returns True if a lower value is better, for a score whose name does not say so."""
        raise InputError(f"--score {score.name}: say whether higher is better, with --maximize or --minimize")


def probe(prober: Prober, wishes: Wishes, choose: Choose, cpus: int) -> tuple[ProbeResult, list[str]]:
    """Watches the training and tries its settings; returns the findings, and lines on them for the user.

    Raises InputError if the training fails, no step is seen, or no score is found.
    """
    seen = _watch(prober)
    framework = seen.trainer.get("framework")
    inside = effects.inside(seen)
    known = inside if framework else list(seen.options)
    if framework == "transformers":
        known = list(options.said_by_flags(inside, seen.options, on_cpu=seen.device == "cpu"))
    launched = units.parse_whole(processes(prober.line.words) or "") or 1
    shares, own = effects.shares_batch(seen, launched), batch_of(seen)
    batch = own and own * (1 if shares else launched)
    trier = _Trier(prober, seen, [_described(seen, batch)])
    candidates = [one for one in effects.candidates(known, seen) if one.role in wishes.roles]
    trier.together(candidates)
    duration = durations.try_length(prober, known, seen, batch)
    length, short = duration.length, duration.short
    trier.lines.append(duration.note)
    if short is not None and length is not None:
        trier.again(short)
    if not framework:
        left = wishes.roles - trier.roles
        trier.together([one for one in effects.candidates(inside, seen) if one.role in left], again=False)
    trier.without_workers()
    if not trier.effective and length is None:
        for line in trier.lines:
            prober.say(line)
        raise InputError("no setting of this training showed an effect, so there is nothing to tune")
    told = _told(prober, (short.seen, seen) if short else (seen,), wishes)
    score, minimize = chosen_score(told, wishes, choose)
    is_inside = any(one.option.is_inside for one in trier.effective)
    first = prober.line.words[0]
    python = shutil.which(first) if Path(first).name in ("python", "python3") else None
    rates = [one for one in known if one.key in _LOWEST_RATES and options.is_number(one.value) and one.value]
    found = ProbeResult(
        words=prober.line.words,
        directory=str(prober.directory),
        python=python if python != sys.executable else None,
        environment=prober.environment,
        kind=framework or ("torch" if is_inside else "command"),
        score=score,
        minimize=minimize,
        knobs=tuple(trier.effective),
        length=length if settings.LENGTH in wishes.roles else None,
        training_s=duration.training_s,
        samples=duration.samples,
        every=options.evaluated(known) if length and length[0] == "steps" else None,
        followers=tuple(rates) if settings.LEARNING_RATE in trier.roles else (),
        batch=own,
        samples_per_epoch=duration.samples_per_epoch,
        cpus=cpus,
        shares_batch=shares,
    )
    return found, [*trier.lines, f"score: {score.described}; {'lower' if minimize else 'higher'} is better"]


def run_to_score(prober: Prober) -> Watched:
    """Runs the training until it has reported a score twice, or for four minutes."""
    return prober.run(prober.line, _after_score(times=2), durations.MOST_S)


def _told(prober: Prober, runs: Sequence[Watched], wishes: Wishes) -> list[Score]:
    """Returns the scores of the first of `runs` that has any, or of a longer run if none of them counts."""
    told = next((found for seen in runs if (found := scores.scores(seen))), [])

    def counts(score: Score) -> bool:
        return not told or score.split is not None or scores.named([score], wishes.score) is not None

    if any(map(counts, told)):
        return told
    most_s = _EVALUATED_S if told and not wishes.score else durations.MOST_S
    awaited = wishes.score or ("the score of an evaluation" if told else "a score")
    prober.say(f"Running your training until it reports {awaited}, for {most_s:.0f} s at most ...")
    return scores.scores(prober.run(prober.line, _after_score(2, counts), most_s)) or told


def _watch(prober: Prober) -> Watched:
    """Watches enough steps of the user's own training, and a score if no short run can show it."""
    shows_score = _after_score(times=1)

    def is_enough(seen: Watched) -> bool:
        if len(seen.steps) < _WATCHED_STEPS:
            return False
        return bool(options.ends(seen.options) or seen.trainer) or shows_score(seen)

    prober.say("Running your training to watch its steps ...")
    seen = prober.run(prober.line, is_enough, _WATCHED_S)
    if seen.steps:
        return seen
    for line in seen.tail:
        prober.say(f"  {line}")
    if seen.has_failed:
        raise InputError(
            f"the command ended with exit code {seen.code} before its first step; its last lines are above"
        )
    if seen.has_ended:
        raise InputError("the command ended, and no training step was seen; it has to train with PyTorch")
    raise InputError(f"no training step was seen within {seen.seconds:.0f} s; its last lines are above")


def _after_score(times: int, counts: Callable[[Score], bool] = lambda _: True) -> effects.Stop:
    """Returns a condition that holds once a score that `counts` was shown `times` times."""
    looked_s = 0.0

    def has_come(seen: Watched) -> bool:
        nonlocal looked_s
        if seen.seconds - looked_s < _LOOK_S:
            return False
        looked_s = seen.seconds
        return any(len(one.values) >= times for one in scores.scores(seen) if counts(one))

    return has_come


class _Trier:
    """Tries settings, and collects those that showed an effect."""

    def __init__(self, prober: Prober, seen: Watched, lines: list[str]) -> None:
        self.prober, self.seen, self.lines = prober, seen, lines
        self.effective: list[Candidate] = []
        self._without: list[Candidate] = []
        self._unseen: dict[str, str] = {}  # why the last run with an option did not show it

    @property
    def roles(self) -> set[str]:
        return {one.role for one in self.effective}

    def together(self, candidates: Sequence[Candidate], *, again: bool = True) -> None:
        """Tries in one run all settings whose effects can be told apart, and one by one the others.

        With `again`, or if that run ended before a step, also those that showed nothing together.
        """
        # A seed shows only in losses, in a run of its own, and compiling is slow.
        apart = [one for one in candidates if one.role not in (settings.SEED, settings.COMPILE)]
        shown = self._try(apart) if apart else []
        again |= bool(apart) and self._unseen[apart[0].option.name] != _NO_EFFECT
        for one in candidates:
            if one not in apart or (again and one not in shown and apart != [one]):
                shown += self._try([one])
        self._note(candidates, shown)

    def again(self, short: ShortTraining) -> None:
        """Tries again the learning rates that had no effect, in a training too short for a warm-up."""
        for one in [one for one in self._without if one.role == settings.LEARNING_RATE]:
            line = self._result(one, has_effect=False)  # of the first try, since the second may end otherwise
            if self._try([one], short):
                self._without.remove(one)
                self.lines.remove(line)
                self._note([one], [one])

    def without_workers(self) -> None:
        """Tries the loader without workers, which some loaders refuse."""
        for number, one in enumerate(self.effective):
            if one.role == settings.WORKERS and one.option.value:
                none = replace(one, tried=0)
                if self._try([none]):
                    self.effective[number] = none

    def _try(self, tried: Sequence[Candidate], short: ShortTraining | None = None) -> list[Candidate]:
        """Runs some steps with the tried values; returns the candidates that showed an effect."""
        self.prober.say(f"Trying {', '.join(f'{one.option.name} {one.value}' for one in tried)} ...")
        line, before = (short.line, short.seen) if short else (self.prober.line, self.seen)
        for one in tried:
            line = line.with_value(one.option, one.value)
        after = self.prober.run(line, effects.after_steps(_STEPS), _TRIED_S)
        is_alone = len(tried) == 1
        ended = f"ended with exit code {after.code} before its first step"
        why_not = f"no step within {after.seconds:.0f} s" if after.code is None else ended
        for one in tried:
            self._unseen[one.option.name] = _NO_EFFECT if after.steps else why_not
        return [one for one in tried if effects.shows(one, before, after, is_alone=is_alone)]

    def _note(self, tried: Sequence[Candidate], shown: Sequence[Candidate]) -> None:
        self.effective += shown
        self._without += [one for one in tried if one not in shown]
        self.lines += [self._result(one, has_effect=one in shown) for one in tried]

    def _result(self, tried: Candidate, *, has_effect: bool) -> str:
        result = "has an effect" if has_effect else f"{self._unseen[tried.option.name]}, so it stays"
        return f"{tried.option.name} {tried.option.value} -> {tried.value}: {result}"


def _described(seen: Watched, size: int | None) -> str:
    step_s, rates = effects.step_s(seen), seen.steps[0].rates
    parts = [f"{size} samples per step" if size else "samples per step unknown"]
    parts += [f"learning rate {max(rates):g} in the first step"] if rates else []
    parts += [f"{seen.loader.get('num_workers') or 0} loader workers"] if seen.loader else []
    parts += [seen.steps[0].dtype] if seen.steps[0].dtype else []
    parts += [f"{1000 * step_s:.3g} ms per step"] if step_s else []
    return ", ".join(parts)


def batch_of(seen: Watched) -> int | None:
    """Returns the samples of a process's step, from the options if they say so, else from the batches."""
    size = options.role_of(seen.options, settings.MICRO_BATCH)
    if size is None or not options.is_count(size.value):
        return effects.samples_of_step(seen)
    parts = options.role_of(seen.options, settings.ACCUMULATION)
    accumulated = parts.value if parts is not None and options.is_count(parts.value) else 1
    return int(size.value or 1) * int(accumulated or 1)


def chosen_score(candidates: Sequence[Score], wishes: Wishes, choose: Choose) -> tuple[Score, bool]:
    """Returns the score that measures the quality, and True if a lower one is better."""
    listed = "; ".join(one.described for one in candidates) or "none"
    if wishes.score:
        named = scores.named(candidates, wishes.score)
        if named is None:
            raise InputError(f"--score {wishes.score}: no such score was seen; seen: {listed}")
        score = named
    elif not candidates:
        raise InputError("no score was seen; have the script print one, such as `val_loss 1.23`")
    else:
        score = candidates[0] if scores.is_clear(candidates) else choose.score(candidates)
    if wishes.minimize is not None:
        return score, wishes.minimize
    return score, choose.is_minimized(score) if score.minimize is None else score.minimize
