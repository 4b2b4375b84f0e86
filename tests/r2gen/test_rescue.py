"""An error in a step costs only that step: the checkpoint has everything trained before it."""

import multiprocessing
import os
import re
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from torch.optim.optimizer import register_optimizer_step_pre_hook

from r2gen import checkpoint, data
from r2gen.__main__ import main
from r2gen.errors import LoaderError
from r2gen.model import R2Gen
from r2gen.train import fit
from tests import forked
from tests.forked import Forked
from tests.r2gen.faults import change_models
from tests.r2gen.same import same_state, untimed

pytestmark = pytest.mark.usefixtures("without_java")
Place = Callable[[R2Gen, Callable[[], None]], None]
Faulty = Callable[..., None]


def _forward(model: R2Gen, fail: Callable[[], None]) -> None:
    """Fails at the end of a forward pass, after batch norm and dropout."""
    model.encoder_decoder.logit.register_forward_hook(lambda *_: fail() if model.training else None)


def _backward(model: R2Gen, fail: Callable[[], None]) -> None:
    model.visual_extractor.get_parameter("model.0.weight").register_hook(lambda _: fail())


def _evaluation(model: R2Gen, fail: Callable[[], None]) -> None:
    model.encoder_decoder.logit.register_forward_hook(lambda *_: None if model.training else fail())


def _saving(model: R2Gen, fail: Callable[[], None]) -> None:
    model.register_state_dict_pre_hook(lambda *_: fail())


def _fail() -> None:
    raise RuntimeError("made to fail")


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch) -> Faulty:
    """Makes the next models fail once in a certain place, at the given micro-batch pass, from 1."""

    def prepare(place: Place, at: int, fault: Callable[[], None] = _fail) -> None:
        passes = iter(range(1, 10**6))

        def fail() -> None:
            if next(passes) == at:
                fault()

        change_models(monkeypatch, lambda model: place(model, fail))

    return prepare


@pytest.mark.parametrize(
    ("place", "at", "steps"), [(_forward, 5, 2), (_forward, 8, 3), (_backward, 6, 2), (_backward, 3, 1)]
)
def test_a_run_whose_step_failed_resumes_bit_identically(  # noqa: PLR0917 - fixtures
    tiny: dict[str, Any],
    tmp_path: Path,
    faulty: Faulty,
    capsys: pytest.CaptureFixture[str],
    place: Place,
    at: int,
    steps: int,
) -> None:
    """Fails in the first and in the second micro-batch of a step; an epoch has two steps of two each."""
    config = {**tiny, "accumulation_steps": 2, "micro_batch_size": 3, "epochs": 3}
    expected = [untimed(record) for record in fit(config, tmp_path / "straight")]

    faulty(place, at)
    found: list[dict[str, Any]] = []
    with pytest.raises(RuntimeError, match="made to fail") as caught:
        found.extend(untimed(record) for record in fit(config, tmp_path / "parts"))

    assert any(entry.name == "_fail" for entry in caught.traceback)
    last = tmp_path / "parts" / "last.pt"
    assert checkpoint.load(last)["step"] == steps
    said = f"{last} has the {found[-1]['samples']} samples before the error: the same command goes on there\n"
    assert capsys.readouterr().err.endswith(said)
    for record in fit(config, tmp_path / "parts"):
        if not ("bleu_4" in record and found[-1] == record):
            found.append(untimed(record))
    assert found == expected
    for name in ("last.pt", "best.pt"):
        assert same_state(*(checkpoint.load(tmp_path / run / name) for run in ("straight", "parts")))


def test_a_worker_death_reported_during_a_rescue_costs_no_step(
    tiny: dict[str, Any], tmp_path: Path, faulty: Faulty
) -> None:
    """Torch raises it once, from a signal handler, at any point of the training."""

    def tell() -> None:
        raise RuntimeError("DataLoader worker (pid 1) is killed by signal: Killed.")

    faulty(_forward, 3)
    faulty(_saving, 1, tell)
    with pytest.raises(RuntimeError, match="made to fail"):
        list(fit({**tiny, "micro_batch_size": 3}, tmp_path))
    assert checkpoint.load(tmp_path / "last.pt")["step"] == 2


