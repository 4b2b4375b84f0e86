from dataclasses import replace

import pytest

from autotune.feasibility import dominating


@pytest.fixture
def failed(make_trial):
    return [make_trial(3, failure="oom", micro_batch_size=32, accumulation_steps=2, precision="fp32")]


def config(**changes):
    return {"micro_batch_size": 32, "accumulation_steps": 2, "precision": "fp32"} | changes


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"micro_batch_size": 64},
        {"accumulation_steps": 4},
        {"learning_rate": 1e-3, "num_workers": 4},
    ],
)
def test_what_needs_no_less_memory_is_dominated(failed, changes):
    assert dominating(config(**changes), failed).number == 3


@pytest.mark.parametrize(
    "changes",
    [
        {"micro_batch_size": 16},
        {"accumulation_steps": 1},
        {"precision": "bf16"},
        {"activation_checkpointing": True},
        {"unknown_knob": 1},
    ],
)
def test_what_may_need_less_is_not(failed, changes):
    assert dominating(config(**changes), failed) is None


def test_other_failures_say_nothing_about_memory(make_trial):
    failed = [make_trial(3, failure=kind, accumulation_steps=2) for kind in ("error", "timeout", "lost")]
    assert dominating(failed[0].config, failed) is None


@pytest.mark.parametrize(
    "reason",
    [
        "RuntimeError: DataLoader worker (pid(s) 12) exited unexpectedly",
        "RuntimeError: unable to allocate shared memory(shm) for file </torch_1>",
        "killed by the kernel, which was out of memory",
        "Ray's memory monitor killed it: the machine was running out of memory",
    ],
)
def test_where_workers_took_part_in_it_fewer_of_them_may_fit(make_trial, reason):
    made = make_trial(3, failure="oom", num_workers=4)
    failed = [replace(made, outcome=replace(made.outcome, reason=reason))]
    assert dominating(made.config | {"num_workers": 2}, failed) is None
    assert dominating(made.config | {"num_workers": 8}, failed) is failed[0]


def test_an_out_of_memory_of_the_gpu_has_nothing_to_do_with_workers(make_trial):
    made = make_trial(3, failure="oom", num_workers=4)
    reason = "OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
    failed = [replace(made, outcome=replace(made.outcome, reason=reason))]
    assert dominating(made.config | {"num_workers": 0}, failed) is failed[0]
