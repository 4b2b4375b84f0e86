"""Writes the winner of a session as a file to train with."""

import math
from dataclasses import dataclass
from pathlib import Path

from autotune.core import files
from autotune.core.errors import InputError, UnconfirmedError
from autotune.core.shell import quoted
from autotune.core.trial import Trial
from autotune.display import advice, snapshot, view, words
from autotune.display.snapshot import Snapshot
from autotune.export import formats, patch, winner
from autotune.export.winner import Exported, Winner
from autotune.judging.decisions import confirm
from autotune.storage.store import StoredSession
from autotune.workloads import registry
from autotune.workloads.in_place import Document


@dataclass(frozen=True)
class Export:
    file: Path
    settings: str  # settings and figures of the exported trial
    notes: list[str]  # on replaced values, and settings that the file cannot express
    usage: str | None = None  # how to train with the file, or to read it


def export(root: Path, output: Path | None, number: int | None, name: str | None, own: Path | None) -> Export:
    """Writes a trial, by default the winner, in the format `name`, or into a copy of the file `own`."""
    if name is not None and own is not None:
        raise InputError("--format, --patch: at most one of them; a file is patched in its own format")
    session = StoredSession.open(root)
    workload = registry.named(session.space().workload)
    form = formats.named(name, workload)
    state = snapshot.take(session, root)
    trial, history = find_trial(state, number), state.history
    gpus = math.ceil(session.options().gpus_per_trial)
    best = winner.from_trial(trial, history, workload, session.provenance(), gpus)
    settings = f"{view.knobs(trial.config)}. {view.compare_with_baseline(trial, history)}"
    if own is not None:
        file = output or Path(f"best{own.suffix}")
        try:
            done = patch.patch(Document.read(own), best)
        except InputError as error:
            raise InputError(f"--patch {own}: {error}") from None
        files.write(file, done.text)
        notes = [f"replaced: {line}" for line in done.replaced]
        return Export(file, settings, [*notes, *(f"not in {file}: {line}" for line in done.left_out)])
    file = output or Path(workload.own_file.name if name is None else f"best.{form.suffix}")
    written = form.render(best)
    files.write(file, written.text)
    if form.is_own:
        train = workload.own_file.trains_with(file)
        usage = None if train is None else f"Train with: {train}"
    else:
        usage = f"Read with: {form.reads.format(file=quoted(file))}" if form.reads else None
    return Export(file, settings, _unsaid(written, best, file), usage)


def find_trial(shown: Snapshot, number: int | None) -> Trial:
    """Returns a trial, by default the winner; raises InputError or UnconfirmedError if there is none."""
    history = shown.history
    if history.baseline is None:
        raise InputError(f"session {shown.session}: no result yet, because the baseline has not completed")
    if number is None:
        best = confirm.recommended(history)
        if best and advice.is_unconfirmed(history):
            possibly = advice.possible_gain(history, shown.go_on)
            raise UnconfirmedError(
                f"no winner yet. {possibly}. To export it anyway, add --trial {best[0].number}"
            )
        return best[0] if best else history.baseline
    named = [t for t in history.trials if t.number == number and t.completed]
    if not named:
        done = ", ".join(str(t.number) for t in history.trials if t.completed)
        raise InputError(f"--trial {number}: must be a completed trial of the session, one of {done}")
    return named[0]


def _unsaid(written: Exported, best: Winner, file: Path) -> list[str]:
    lines = [line for line in written.unsaid if line.partition(":")[0] in best.searched]
    rest = len(written.unsaid) - len(lines)
    others = [f"{words.plural(rest, 'setting')} not searched, listed in {file}"] if rest else []
    return [f"not in {file}: {line}" for line in [*lines, *others]]
