"""Training on a CUDA device that computes nothing, in a process that has loaded `guard.cpp` before torch.

What lies on the device has a type, a shape and a place, and no values: operations that mix devices or types
fail as on a GPU. What lies on the host is real. Everything that makes a real host wait for its GPU is counted
by its name, and answered with ones.
"""

import json
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, get_args
from unittest import mock

import torch
import torch.nn.functional as F  # noqa: N812 - everybody's name for it
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from r2gen import checkpoint, data, precision, synthetic
from r2gen.config import Precision
from r2gen.train import fit

_CUDA = torch.device("cuda", 0)
_ATEN = torch.ops.aten
_NEWEST = (9, 0)

TINY: dict[str, Any] = {
    "dataset": "mimic_cxr",
    "visual_extractor": "small",
    "image_size": 64,
    "min_word_count": 1,
    "max_seq_length": 4,
    "d_model": 16,
    "d_ff": 16,
    "num_heads": 2,
    "num_layers": 1,
    "rm_num_heads": 2,
    "micro_batch_size": 2,
    "epochs": 1,
    "num_workers": 0,
    "beam_size": 2,
    "meteor": False,
}
# Every precision, and what else takes another way through the model.
CASES: dict[str, dict[str, Any]] = {
    **{name: {"precision": name} for name in get_args(Precision)},
    "fp16 with checkpointing": {"precision": "fp16", "activation_checkpointing": True},
    "bf16 with a frozen extractor": {"precision": "bf16", "freeze_visual": True},
    "bf16 with two views": {"precision": "bf16", "dataset": "iu_xray", "channels_last": False},
    "fp8 with words drawn": {
        "precision": "fp8",
        "beam_size": 1,
        "single_beam": "sample",
        "block_trigrams": "on",
    },
}


class _Values(FakeTensorMode):
    """All copies of a tensor are on the same device."""

    def __deepcopy__(self, memo: dict[int, Any]) -> "_Values":
        return self


