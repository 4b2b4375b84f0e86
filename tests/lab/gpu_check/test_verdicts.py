from dataclasses import replace

import pytest

from autotune.sessions.gpus import DeviceVerdict, Fault
from autotune.system.nvml import Gpu
from lab.gpu_check import verdicts

GIB = 2**30
GPUS = (
    Gpu("NVIDIA A", 8 * GIB, (8, 9), "GPU-a", label="GPU 0"),
    Gpu("NVIDIA B", 24 * GIB, (9, 0), "GPU-b", label="GPU 1"),
)


def seen(uuid, gib, capability):
    return {"uuid": uuid, "memory_bytes": int(gib * GIB), "compute_capability": list(capability)}


def looked(*seen):
    """The verdicts on the GPUs, with torch's facts about each."""
    return [DeviceVerdict(gpu.label, gpu, seen=facts) for gpu, facts in zip(GPUS, seen, strict=True)]


A, B = seen("a", 7.8, (8, 9)), seen("b", 23.6, (9, 0))


def test_nvml_and_torch_agree():
    assert verdicts.differences(looked(A, B)) == []
    lost = DeviceVerdict("GPU 2", fault=Fault("GPU is lost", ""))
    assert verdicts.differences([*looked(A, B), lost]) == [], "it is reported by itself"
    part = replace(GPUS[0], uuid="MIG-a", label="GPU 0 MIG 1")
    assert verdicts.differences([DeviceVerdict(part.label, part, seen=A)]) == [], "by whatever name"


@pytest.mark.parametrize(
    ("told", "wrong"),
    [
        ((A, None), "GPU 1: torch does not see it"),
        ((seen("a", 7, (8, 9)), B), "GPU 0: NVML says 8.0 GiB, torch 7.0 GiB"),
        ((seen("a", 8.1, (8, 9)), B), "GPU 0: NVML says 8.0 GiB, torch 8.1 GiB"),
        ((seen("a", 7.8, (8, 6)), B), "GPU 0: NVML says capability 8.9, torch 8.6"),
    ],
)
def test_differences_are_named(told, wrong):
    assert verdicts.differences(looked(*told)) == [wrong]


@pytest.mark.parametrize(
    ("used", "kernel", "reason"),
    [
        (0, "6.8.0-generic", None),
        (GIB // 4, "6.8.0-generic", None),
        (GIB, "6.8.0-generic", "others use 1.0 GiB of GPU 0"),
        (0, "5.15.90.1-microsoft-standard-WSL2", "under WSL, a full GPU takes memory of the host"),
    ],
)
def test_a_gpu_is_filled_only_if_nobody_else_needs_it(used, kernel, reason):
    assert verdicts.reason_not_to_fill([replace(GPUS[0], used_bytes=used)], kernel, 2**34) == reason


def test_the_memory_of_the_host_is_not_filled():
    shared = replace(GPUS[0], used_bytes=0)
    assert verdicts.reason_not_to_fill([shared], "6.8.0", shared.memory_bytes) == "its memory is the host's"


@pytest.mark.parametrize(
    ("loss", "precision", "near"),
    [
        (2.09, "bf16", True),
        (1.91, "bf16", True),
        (2.11, "bf16", False),
        (2.11, "fp8", True),
        (2.3, "fp8", False),
        (float("nan"), "fp16", False),
    ],
)
def test_a_precision_trains_as_fp32_if_its_loss_is_within_the_tolerance(loss, precision, near):
    assert verdicts.is_near(loss, 2.0, precision) is near


def test_the_loss_is_the_mean_of_the_last_steps():
    losses = [9.0] * 5 + [2.0, 1.0] * 8
    steps = [{"samples": 8 * number, "train_loss": loss} for number, loss in enumerate(losses, 1)]
    records = [*steps, {"samples": 168, "bleu_4": 0.1}]
    assert verdicts.last_loss(records, 168) == pytest.approx((7 * 2.0 + 8 * 1.0) / 15)
    assert verdicts.last_loss([{"samples": 8, "bleu_4": 0.1}], 8) is None


def test_steps_after_a_trials_last_sample_do_not_count_for_its_loss():
    steps = [{"samples": 8 * number, "train_loss": 1.0} for number in range(1, 31)]
    late = [{"samples": 240, "bleu_4": 0.1}, {"samples": 248, "train_loss": 5.0}]
    assert verdicts.last_loss([*steps, *late], 240) == 1.0


def test_the_rate_of_whole_epochs_is_taken_from_the_second_one_on():
    epochs = [{"epoch_begun_s": at_s, "samples": n} for at_s, n in ((0, 8), (50, 108), (60, 208), (70, 308))]
    between = [{"samples": 150}]
    assert verdicts.epochs_rate([*epochs[:2], *between, *epochs[2:]]) == 10.0
    assert verdicts.epochs_rate(epochs[:2]) is None


@pytest.mark.parametrize(("stamped", "right"), [(102.9, True), (97.1, True), (103.1, False), (96.9, False)])
def test_a_speed_is_stamped_well_within_three_percent_of_whole_epochs(stamped, right):
    assert verdicts.is_stamped_well(stamped, 100.0) is right


def test_an_evaluation_takes_the_time_since_the_step_before():
    records = [
        {"at_s": 1.0},
        {"at_s": 4.0, "bleu_4": 0.1},
        {"at_s": 5.0},
        {"at_s": 6.0, "bleu_4": 0.1},
    ]
    assert verdicts.evaluations_s(records, "bleu_4") == [3.0, 1.0]


@pytest.mark.parametrize(
    ("seconds", "without"), [([3.0, 1.0], True), ([30.0, 1.0], False), ([1.0, 1.5], True)]
)
def test_a_plan_for_each_word_makes_the_first_evaluation_many_times_as_long(seconds, without):
    assert verdicts.is_without_plans(seconds) is without


def test_waits_are_the_mean_of_the_steps_that_were_watched():
    assert verdicts.waits([{"waits": 4}, {}, {"waits": 5}]) == 4.5
    assert verdicts.waits([{}]) is None
