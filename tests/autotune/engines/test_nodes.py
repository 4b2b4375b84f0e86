"""Searches on real clusters of several nodes: unlike nodes, nodes that cannot run trials, deaths."""

import json
import os
import re
import socket
from pathlib import Path

import pytest

from autotune.storage import study_file
from autotune.storage.records import is_mark, read_records
from autotune.storage.store import StoredSession
from tests import forked
from tests.autotune.engines.several_nodes import ONE_CPU, Started, started
from tests.endings import ENDED
from tests.forked import Forked
from tests.gpu.fake_nvml import FakeGpu, environment_of, nvml_library
from tests.waiting import wait_for

__all__ = ["nvml_library"]

ON_GPUS = Path(__file__).parents[2] / "gpu"

SPACE = """
workload: toy_workload:fit
baseline: {micro_batch_size: 4, learning_rate: 1e-3, step_s: 0.002}
knobs: {micro_batch_size: {choice: [4, 8, 16]}, learning_rate: {scale: sqrt}}
objective: {select: pareto}
budget: {trials: 3, samples_per_trial: 400, repeats: 0}
"""  # with the whole front as the objective, no trial is stopped for being slower
SLOW = SPACE.replace("step_s: 0.002", "step_s: 0.02")
GPU_SPACE = """
workload: gpu_toy:fit
baseline: {micro_batch_size: 4, num_workers: 0, learning_rate: 1e-3}
knobs: {micro_batch_size: {choice: [4, 16]}}
objective: {select: pareto}
budget: {trials: 2, samples_per_trial: 400, repeats: 0}
"""
# All nodes are this machine, on which other tests run: a probe says nothing.
ALIKE = "from autotune.system import node_kinds; node_kinds.ALIKE = 9.0"


def begin(directory, cluster, *more, space=SPACE, path=()):
    (directory / "space.yaml").write_text(space)
    named = (
        "search",
        "--space",
        "space.yaml",
        "--session",
        "s",
        "--wandb",
        "off",
        "--address",
        cluster.address,
    )
    return run(directory, cluster, *named, *more, path=path)


def run(directory, cluster, *arguments, path=()):
    """Starts the command line, which finds modules in `path`, too."""
    places = os.pathsep.join([*map(str, path), cluster.environment["PYTHONPATH"]])
    environment = {**cluster.environment, "PYTHONPATH": places}
    return Forked(arguments, directory, environment, script=f"{ALIKE}\n{forked.COMMAND}")


def wait_until(condition, process):
    """Waits until `condition` holds; fails with what `process` printed if that ends before."""
    wait_for(lambda: condition() or process.poll() is not None)
    assert process.poll() is None, process.communicate()


def trials_of(directory):
    try:
        return study_file.load_study(directory / "s" / "study.db").trials
    except KeyError:
        return []


def records_of(directory, number):
    return list(read_records(StoredSession(directory / "s").trial_dir(number)))


def nodes_of(directory, number):
    """The nodes on which a trial's processes were, in order."""
    return [record["node"] for record in records_of(directory, number) if is_mark(record)]


def free_port():
    with socket.socket() as found:
        found.bind(("", 0))
        return found.getsockname()[1]


def fake_node(name, device, gpus, library):
    path = os.pathsep.join(map(str, [ON_GPUS / "torch_on_fakes", ON_GPUS, os.environ.get("PYTHONPATH", "")]))
    environment = environment_of(*[FakeGpu(name=device)] * gpus) | {
        "LD_LIBRARY_PATH": str(library.parent),
        "PYTHONPATH": path,
        "PLACED": os.devnull,
    }
    return Started(name, cpus=gpus, gpus=gpus, environment=environment)


@pytest.mark.slow
def test_a_search_uses_the_nodes_of_one_kind_and_says_where_every_trial_ran(tmp_path):
    with started(Started("a", cpus=2), Started("b", sees=ONE_CPU)) as cluster:
        process = begin(tmp_path, cluster)
        said, errors = process.communicate(240)
        assert errors == ""
        assert process.returncode in ENDED
        assert "1 of the 2 nodes used, of one kind: " in said
        assert "node b left out: of another kind: " in said
        assert {trial.measurement.node for trial in trials_of(tmp_path)} == {"a"}
        assert nodes_of(tmp_path, 0) == ["a"]
        assert "trial 0 started on a: batch 4 " in said
        shown = json.loads(run(tmp_path, cluster, "status", "s", "--json").communicate(60)[0])
        assert {node["name"] for node in shown["nodes"] if node["left_out"] is None} == {"a"}
        assert {trial["node"] for trial in shown["trials"]} == {"a"}


ALL_AT_ONCE = SPACE.replace("toy_workload:fit", "all_at_once:fit").replace("trials: 3", "trials: 6")


@pytest.mark.long
def test_a_node_that_joins_fills_with_trials(tmp_path):
    """No trial ends before six of them are running, on one CPU at first, and on six in the end."""
    with started(Started("a")) as cluster:
        process = begin(tmp_path, cluster, space=ALL_AT_ONCE)
        wait_until(lambda: nodes_of(tmp_path, 0), process)
        try:
            cluster.add(Started("b", cpus=5))
            said, errors = process.communicate(240)
        finally:
            cluster.kill("b")
    assert errors == ""
    assert process.returncode in ENDED
    assert "node b takes part from now on" in said
    assert sorted(trial.measurement.node for trial in trials_of(tmp_path)) == ["a", *["b"] * 5]


