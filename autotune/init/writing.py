"""Writes a first search space as YAML; comments with a `?` are questions to the user."""

import math
import os
import shlex
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from autotune.core.errors import printable
from autotune.core.settings import LENGTH
from autotune.init.proposal import ASK, Proposal, Proposed
from autotune.init.scores import Score

_WIDTH = 96
_STEPS = 400
_SAMPLES = 20_000
_MOST_OTHERS = 3


@dataclass(frozen=True)
class Found:
    """Findings about a project, from which its search space is written."""

    directory: Path
    script: Path
    python: Path | None
    proposal: Proposal
    scores: Sequence[Score]
    subcommand: str | None = None  # before the settings
    file: tuple[str, str] | None = None  # kind and path of the file with scores; None: they are printed
    resume: str | Mapping[str, str] | None = None
    data: Sequence[str] = ()
    notes: Sequence[str] = ()


def space(found: Found, output: Path) -> str:
    """Returns the YAML text for the file `output`, to which its paths are relative."""
    sections = [
        _header(found, output),
        _workload(found, output),
        _names(found.proposal),
        _baseline(found.proposal),
        _knobs(found.proposal),
        _rest(found),
    ]
    return "\n\n".join("\n".join(lines) for section in sections if (lines := list(section))) + "\n"


def _header(found: Found, output: Path) -> Iterator[str]:
    yield f"# A first search space for {found.script}, from what could be read of it."
    yield f"# A `?` asks what could not be read. Then: python -m autotune check {printable(output)}"
    for note in (*found.notes, *found.proposal.notes):
        yield from textwrap.wrap(printable(note), _WIDTH, initial_indent="# ", subsequent_indent="#   ")


def _workload(found: Found, output: Path) -> Iterator[str]:
    yield "workload:"
    yield "  kind: command"
    yield "  run: >-"
    yield from (f"    {line}" for line in _run(found))
    directory = os.path.relpath(found.directory, output.parent)
    if directory != ".":
        yield f"  directory: {inline(directory)}"
    if found.python is not None:
        yield f"  python: {inline(_python(found.python, found.directory, output))}"
    if flags := {one.name: dict(one.flags) for one in found.proposal.settings if one.flags}:
        yield "  flags:"
        yield from (f"    {inline(name)}: {inline(by_value)}" for name, by_value in flags.items())
    yield from _quality(found.scores)
    if found.file is not None and found.scores:
        yield f"  {found.file[0]}: {inline(found.file[1])}  # {ASK}where it writes them"
    if found.resume is not None:
        yield f"  resume: {inline(found.resume)}"
    else:
        yield f"  # {ASK}resume: --resume {{workdir}}/last.pt  # what makes it go on from its checkpoint"
    if found.data:
        yield f"  data: {inline(list(found.data))}"
    if not found.proposal.has_seed:
        yield "  seed: hook  # no setting for a seed was found: it is set from outside"


def _python(python: Path, directory: Path, output: Path) -> str:
    """Returns the project's own Python relative to `output`, any other as an absolute path."""
    inside = python.absolute().is_relative_to(directory.absolute())
    return os.path.relpath(python, output.parent) if inside else str(python.absolute())


def _run(found: Found) -> Iterator[str]:
    """Yields the command line, one argument per line."""
    yield " ".join(filter(None, (f"python {shlex.quote(str(found.script))}", found.subcommand)))
    for one in found.proposal.settings:
        if one.form:
            yield one.form.replace("{}", f"{{{one.name}}}")
    yield from found.proposal.fixed


def _quality(scores: Sequence[Score]) -> Iterator[str]:
    """Yields the likeliest score, and others as comments."""
    if not scores:
        yield f"  quality: reported  # {ASK}nothing was found that prints a quality: give a pattern,"
        yield "  # such as {val_loss: 'val loss ([0-9.]+)'}, or call autotune.report(val_loss=...)"
        return
    best, *others = scores
    asked = (
        f"  # {ASK}{best.place} prints names and values: is it this name?"
        if best.guessed
        else f"  # {best.place}"
    )
    yield f"  quality:{asked}"
    yield f"    {best.name}: {inline(best.pattern)}"
    for one in others[:_MOST_OTHERS]:
        yield f"    # {one.name}: {inline(one.pattern)}  # {one.place}"


