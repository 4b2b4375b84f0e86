"""The command `recover`, which rebuilds the study of a session."""

from pathlib import Path

from autotune.core.errors import DamagedError, InputError, printable
from autotune.display import words
from autotune.storage import recovery
from autotune.storage.store import StoredSession, resume_command, search_command, short_list


def recover(session: Path) -> int:
    """Rebuilds a damaged study; returns the exit code; raises InputError if nothing is left of it."""
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
            aside = recovery.rebuild(known, space, recovered)
            ended = sum(trial.outcome is not None for trial in recovered.trials)
            rest = f"{len(recovered.trials) - ended} will be run again"
            lines = [f"The study is rebuilt: {words.plural(ended, 'trial')} had ended, {rest}"]
            if recovered.lost:
                lines.append(f"Lost: the settings and results of trials {short_list(recovered.lost)}")
            if recovered.plan is None:
                lines.append("Lost: the time between trials, and any trials and time that `resume` had added")
            if recovered.lost_rejections:
                before = short_list(recovered.lost_rejections)
                lines.append(f"Lost: any suggestions that were skipped before trials {before}")
            lines += [f"Set aside: {path}" for path in aside]
        else:
            lines = [f"session {session}: its study is intact; there is nothing to recover"]
    for line in [*lines, f"Continue with: {resume_command(session)}"]:
        print(printable(line))
    return 0