def test_an_error_while_weights_are_updated_leaves_the_checkpoint_before(
    tiny: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = iter(range(1, 100))

    def fail(*_: Any) -> None:
        if next(steps) == 6:
            raise RuntimeError("made to fail")

    hook = register_optimizer_step_pre_hook(fail)
    try:
        with pytest.raises(RuntimeError, match="made to fail"):
            list(fit({**tiny, "checkpoint_every_steps": 2, "epochs": 3}, tmp_path))
    finally:
        hook.remove()

    assert checkpoint.load(tmp_path / "last.pt")["step"] == 4
    assert "before the error" not in capsys.readouterr().err


def test_an_error_in_an_evaluation_comes_after_its_checkpoint(
    tiny: dict[str, Any], tmp_path: Path, faulty: Faulty, capsys: pytest.CaptureFixture[str]
) -> None:
    faulty(_evaluation, 1)
    with pytest.raises(RuntimeError, match="made to fail"):
        list(fit(tiny, tmp_path))
    assert checkpoint.load(tmp_path / "last.pt")["samples"] == 10
    assert "last.pt has the 10 samples before the error" in capsys.readouterr().err


def test_a_state_that_cannot_be_saved_after_an_error_does_not_hide_it(
    tiny: dict[str, Any],
    tmp_path: Path,
    faulty: Faulty,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("CUDA error: unspecified\n launch failure")

    faulty(_forward, 3)
    change_models(monkeypatch, lambda model: model.register_state_dict_pre_hook(fail))
    with pytest.raises(RuntimeError, match="made to fail"):
        list(fit(tiny, tmp_path))
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.endswith(
        "what was trained before the error could not be saved: CUDA error: unspecified launch failure"
    )


def test_a_second_signal_in_a_step_keeps_the_steps_before_it(
    tiny: dict[str, Any], tmp_path: Path, faulty: Faulty
) -> None:
    """Python raises KeyboardInterrupt anywhere, even if its parent ignored signals."""
    faulty(_forward, 3, partial(os.kill, os.getpid(), signal.SIGINT))
    records = fit(tiny, tmp_path)
    next(records)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            list(records)
    finally:
        signal.signal(signal.SIGINT, before)
    assert checkpoint.load(tmp_path / "last.pt")["step"] == 2


def _workers(process: Forked) -> list[psutil.Process]:
    return [child for child in psutil.Process(process.pid).children() if child.is_running()]


def test_a_worker_that_is_killed_costs_no_step(
    tiny: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the kernel does if memory is short; the resumed run is bit-identical."""
    config = tmp_path / "config.yaml"
    settings = {**tiny, "num_workers": 2, "eval_every_samples": 10**6, "micro_batch_size": 2}
    config.write_text(yaml.safe_dump({**settings, "epochs": 10**4}))
    command = ("train", "--config", str(config), "--workdir", str(tmp_path / "parts"))
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "PATH": ""}
    process = Forked(command, tmp_path, environment, script=forked.TRAINER, warm="trainer")
    while not re.search(r"^epoch \d+, \d+ samples", process.said(), re.MULTILINE):
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    _workers(process)[0].kill()
    _, err = process.communicate()

    assert process.returncode == 1
    assert "Traceback" in err
    # If a batch was being received, torch only reports that the worker exited.
    told = r"DataLoader worker \(pid.* (is killed by signal: Killed|exited unexpectedly)"
    assert re.search(rf"{told}|^(Connection(Reset|Refused)|EOF|FileNotFound)Error\b", err, re.MULTILINE)
    reached = checkpoint.load(tmp_path / "parts" / "last.pt")
    assert f"has the {reached['samples']} samples before the error: the same command goes on there" in err

    rest = {**settings, "num_workers": 0, "epochs": reached["epoch"]}
    for run in ("parts", "straight"):
        list(fit(rest, tmp_path / run))
    found = [checkpoint.load(tmp_path / run / "last.pt") for run in ("parts", "straight")]
    for name in ("model", "optimizer", "rng", "step"):
        assert same_state(found[0][name], found[1][name]), name


def test_a_hanging_loader_is_reported_in_one_line_and_its_processes_are_killed(
    tiny: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    load = data.ReportDataset.__getitems__

    def hang(dataset: data.ReportDataset, keys: list[data.Key]) -> data.Batch:
        if keys[0].epoch == 2:
            time.sleep(10**6)
        return load(dataset, keys)

    monkeypatch.setattr(data.ReportDataset, "__getitems__", hang)
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump({**tiny, "num_workers": 2, "loader_timeout_s": 5}))

    assert main(["train", "--config", str(config), "--workdir", str(tmp_path / "run")]) == 1

    told, said = capsys.readouterr().err.splitlines()[-2:]
    assert told.endswith("last.pt has the 10 samples before the error: the same command goes on there")
    assert said.startswith("r2gen: loader_timeout_s 5: the loader's processes delivered no batch")
    assert multiprocessing.active_children() == []


def test_other_errors_of_a_loader_are_raised() -> None:
    class Broken:
        def __iter__(self) -> Any:
            raise RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed.")

    with pytest.raises(RuntimeError, match="is killed") as caught:
        list(data.batches(Broken()))  # type: ignore[arg-type]
    assert not isinstance(caught.value, LoaderError)
