"""The request to stop this process, for workloads that would otherwise notice it only at a record."""

# From the request until the process is killed: time to write a checkpoint and close. An evaluation of a whole
# training may take minutes.
CLOSING_S, WHOLE_CLOSING_S = 60.0, 600.0

_signals: list[int] = []


class StoppedError(Exception):
    """A workload was asked to stop, and has ended and reported all it did until then."""


def note_signal(number: int, _: object) -> None:
    """Handles a signal, without taking a lock."""
    _signals.append(number)


def is_pending() -> bool:
    return bool(_signals)
