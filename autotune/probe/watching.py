"""Runs a command line with the probe in it, and reads the probe's notes."""

import json
import os
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autotune.inside.inbox import SITE
from autotune.inside.site import autotune_wire as wire
from autotune.probe import options
from autotune.probe.options import Option
from autotune.workloads.command.process import OutputLine, Process

_MARK = "AUTOTUNE_PROBED"
_OPTIONS = {"parser", "function", "config"}  # kinds of notes
_LOOK_S, _GRACE_S = 0.2, 5.0
_TELL_S, _TELL_SHARE = 5.0, 0.1  # seconds between two lines on the progress, more in a long training
_LOOK_SHARE = 20  # pause in multiples of the time that it takes to read the notes, which grow


@dataclass(frozen=True)
class WatchedStep:
    at_s: float  # monotonic clock
    rates: tuple[float, ...]  # learning rates, by parameter group
    passes: int  # backward passes
    shape: tuple[int, ...]  # of the first input of the model
    dtype: str  # of its numbers; autocast's if that is on
    loss: float | None  # of the first backward pass


@dataclass(frozen=True)
class Watched:
    """The observations of one run of a command line."""

    begun_s: float = 0.0  # monotonic clock
    seconds: float = 0.0
    code: int | None = None  # None: it was ended
    steps: tuple[WatchedStep, ...] = ()
    options: tuple[Option, ...] = ()
    loader: Mapping[str, Any] = field(default_factory=dict)  # batch_size, num_workers, batches, items
    trainer: Mapping[str, Any] = field(default_factory=dict)  # framework and its arguments
    logged: tuple[tuple[str, str, str, float], ...] = ()  # logger, its directory, name, value
    lines: tuple[tuple[str, float], ...] = ()  # output, and the time of each line
    wrote: tuple[str, ...] = ()  # files in its directory, relative to that
    tables: Mapping[str, str] = field(default_factory=dict)  # texts of the CSV and JSONL files among them
    compiled: bool = False
    device: str = ""  # of the batches, as torch calls its kind

    @property
    def has_failed(self) -> bool:
        return self.code not in (None, 0)

    @property
    def has_ended(self) -> bool:
        return self.code == 0

    @property
    def start_s(self) -> float:
        """The seconds until the first step; all seconds if there was none."""
        return self.steps[0].at_s - self.begun_s if self.steps else self.seconds

    @property
    def tail(self) -> list[str]:
        return [text for text, _ in self.lines[-20:]]


def watch(
    words: Sequence[str],
    view: tuple[Path, Path],  # the place of its view, and its directory there
    variables: Mapping[str, str],  # added to the environment of this process
    is_enough: Callable[[Watched], bool],
    most_s: float,  # from its first step
    *,
    start_s: float,  # until its first step, at most
    say: Callable[[str], None],
) -> Watched:
    """Runs a command to its end, until `is_enough`, or for `most_s`; raises InputError if it cannot start."""
    place, directory = view
    notes, mark = place / f"{uuid.uuid4().hex}.jsonl", uuid.uuid4().hex
    notes.touch()
    lines: list[tuple[str, float]] = []

    def heard(line: OutputLine) -> bool:
        lines.append((line.text, line.at_s))
        return True

    environment = {**os.environ, "PYTHONUNBUFFERED": "1", **variables}
    path = os.pathsep.join(filter(None, (str(SITE), environment.get("PYTHONPATH"))))
    environment |= {"PYTHONPATH": path, wire.PROBE: str(notes), wire.VIEW: str(place), _MARK: mark}
    environment.pop(wire.SOCKET, None)
    begun_s = time.monotonic()
    process = Process(list(words), directory, environment, _MARK, heard, is_silent=True)
    look_s, told_s = _LOOK_S, 0.0
    try:
        while True:
            left_s = begun_s + most_s + start_s - time.monotonic()
            process.wait(min(look_s, max(0.0, left_s) + _LOOK_S))
            now_s = time.monotonic()
            code, seconds = process.code, now_s - begun_s
            seen = read(notes.read_text(encoding="utf-8"), words, lines, seconds, code)
            look_s = max(_LOOK_S, _LOOK_SHARE * (time.monotonic() - now_s))
            if code is None and seconds - told_s >= max(_TELL_S, _TELL_SHARE * seconds):
                told_s = seconds
                say(f"  {len(seen.steps)} steps after {seconds:.0f} s")
            if code is not None or seconds > most_s + min(seen.start_s, start_s) or is_enough(seen):
                return seen
    finally:
        process.end(_GRACE_S)


def read(
    notes: str, words: Sequence[str], lines: Sequence[tuple[str, float]], seconds: float, code: int | None
) -> Watched:
    """Returns the observations of a run, from the notes of its probe and the lines of its output."""
    whole = [json.loads(line) for line in notes.splitlines(keepends=True) if line.endswith("\n")]
    by_kind = defaultdict[str, list[Any]](list)
    for one in whole:
        for kind, value in one.items():
            by_kind[kind].append(value)
    for kind, values in _options_of_training(whole).items():
        by_kind[kind] = values
    logged: list[tuple[str, str, str, float]] = []
    for logger, place, values in by_kind["logged"]:
        logged += [(logger, place, name, value) for name, value in values.items()]
    parsers = sorted(by_kind["parser"], key=len, reverse=True)
    given = [*by_kind["function"], *parsers[:1]]  # Fire has a parser besides, for options of its own
    found = [one for each in given for one in options.of_parser(each)]
    for config in by_kind["config"]:  # its values are overridden by words of this form
        form, values = config["form"], config["values"]
        found += [Option(name, form.format(name=name, value="{}"), values[name]) for name in values]
    if not found:
        found += [one for names in by_kind["names"] for one in options.of_names(names, words)]
    return Watched(
        begun_s=time.monotonic() - seconds,
        seconds=seconds,
        code=code,
        steps=tuple(map(_step, by_kind["step"])),
        options=tuple(options.known(found)),
        loader=next((one["loader"] for one in by_kind["step"] if "loader" in one), {}),
        trainer=next(iter(by_kind["trainer"]), {}),
        logged=tuple(logged),
        lines=tuple(lines),
        wrote=tuple(by_kind["wrote"]),
        compiled="compiled" in by_kind,
        device=next(iter(by_kind["device"]), ""),
    )


def _options_of_training(notes: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Returns the notes on options of the process that trains, or else of the one that has started it.

    A process below it, such as a compiler's, has options of its own. Empty before a step.
    """
    training = {one.get("pid") for one in notes if "step" in one}
    above = {one.get("above") for one in notes if one.get("pid") in training}
    near = (
        [one for one in notes if one.get("pid") in pids and _OPTIONS & one.keys()]
        for pids in (training, above)
    )
    theirs = next(filter(None, near), [])
    return {kind: [one[kind] for one in theirs if kind in one] for kind in _OPTIONS} if training else {}


def _step(one: Mapping[str, Any]) -> WatchedStep:
    shape, rates = tuple(one["shape"] or ()), tuple(one["rates"])
    return WatchedStep(one["at_s"], rates, one["passes"], shape, one["dtype"], one["loss"])
