"""Judges a change of a training: runs both command lines to their ends, in turns, and compares them."""

import hashlib
import json
import math
import statistics
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from autotune.core import secrecy, units
from autotune.core.errors import InputError
from autotune.core.shell import quoted, word
from autotune.display import events, words
from autotune.judging.decisions import pairs
from autotune.judging.decisions.pairs import PairedVerdict, TrainingRun
from autotune.judging.measurement import estimates
from autotune.probe import command, effects, scores
from autotune.probe.runs import Prober
from autotune.probe.scores import Score
from autotune.sessions import option_values, probing
from autotune.sessions.requests import JudgeRequest
from autotune.space.sections import Objective
from autotune.storage import lock
from autotune.storage.records import lines_of, open_lines
from autotune.system import signals

FORMAT = 1
EXIT_NOT_CONFIRMED = 1
SIDES = ("A", "B")
_RUNNERS = {".py": "python", ".sh": "sh"}
_SCRIPT_BYTES = 2**20


@dataclass(frozen=True)
class _Question:
    """Identifies a comparison by its commands, scripts and scores."""

    commands: tuple[str, ...]
    digests: dict[str, str]  # of the files that the command lines name
    score: Score | None = None  # None until a run has shown it
    minimize: bool = False


@dataclass(frozen=True)
class _Ended:
    side: str
    pair: int  # from 0; also its seed
    run: TrainingRun


_LINE: TypeAdapter[_Question | _Ended] = TypeAdapter(_Question | _Ended)


def judge(given: Sequence[str], asked: JudgeRequest) -> int:
    """Prints whether the second of two commands trains faster at the same quality; returns the exit code.

    0: confirmed, 1: not confirmed. Raises InputError if a command fails or shows no score.
    """
    lines = split(given)
    secrecy.refuse_secrets(dict(zip(SIDES, lines, strict=True)), "judge")
    root = asked.session or Path("runs") / f"judge-{datetime.now().astimezone():%Y%m%d-%H%M%S}"
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--session {root}: cannot be made: {error.strerror}") from None
    with signals.ended_by_sigterm(), lock.hold_file(root / "lock", f"comparison {root}"):
        comparison = _Comparison(root, lines, asked)
        verdict = comparison.run()
    if asked.as_json:
        print(events.line(comparison.as_json(verdict)))
    else:
        print("\n".join(comparison.report(verdict)))
    return 0 if verdict.confirmed else EXIT_NOT_CONFIRMED


def split(given: Sequence[str]) -> tuple[list[str], list[str]]:
    """Returns the words of both command lines, given as `A --vs B` or as two scripts."""
    if given.count("--vs") == 1:
        at = given.index("--vs")
        before, after = list(given[:at]), list(given[at + 1 :])
        if before and after:
            return before, after
    elif len(given) == 2 and all(Path(one).suffix in _RUNNERS for one in given):
        before, after = ([_RUNNERS[Path(one).suffix], one] for one in given)
        return before, after
    got = " ".join(map(word, given))
    raise InputError(f"judge: needs two command lines, as in `judge -- A --vs B`, or two scripts, got {got}")


