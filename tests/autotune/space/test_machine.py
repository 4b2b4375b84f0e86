"""Restriction of a space to what a machine can run."""

import pytest

from autotune.core.errors import InputError
from autotune.core.settings import COMMON, KnownSetting, Needs
from autotune.space import machine as machines
from autotune.space.knobs import Distribution
from autotune.space.machine import Machine

GPU = Machine(cpus=16, compute_capability=(9, 0), has_torchao=True)


def test_unsupported_values_are_dropped_with_their_reasons(space):
    fitted, dropped = machines.fit_to(space, Machine(cpus=2))
    assert fitted.knobs["precision"].choice == ("fp32", "bf16")
    assert fitted.knobs["num_workers"].choice == (0, 2)
    assert "precision fp16: dropped, needs a CUDA device" in dropped
    assert "num_workers 8: dropped, this machine has 2 CPUs" in dropped


def test_on_a_cpu_a_gpu_setting_stays_only_as_the_baseline(space):
    knobs = {**space.knobs, "precision": Distribution(choice=("torch-default", "bf16"))}
    fitted, dropped = machines.fit_to(space.model_copy(update={"knobs": knobs}), Machine(cpus=2))
    assert "precision torch-default: dropped, is for CUDA devices" in dropped
    assert fitted.knobs["precision"].choice == ("bf16",)
    today = {**space.baseline, "precision": "torch-default"}
    whole = space.model_copy(update={"knobs": knobs, "baseline": today})
    assert machines.fit_to(whole, Machine(cpus=2))[0].knobs["precision"].choice == ("torch-default", "bf16")


def test_a_recent_gpu_runs_everything(space):
    assert machines.fit_to(space, GPU) == (space, [])


@pytest.mark.parametrize(
    ("capability", "precision", "part"),
    [((8, 0), "fp8", "8.9"), ((7, 5), "bf16", "8.0"), ((7, 5), "tf32", "8.0"), (None, "fp16", "CUDA")],
)
def test_a_precision_needs_its_compute_capability(capability, precision, part):
    machine = Machine(cpus=8, compute_capability=capability, has_torchao=True)
    assert part in machines.explain_unsupported("precision", precision, machine)


def test_a_baseline_that_cannot_run_here_is_refused(space):
    moved = space.model_copy(update={"baseline": {**space.baseline, "precision": "fp16"}})
    with pytest.raises(InputError, match="precision 'fp16' needs a CUDA device"):
        machines.fit_to(moved, Machine(cpus=8))


def test_requirements_of_a_workloads_own_settings_are_checked():
    known = COMMON.with_own([KnownSetting("attention", needs={"fused": Needs(cuda=True)})])
    with pytest.raises(InputError, match="attention 'fused' needs a CUDA device"):
        machines.require("the baseline", {"attention": "fused"}, Machine(cpus=8), known)
