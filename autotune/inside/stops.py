"""Whether this process was asked to stop: for a workload that would else learn it with its next record."""

_signals: list[int] = []


class StoppedError(Exception):
    """A workload was asked to stop, and has reported all that it did until it ended."""


def note(number: int, _: object = None) -> None:
    """A signal's handler: it takes no lock."""
    _signals.append(number)


def is_asked() -> bool:
    return bool(_signals)
