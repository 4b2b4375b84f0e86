import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psutil
import pytest

from autotune.system import devices, nvml, telemetry
from autotune.system.telemetry import Hardware, Telemetry

MIB = 2**20
SPIN = "while True: pass"
HOLD = "import time; held = bytearray({} << 20); time.sleep(60)"


@contextmanager
def child(code: str) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                for descendant in psutil.Process(process.pid).children(recursive=True):
                    descendant.kill()
            process.kill()


def until(condition: Callable[[], bool], timeout_s: float = 20.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it never became true"
        time.sleep(0.02)


def test_a_busy_process_is_seen_busy() -> None:
    with child(SPIN) as process, Telemetry(process.pid, interval_s=0.05) as watch:
        until(lambda: watch.latest().get("cpu_percent", 0.0) > 20)
    assert watch.summary()["cpu_percent"] > 1
    assert watch.latest()["host_rss_bytes"] > MIB


def test_samples_come_further_apart_with_time() -> None:
    """Each costs the sampled process some milliseconds, while the kernel walks its memory."""
    ages_s = (0.0, 1.0, 4.0, 10.0, 20.0, 1e6)
    assert [telemetry.pause_s(age_s, 0.5) for age_s in ages_s] == [0.5, 0.5, 1.0, 2.5, 5.0, 5.0]


def test_an_idle_process_is_seen_idle() -> None:
    with child("import time; print('ready', flush=True); time.sleep(60)") as process:
        assert process.stdout
        assert process.stdout.readline() == b"ready\n"
        with Telemetry(process.pid, interval_s=0.05) as watch:
            time.sleep(0.5)
    assert watch.summary()["cpu_percent"] < 15


def test_descendants_count_from_when_they_come() -> None:
    parent = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {HOLD.format(64)!r}])"
    with child(parent) as process, Telemetry(process.pid, interval_s=0.05) as watch:
        until(lambda: watch.latest().get("host_rss_bytes", 0.0) > 64 * MIB)


def test_the_peak_of_memory_outlives_the_worker_that_had_it() -> None:
    worker = HOLD.format(64)
    parent = (
        f"import subprocess, sys, time\nsubprocess.run([sys.executable, '-c', {worker!r}])\ntime.sleep(60)"
    )
    with child(parent) as process, Telemetry(process.pid, interval_s=0.05) as watch:
        until(lambda: watch.latest().get("host_rss_bytes", 0.0) > 64 * MIB)
        [held] = psutil.Process(process.pid).children()
        held.kill()
        until(lambda: watch.latest()["host_rss_bytes"] < 64 * MIB)
    assert watch.summary()["host_rss_bytes"] > 64 * MIB


def test_private_memory_of_children_counts_and_shared_memory_does_not() -> None:
    forks = (
        "import os, time; shared = bytearray(b'1') * (96 << 20)\n"
        "if not os.fork(): own = bytearray(b'1') * (32 << 20)\n"
        "time.sleep(60)"
    )
    with child(forks) as process, Telemetry(process.pid, interval_s=0.05) as watch:
        until(lambda: watch.latest().get("children_uss_bytes", 0.0) > 32 * MIB)
    assert watch.summary()["children_uss_bytes"] < 64 * MIB


def test_a_process_without_children_holds_nothing_in_them() -> None:
    with child(HOLD.format(64)) as process, Telemetry(process.pid, interval_s=0.05) as watch:
        until(lambda: watch.latest().get("host_rss_bytes", 0.0) > 64 * MIB)
    assert "children_uss_bytes" not in watch.summary()


def test_others_are_all_but_the_search() -> None:
    with child("import time; time.sleep(60)") as search, child(SPIN) as burner:
        with Telemetry(search.pid, interval_s=0.05, search=psutil.Process(search.pid)) as watch:
            until(lambda: sum(psutil.Process(burner.pid).cpu_times()[:2]) > 0.5)
            until(lambda: watch.summary().get("others_cpu_percent", 0.0) > 5)
        assert watch.summary()["allowed_cpus"] == len(os.sched_getaffinity(0))
        with Telemetry(search.pid, interval_s=0.05) as watch:
            until(lambda: "cpu_percent" in watch.latest())
        assert "others_cpu_percent" not in watch.summary(), "nobody said where the search begins"


def test_a_process_that_vanishes_is_normal(caplog: pytest.LogCaptureFixture) -> None:
    with child(HOLD.format(1)) as process, Telemetry(process.pid, interval_s=0.05) as watch:
        until(lambda: "host_rss_bytes" in watch.latest())
        process.kill()
        process.wait()
        until(lambda: "host_rss_bytes" not in watch.latest())
        assert watch.latest()["host_memory_percent"] > 0
    assert watch.summary()["host_rss_bytes"] > MIB
    assert not caplog.records


