"""The parts of the check that need no GPU, on the CPU: real trials of a tiny model."""

import math
import time
from types import SimpleNamespace

import pytest

from autotune.space.machine import Machine
from autotune.system.telemetry import hardware
from autotune.workloads import registry
from lab.gpu_check import check, of_card, of_model, of_scripts, of_speed
from lab.gpu_check.bench import Bench
from lab.gpu_check.check import Point
from r2gen import synthetic

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

TINY = {"d_model": 16, "d_ff": 16, "max_seq_length": 8, "beam_size": 1, "num_workers": 0}


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    """A bench without a GPU."""
    place = tmp_path_factory.mktemp("bench")
    data = synthetic.make(place, {"train": 40, "val": 2, "test": 1}, seed=0, size=64)
    settings = {**registry.load("r2gen").models["small"], **TINY, "data": str(data)}
    machine = Machine(1, fails={"bf16": "is left out"})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUDA_VISIBLE_DEVICES", "-1")
        yield Bench.for_model(hardware(), machine, settings, place, time.monotonic() + 3600)


def asked(bench, ask):
    return {one.name: one for one in check.run(bench, [Point("point", ask, math.inf)])}


def test_the_speed_is_held_against_whole_epochs(bench):
    speed, waits = asked(bench, of_speed.stamped_speed).values()
    assert speed.ok is not None
    assert speed.figures["stamped_per_s"] > 0
    assert math.isclose(speed.figures["stamped_per_s"], speed.figures["epochs_per_s"], rel_tol=0.9)
    assert waits.ok is None


def test_evaluations_are_timed(bench):
    (evaluation,) = asked(bench, of_speed.second_evaluation).values()
    assert len(evaluation.figures["evaluations_s"]) == 2


def test_the_card_is_measured_by_itself(bench):
    (found,) = asked(bench, of_card.the_card_itself).values()
    assert found.ok, found.detail
    assert found.figures.keys() >= {"matmul_fp32_tflops", "memory_gb_per_s", "launch_us"}
    assert min(found.figures.values()) > 0
    assert "matmul_fp32" in found.detail


@pytest.mark.long
def test_a_script_on_the_command_line_is_counted(bench):
    script = asked(bench, of_scripts.plain_script)["a script is measured on the GPU"]
    assert (script.ok, script.figures) == (True, {"step_samples": 64}), script.detail
    (ranks,) = asked(bench, of_scripts.two_ranks).values()
    assert (ranks.ok, ranks.detail) == (None, "there is one GPU")
    assert bench.trained[-1]["workload"] == "command"


@pytest.mark.long
def test_the_ranks_of_a_script_count_as_one_training(bench, monkeypatch):
    two = SimpleNamespace(gpus=(None, None))
    monkeypatch.setattr(of_scripts, "replace", lambda order, **_: order)  # it gets no GPUs
    changed = SimpleNamespace(hardware=two, script_order=bench.script_order, run=bench.run, device="cpu")
    (found,) = of_scripts.two_ranks(changed)
    assert (found.ok, found.figures) == (True, {"step_samples": 128}), found.detail


@pytest.mark.long  # two of five runs beside other searches had one combination, and did not say why
def test_every_combination_is_trained_or_the_reason_is_given(bench):
    found = asked(bench, of_model.every_combination)
    assert len(found) == len(of_model.combinations())
    told = [(name, one.ok, one.detail) for name, one in found.items() if one.detail != "needs a CUDA device"]
    said = "\n".join(map(str, [*told, *bench.failed]))
    assert {name for name, one in found.items() if one.ok} == {"fp32", "fp32, checkpointing"}, said
    losses = {one.figures["loss"] for one in found.values() if one.ok}
    assert max(losses) == pytest.approx(min(losses), rel=1e-4), "the same training"
    assert found["bf16"].detail == "is left out"
    assert found["tf32, cuda-graphs"].detail
    assert not any(one.ok is False for one in found.values())
