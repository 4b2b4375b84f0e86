"""The pure parts run anywhere; device queries only run with a device."""

import pynvml
import pytest

from autotune.system import devices, nvml
from tests.gpu.fake_nvml import FakeGpu, fake_gpus, nvml_library

__all__ = ["fake_gpus", "nvml_library"]

needs_gpu = pytest.mark.skipif(not devices.list_visible(None), reason="needs an NVIDIA GPU")


def test_energy_is_the_counters_difference_if_there_is_a_counter() -> None:
    before = {"energy_counter_j": 1000.0, "gpu_power_w": 5.0}
    assert nvml.energy_j(before, {"energy_counter_j": 1250.0, "gpu_power_w": 5.0}, seconds=2.0) == 250.0


def test_energy_is_integrated_from_power_elsewhere() -> None:
    assert nvml.energy_j({"gpu_power_w": 100.0}, {"gpu_power_w": 300.0}, seconds=2.0) == 400.0


def test_energy_is_unknown_without_counter_or_power() -> None:
    assert nvml.energy_j({"gpu_power_w": 100.0}, {}, seconds=2.0) is None


def test_devices_are_combined_by_the_kind_of_figure() -> None:
    combined = nvml.combine(
        [
            {
                "gpu_power_w": 300.0,
                "gpu_memory_used_bytes": 5.0,
                "gpu_memory_free_bytes": 7.0,
                "gpu_utilisation_percent": 90.0,
            },
            {
                "gpu_power_w": 200.0,
                "gpu_memory_used_bytes": 9.0,
                "gpu_memory_free_bytes": 3.0,
                "gpu_utilisation_percent": 50.0,
                "gpu_throttled": 1.0,
            },
        ]
    )
    assert {name: value for name, value in combined.items() if nvml.combined_name(name) == name} == {
        "gpu_power_w": 500.0,
        "gpu_memory_used_bytes": 9.0,
        "gpu_memory_free_bytes": 3.0,
        "gpu_utilisation_percent": 70.0,
        "gpu_throttled": 1.0,
    }


def test_each_of_several_devices_has_its_own_figures_as_well() -> None:
    one = {"gpu_power_w": 300.0, "energy_counter_j": 7.0, "others_gpu_percent": 1.0}
    assert nvml.combine([one]) == {"gpu_power_w": 300.0, "others_gpu_percent": 1.0}
    assert nvml.combine([one, {"gpu_power_w": 100.0}]) == {
        "gpu_power_w": 400.0,
        "others_gpu_percent": 1.0,
        "gpu_0_power_w": 300.0,
        "gpu_1_power_w": 100.0,
    }
    each = nvml.by_gpu(nvml.combine([one, {"gpu_power_w": 100.0}]))
    assert each == {0: {"gpu_power_w": 300.0}, 1: {"gpu_power_w": 100.0}}
    assert nvml.combined_name("gpu_12_power_w") == nvml.combined_name("gpu_power_w") == "gpu_power_w"


def test_no_devices_combine_to_nothing() -> None:
    assert nvml.combine([]) == {}


@pytest.fixture
def load_by_others(fake_gpus):
    """Returns the load by processes other than 1 and 2 of a GPU with these figures."""

    def load(**figures):
        fake_gpus(FakeGpu(**figures))
        with devices.opened() as (handle,):
            return nvml.load_by_others(handle, {1, 2}, 1.0)

    return load


def test_others_on_a_gpu_are_those_that_are_not_the_searchs(load_by_others):
    found = load_by_others(pid=1, busy=60, others=((3, 20), (3, 25), (4, 5)))
    assert found == {"others_gpu_percent": 30.0}
    assert load_by_others(pid=1, others=((3, 80), (4, 80))) == {"others_gpu_percent": 100.0}


def test_an_idle_gpu_has_zero_utilisation_by_others(load_by_others):
    fails = {"ProcessUtilization": pynvml.NVML_ERROR_NOT_FOUND}
    assert load_by_others(pid=1, fails=fails) == {"others_gpu_percent": 0.0}


@pytest.mark.parametrize("error", [pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_GPU_IS_LOST])
def test_figures_of_others_unknown_to_nvml_are_left_out(load_by_others, error):
    assert load_by_others(pid=1, others=((3, 20),), fails={"ProcessUtilization": error}) == {}


def test_a_driver_with_foreign_process_ids_says_nothing_about_others(load_by_others):
    assert load_by_others(pid=4001, busy=90, others=((4002, 5),)) == {}


def test_of_several_devices_the_one_most_used_by_others_counts():
    assert nvml.combine([{"others_gpu_percent": 5.0}, {"others_gpu_percent": 40.0}]) == {
        "others_gpu_percent": 40.0
    }


@pytest.mark.skipif(nvml.error() is None, reason="needs a machine without an NVIDIA driver")
def test_without_a_driver_there_are_no_gpus_and_a_reason() -> None:
    assert devices.list_visible(None) == ()
    assert nvml.driver() is None
    assert nvml.error()


@pytest.mark.gpu
@needs_gpu
def test_a_gpu_has_its_identity_and_its_state() -> None:
    gpu = devices.list_visible(None)[0].gpu
    assert gpu
    assert gpu.uuid.startswith("GPU-")
    assert gpu.memory_bytes > 2**30
    assert gpu.compute_capability >= (5, 0)
    assert [one.gpu for one in devices.list_visible(gpu.uuid)] == [gpu]
    with devices.opened() as visible:
        reading = nvml.read(visible[0])
    assert 0 < reading["gpu_memory_used_bytes"] <= gpu.memory_bytes
    assert 0 <= reading["gpu_memory_free_bytes"] <= gpu.memory_bytes
    assert reading["gpu_memory_clock_mhz"] > 0
    assert 0 <= reading["gpu_utilisation_percent"] <= 100
