"""Probes the command line of a training, and writes the search space that it finds."""

import math
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from autotune.core import files, secrecy, units
from autotune.core.errors import InputError, printable
from autotune.display.words import plural
from autotune.probe import command, durations, proposal
from autotune.probe.command import Choose, Wishes
from autotune.probe.proposal import ProbeResult
from autotune.probe.runs import Prober
from autotune.probe.scores import Score
from autotune.sessions.requests import Probing, Scoring
from autotune.system import signals, telemetry
from autotune.system.telemetry import Hardware

_TRAININGS = 20  # that a search should have time for
_CONFIRMING = 8  # of them: a speed comparison, and three seeds of both sides
_TO_SAVE_ONE = 3  # trainings that save the time of one, for an example: at 1.5x


def is_command(words: Sequence[str]) -> bool:
    """Returns True if the words are a command line, not the name of a search space."""
    return len(words) > 1 or (
        len(words) == 1 and not words[0].endswith((".yaml", ".yml")) and "/" in words[0]
    )


def space(words: Sequence[str], asked: Probing, hardware: Hardware, time_s: float | None) -> str:
    """Returns the text of a search space for a command line; prints the findings and how long trainings take.

    Raises InputError if the words hold a key, if the training fails, shows no step or no score, or if there
    is a choice to make and nobody to ask.
    """
    secrecy.refuse_secrets({"": list(words)}, "command line")
    wishes = Wishes(asked.score or "", direction(asked), command.roles(asked.only))
    with signals.ended_by_sigterm(), tempfile.TemporaryDirectory(prefix="autotune-probe-") as place:
        prober = Prober(words, Path.cwd(), Path(place), say)
        found, lines = command.probe(prober, wishes, chooser(asked), hardware.cpus)
    for line in lines:
        say(line)
    if time_s is not None:
        found = replace(found, trial_samples=durations.miniature(found, time_s))
    if found.training_s is not None:
        say(plan(found, time_s))
        if time_s is not None:
            say(break_even(found.training_s, time_s))
    return proposal.text(found, lines)


def show(words: Sequence[str], asked: Probing) -> int:
    """Probes a command line, and prints what a search would do with it; returns the exit code."""
    space(words, asked, telemetry.hardware(), None)
    return 0


def write(words: Sequence[str], asked: Probing, output: Path) -> int:
    """Probes a command line and writes its search space into a new file; returns the exit code."""
    if output.exists():
        raise InputError(f"{output}: exists already; name another file with --output")
    text = space(words, asked, telemetry.hardware(), None)
    files.write(output, text)
    print(f"{output} is written. To search it: python -m autotune search {output}")
    return 0


def say(text: str) -> None:
    print(secrecy.without_secrets(printable(text)), file=sys.stderr, flush=True)  # a script may print its key


def direction(asked: Scoring) -> bool | None:
    """Returns True if the user asked for a low score, False for a high one, None for neither."""
    if asked.maximize and asked.minimize:
        raise InputError("--maximize, --minimize: at most one of them")
    return None if not (asked.maximize or asked.minimize) else asked.minimize


def chooser(asked: Scoring) -> Choose:
    """Returns the object that answers open questions: by a guess, by the user, or not at all."""
    return _Likeliest() if asked.yes else _Asking() if sys.stdin.isatty() else Choose()


class _Likeliest(Choose):
    def score(self, candidates: Sequence[Score]) -> Score:
        return candidates[0]


class _Asking(Choose):
    def score(self, candidates: Sequence[Score]) -> Score:
        for number, one in enumerate(candidates, 1):
            say(f"  {number}) {one.described}")
        say("Which of these says how good the training is? [1]")
        answer = sys.stdin.readline().strip() or "1"
        if not answer.isdigit() or not 1 <= int(answer) <= len(candidates):
            raise InputError(f"the answer must be a number from 1 to {len(candidates)}, got {answer!r}")
        return candidates[int(answer) - 1]

    def is_minimized(self, score: Score) -> bool:
        say(f"Is a higher {score.name} better? [y/n]")
        answer = sys.stdin.readline().strip().lower()
        if answer not in ("y", "n"):
            raise InputError(f"the answer must be y or n, got {answer!r}")
        return answer == "n"


def plan(found: ProbeResult, time_s: float | None) -> str:
    """Returns a sentence on how long a training takes, and how many there is time for."""
    training_s = found.training_s or 0.0
    one, wanted = units.format_seconds(training_s), units.format_seconds(_TRAININGS * training_s)
    if time_s is None:
        advised = f"--time {units.exact(_TRAININGS * training_s)} is enough for {_TRAININGS}"
        return f"A training takes about {one} here; {advised}."
    share = found.trial_samples / found.samples if found.trial_samples and found.samples else 1.0
    count, trials = int(time_s / (share * training_s)), units.format_seconds(_TRAININGS * share * training_s)
    fits = f"{units.format_seconds(time_s)} is enough for {count}"
    fits += f", {trials} for {_TRAININGS}" if count < _TRAININGS else ""
    head = f", and a trial {share:.0%} of that" if share < 1 else ""
    end = f" {wanted} would be enough for whole trainings." if share < 1 else ""
    confirming = f"confirming a winner takes about {_CONFIRMING} of them"
    return f"A training takes about {one} here{head}: {fits}; {confirming}.{end}"


def break_even(training_s: float, time_s: float) -> str:
    """Returns a sentence on the trainings, or the length of one, that would pay for a search of `time_s`."""
    long_s = _TO_SAVE_ONE * time_s
    count = plural(math.ceil(long_s / training_s), "training")
    return f"At 1.5x the search pays off after {count}, or in one of {units.format_seconds(long_s)}."
