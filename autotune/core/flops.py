"""Peak FLOP/s of GPUs, and the share of them that a training uses. Pure."""

import re
from collections.abc import Mapping

# Dense peaks in TFLOP/s (no sparsity, fp32 accumulation, boost clock), from NVIDIA's data sheets and
# architecture white papers. On a GPU without tf32 units, tf32 has the peak of fp32.
_HOPPER = {"fp64": 67.0, "fp32": 67.0, "tf32": 494.7, "bf16": 989.4, "fp16": 989.4, "fp8": 1978.9}
_PEAKS: Mapping[str, Mapping[str, float]] = {
    r"\bH200$": _HOPPER,
    r"\bH200 NVL$": {"fp64": 60.0, "fp32": 60.0, "tf32": 417.5, "bf16": 835.5, "fp16": 835.5, "fp8": 1670.5},
    r"\bH100 80GB HBM3\b": _HOPPER,
    r"\bH100 PCIe$": {"fp64": 51.0, "fp32": 51.0, "tf32": 378.0, "bf16": 756.5, "fp16": 756.5, "fp8": 1513},
    r"\bA100\b": {"fp64": 19.5, "fp32": 19.5, "tf32": 156.0, "bf16": 312.0, "fp16": 312.0},
    r"\bA10\b": {"fp32": 31.2, "tf32": 62.5, "bf16": 125.0, "fp16": 125.0},
    r"\bL4\b": {"fp32": 30.3, "tf32": 60.0, "bf16": 121.0, "fp16": 121.0, "fp8": 242.0},
    r"\bL40S\b": {"fp32": 91.6, "tf32": 183.0, "bf16": 362.0, "fp16": 362.0, "fp8": 733.0},
    r"\bV100-SXM2\b": {"fp64": 7.8, "fp32": 15.7, "tf32": 15.7, "fp16": 125.0},
    r"\bT4\b": {"fp32": 8.1, "tf32": 8.1, "fp16": 65.0},
    r"\bRTX 3090$": {"fp32": 35.6, "tf32": 35.6, "bf16": 71.0, "fp16": 71.0},
    r"\bRTX 4090$": {"fp32": 82.6, "tf32": 82.6, "bf16": 165.2, "fp16": 165.2, "fp8": 330.3},
}


def peaks(device: str) -> Mapping[str, float]:
    """Returns the peak FLOP/s of a GPU by number format; empty for a MIG slice and for an unknown device."""
    if re.search(r"\bMIG\b", device):  # it has the name of the whole GPU
        return {}
    tflops_by_format = next((peaks for name, peaks in _PEAKS.items() if re.search(name, device)), {})
    return {kind: 1e12 * tflops for kind, tflops in tflops_by_format.items()}


def utilisation(flops_per_sample: Mapping[str, float], samples_per_s: float, devices: str) -> float | None:
    """Returns the share of the devices' peak FLOP/s that a training uses, from 0 to 1.

    `devices` is a comma-separated list of names. The share is HFU if `flops_per_sample` includes recomputed
    operations, MFU if it has only those the model needs (Chowdhery et al., PaLM, 2022, appendix B). None if
    no operations were counted, or a peak is unknown.
    """
    tables = [peaks(device) for device in devices.split(", ")]
    if not flops_per_sample or any(kind not in table for kind in flops_per_sample for table in tables):
        return None
    least_s = sum(flops / sum(table[kind] for table in tables) for kind, flops in flops_per_sample.items())
    return least_s * samples_per_s