@pytest.mark.slow
def test_a_trial_continues_on_another_node_when_its_own_dies(tmp_path):
    with started(Started("a"), Started("b")) as cluster:
        process = begin(tmp_path, cluster, "--trials", 3, "--samples", 2000, space=SLOW)
        wait_until(lambda: any(nodes_of(tmp_path, number) == ["b"] for number in (0, 1)), process)
        number = int(nodes_of(tmp_path, 1) == ["b"])
        wait_until(lambda: len(records_of(tmp_path, number)) > 200, process)
        cluster.kill("b")
        said, errors = process.communicate(240)
    assert errors == ""
    assert process.returncode in ENDED
    assert "node b left out: it is gone" in said
    print(said)
    assert re.search(rf"trial {number} interrupted .*(node b is gone|its supervisor on node b died)", said)
    assert nodes_of(tmp_path, number) == ["b", "a"]
    moved = trials_of(tmp_path)[number]
    assert moved.measurement.node == "a"
    assert moved.measurement.throughput.steps < 2000 / 4 - 100, "those on b do not count"


@pytest.mark.long
@pytest.mark.parametrize(
    ("victim", "moves"), [("gcs_server", False), ("", True)], ids=["head", "its machine"]
)
def test_the_death_of_the_head_is_one_line_and_the_search_can_be_resumed(tmp_path, victim, moves):
    port = free_port()
    with started(Started("a"), Started("b"), port=port) as cluster:
        process = begin(tmp_path, cluster, "--samples", 2000, space=SLOW)
        wait_until(lambda: len(records_of(tmp_path, 0)) > 100, process)
        cluster.kill("a", only=victim)
        said, errors = process.communicate(60)
    print(said)
    how = "nothing is lost; continue with: python -m autotune resume s"
    lost = f"autotune: the Ray cluster at {cluster.address} does not answer any more; {how}"
    assert errors.splitlines() == [lost]
    assert process.returncode == 1
    with started(Started("a"), Started("b"), port=free_port() if moves else port) as cluster:
        again = run(tmp_path, cluster, "resume", "s", *(["--address", cluster.address] if moves else ()))
        said, errors = again.communicate(240)
    assert errors == ""
    assert again.returncode in ENDED
    assert [trial.completed for trial in trials_of(tmp_path)] == [True] * 3


@pytest.mark.slow
@pytest.mark.skipif(os.getuid() != 0, reason="only root may mount")
def test_a_node_that_cannot_run_the_trials_is_left_out_in_one_line(tmp_path):
    with started(Started("a"), Started("b", hides=str(tmp_path))) as cluster:
        process = begin(tmp_path, cluster)
        said, errors = process.communicate(240)
    assert errors == ""
    assert process.returncode in ENDED
    assert f"node b left out: session {tmp_path / 's'}: there is no session here" in said
    assert {trial.measurement.node for trial in trials_of(tmp_path)} == {"a"}


@pytest.mark.long
def test_without_a_node_for_the_trials_the_search_ends_in_one_line(tmp_path):
    with started(Started("a", cpus=0), Started("b")) as cluster:
        process = begin(tmp_path, cluster, "--samples", 2000, space=SLOW)
        wait_until(lambda: len(records_of(tmp_path, 0)) > 100, process)
        cluster.kill("b")
        said, errors = process.communicate(60)
    print(said)
    (line,) = errors.splitlines()
    assert line.startswith("autotune: trials can run on no node of the cluster: ")
    assert line.endswith("nothing is lost. Fix that, then run: python -m autotune resume s")
    assert process.returncode == 2


@pytest.mark.long
def test_trials_run_on_one_kind_of_gpu(tmp_path, nvml_library):
    nodes = [fake_node("a", "NVIDIA A100", 2, nvml_library), fake_node("b", "Tesla T4", 1, nvml_library)]
    path = [ON_GPUS, ON_GPUS / "torch_on_fakes"]
    with started(*nodes) as cluster:
        wrong = begin(tmp_path, cluster, "--device-type", "H100", space=GPU_SPACE, path=path)
        assert wrong.communicate(240)[1] == (
            "autotune: --device-type: must be a part of one of these: NVIDIA A100, Tesla T4, got 'H100'\n"
        )
        many = begin(tmp_path, cluster, "--gpus-per-trial", 3, space=GPU_SPACE, path=path)
        assert many.communicate(240)[1] == (
            "autotune: --gpus-per-trial: must be 0 to 1, or a whole number up to 2, got 3\n"
        )
        process = begin(tmp_path, cluster, "--device-type", "t4", space=GPU_SPACE, path=path)
        said, errors = process.communicate(240)
    print(said)
    assert errors == ""
    assert process.returncode in ENDED
    assert "node a left out: of another kind: NVIDIA A100, " in said
    origins = {(t.measurement.node, t.measurement.device) for t in trials_of(tmp_path)}
    assert origins == {("b", "Tesla T4")}
