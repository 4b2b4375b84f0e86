"""Whether all of a session's study is whole."""

from autotune.core.errors import DamagedError
from autotune.storage import identity, study_file
from autotune.storage.store import Session


def require_whole(session: Session) -> None:
    """Raises DamagedError if the study is not one to read, or if any page of its file is damaged.

    A session in which nothing was run yet is whole.
    """
    if not identity.numbers(session.trials_dir) and not _has_study(session):
        return
    session.study()
    try:
        study_file.require_whole(session.study_file)
    except DamagedError as error:
        raise session.damaged(f"is damaged: {error}") from None


def _has_study(session: Session) -> bool:
    try:
        study_file.load_study(session.study_file)
    except KeyError:
        return False
    except DamagedError:
        return True
    return True
