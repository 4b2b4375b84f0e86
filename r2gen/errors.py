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
_SHORT = Repr()  # looks only at the first elements: YAML aliases can expand to billions
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = _MOST_SHOWN


def printable(text: object) -> str:
    """Returns `text` on one line, without characters that move the cursor or change the writing direction."""
    return " ".join("".join(c if c.isprintable() else " " for c in str(text)).split())


def format_value(value: object) -> str:
    """Formats `value` for an error message, truncated if long."""
    try:
        text = _SHORT.repr(value)
    except ValueError:  # an integer of thousands of digits
        text = "a number too large to be shown"
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


def instead(name: object, known: Iterable[str]) -> str:
    """Returns `, did you mean epochs?` with the nearest of the `known` names, or an empty string."""
    near = difflib.get_close_matches(str(name), known, n=1)
    return f", did you mean {near[0]}?" if near else ""


class R2GenError(Exception):
    """Base of every error that the trainer raises on purpose; its text is one line for the user."""


class InputError(R2GenError):
    """A config value, file or directory is wrong. The text has the rule, the given and the allowed value."""


class BadImageError(InputError):
    """An image is missing or not an image. Leave the study out (`skip_bad_samples`) or repair the file."""


class StorageError(InputError):
    """A checkpoint, records, charts or reports cannot be written. The last checkpoint is intact.

    Other settings do not help: the disk is full or not writable.
    """


class LoaderError(R2GenError):
    """No batch arrived within `loader_timeout_s`. The training so far is in the checkpoint."""


class DivergedError(R2GenError):
    """The training loss is NaN or infinite and training cannot continue from here."""
