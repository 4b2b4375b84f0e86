"""Prints facts about torch and its devices as a line of JSON: the build, and which precisions compute.

Runs as a separate process, because importing torch takes a second and may crash, and using a GPU takes some
of its memory. `gpus` starts it and evaluates the output. It also runs in a script's own Python, which may be
3.8, with an older torch and without autotune.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import torch
from torch.nn import functional

_SIZE = 16  # channels, pixels, rows and columns: a valid size in every number format
_DTYPES = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def facts() -> dict[str, Any]:
    """Returns all facts; never raises."""
    devices: list[dict[str, Any]] = []
    fault = _why_not(torch.cuda.init) if torch.version.cuda else None  # tells why there is no device
    for index in range(0 if fault else torch.cuda.device_count()):
        with suppress(RuntimeError):  # torch does not see this one
            devices.append(_device(index))
    return {
        "version": torch.__version__,
        "cuda": torch.version.cuda,
        "kernels": torch.cuda.get_arch_list(),
        "fault": fault,
        "devices": devices,
        "triton": bool(devices) and _why_not(partial(importlib.import_module, "triton")) is None,
    }


def _device(index: int) -> dict[str, Any]:
    properties = torch.cuda.get_device_properties(index)
    tried = {name: _why_not(partial(_compute, name, f"cuda:{index}")) for name in (*_DTYPES, "fp8")}
    return {
        "name": properties.name,
        "memory_bytes": properties.total_memory,
        "compute_capability": [properties.major, properties.minor],
        "fails": {name: why for name, why in tried.items() if why is not None},
    }


def _compute(precision: str, device: str) -> None:
    """Convolves and multiplies ones, exact in every format; raises if that fails or a sum is wrong."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
    if precision == "fp8":
        rows = torch.ones(_SIZE, _SIZE, device=device).to(torch.float8_e4m3fn)
        scale = torch.ones((), device=device)
        results = [torch._scaled_mm(rows, rows.t(), scale_a=scale, scale_b=scale, out_dtype=torch.bfloat16)]
    else:
        images = torch.ones(1, _SIZE, _SIZE, _SIZE, device=device, dtype=_DTYPES[precision])
        filters = torch.ones(_SIZE, _SIZE, 1, 1, device=device, dtype=_DTYPES[precision])
        results = [functional.conv2d(images, filters), images[0, 0] @ images[0, 0]]
    sums = {number for result in results for number in result.flatten().tolist()}
    if sums != {float(_SIZE)}:
        raise ArithmeticError(f"its result is wrong: {sums} for {_SIZE}")


def _why_not(ask: Callable[[], object]) -> str | None:
    """Returns the first line of the error that `ask` raises, None without one: CUDA's messages are long."""
    try:
        ask()
    except Exception as error:  # noqa: BLE001 - any error is the answer
        return (str(error).strip().splitlines() or [type(error).__name__])[0]
    return None


if __name__ == "__main__":
    print(json.dumps(facts()))
