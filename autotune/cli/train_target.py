"""Targets of `train` besides sessions: a search space, or a trainer's own config."""

from contextlib import suppress
from pathlib import Path

from autotune.core import units
from autotune.core.errors import InputError
from autotune.core.shell import quoted
from autotune.sessions import prepare
from autotune.space import builtin
from autotune.space.naming import Naming
from autotune.space.space import Space
from autotune.storage.store import is_session, short_list
from autotune.training import plan
from autotune.workloads import registry


def space(name: str, data: Path | None) -> tuple[Space, Path]:
    """Returns the search space `name` and its file; a trainer's own config becomes a space without knobs.

    `data` replaces the data set of the config. Raises InputError if the file is neither.
    """
    file = _file(name)
    values = prepare.settings_file(file, "train")
    if values.keys() & Space.model_fields.keys():
        return prepare.read_space(file, {}), file
    settings = values if data is None else {**values, "data": str(data)}
    if not registry.load(registry.BUILTIN).own_file.recognises(settings):
        raise InputError(
            f"train {name}: must be a search space, which says its workload and its baseline, or a config of "
            f"{registry.BUILTIN} with its data, got {units.quote(list(values))}"
        )
    try:
        baseline = Naming().named(settings)
    except ValueError as error:
        raise InputError(f"train {name}: {error}") from None
    # Not validated: a search needs a knob, and nothing is searched here.
    return Space.model_construct(workload=registry.BUILTIN, baseline=baseline, knobs={}), file


def _file(name: str) -> Path:
    try:
        return builtin.space_file(name)
    except InputError:
        raise InputError(f"train {name}: {_why_not(name)}") from None


def _why_not(name: str) -> str:
    """Returns the reason why `name` cannot be trained, and what can be."""
    with suppress(OSError):  # a name that is too long for a file
        if plan.is_training(Path(name)):
            how = f"with --workdir {quoted(name)} --resume"
            return f"is a training; to continue it, give its session, search space or config {how}"
    places = dict.fromkeys((Path(name).parent, Path("runs")))
    sessions: list[Path] = []
    for parent in places:
        with suppress(OSError):
            sessions += filter(is_session, sorted(parent.iterdir()))
    return (
        f"no session, search space or config is there; sessions: {short_list(sessions) or 'none in runs'}; "
        f"search spaces: {', '.join(builtin.names())}, or a file"
    )
