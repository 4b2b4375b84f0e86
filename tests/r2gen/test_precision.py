"""Precisions: which machine refuses each, and its effect on a training."""

import math
import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from r2gen import precision
from r2gen.config import Config
from r2gen.errors import InputError
from r2gen.model import R2Gen
from r2gen.train import fit

Make = Callable[..., Config]


TURING, HOPPER = (7, 5), (9, 0)


@pytest.mark.parametrize("name", ["fp16", "tf32", "fp8"])
def test_a_cpu_refuses_unsupported_precisions(make_config: Make, name: str) -> None:
    with pytest.raises(InputError, match=f"precision {name}: needs a CUDA device; fp32, torch-default and"):
        precision.check(make_config(precision=name), capability=None)


@pytest.mark.parametrize("name", ["fp32", "torch-default", "bf16"])
def test_a_cpu_accepts_supported_precisions(make_config: Make, name: str) -> None:
    precision.check(make_config(precision=name), capability=None)


@pytest.mark.parametrize(("name", "needed"), [("bf16", "8.0"), ("tf32", "8.0"), ("fp8", "8.9")])
def test_an_old_gpu_refuses_unsupported_precisions(make_config: Make, name: str, needed: str) -> None:
    said = f"precision {name}: needs compute capability {needed}, this device has 7.5"
    with pytest.raises(InputError, match=said):
        precision.check(make_config(precision=name), TURING)
    precision.check(make_config(precision="fp16"), TURING)


def test_fp8_without_torchao_names_the_package_to_install(
    make_config: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torchao", None)
    with pytest.raises(InputError, match="precision fp8: needs torchao: pip install"):
        precision.check(make_config(precision="fp8"), HOPPER)


def test_bf16_trains_weights_that_stay_fp32(tiny: dict[str, Any], tmp_path: Path, without_java: None) -> None:
    records = fit({**tiny, "precision": "bf16"}, tmp_path)
    assert all(math.isfinite(record["train_loss"]) for record in islice(records, 3))
    records.close()
    weights = torch.load(tmp_path / "last.pt")["model"]
    assert {w.dtype for w in weights.values() if w.is_floating_point()} == {torch.float32}


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("fp32", torch.float32),
        ("torch-default", torch.float32),
        ("tf32", torch.float32),
        ("bf16", torch.bfloat16),
        ("fp8", torch.bfloat16),
    ],
)
@pytest.mark.skipif(torch.cuda.is_available(), reason="the format is that of a CPU's passes")
def test_forward_passes_compute_in_the_format_asked_for(
    make_config: Make, name: str, dtype: torch.dtype
) -> None:
    with precision.autocast(make_config(precision=name)):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == dtype


def _tf32() -> tuple[bool, bool]:
    return torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32


def _set_tf32(flags: tuple[bool, bool]) -> None:
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = flags


@pytest.fixture
def _tf32_as_it_was() -> Iterator[None]:
    before = _tf32()
    yield
    _set_tf32(before)


@pytest.mark.usefixtures("_tf32_as_it_was")
@pytest.mark.parametrize("before", [(True, True), (False, True), (False, False)])
@pytest.mark.parametrize("name", ["tf32", "fp32", "bf16"])
def test_tf32_is_set_if_configured_and_restored(
    make_config: Make, name: str, before: tuple[bool, bool]
) -> None:
    _set_tf32(before)
    with precision.backends(make_config(precision=name)):
        assert _tf32() == (name == "tf32",) * 2
    assert _tf32() == before


@pytest.mark.usefixtures("_tf32_as_it_was")
@pytest.mark.parametrize("before", [(True, True), (False, True), (False, False)])
def test_torch_default_leaves_tf32_as_it_finds_it(make_config: Make, before: tuple[bool, bool]) -> None:
    _set_tf32(before)
    with precision.backends(make_config(precision="torch-default")):
        assert _tf32() == before
    assert _tf32() == before


def test_on_a_cpu_torch_default_is_fp32_to_the_last_bit(
    tiny: dict[str, Any], tmp_path: Path, without_java: None
) -> None:
    states = []
    for name in ("fp32", "torch-default"):
        records = fit({**tiny, "precision": name}, tmp_path / name)
        next(records)
        records.close()
        states.append(torch.load(tmp_path / name / "last.pt")["model"])
    assert all(torch.equal(value, states[1][key]) for key, value in states[0].items())


