"""The tuner's deliberate errors.

AutotuneError             the command line shows its one line of text
├── InputError            wrong input: the rule, the value given, the values allowed (exit code 2)
│   ├── SessionBusyError  another process holds the session's lock
│   └── DamagedError      a study is corrupt: `recover` rebuilds what it can
├── EvaluationError       a trained model could not be scored: the comparison says so and continues
├── SearchAborted         the search cannot continue: why, and how to resume (exit code 1)
└── UnconfirmedError      no winner is confirmed yet: how to confirm one (exit code 1)
"""

import difflib
from collections.abc import Collection

_MOST_LISTED = 8
_WITHOUT_TRACE = "_autotune_without_trace"


def printable(text: object) -> str:
    """Returns `text` on one line, without characters that move the cursor or change the text direction."""
    return "".join(c if c.isprintable() else " " for c in str(text))


def did_you_mean(name: object, known: Collection[str]) -> str:
    """Returns the end of a message on an unknown `name`: a similar one, or all `known` if they are few."""
    if near := difflib.get_close_matches(str(name), known, n=1):
        return f", did you mean {near[0]}?"
    return f": one of {', '.join(known)}" if 0 < len(known) <= _MOST_LISTED else ""


def without_trace(error: Exception) -> Exception:
    """Marks an error whose traceback the user's program has already printed: ours would add nothing."""
    error.__dict__[_WITHOUT_TRACE] = True
    return error


def has_trace(error: BaseException) -> bool:
    """Returns True if the traceback of `error` is worth showing."""
    return _WITHOUT_TRACE not in error.__dict__


class AutotuneError(Exception):
    """Base of every error raised on purpose. The text is one line, written for the user."""


class InputError(AutotuneError):
    """A file, option or setting is wrong. Nothing was changed; correct it and run the command again."""


class SessionBusyError(InputError):
    """Two processes would write one session. Wait for the other one, or stop it."""


class DamagedError(InputError):
    """A session's study is corrupt. The files that its trials wrote themselves may still be intact."""


class EvaluationError(AutotuneError):
    """A trained model could not be scored. It is kept: fix what the error names, and score it again."""


class SearchAborted(AutotuneError):  # noqa: N818 - an early end, not a fault of the session
    """The search stopped before its budget was spent. The session is intact and can be resumed."""


class UnconfirmedError(AutotuneError):
    """A command needs a winner, and the session has only a candidate. Resume it, or name a trial."""
