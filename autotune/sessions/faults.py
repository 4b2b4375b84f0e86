"""Turns errors that a user can do something about into one line instead of a traceback."""

import errno

from autotune.core.errors import AutotuneError, InputError
from autotune.trials import failures

EXIT_ABORTED = 1
EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130
_UNUSABLE = {errno.ENAMETOOLONG, errno.ELOOP, errno.EISDIR}
_UNWRITABLE = failures.OUR_DISK_ERRNOS | {errno.EACCES, errno.EPERM}


def deliberate(error: BaseException) -> BaseException | None:
    """Returns `error` with a text for the user; None if it is unexpected."""
    if isinstance(error, KeyboardInterrupt):
        return KeyboardInterrupt(str(error) or "interrupted")
    if isinstance(error, AutotuneError):
        return error
    if isinstance(error, FileNotFoundError) and str(error.strerror).startswith("No usable temporary"):
        return InputError(f"TMPDIR: must be a directory that can be written: {error.strerror}")
    if failures.is_refused_a_process(error):
        return InputError(f"{failures.TOO_MANY}: {error}; nothing is lost. Fix that, and run it again")
    if isinstance(error, OSError) and error.errno in _UNUSABLE:
        return InputError(f"{error.strerror}: {error.filename2 or error.filename}")
    if isinstance(error, RuntimeError) and str(error).startswith("Symlink loop"):  # pathlib's own
        return InputError(str(error))
    if damage := failures.study_fault(error, failures.SQLITE_DAMAGE):
        hint = "to rebuild what can be read: python -m autotune recover SESSION"
        return InputError(f"{damage}; {hint}")
    if fault := failures.study_fault(error) or failures.disk_fault(error, _UNWRITABLE):
        return InputError(f"{fault}; nothing is lost. Fix that, and run the command again")
    return None


def exit_code(error: BaseException) -> int:
    if isinstance(error, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    return EXIT_BAD_INPUT if isinstance(error, InputError) else EXIT_ABORTED
