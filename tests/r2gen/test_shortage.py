"""If memory runs out, the same work is done in smaller parts with the same result."""

import json
import os
import re
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import Tensor, nn

from autotune.core.trial import Failure
from autotune.trials import failures
from autotune.trials.gpu_memory import GpuMemory
from r2gen import checkpoint, shortage, synthetic
from r2gen.__main__ import main
from r2gen.config import Config
from r2gen.shortage import HalvedBatch, is_out_of_memory
from r2gen.train import fit
from r2gen.visual import VisualExtractor
from tests import forked
from tests.autotune.trials import test_failures as known
from tests.autotune.trials import test_failures_evidence as evidence
from tests.autotune.trials import test_failures_gpu as of_gpus
from tests.r2gen.faults import before_passes, change_models
from tests.tiny_r2gen import attend_without_dropout

pytestmark = pytest.mark.usefixtures("without_java")

IN_LITTLE_MEMORY = """
import resource, sys
from r2gen import layers
from r2gen.__main__ import main

def data_bytes():
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmData:"))

layers.ATTENTION_DROPOUT = 0.0
before = data_bytes()
if {limit}:
    resource.setrlimit(resource.RLIMIT_DATA, (before + {limit},) * 2)
code = main()
print("more:", data_bytes() - before)
sys.exit(code)
"""
Make = Callable[..., Config]
Fits = Callable[[int], None]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), True),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"), True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"), True),
        (RuntimeError("CUDA error: out of memory"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), True),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), False),
        (RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed."), False),
        (ValueError("can't allocate memory"), False),
    ],
    ids=str,
)
def test_what_counts_as_out_of_memory(error: Exception, expected: bool) -> None:
    assert is_out_of_memory(error) is expected


OF_GPUS = (
    of_gpus.ALWAYS | of_gpus.UNLESS_THERE_IS_ENOUGH | of_gpus.ONLY_WHERE_IT_IS_SHORT | of_gpus.NEVER
).values()
KNOWN_TO_THE_TUNER = [
    *(*known.OUT_OF_MEMORY.values(), *known.NOT_OUT_OF_MEMORY.values(), *map(RuntimeError, OF_GPUS)),
    *(*evidence.CAPPED_ONLY, *evidence.OUT_OF_MEMORY, *evidence.OTHER),
]


def _is_of_a_computation(error: BaseException) -> bool:
    """True for an error of PyTorch in the training process itself, not in a worker, a fork or an import."""
    is_plain = error.__cause__ is error.__context__ is None and not isinstance(error, OSError | ImportError)
    is_of_a_worker = failures.from_exception(error).shortage is not None
    is_of_jax = "RESOURCE_EXHAUSTED" in str(error)
    return is_plain and not is_of_a_worker and not is_of_jax


@pytest.mark.parametrize("is_limited", [False, True])
@pytest.mark.parametrize("gpu", [of_gpus.ENOUGH, of_gpus.SHORT], ids=["enough", "short"])
@pytest.mark.parametrize("error", tuple(filter(_is_of_a_computation, KNOWN_TO_THE_TUNER)), ids=str)
def test_trainer_and_tuner_recognise_the_same_out_of_memory_errors(
    error: BaseException, gpu: GpuMemory, is_limited: bool
) -> None:
    expected = failures.from_exception(error, capped=is_limited, gpu=gpu).failure is Failure.OOM
    found = shortage.is_recognised(error, is_gpu_full=lambda: gpu.is_short, is_limited=lambda: is_limited)
    assert found is expected


def _tried(batch: HalvedBatch, fitting: int, error: Exception) -> tuple[list[int], int]:
    """Returns the sizes tried until `fitting`, and the number of undone attempts."""
    sizes, undone = [], []

    def attempt(size: int) -> None:
        sizes.append(size)
        if size > fitting:
            raise error

    batch.run(attempt, lambda: undone.append(1))
    return sizes, len(undone)