def _names(proposal: Proposal) -> Iterator[str]:
    roles = {one.role: one.name for one in proposal.settings if one.role and one.role != one.name}
    if roles:
        yield "roles:"
        yield from (f"  {role}: {inline(name)}" for role, name in roles.items())
    if words := {one.role: dict(one.words) for one in proposal.settings if one.words}:
        yield "values:  # the script's words for the tuner's values"
        yield from (f"  {role}: {inline(by_value)}" for role, by_value in words.items())
    if proposal.counted_in_steps:
        yield f"counted_in_steps: {inline(list(proposal.counted_in_steps))}"
    if proposal.evaluate_every:
        yield f"evaluate_every: {inline(proposal.evaluate_every)}"


def _baseline(proposal: Proposal) -> Iterator[str]:
    yield "baseline:  # what you train with today" if proposal.settings else "baseline: {}"
    yield from (f"  {line}" for line in _nested(proposal.settings))


def _nested(settings: Sequence[Proposed], above: str = "") -> Iterator[str]:
    """Yields settings with dotted names as nested mappings."""
    done = set[str]()
    for one in settings:
        name, _, below = one.name.removeprefix(above).partition(".")
        if name in done:
            continue
        done.add(name)
        if below:
            inside = f"{above}{name}."
            yield f"{inline(name)}:"
            yield from (
                f"  {line}" for line in _nested([s for s in settings if s.name.startswith(inside)], inside)
            )
        else:
            note = f"  # {printable(one.note)}" if one.note else ""
            yield f"{inline(name)}: {inline(one.value)}{note}"


def _knobs(proposal: Proposal) -> Iterator[str]:
    knobs = [one for one in proposal.settings if one.knob]
    yield "knobs:" if knobs else f"knobs: {{}}  # {ASK}no setting was found that changes the speed"
    yield from (f"  {inline(one.name)}: {inline(one.knob)}" for one in knobs)
    if knobs and proposal.length:
        knob = inline({"steps": list(proposal.length)})
        yield f"  {LENGTH}: {knob}  # how long the training is: its schedule ends with it"


def _rest(found: Found) -> Iterator[str]:
    size = found.proposal.effective_batch
    if any(one.role == "micro_batch_size" for one in found.proposal.settings):
        yield f"limits: {{effective_batch_size: [{max(1, size // 2)}, {4 * size}]}}"
    yield f"objective: {inline(_objective(found.scores))}"
    yield "budget:"
    yield "  trials: 20"
    if found.proposal.length:
        return
    if found.proposal.evaluate_every or found.proposal.counted_in_steps:
        yield f"  samples_per_trial: {_rounded(_STEPS * size)}  # {ASK}{_STEPS} of its steps"
    else:
        yield f"  samples_per_trial: {_SAMPLES}  # {ASK}a few epochs: a trial needs two evaluations at least,"
        yield "  # and the script has to train for longer than that"


def _objective(scores: Sequence[Score]) -> dict[str, Any]:
    best = scores[0] if scores else None
    if best is None or best.minimize:
        return {"minimize": best.name if best else "val_loss"}
    return {"quality": best.name}


def _rounded(value: int) -> int:
    """Rounds to two significant digits."""
    step: int = 10 ** max(0, len(str(value)) - 2)
    return round(value / step) * step


def inline(value: Any) -> str:
    """Returns `value` as YAML on one line."""
    text = yaml.safe_dump(value, default_flow_style=True, width=math.inf, allow_unicode=True, sort_keys=False)
    return text.removesuffix("...\n").strip()
