"""A drawn data set of a few studies, and a model that trains in milliseconds."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from r2gen import config as settings
from r2gen import synthetic
from tests import tiny_r2gen


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Uses one thread, for the same order of summation everywhere and no contention between tests."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A read-only data set: 10 studies for training, 4 for validation, 3 for testing."""
    return synthetic.make(tmp_path_factory.mktemp("drawn"), {"train": 10, "val": 4, "test": 3}, 0, 80)


@pytest.fixture
def own_data(drawn: Path, tmp_path: Path) -> Path:
    """A copy of the data set that a test may damage."""
    return shutil.copytree(drawn, tmp_path / "data")


@pytest.fixture
def tiny(drawn: Path) -> dict[str, Any]:
    """The settings of a tiny run: 3 steps per epoch, the last one smaller."""
    return {
        "data": str(drawn),
        **tiny_r2gen.MODEL,
        "micro_batch_size": 4,
        "learning_rate": 1e-3,
        "epochs": 2,
        "num_workers": 0,
        "beam_size": 1,
        "eval_studies": 2,
    }


@pytest.fixture
def make_config(tiny: dict[str, Any]) -> Callable[..., settings.Config]:
    """Returns the tiny configuration with some settings replaced."""

    def make(**changes: Any) -> settings.Config:
        return settings.parse({**tiny, **changes})

    return make


@pytest.fixture(scope="session")
def _programs_but_java(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a directory with links to every program on the path except Java."""
    place = tmp_path_factory.mktemp("programs")
    for directory in map(Path, reversed(os.get_exec_path())):
        for program in directory.iterdir() if directory.is_dir() else ():
            if program.name != "java":
                (place / program.name).unlink(missing_ok=True)
                (place / program.name).symlink_to(program)
    return place


@pytest.fixture
def without_java(monkeypatch: pytest.MonkeyPatch, _programs_but_java: Path) -> None:
    """Does without METEOR: starting Java takes longer than the rest of a tiny run."""
    monkeypatch.setenv("PATH", str(_programs_but_java))
