"""`init`: analyzes a project and writes a first search space."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from autotune.core.errors import InputError
from autotune.core.settings import MICRO_BATCH
from autotune.init import checkpoints, sources, ways, writing
from autotune.init.options import Option
from autotune.init.proposal import ASK, proposal
from autotune.init.writing import Found

_OWN_PYTHONS = (".venv/bin/python", "venv/bin/python", "env/bin/python")


def main(directory: Path, output: Path, script: Path | None, python: Path | None, *, has_gpu: bool) -> int:
    """Writes `output` and prints the next steps; raises InputError if it cannot be written."""
    if not directory.is_dir():
        raise InputError(f"{directory}: must be the directory of a project")
    if output.exists():
        raise InputError(f"{output}: exists already: name another file with --output")
    found = look(directory, sources.chosen(directory, script), python, has_gpu=has_gpu)
    text = writing.space(found, output)
    try:
        with output.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise InputError(f"{output}: exists already: name another file with --output") from None
    except OSError as error:
        raise InputError(f"{output}: cannot be written: {error.strerror}") from None
    for line in told(found, output, text):
        print(line)
    return 0


def look(directory: Path, script: Path, python: Path | None, *, has_gpu: bool) -> Found:
    """Returns what is known of a project's `script` without training."""
    own = next((directory / name for name in _OWN_PYTHONS if (directory / name).exists()), None)
    runs_with = python or own
    read = sources.read(directory, script)
    how = ways.way(directory, read, str(runs_with.absolute()) if runs_with else None)
    return Found(
        directory=directory,
        script=script,
        python=runs_with,
        proposal=proposal(how.options, how.fixed, has_gpu=has_gpu),
        scores=how.scores,
        subcommand=how.subcommand,
        file=how.file,
        resume=checkpoints.resuming(read, how.options),
        data=[one for one in _data(how.options) if (directory / one).exists()],
        notes=how.notes,
    )


def _data(options: Sequence[Option]) -> Iterator[str]:
    """Yields the values of options that name data."""
    for one in options:
        if (
            isinstance(one.value, str)
            and one.value
            and any(word in one.key for word in ("data", "image", "ann"))
        ):
            yield one.value


def told(found: Found, output: Path, text: str) -> Iterator[str]:
    """Yields lines on what was written, and on the next steps."""
    knobs = [one.name for one in found.proposal.settings if one.knob]
    yield f"{output}: {found.script} with {len(knobs)} knobs: {', '.join(knobs)}"
    if not any(one.role == MICRO_BATCH for one in found.proposal.settings):
        yield "no batch size was found: the samples of a step are then known from torch's DataLoader only"
    if questions := text.count(f"# {ASK}"):
        yield f"to answer first: {questions} line{'s' * (questions > 1)} with a `?`"
    yield f"then: python -m autotune check {output}"
