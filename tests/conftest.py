"""For all tests: a cache of their own, one core each, and the same terminal everywhere."""

import os
import sys
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

# Read when torch is first imported, here and in child processes: tests run side by side.
os.environ["OMP_NUM_THREADS"] = "1"
# Colours and the width of a line do not depend on the terminal that the tests are started from.
for _name in (
    *("FORCE_COLOR", "NO_COLOR", "PY_COLORS", "GITHUB_ACTIONS", "TTY_COMPATIBLE", "TTY_INTERACTIVE"),
    *("COLUMNS", "LINES", "TERMINAL_WIDTH"),
):
    os.environ.pop(_name, None)
os.environ["TERM"] = "xterm"
# What `make test ARGS=...` was given is not for the `make` that a test calls.
for _name in ("MAKEFLAGS", "MAKEOVERRIDES", "ARGS"):
    os.environ.pop(_name, None)

# How long an example takes depends on the machine.
settings.register_profile("tests", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tests")


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(autouse=True)
def _own_path() -> Iterator[None]:
    """A workload that is loaded puts the working directory of its test on the path."""
    before = [*sys.path]
    yield
    sys.path[:] = before


@pytest.fixture
def _without_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scripts that this test starts do not import torch's compiler, which costs each of them seconds."""
    from tests.forked import WITHOUT_COMPILER  # which keeps the environment that is set above

    monkeypatch.setenv("PYTHONPATH", str(WITHOUT_COMPILER), prepend=os.pathsep)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--soak", action="store_true", help="the fault tests for hours instead of minutes")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "soak: left out but where there is time, see `make soak`")


# The files that take longest begin first, so that no core is left with one at the end.
LONGEST = (
    *("tests/contracts", "tests/autotune/sessions/test_api.py", "tests/autotune/probe"),
    *("tests/autotune/workloads/command/test_training.py", "tests/autotune/reports/test_browser.py"),
    *("tests/test_examples.py", "tests/autotune/cli/test_train.py", "tests/autotune/trials/test_child.py"),
    *("tests/autotune/sessions/test_judge.py", "tests/autotune/trackers", "tests/autotune/inside"),
    *("tests/faults", "tests/autotune/training/test_r2gen.py", "tests/autotune/engines", "tests/test_"),
    *("tests/autotune/trials", "tests/autotune/compare", "tests/autotune/sessions", "tests/docs"),
    *("tests/gpu", "tests/r2gen/test_train.py", "tests/r2gen/test_shortage.py", "tests/autotune/workloads"),
)


def _rank(item: pytest.Item) -> int:
    ranks = (rank for rank, place in enumerate(LONGEST) if item.nodeid.startswith(place))
    return next(ranks, len(LONGEST))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items.sort(key=_rank)
    if not config.getoption("--soak"):
        for item in items:
            if item.get_closest_marker("soak"):
                item.add_marker(pytest.mark.skip(reason="takes long: make soak"))


@pytest.fixture(scope="session")
def soak(pytestconfig: pytest.Config) -> bool:
    """Whether a fault test may take as long as it needs."""
    return bool(pytestconfig.getoption("--soak"))
