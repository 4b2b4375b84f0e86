"""Reports shared by tests."""

import pytest

from autotune.reports.model import SessionReport

from . import handmade


@pytest.fixture(scope="session")
def rich() -> SessionReport:
    """Returns the report of a complete search with a comparison."""
    return handmade.rich()


@pytest.fixture(scope="session")
def bare() -> SessionReport:
    """Returns the report of a search that has just begun."""
    return handmade.bare()


@pytest.fixture(scope="session")
def many() -> SessionReport:
    """Returns the report of a complete search with a thousand trials."""
    return handmade.rich(trials=1000)
