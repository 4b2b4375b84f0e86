"""The Ray resources of a trial and its supervisor's environment, neither of which depends on the trial."""

import os
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from autotune.core.trial import Repeat, Trial
from autotune.engines import supervisor
from autotune.engines.engine import _Bridge
from autotune.engines.supervisor import Supervisor
from autotune.storage.store import Options, StoredSession
from autotune.system.nvml import Gpu
from autotune.system.telemetry import Hardware
from autotune.trials.progress import Phase
from autotune.trials.report import TrialReport
from autotune.trials.setup import Setup
from autotune.workloads.base import Workload

GPU = Gpu("Test GPU", 8 * 2**30, (9, 0), "GPU-0")


@pytest.fixture
def resources(tmp_path, space):
    """Returns the resources of trials that share a GPU of a machine with 16 CPUs, two at a time."""
    session = StoredSession.create(tmp_path / "s", space, Options(gpus_per_trial=0.5), {})
    setup = Setup(session, space, Workload("json:loads"), Hardware(16, 2**36, (GPU,), None))

    def ask(trial):
        search = SimpleNamespace(running=list, next=lambda: trial, space=space)
        given = _Bridge(search, setup, slots=2, cpus=8).suggest()
        return Supervisor.default_resource_request(given).bundles

    return ask


def test_trials_with_few_and_with_many_workers_ask_for_the_same(resources, space):
    """Otherwise no supervisor could be reused by the other, and their thread counts would differ."""
    few, many = (Trial(1, {**space.baseline_config, "num_workers": n}) for n in (0, 8))
    assert resources(few) == resources(many) == [{"CPU": 8.0, "GPU": 0.5}]


def test_only_a_trial_that_runs_alone_has_the_whole_gpu(resources, space):
    assert resources(Trial(7, space.baseline_config, ablation_of=3)) == [{"CPU": 8.0, "GPU": 1.0}]
    repeat = Trial(8, space.baseline_config, repeat=Repeat(3, 2))
    assert resources(repeat) == [{"CPU": 8.0, "GPU": 0.5}], "as the trial that it repeats"


def test_a_supervisor_counts_gpus_as_nvml_does_in_a_cluster_too(monkeypatch):
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "FASTEST_FIRST")
    object.__new__(Supervisor).setup({"gpu": 1.0, "preload": (), "order": {}})
    assert os.environ["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"


def test_a_supervisor_that_loses_its_trial_to_another_one_has_not_begun_it(monkeypatch):
    begun, running = [], Mock()
    running.step.return_value = TrialReport(2, Phase.TRAINING, 0.0)
    monkeypatch.setattr(supervisor, "_start_order", lambda order, *_: begun.append(order) or running)
    made = object.__new__(Supervisor)
    made.setup({"gpu": 1.0, "preload": (), "order": {"number": 1}})
    made.reset_config({"order": {"number": 2}})
    assert begun == []
    for _ in range(2):
        made.step()
    assert begun == [{"number": 2}]
