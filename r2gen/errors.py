"""The deliberate errors of the trainer.

R2GenError
├── InputError          something the user gave is wrong: one line on stderr, exit code 2
│   ├── BadImageError   one image of the data set cannot be read; names the file
│   └── StorageError    a file cannot be written; free some space and run the same command again
├── LoaderError         the processes that load batches hang: repair the disk, and run the same command again
└── DivergedError       the loss stopped being a number: start over with a lower rate or a wider precision
"""

import difflib
from collections.abc import Iterable
from reprlib import Repr

_MOST_SHOWN = 200  # characters of a value that was given
_SHORT = Repr()  # which looks at the first elements alone: aliases of YAML can stand for billions
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = _MOST_SHOWN


def printable(text: object) -> str:
    """`text` on one line, without what could move a terminal's cursor or turn the direction of writing."""
    return " ".join("".join(c if c.isprintable() else " " for c in str(text)).split())


def shown(value: object) -> str:
    """`value` as an error message quotes it, what is long cut short."""
    try:
        text = _SHORT.repr(value)
    except ValueError:  # an integer of thousands of digits
        text = "a number too large to be shown"
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


def instead(name: object, known: Iterable[str]) -> str:
    """`: did you mean epochs?`, after `name: no such`: the nearest of the `known` names; else empty."""
    near = difflib.get_close_matches(str(name), known, n=1)
    return f": did you mean {near[0]}?" if near else ""


class R2GenError(Exception):
    """Base of every error that the trainer raises on purpose; its text is one line for the user."""


class InputError(R2GenError):
    """A config value, file or directory is wrong. The text says the rule, what was given, what is allowed."""


class BadImageError(InputError):
    """An image is missing, or is not an image. Leave the study out (`skip_bad_samples`) or mend the file."""


class StorageError(InputError):
    """A checkpoint, records, charts or reports cannot be written. The last checkpoint is whole.

    Other settings do not help: the disk is full, or may not be written to.
    """


class LoaderError(R2GenError):
    """No batch came for `loader_timeout_s`. What was trained is in the checkpoint."""


class DivergedError(R2GenError):
    """The training loss is NaN or infinite and training cannot continue from here."""