def test_a_process_that_was_never_there_is_normal(caplog: pytest.LogCaptureFixture) -> None:
    gone = subprocess.Popen([sys.executable, "-c", "pass"])
    gone.wait()
    with Telemetry(gone.pid, interval_s=0.05) as watch:
        until(lambda: bool(watch.latest()))
    assert "host_rss_bytes" not in watch.summary()
    assert not caplog.records


def test_the_context_ends_at_once_and_its_thread_with_it() -> None:
    with Telemetry(os.getpid(), interval_s=60.0) as watch:
        until(lambda: bool(watch.latest()))
    assert not [t for t in threading.enumerate() if t.name == "telemetry"]
    assert "cpu_percent" in watch.summary()  # the last sample is taken at the end, however long the interval


def test_means_are_weighted_by_time_and_peaks_are_not() -> None:
    series = telemetry._Series()
    series.add({"cpu_percent": 100.0, "host_rss_bytes": 10.0}, 1.0)
    series.add({"cpu_percent": 0.0, "host_rss_bytes": 30.0}, 3.0)
    series.add({"host_rss_bytes": 20.0}, 1.0)
    assert series.summary == {"cpu_percent": 25.0, "host_rss_bytes": 30.0}
    assert series.latest == {"host_rss_bytes": 20.0}


def test_the_minimum_of_free_memory_counts_also_per_gpu() -> None:
    series = telemetry._Series()
    for free, used, clock in ((7.0, 1.0, 900.0), (2.0, 6.0, 1100.0), (5.0, 3.0, 1000.0)):
        own = {"gpu_1_memory_used_bytes": used, "gpu_1_memory_clock_mhz": clock}
        series.add({"host_memory_free_bytes": free, "gpu_1_memory_free_bytes": free, **own}, 1.0)
    assert series.summary == {
        "host_memory_free_bytes": 2.0,
        "gpu_1_memory_free_bytes": 2.0,
        "gpu_1_memory_used_bytes": 6.0,
        "gpu_1_memory_clock_mhz": 1000.0,
    }


def test_the_memory_of_the_machine_is_used_or_free() -> None:
    seen, total = telemetry._machine(), psutil.virtual_memory().total
    in_all = seen["host_memory_used_bytes"] + seen["host_memory_free_bytes"]
    assert 0 < in_all <= total
    assert seen["host_memory_percent"] == pytest.approx(100 * seen["host_memory_used_bytes"] / in_all)


def test_hardware_is_this_machines() -> None:
    hardware = telemetry.hardware()
    assert 1 <= hardware.cpus <= len(os.sched_getaffinity(0))
    assert 2**28 < hardware.host_memory_bytes <= psutil.virtual_memory().total
    assert f"{hardware.cpus} CPU" in hardware.description


def test_hardware_respects_the_affinity_of_the_process() -> None:
    cpu = min(os.sched_getaffinity(0))
    code = (
        f"import os; os.sched_setaffinity(0, [{cpu}]); "
        "from autotune.system import telemetry; print(telemetry.hardware().cpus)"
    )
    assert _python(code) == "1"


def test_hidden_gpus_are_not_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert telemetry.hardware().gpus == ()


def test_it_needs_neither_torch_nor_ray() -> None:
    code = (
        "import sys; from autotune.system import telemetry; telemetry.hardware(); "
        "print(sorted({'torch', 'ray', 'numpy'} & set(sys.modules)))"
    )
    assert _python(code) == "[]"


def test_the_description_counts_equal_gpus() -> None:
    gpu = nvml.Gpu("NVIDIA A100-SXM4-80GB", 80 * 2**30, (8, 0), "GPU-0")
    assert Hardware(64, 512 * 2**30, (gpu, gpu), "580.1").description == (
        "2 x NVIDIA A100-SXM4-80GB (80.0 GiB), 64 CPUs, 512.0 GiB"
    )
    assert Hardware(1, 2**30, (), None).description == "no GPU, 1 CPU, 1.0 GiB"


@pytest.mark.gpu
@pytest.mark.skipif(not devices.list_visible(None), reason="needs an NVIDIA GPU")
def test_gpus_are_sampled() -> None:
    with Telemetry(os.getpid(), interval_s=0.05) as watch:
        until(lambda: "gpu_energy_j" in watch.latest() or "gpu_power_w" not in watch.latest())
    assert watch.summary()["gpu_memory_used_bytes"] > 0


def _python(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout.strip()
