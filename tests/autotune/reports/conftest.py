"""The reports that the tests of a page share."""

from pathlib import Path

import pytest

from autotune.reports.model import Report

from . import handmade


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("images")


@pytest.fixture(scope="session")
def rich(images: Path) -> Report:
    """A whole search with a comparison."""
    return handmade.rich(images)


@pytest.fixture(scope="session")
def bare() -> Report:
    """A search that has just begun."""
    return handmade.bare()


@pytest.fixture(scope="session")
def many(images: Path) -> Report:
    """A whole search of a thousand trials."""
    return handmade.rich(images, trials=1000)
