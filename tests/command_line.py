"""A command line in an empty directory, and what bad input to it has to look like."""

from collections.abc import Callable
from pathlib import Path

import pytest

from r2gen import synthetic

SPACE = """
workload: r2gen
baseline: {micro_batch_size: 4, learning_rate: 1e-3}
knobs: {micro_batch_size: {choice: [4, 8]}}
"""
Said = tuple[int, str, str]


def runner(
    main: Callable[[list[str]], int],
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Callable[..., Said]:
    """Returns what calls `main` in a directory, and returns its exit code, output and errors."""
    monkeypatch.chdir(place)
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("COLUMNS", "200")

    def call(*arguments: object) -> Said:
        code = main([str(a) for a in arguments])
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


def is_one_line(code: int, out: str, err: str, *parts: str) -> None:
    assert code == 2, (code, out, err)
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith("autotune: ")
    for part in parts:
        assert part in err


def drawn(factory: pytest.TempPathFactory) -> Path:
    """Returns the directory of a few drawn studies."""
    return synthetic.make(factory.mktemp("data"), {"train": 4, "val": 2, "test": 2}, seed=0, size=32)
