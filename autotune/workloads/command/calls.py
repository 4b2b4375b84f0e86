"""Arguments, directory and environment of a trial's command."""

import glob
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from autotune.core.settings import SEED
from autotune.inside import inbox
from autotune.inside.inbox import SITE
from autotune.inside.site import autotune_wire as wire
from autotune.workloads.command import files, line, spec
from autotune.workloads.command.counting import Counter
from autotune.workloads.command.scores import LOGS
from autotune.workloads.command.spec import Spec

VIEW = "view"  # subdirectory of a trial's directory, below which its command runs


class Call(NamedTuple):
    arguments: list[str]
    environment: dict[str, str]


def call(spec_: Spec, values: Mapping[str, Any], *, resumes: bool = False) -> Call:
    """Returns the command with placeholders filled from `values`; it inherits this process's environment."""
    more = spec_.resume.arguments if resumes and spec_.resume else ()
    arguments = [*line.words(spec_.run, values), *line.flags(spec_.flags, values), *line.words(more, values)]
    python = spec_.python or sys.executable
    environment = {
        **os.environ,
        "PATH": os.pathsep.join(filter(None, (str(Path(python).parent), os.environ.get("PATH")))),
        **{name: line.word(text, values) for name, text in spec_.environment.items()},
    }
    if arguments[0] in {"python", "python3"}:
        arguments[0] = python
    return Call(arguments, environment)


def values_of(spec_: Spec, settings: Mapping[str, Any], workdir: Path | str) -> dict[str, Any]:
    """Returns the values of all placeholders that have one."""
    given: dict[str, Any] = {spec.WORKDIR: str(workdir)}
    if (samples := os.environ.get(wire.TRIAL_SAMPLES)) is not None:
        given[spec.TRIAL_SAMPLES] = int(samples)
    if spec_.training_samples is not None:
        given[spec.TRAINING_SAMPLES] = spec_.training_samples
    return {**given, **files.paths(spec_.files, Path(workdir)), **dict(line.flat(settings))}


def place(directory: Path, path: str, values: Mapping[str, Any]) -> str:
    """Returns `path` with placeholders filled, as a glob pattern; a `*` in a value is literal."""
    escaped = {name: glob.escape(v) if isinstance(v, str) else v for name, v in values.items()}
    return str(directory / line.word(path, escaped))


def put_in(settings: Mapping[str, Any], objects: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    """Returns the `settings` below the names of `objects`: arguments for all such objects in the script."""
    return {name: arguments for name in objects if isinstance(arguments := settings.get(name), Mapping)}


def is_in_view(spec_: Spec) -> bool:
    """Returns True if the command runs in a view; in a whole training only if a script is copied there."""
    has_script = any(own.is_script for own in spec_.files.values())
    return has_script or (spec_.view and not wire.is_whole())


def call_environment(
    spec_: Spec, call: Call, settings: Mapping[str, Any], workdir: Path, *, counter: Counter, samples: int
) -> dict[str, str]:
    """Returns the environment of a `call`, with the hook on its path and facts about the trial."""
    takes_seed = SEED in spec_.flags or any(SEED in names for names in spec_.placeholders().values())
    # Repeats with one seed would show no noise, and confirm a lucky result.
    is_seeded = spec_.seed is not None or (SEED in settings and not takes_seed)
    is_logged = spec_.file is not None and spec_.file[0] in LOGS
    return {
        **call.environment,
        "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, (str(SITE), call.environment.get("PYTHONPATH")))),
        **({wire.SEED: str(settings.get(SEED) or 0)} if is_seeded else {}),
        **({wire.LOGGED: json.dumps(list(spec_.scores.values()))} if is_logged else {}),
        **({wire.VIEW: str(workdir / VIEW)} if is_in_view(spec_) else {}),
        **inbox.trial_environment(workdir, settings, samples, unit=os.environ.get(wire.UNIT, "samples")),
        wire.BEGUN: json.dumps(counter.counts | {"tokens": counter.tokens}),
        wire.STEP_SAMPLES: str(counter.batch),
    }
