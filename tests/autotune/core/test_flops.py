"""The share of a device's peak FLOP/s that a training uses."""

import pytest

from autotune.core import flops

H100 = "NVIDIA H100 80GB HBM3"


def test_utilisation_is_the_share_of_all_devices_peak() -> None:
    peak = flops.peaks(H100)["bf16"]
    assert flops.utilisation({"bf16": peak / 100}, 100.0, H100) == pytest.approx(1.0)
    assert flops.utilisation({"bf16": peak / 100}, 40.0, H100) == pytest.approx(0.4)
    assert flops.utilisation({"bf16": peak / 100}, 40.0, f"{H100}, {H100}") == pytest.approx(0.2)


def test_each_number_format_has_its_own_peak() -> None:
    peaks = flops.peaks(H100)
    half_and_half = {"fp32": peaks["fp32"] / 2, "bf16": peaks["bf16"] / 2}
    assert flops.utilisation(half_and_half, 1.0, H100) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("counted", "devices"),
    [
        ({}, H100),
        ({"bf16": 1.0}, "AMD EPYC 9R14"),
        ({"fp8": 1.0}, "NVIDIA A100-SXM4-80GB"),
        ({"bf16": 1.0, "complex64": 1.0}, H100),
        ({"bf16": 1.0}, f"{H100}, NVIDIA GeForce GTX 1080"),
    ],
)
def test_utilisation_is_unknown_without_a_count_or_a_peak(counted: dict[str, float], devices: str) -> None:
    assert flops.utilisation(counted, 1.0, devices) is None


@pytest.mark.parametrize(
    ("name", "bf16"),
    [
        ("NVIDIA H200", 989.4e12),
        ("NVIDIA H200 NVL", 835.5e12),
        ("NVIDIA H200 MIG 1g.18gb", None),
        ("NVIDIA A100-SXM4-40GB", 312e12),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", None),
        ("NVIDIA H100 80GB HBM3 MIG 3g.40gb", None),
        ("NVIDIA A10", 125e12),
        ("NVIDIA A10G", None),
        ("NVIDIA L4", 121e12),
        ("NVIDIA L40S", 362e12),
        ("Tesla T4", None),
        ("NVIDIA GeForce RTX 4090", 165.2e12),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", None),
    ],
)
def test_a_gpu_is_recognised_by_its_full_name(name: str, bf16: float | None) -> None:
    assert flops.peaks(name).get("bf16") == bf16
