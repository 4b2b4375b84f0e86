"""The command `recover`, which rebuilds the study of a session."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from autotune.core.errors import DamagedError, InputError, printable
from autotune.display import words
from autotune.storage import recovery
from autotune.storage.recovery import ReadableTrials
from autotune.storage.store import StoredSession, resume_command, search_command, short_list


def recover(session: Path) -> int:
    """Rebuilds the study of a session if it is damaged; returns the exit code.

    Raises InputError if nothing is left to rebuild it from.
    """
    known = StoredSession.open(session)
    space = known.space()
    with known.lock():
        try:
            known.require_whole()
        except DamagedError:
            recovered = recovery.read_trials(known, space)
            if not recovered.says_anything:
                raise InputError(
                    f"session {session}: neither its study nor its trials say what was run; start a new "
                    f"search of its space with: {search_command(session)}"
                ) from None
            for line in _summary(recovered, recovery.rebuild(known, space, recovered)):
                print(printable(line))
        else:
            print(printable(f"session {session}: its study is intact; there is nothing to recover"))
    print(printable(f"Continue with: {resume_command(session)}"))
    return 0


def _summary(recovered: ReadableTrials, aside: Sequence[Path]) -> Iterator[str]:
    ended = sum(trial.outcome is not None for trial in recovered.trials)
    counted = words.plural(ended, "trial")
    yield f"The study is rebuilt: {counted} had ended, {len(recovered.trials) - ended} will be run again"
    if recovered.lost:
        yield f"Lost: the settings and results of trials {short_list(recovered.lost)}"
    if recovered.plan is None:
        yield "Lost: the time between trials, and any trials and time that `resume` had added"
    if recovered.lost_rejections:
        before = short_list(recovered.lost_rejections)
        yield f"Lost: any suggestions that were skipped before trials {before}"
    for path in aside:
        yield f"Set aside: {path}"
