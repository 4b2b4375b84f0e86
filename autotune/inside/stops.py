"""Whether this process was asked to stop: for a workload that would else hear of it with its next record."""

_signals: list[int] = []


class StoppedError(Exception):
    """A workload has heard that it was to stop, and has told all that it did until it had ended."""


def note(number: int, _: object = None) -> None:
    """A signal's handler: it takes no lock."""
    _signals.append(number)


def is_asked() -> bool:
    return bool(_signals)