def test_a_size_is_halved_until_it_fits_and_stays(
    make_config: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    batch = HalvedBatch("micro_batch_size", make_config(micro_batch_size=13), ", a note")
    assert not batch.is_halved
    assert _tried(batch, 3, MemoryError()) == ([13, 7, 4, 2], 3)
    assert _tried(batch, 3, MemoryError()) == ([2], 0)
    assert batch.is_halved
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "out of memory with micro_batch_size 13: from here on it is 7, a note"
    assert len(said) == 3


@pytest.mark.parametrize(
    ("settings", "fitting", "error"),
    [
        ({"halve_on_oom": False}, 3, MemoryError("whole")),
        ({}, 0, MemoryError("one study")),
        ({}, 3, RuntimeError("another")),
    ],
    ids=str,
)
def test_an_error_that_no_smaller_batch_mends_is_raised(
    make_config: Make, settings: dict[str, Any], fitting: int, error: Exception
) -> None:
    batch = HalvedBatch("eval_batch_size", make_config(**settings))
    with pytest.raises(type(error), match=str(error)):
        _tried(batch, fitting, error)
    assert not batch.is_halved  # no fitting size is known


@pytest.fixture
def small_memory(monkeypatch: pytest.MonkeyPatch) -> Fits:
    """Makes the next models run out of memory at the end of a forward pass over too many studies."""

    def limit(studies: int) -> None:
        def refuse(_: object, given: tuple[Tensor, ...], __: object) -> None:
            if len(given[0]) > studies:
                raise torch.OutOfMemoryError("CUDA out of memory")

        change_models(monkeypatch, lambda model: model.encoder_decoder.register_forward_hook(refuse))

    return limit


@pytest.fixture
def _no_dropout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also disables the dropout of attention, which no setting turns off."""
    change_models(monkeypatch, attend_without_dropout)


def _losses(config: dict[str, Any], workdir: Path) -> list[float]:
    return [record["train_loss"] for record in fit(config, workdir) if "train_loss" in record]


@pytest.mark.usefixtures("_no_dropout")
@pytest.mark.parametrize("image_cache_gib", [0, 1])
def test_without_batch_statistics_halving_changes_the_loss_by_rounding_alone(
    tiny: dict[str, Any], tmp_path: Path, small_memory: Fits, image_cache_gib: int
) -> None:
    """With a frozen extractor, from images and from cached features."""
    still = {"freeze_visual": True, "dropout": 0, "drop_prob_lm": 0, "image_cache_gib": image_cache_gib}
    config = {**tiny, **still, "epochs": 4, "accumulation_steps": 2}
    expected = _losses(config, tmp_path / "whole")

    small_memory(2)
    assert _losses(config, tmp_path / "halved") == pytest.approx(expected, rel=1e-4)


@pytest.mark.usefixtures("_no_dropout")
def test_batch_statistics_of_fewer_studies_change_the_loss_a_little(
    tiny: dict[str, Any], tmp_path: Path, small_memory: Fits
) -> None:
    config = {**tiny, "dropout": 0, "drop_prob_lm": 0, "epochs": 4}
    expected = _losses(config, tmp_path / "whole")

    small_memory(2)
    halved = _losses(config, tmp_path / "halved")
    assert halved[0] != pytest.approx(expected[0], rel=1e-5)
    assert halved == pytest.approx(expected, rel=0.1)


def test_a_resumed_run_keeps_the_micro_batch_that_fits(
    tiny: dict[str, Any], tmp_path: Path, small_memory: Fits, capsys: pytest.CaptureFixture[str]
) -> None:
    small_memory(2)
    records = fit(tiny, tmp_path)
    first = next(records)
    records.close()
    assert first["micro_batch_size"] == 2
    said = re.findall(
        r"out of memory with micro_batch_size 4: from here on it is 2.*", capsys.readouterr().err
    )
    assert len(said) == 1
    assert checkpoint.load(tmp_path / "last.pt")["micro_batch_size"] == 2

    assert [record["samples"] for record in fit(tiny, tmp_path) if "step" in record] == [8, 10, 14, 18, 20]
    assert "out of memory" not in capsys.readouterr().err
    with pytest.raises(torch.OutOfMemoryError):
        list(fit({**tiny, "epochs": 3, "halve_on_oom": False}, tmp_path))


def test_a_run_whose_micro_batch_fitted_can_resume_with_a_larger_one(
    tiny: dict[str, Any], tmp_path: Path
) -> None:
    records = fit({**tiny, "micro_batch_size": 2, "accumulation_steps": 2}, tmp_path)
    next(records)
    records.close()
    rest = [record for record in fit(tiny, tmp_path) if "step" in record]
    assert len(rest) == 5
    assert not any("micro_batch_size" in record for record in rest)


def test_a_run_in_too_little_memory_continues_with_the_same_loss(
    drawn: Path, tiny: dict[str, Any], tmp_path: Path
) -> None:
    """Under a limit of the operating system: two thirds of the memory that whole batches need.

    Without a cache, which only the first run would have to fill: the threads that fill it leave stacks
    behind.
    """
    place = synthetic.make(tmp_path, {"train": 64, "val": 4, "test": 3}, 0, 80)
    large = {"d_model": 256, "d_ff": 1024, "max_seq_length": 60, "micro_batch_size": 64, "data": str(place)}
    still = {"freeze_visual": True, "dropout": 0, "drop_prob_lm": 0, "epochs": 2, "eval_every_samples": 10**6}
    still["image_cache_gib"] = 0
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump(tiny | large | still))
    found: dict[str, list[dict[str, Any]]] = {}
    limit = 0
    for name in ("whole", "halved"):
        records = tmp_path / f"{name}.jsonl"
        command = ("train", "--config", config, "--workdir", tmp_path / name, "--records", records)
        script = IN_LITTLE_MEMORY.format(limit=limit)
        environment = {**os.environ, "PATH": ""}
        done = forked.run(command, tmp_path, environment, script=script, warm="trainer")
        assert done.returncode == 0, done.stderr
        assert ("out of memory with micro_batch_size 64: from" in done.stderr) is (name == "halved")
        limit = int(done.stdout.split("more: ")[1]) * 2 // 3
        found[name] = [json.loads(line) for line in records.read_text().splitlines()]

    assert found["halved"][1]["micro_batch_size"] < 64
    losses = [[r["train_loss"] for r in found[name][:2]] for name in found]
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)


EVALUATIONS_HALVED = ["out of memory with eval_batch_size 8", "out of memory with eval_batch_size 4"]


@pytest.fixture
def two_encoded_at_once() -> Iterator[None]:
    """Makes evaluations run out of memory with more than two studies, of two views each."""

    def refuse(extractor: nn.Module, images: Tensor) -> None:
        if not extractor.training and len(images) > 4:
            raise MemoryError

    with before_passes(VisualExtractor, refuse):
        yield


def _said(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [line.split(":")[0] for line in capsys.readouterr().err.splitlines() if "out of memory" in line]


def test_an_evaluation_that_does_not_fit_is_made_with_fewer_studies_at_once(
    tiny: dict[str, Any], tmp_path: Path, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = list(fit({**tiny, "eval_studies": 4}, tmp_path / "whole"))
    request.getfixturevalue("two_encoded_at_once")
    halved = list(fit({**tiny, "eval_studies": 4, "eval_batch_size": 8}, tmp_path / "halved"))

    assert halved[-1]["bleu_4"] == whole[-1]["bleu_4"]
    assert halved[-1]["val_loss"] == pytest.approx(whole[-1]["val_loss"], rel=1e-5)
    assert _said(capsys) == EVALUATIONS_HALVED


@pytest.mark.parametrize("command", ["evaluate", "generate"])
@pytest.mark.usefixtures("two_encoded_at_once")
def test_reports_of_a_checkpoint_that_do_not_fit_are_written_fewer_at_once(
    tiny: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    """The checkpoint's setting is that of a trial, which must fail so that the tuner sees it."""
    list(fit({**tiny, "epochs": 1, "eval_batch_size": 2, "halve_on_oom": False}, tmp_path))
    given = [command, "--checkpoint", str(tmp_path / "best.pt"), "--split", "val"]
    assert main([*given, "--set", "eval_batch_size=8"]) == 0
    assert _said(capsys) == EVALUATIONS_HALVED
    with pytest.raises(MemoryError):
        main([*given, "--set", "eval_batch_size=8", "--set", "halve_on_oom=false"])


@pytest.mark.usefixtures("two_encoded_at_once")
def test_features_that_do_not_fit_are_computed_of_fewer_studies_at_once(
    tiny: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    records = fit({**tiny, "freeze_visual": True, "eval_batch_size": 8}, tmp_path / "run")
    next(records)
    records.close()
    assert _said(capsys) == EVALUATIONS_HALVED


@pytest.mark.usefixtures("_no_dropout")
@pytest.mark.parametrize("taken", [1, 2, 4])
def test_a_run_resumes_with_half_the_micro_batch_and_twice_the_accumulation(
    tiny: dict[str, Any], tmp_path: Path, taken: int
) -> None:
    """Resumed within an epoch and at its end, on the studies that were next."""
    still = {"freeze_visual": True, "dropout": 0, "drop_prob_lm": 0, "halve_on_oom": False}
    config = {**tiny, **still, "epochs": 3}
    expected = _losses(config, tmp_path / "whole")

    records = fit(config, tmp_path / "parts")
    found = [record["train_loss"] for record in islice(records, taken) if "train_loss" in record]
    records.close()
    halved = {**config, "micro_batch_size": 2, "accumulation_steps": 2}
    found += _losses(halved, tmp_path / "parts")
    assert found == pytest.approx(expected, rel=1e-4)