class Gpu(TorchDispatchMode):
    """Operations on the device, without values; `waits` counts those that a host waits for."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: Counter[str] = Counter()
        self._values = _Values()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = kwargs or {}
        leaves = tree_leaves((args, given))
        here = [leaf for leaf in leaves if isinstance(leaf, FakeTensor)]
        if not here and not any(isinstance(leaf, torch.device) and leaf.type == "cuda" for leaf in leaves):
            return func(*args, **given)
        if func.namespace == "aten" and func._can_decompose():  # as come those of inference mode
            with self:
                return func.decompose(*args, **given)
        if (answer := self._answer(func, args, given, here)) is not None:
            return answer
        args, given = tree_map(self._without_values, (args, given))
        with self._values:
            return func(*args, **given)

    def _without_values(self, leaf: Any) -> Any:
        is_real = isinstance(leaf, Tensor) and not isinstance(leaf, FakeTensor)
        return self._values.from_tensor(leaf) if is_real else leaf

    def _answer(self, func: Any, args: tuple[Any, ...], given: dict[str, Any], here: list[FakeTensor]) -> Any:
        """Ones for what asks for values; None for what the device does by itself."""
        copies = func in {_ATEN._to_copy.default, _ATEN.copy_.default}
        if func is _ATEN._local_scalar_dense.default:
            self.waits["item"] += 1
            return torch.ones((), dtype=args[0].dtype).item()
        if func is _ATEN.nonzero.default:
            self.waits["nonzero"] += 1
            with self._values:
                return torch.arange(len(args[0]), device=_CUDA)[:, None]
        if func is _ATEN._to_copy.default and given.get("device", _CUDA).type == "cpu":
            self.waits["copy to the host"] += 1
            return torch.ones(args[0].shape, dtype=given.get("dtype", args[0].dtype))
        if copies and not given.get("non_blocking") and len(here) < sum(map(_is_tensor, args)):
            self.waits["copy to the device"] += 1
        if any(_is_tensor(leaf) and leaf.dtype == torch.bool for leaf in _indices(func, args)):
            self.waits["mask as an index"] += 1
            return args[0][: len(args[1][0])] if func is _ATEN.index.Tensor else args[0]
        return None


def _is_tensor(value: Any) -> bool:
    return isinstance(value, Tensor)


def _indices(func: Any, args: tuple[Any, ...]) -> list[Any]:
    indexes = func in {_ATEN.index.Tensor, _ATEN.index_put_.default, _ATEN.index_put.default}
    return tree_leaves(args[1]) if indexes else []


def swap(old: Tensor, new: Tensor) -> None:
    """Replaces `torch.utils.swap_tensors`, which fake tensors refuse."""
    old.data = new.data


@contextmanager
def on_a_gpu() -> Iterator[Gpu]:
    """A device of the newest kind, where torch looks for one."""
    gpu = Gpu()

    class Event:
        """Of `torch.cuda`."""

        def __init__(self, *, enable_timing: bool) -> None:
            assert enable_timing

        def record(self) -> None:
            pass

        def synchronize(self) -> None:
            gpu.waits["event"] += 1

        def elapsed_time(self, end: "Event") -> float:
            return 1.0

    def as_a_gpu_would(tensor: FakeTensor) -> Any:
        return tensor.cpu().tolist()

    with ExitStack() as stack:
        for patch in (
            mock.patch.object(precision, "device", return_value=_CUDA),
            mock.patch("torch.cuda.get_device_capability", return_value=_NEWEST),
            mock.patch("torch.cuda.is_bf16_supported", return_value=True),
            mock.patch("torch.cuda.amp.common.amp_definitely_not_available", return_value=False),
            mock.patch("torch.cuda.Event", Event),
            mock.patch("torch.cuda._lazy_init"),
            mock.patch("torch.utils.swap_tensors", swap),
            mock.patch.object(FakeTensor, "tolist", as_a_gpu_would),
            mock.patch.object(checkpoint, "save"),  # there is nothing to be saved
            gpu,
        ):
            stack.enter_context(patch)
        torch._C._set_only_lift_cpu_tensors(True)  # or `torch.tensor` copies unseen
        data._statistics.cache_clear()
        yield gpu
    data._statistics.cache_clear()
    torch._C._set_only_lift_cpu_tensors(False)


@contextmanager
def _attention_watched() -> Iterator[set[bool]]:
    """Whether cuDNN's attention was on, at every call."""
    seen: set[bool] = set()
    original = F.scaled_dot_product_attention

    def watched(*args: Any, **kwargs: Any) -> Tensor:
        seen.add(torch.backends.cuda.cudnn_sdp_enabled())
        return original(*args, **kwargs)

    with mock.patch("r2gen.layers.F.scaled_dot_product_attention", watched):
        yield seen


def rehearse(settings: dict[str, Any], workdir: Path) -> dict[str, Any]:
    """What a first step, a second step and an evaluation wait for, and how cuDNN's attention stood."""
    with on_a_gpu() as gpu, _attention_watched() as attention:
        waits, records = [], fit(settings, workdir)
        for record in records:
            waits.append(dict(gpu.waits))
            gpu.waits.clear()
            if "bleu_4" in record:
                break
        records.close()
    return {"waits": waits, "cudnn_attention": sorted(attention)}


def main() -> None:
    """A line of JSON a case that was asked for."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as place:
        drawn = synthetic.make(Path(place), {"train": 4, "val": 2, "test": 1}, 0, 80)
        for name in sys.argv[1:] or CASES:
            settings = {"data": str(drawn), **TINY, **CASES[name]}
            try:
                found = rehearse(settings, Path(place, name))
            except Exception:  # noqa: BLE001 - whatever a GPU would say
                found = {"failure": traceback.format_exc()}
            print(json.dumps({"case": name, **found}), flush=True)


if __name__ == "__main__":
    main()
