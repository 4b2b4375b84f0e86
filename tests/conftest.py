"""While tests run: what is kept between runs is kept apart from the user's own, and a test takes one core."""

import os
from collections.abc import Iterator

import pytest

# Read when torch is first imported, here and in child processes: tests run side by side.
os.environ["OMP_NUM_THREADS"] = "1"


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--soak", action="store_true", help="the fault tests for hours instead of minutes")


@pytest.fixture(scope="session")
def soak(pytestconfig: pytest.Config) -> bool:
    """Whether a fault test is to take as long as it needs."""
    return bool(pytestconfig.getoption("--soak"))
