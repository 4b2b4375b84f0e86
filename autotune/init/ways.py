"""Determines how a script takes its settings, and where it writes its scores."""

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from autotune.init import arguments, configs, helped, lightning, scores, sources
from autotune.init.configs import Hydra
from autotune.init.options import Option
from autotune.init.proposal import ASK
from autotune.init.scores import Score
from autotune.init.sources import Source

_HELP_S = 30.0
_CSV_OF_CLI = (
    "--trainer.logger=CSVLogger",
    "--trainer.logger.save_dir={workdir}",
    "--trainer.logger.name=log",
)
_FILES = frozenset({"config", "cfg", "config_file", "config_path", "yaml"})
_OF_TRAINER = ("--do_train", "--do_eval", "--eval_strategy steps", "--report_to none")


@dataclass(frozen=True)
class Way:
    """Command-line interface of a script."""

    options: Sequence[Option]
    scores: Sequence[Score]
    fixed: tuple[str, ...] = ()  # constant arguments
    subcommand: str | None = None  # before the options
    file: tuple[str, str] | None = None  # kind and path of the file with scores; None: they are printed
    notes: tuple[str, ...] = ()


def way(directory: Path, read: Sequence[Source], python: str | None) -> Way:
    """Returns the interface of the script, the first in `read`; runs it with `--help` if it has a parser."""
    script = read[0]
    if (hydra := configs.hydra(directory, script)) is not None:
        return _hydra(directory, hydra, read)
    if options := configs.overridden(script):
        return Way(options, scores.scores(read, options))
    if options := lightning.options(read):
        file = ("csv", "{workdir}/log/version_0/metrics.csv")
        return Way(options, scores.logged(read), _CSV_OF_CLI, "fit", file)
    options = arguments.options(read)
    if not arguments.takes_arguments(read):
        return Way(
            options, scores.scores(read, options), notes=(f"{ASK}it was not found how it takes settings",)
        )
    options, of_file = _with_file(directory, options)
    answer = helped.ask(python or sys.executable, directory, script.path, _HELP_S)
    options = options if answer.fault else helped.confirmed(options, answer.text)
    fault = f"--help could not be asked ({answer.fault}): the settings were read from the code"
    notes = (*((fault,) if answer.fault else ()), *of_file)
    fixed = _OF_TRAINER if arguments.is_transformers(read) else ()
    return Way(options, scores.scores(read, options), fixed, notes=notes)


def _with_file(directory: Path, options: Sequence[Option]) -> tuple[list[Option], tuple[str, ...]]:
    """Returns the options with defaults from a YAML file that one of them names, and a note on it."""
    named = next((str(one.value) for one in options if one.key in _FILES and one.value), None)
    values = {one.key: one.value for one in configs.read(directory / named)} if named else {}
    if not values:
        return list(options), ()
    note = f"{named} has settings, too: a command can change those alone that the script takes as arguments"
    changed = [replace(one, value=values[one.key]) if one.key in values else one for one in options]
    return changed, (f"{ASK}{note}",)


def _hydra(directory: Path, hydra: Hydra, read: Sequence[Source]) -> Way:
    """Returns the interface of a Hydra script; scores are columns of Lightning's CSV logger if configured."""
    options = [*hydra.options, Option("hydra.run.dir", "hydra.run.dir={}")]
    made = sources.located(directory, read[0].path, hydra.targets)
    read = [*read, *(one for path in made for one in sources.read(directory, path))]
    logger = hydra.root / "logger" / "csv.yaml"
    if not logger.is_file():
        return Way(options, scores.scores(read, options))
    name = re.search(r"^\s*name:\s*[\"']?([\w./-]*)", logger.read_text(encoding="utf-8"), re.MULTILINE)
    place = Path("{workdir}", name[1] if name else "lightning_logs", "version_0", "metrics.csv")
    return Way(options, scores.logged(read), ("logger=csv",), file=("csv", str(place)))