class _Comparison:
    """Trains both sides in turns, with a seed for each pair, and records every training in the session."""

    def __init__(self, root: Path, lines: tuple[list[str], list[str]], asked: JudgeRequest) -> None:
        self._asked, self._root = asked, root
        self._wishes = command.Wishes(asked.score or "", probing.direction(asked))
        self._end_s = time.monotonic() + (option_values.duration_s("--time", asked.time) or math.inf)
        work = root / "work"
        work.mkdir(exist_ok=True)
        self._probers = {
            side: Prober(line, Path.cwd(), work, probing.say) for side, line in zip(SIDES, lines, strict=True)
        }
        self._file = root / "judge.jsonl"
        self._question = _Question(tuple(" ".join(map(word, line)) for line in lines), _digests(lines))
        self._ended: list[_Ended] = []
        self._read()

    def _read(self) -> None:
        """Takes over the trainings of an earlier run of the same comparison."""
        if self._file.exists() and not self._file.is_file():
            raise InputError(f"{self._file}: must be a regular file; name a new --session")
        lines = list(lines_of(self._file))
        if not lines:
            self._write(self._question)
            return
        try:
            before, *known = [_LINE.validate_python(line) for line in lines]
        except ValidationError:
            raise InputError(f"{self._file}: is damaged; name a new --session") from None
        if not isinstance(before, _Question):
            raise InputError(f"{self._file}: is damaged; name a new --session")
        if before != self._question:
            raise InputError(
                f"{self._root}: holds a comparison of other commands or scripts; name a new --session"
            )
        self._question = next((one for one in reversed(known) if isinstance(one, _Question)), self._question)
        self._ended = [one for one in known if isinstance(one, _Ended)]

    def _write(self, line: _Question | _Ended) -> None:
        with open_lines(self._file) as file:
            file.write(json.dumps(_LINE.dump_python(line)) + "\n")

    def run(self) -> PairedVerdict:
        """Trains pair after pair until the verdict is clear, all pairs have run, or the time is up."""
        for side, line in zip(SIDES, self._question.commands, strict=True):
            probing.say(f"{side}: {line}")
        if self._question.score is None and not self._asked.score and self._left_s() > 0:
            probing.say("Looking for the score ...")  # before the first training, which may be long
            if candidates := scores.scores(command.run_to_score(self._probers[SIDES[0]])):
                self._choose(candidates)
        elif self._asked.score and self._question.score is None and self._wishes.minimize is None:
            named = scores.Score(self._wishes.score, "", "", "", ())
            if named.minimize is None:
                minimize = probing.chooser(self._asked).is_minimized(named)
                self._wishes = replace(self._wishes, minimize=minimize)
        for pair in range(self._asked.pairs):
            if (verdict := self._verdict()).confirmed is not None:
                return verdict
            for side in SIDES if pair % 2 == 0 else SIDES[::-1]:
                has_ended = any((one.side, one.pair) == (side, pair) for one in self._ended)
                expected_s = max((one.run.seconds for one in self._ended if one.side == side), default=0.0)
                has_time = self._left_s() > expected_s
                if not has_ended and not (has_time and self._train(side, pair)):
                    return replace(verdict, why_not=f"out of time: {verdict.why_not}")
        return self._verdict()

    def _left_s(self) -> float:
        return self._end_s - time.monotonic()

    def _train(self, side: str, pair: int) -> bool:
        """Runs one training and records it; returns False if the time was up before its end."""
        prober = self._probers[side]
        probing.say(f"{side} trains with seed {pair} ...")
        seen = prober.run(replace(prober.line, seed=pair), effects.never, self._left_s(), start_s=0.0)
        if seen.has_failed:
            for line in seen.tail:
                probing.say(f"  {line}")
            raise InputError(f"{side} ended with exit code {seen.code}; its last lines are above")
        if not seen.has_ended:
            return False
        score = self._question.score or self._choose(scores.scores(seen))
        told = tuple(scores.values(seen, score))
        if not told:
            raise InputError(
                f"{side} reported no {score.name}, and {SIDES[0]} did, so they cannot be compared"
            )
        ended = _Ended(side, pair, TrainingRun(seen.seconds, told))
        self._ended.append(ended)
        self._write(ended)
        probing.say(f"  {units.format_seconds(seen.seconds)}, {score.name} {ended.run.final:.5g}")
        return True

    def _choose(self, candidates: Sequence[Score]) -> Score:
        score, minimize = command.chosen_score(candidates, self._wishes, probing.chooser(self._asked))
        self._question = replace(self._question, score=replace(score, values=()), minimize=minimize)
        self._write(self._question)
        return score

    @property
    def _goal(self) -> Objective:
        name = self._question.score.name if self._question.score else "score"
        values: dict[str, Any] = {"minimize" if self._question.minimize else "quality": name}
        if self._asked.within is not None:
            values["within"] = self._asked.within
        elif self._asked.keep is not None:
            values["keep"] = self._asked.keep
        return Objective(**values)

    def _runs(self) -> tuple[list[TrainingRun], ...]:
        ordered = sorted(self._ended, key=lambda one: one.pair)
        return tuple([one.run for one in ordered if one.side == side] for side in SIDES)

    def _verdict(self) -> PairedVerdict:
        before, after = self._runs()
        return pairs.judge(before, after, self._goal, self._asked.pairs)

    def report(self, verdict: PairedVerdict) -> list[str]:
        before, after = self._runs()
        count = min(len(before), len(after))
        if not count:
            return [f"Not confirmed: {verdict.why_not}."]
        name = self._goal.quality
        means_s = [statistics.fmean(run.seconds for run in side) for side in (after, before)]
        ours, theirs = map(units.format_seconds, means_s)
        final, other = (words.score(estimates.mean([run.final for run in side])) for side in (after, before))
        interval = words.factor.interval(verdict.factor)
        sure = f" ({interval})" if interval else ""
        factor = f"is {words.factor(verdict.factor)} as fast as A{sure}: " if verdict.factor else "took "
        lines = [
            f"In {words.plural(count, 'pair')} of whole trainings, B {factor}{ours} instead of {theirs}.",
            f"Final {name} {final}, {'not worse than ' if verdict.is_as_good else ''}A's {other}.",
        ]
        if verdict.confirmed:
            return [*lines, f"Confirmed: B is faster{' and as good' if verdict.is_as_good else ''}."]
        again = f"run the command again with --session {quoted(self._root)} --pairs N"
        more = [f"More pairs may decide it: {again}."] if verdict.confirmed is None else []
        return [*lines, f"Not confirmed: {verdict.why_not}.", *more]

    def as_json(self, verdict: PairedVerdict) -> dict[str, Any]:
        before, after = self._runs()
        return {
            "format": FORMAT,
            "session": str(self._root),
            "confirmed": verdict.confirmed,  # null: not decided
            "why_not": verdict.why_not or None,
            "factor": verdict.factor,
            "score": self._goal.quality,
            "runs": {
                side: [{"seconds": one.seconds, "score": one.final} for one in runs]
                for side, runs in zip(SIDES, (before, after), strict=True)
            },
        }


def _digests(lines: Sequence[Sequence[str]]) -> dict[str, str]:
    digests = {}
    for one in sorted({one for line in lines for one in line}):
        is_script = False
        with suppress(OSError):  # an argument may be longer than a file's name can be
            is_script = Path(one).is_file() and Path(one).stat().st_size <= _SCRIPT_BYTES
        if is_script:
            digests[one] = hashlib.sha256(Path(one).read_bytes()).hexdigest()
    return digests