def test_cudnn_tries_its_algorithms_during_a_run_that_asks_for_it(make_config: Make) -> None:
    assert not torch.backends.cudnn.benchmark
    for is_asked in (True, False):
        with precision.backends(make_config(cudnn_benchmark=is_asked)):
            assert torch.backends.cudnn.benchmark is is_asked
        assert not torch.backends.cudnn.benchmark


@pytest.mark.parametrize("before", [True, False])
def test_the_attention_of_cudnn_is_off_and_set_back(make_config: Make, before: bool) -> None:
    cuda = torch.backends.cuda
    was = cuda.cudnn_sdp_enabled()
    cuda.enable_cudnn_sdp(before)
    try:
        with precision.backends(make_config()):
            assert not cuda.cudnn_sdp_enabled()
        assert cuda.cudnn_sdp_enabled() is before
    finally:
        cuda.enable_cudnn_sdp(was)


@pytest.mark.usefixtures("_tf32_as_it_was")
def test_tf32_is_restored_if_training_fails(make_config: Make) -> None:
    before = _tf32()
    with pytest.raises(KeyError), precision.backends(make_config(precision="tf32")):
        raise KeyError
    assert _tf32() == before


@pytest.mark.parametrize(
    ("module", "name", "fits"),
    [
        (nn.Linear(32, 16), "encoder_decoder.model.encoder.layers.0.feed_forward.w_1", True),
        (nn.Linear(32, 41), "encoder_decoder.logit", False),
        (nn.Linear(24, 32), "encoder_decoder.att_embed.0", False),
        (nn.Linear(32, 32), "encoder_decoder.model.rm.attn.linears.0", False),
        (nn.Conv2d(16, 16, 1), "visual_extractor.model.0", False),
    ],
)
def test_fp8_is_for_linear_layers_of_the_right_sizes(module: nn.Module, name: str, fits: bool) -> None:
    assert precision._fits_fp8(module, name) is fits


def test_some_layers_of_the_model_fit_fp8_and_none_of_its_memory(make_config: Make) -> None:
    named = dict(R2Gen(make_config(), 20).named_modules())
    fitting = [name for name, module in named.items() if precision._fits_fp8(module, name)]
    assert any("self_attn" in name for name in fitting)
    assert not any(".rm." in name for name in fitting)


class _TorchOfACpu:
    """Torch as torchao expects it, which only asks for CUDA's autocast."""

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    def is_autocast_enabled(self) -> bool:
        return torch.is_autocast_enabled("cpu")

    def get_autocast_gpu_dtype(self) -> torch.dtype:
        return torch.get_autocast_dtype("cpu")


@pytest.fixture
def _emulated_fp8(monkeypatch: pytest.MonkeyPatch) -> None:
    """Emulates fp8 on the CPU: torchao rounds to it and multiplies in a wider format."""
    float8 = pytest.importorskip("torchao.float8", reason="needs torchao")
    linear = pytest.importorskip("torchao.float8.float8_linear")
    monkeypatch.setattr(float8, "Float8LinearConfig", partial(float8.Float8LinearConfig, emulate=True))
    monkeypatch.setattr(linear, "torch", _TorchOfACpu())
    monkeypatch.setattr(precision, "capability", lambda: HOPPER)


@pytest.mark.usefixtures("_emulated_fp8", "without_java")
def test_fp8_trains_evaluates_and_writes(tiny: dict[str, Any], tmp_path: Path) -> None:
    settings = {**tiny, "precision": "fp8", "epochs": 1, "beam_size": 2}
    *steps, evaluation = fit(settings, tmp_path)
    assert all(math.isfinite(step["train_loss"]) for step in steps)
    assert math.isfinite(evaluation["val_loss"])
    plain = next(fit({**settings, "precision": "bf16"}, tmp_path / "bf16"))
    assert 0 < abs(steps[0]["train_loss"] - plain["train_loss"]) < 0.1, "fp8 rounds more, and not much more"


def test_other_precisions_convert_and_scale_nothing(make_config: Make) -> None:
    config = make_config(precision="bf16")
    layer = nn.Linear(16, 16)
    precision.convert(layer, config)
    assert type(layer) is nn.Linear
    assert precision.Scaler(config).scale(torch.tensor(2.0)).item() == 2
    assert precision.Scaler(config).state_dict() == {}
