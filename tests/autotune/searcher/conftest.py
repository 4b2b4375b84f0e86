"""A clock that the tests of a search set."""

import pytest


class Clock:
    """A clock that only tests advance."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()
