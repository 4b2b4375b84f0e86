"""The reports that the tests of a page share."""

import pytest

from autotune.reports.model import Report

from . import handmade


@pytest.fixture(scope="session")
def rich() -> Report:
    """Returns the report of a complete search with a comparison."""
    return handmade.rich()


@pytest.fixture(scope="session")
def bare() -> Report:
    """Returns the report of a search that has just begun."""
    return handmade.bare()


@pytest.fixture(scope="session")
def many() -> Report:
    """Returns the report of a complete search with a thousand trials."""
    return handmade.rich(trials=1000)
