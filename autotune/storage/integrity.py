"""Whether a session's study is whole, and the one that its trials were run from."""

from collections.abc import Sequence

from autotune.core.errors import DamagedError
from autotune.core.trial import Trial
from autotune.storage import identity, study_file
from autotune.storage.store import Session

_SHOWN = 5


def require_whole(session: Session) -> None:
    """Raises DamagedError where the study is missing, damaged, of another session, or older than its trials.

    A session in which nothing was run yet is whole.
    """
    numbers = identity.numbers(session.trials_dir)
    if not numbers and not _has_study(session):
        return
    study = session.study()
    try:
        study_file.require_whole(session.study_file)
    except DamagedError as error:
        raise session.damaged(f"is damaged: {error}") from None
    if study_file.key(study) not in {"", session.key}:
        raise session.damaged("is of another session")
    known = {entry.number: entry for entry in study.get_trials()}
    if unknown := [n for n in numbers if n not in known and _may_be_of(session, n)]:
        raise session.damaged(f"is older than its trials: it does not know trials {listed(unknown)}")
    begun = {trial.number: trial for trial in study_file.trials(study)}
    if others := [n for n in numbers if n in begun and is_another(session, begun[n])]:
        raise session.damaged(f"is not the one that its trials were run from, see {listed(others)}")


def _has_study(session: Session) -> bool:
    try:
        study_file.load_study(session.study_file)
    except KeyError:
        return False
    except DamagedError:
        return True
    return True


def _may_be_of(session: Session, number: int) -> bool:
    """Whether what lies under that number is this session's, as far as it says: what is not is set aside."""
    card = identity.read_card(session.trial_dir(number))
    return card is None or card.session == session.key


def is_another(session: Session, trial: Trial) -> bool:
    """Whether this session has run something else under the number of `trial`."""
    card = identity.read_card(session.trial_dir(trial.number))
    return card is not None and card.session == session.key and card.digest != session.card(trial).digest


def listed(numbers: Sequence[int]) -> str:
    """The first five of `numbers`, and how many more there are."""
    more = f" and {len(numbers) - _SHOWN} more" if len(numbers) > _SHOWN else ""
    return f"{', '.join(map(str, numbers[:_SHOWN]))}{more}"
