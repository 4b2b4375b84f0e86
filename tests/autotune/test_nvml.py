"""The pure parts run anywhere; what asks a device runs where there is one."""

import pytest

from autotune import nvml

UUIDS = ["GPU-aa11", "GPU-ab22", "GPU-cc33"]
needs_gpu = pytest.mark.skipif(not nvml.gpus(None), reason="needs an NVIDIA GPU")


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, UUIDS),
        ("", []),
        ("-1", []),
        ("1", ["GPU-ab22"]),
        ("2,0", ["GPU-cc33", "GPU-aa11"]),
        (" 2 , 0 ", ["GPU-cc33", "GPU-aa11"]),
        ("0,7,1", ["GPU-aa11"]),  # CUDA stops at the first that is not there
        ("GPU-cc", ["GPU-cc33"]),
        ("GPU-a", []),  # it could be either of two
        ("MIG-1234", ["MIG-1234"]),
    ],
)
def test_visible_devices_are_read_as_cuda_reads_them(visible: str | None, expected: list[str]) -> None:
    assert nvml.select(UUIDS, visible) == expected


def test_energy_is_the_counters_difference_where_there_is_one() -> None:
    before = {"energy_counter_j": 1000.0, "gpu_power_w": 5.0}
    assert nvml.energy_j(before, {"energy_counter_j": 1250.0, "gpu_power_w": 5.0}, seconds=2.0) == 250.0


def test_energy_is_integrated_from_power_elsewhere() -> None:
    assert nvml.energy_j({"gpu_power_w": 100.0}, {"gpu_power_w": 300.0}, seconds=2.0) == 400.0


def test_energy_of_a_device_that_tells_neither_is_unknown() -> None:
    assert nvml.energy_j({"gpu_power_w": 100.0}, {}, seconds=2.0) is None


def test_devices_combine_by_what_the_figure_means() -> None:
    combined = nvml.combine(
        [
            {"gpu_power_w": 300.0, "gpu_memory_used_bytes": 5.0, "gpu_utilisation_percent": 90.0},
            {
                "gpu_power_w": 200.0,
                "gpu_memory_used_bytes": 9.0,
                "gpu_utilisation_percent": 50.0,
                "gpu_throttled": 1.0,
            },
        ]
    )
    assert combined == {
        "gpu_power_w": 500.0,
        "gpu_memory_used_bytes": 9.0,
        "gpu_utilisation_percent": 70.0,
        "gpu_throttled": 1.0,
    }


def test_no_devices_combine_to_nothing() -> None:
    assert nvml.combine([]) == {}


@pytest.mark.skipif(nvml.missing() is None, reason="needs a machine without an NVIDIA driver")
def test_without_a_driver_there_are_no_gpus_and_a_reason() -> None:
    assert nvml.gpus(None) == ()
    assert nvml.driver() is None
    assert nvml.missing()


@pytest.mark.gpu
@needs_gpu
def test_a_gpu_says_who_it_is_and_how_it_is() -> None:
    gpu = nvml.gpus(None)[0]
    assert gpu.uuid.startswith("GPU-")
    assert gpu.memory_bytes > 2**30
    assert gpu.compute_capability >= (5, 0)
    assert nvml.gpus(gpu.uuid) == (gpu,)
    with nvml.library():
        reading = nvml.read(nvml.handles("0")[0])
    assert 0 < reading["gpu_memory_used_bytes"] <= gpu.memory_bytes
    assert 0 <= reading["gpu_utilisation_percent"] <= 100
