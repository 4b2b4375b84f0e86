"""The tuner's deliberate errors.

AutotuneError             the command line shows its one line of text
├── InputError            what the user gave is wrong: the rule, what was given, what is allowed (exit code 2)
│   ├── SessionBusyError  another process holds the session's lock
│   └── DamagedError      a study is not as it was written: `recover` rebuilds what can be rebuilt
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
    """Returns the end of a message about an unknown `name`, such as `: did you mean trials?`.

    Without a similar `known` name it lists all of them if they are few, else it is empty.
    """
    if near := difflib.get_close_matches(str(name), known, n=1):
        return f": did you mean {near[0]}?"
    return f": one of {', '.join(known)}" if 0 < len(known) <= _MOST_LISTED else ""


def without_trace(error: Exception) -> Exception:
    """Marks an error of the user's program, which has printed its own traceback: ours would add nothing."""
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
