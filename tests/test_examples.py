"""The examples, run as their README says."""

import importlib
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
import torch

from autotune.core.trial import Status
from autotune.space import spaces
from autotune.storage.layout import TrialDir
from autotune.storage.store import Options
from autotune.system.telemetry import hardware
from autotune.trials.attempt import Attempt
from autotune.trials.fork_server import ForkServer
from autotune.trials.setup import TrainingSetup
from autotune.workloads import registry
from tests import forked
from tests.endings import ENDED
from tests.waiting import wait_for

EXAMPLES = Path(__file__).parents[1] / "examples"

pytestmark = pytest.mark.usefixtures("_without_compiler")


@pytest.mark.long
def test_the_smallest_workload_can_be_tuned(tmp_path):
    for file in EXAMPLES.iterdir():
        if file.is_file():
            (tmp_path / file.name).write_bytes(file.read_bytes())
    command = (EXAMPLES / "README.md").read_text().split("python -m autotune ")[1].split("\n")[0].split()
    shorter = ("--trials", 2, "--samples", 10000, "--repeats", 0)
    done = forked.run((*command, *shorter), tmp_path, os.environ)
    assert done.returncode in ENDED, done.stdout + done.stderr
    assert "r2 0.99" in done.stdout or "r2 1.0" in done.stdout


@pytest.mark.long
def test_the_notebook_runs_from_top_to_bottom(tmp_path):
    (tmp_path / "linear.py").write_text("from beside import fit")  # as a workload has modules of its own
    (tmp_path / "beside.py").write_bytes((EXAMPLES / "linear.py").read_bytes())
    text = (EXAMPLES / "linear.yaml").read_text()
    (tmp_path / "linear.yaml").write_text(text.replace("40000}", "4096, repeats: 0}"))
    done = forked.run((), tmp_path, os.environ, script=(EXAMPLES / "notebook.py").read_text())
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Evidence(trial=" in done.stdout
    assert (tmp_path / "best.yaml").exists()


STAND_INS = {  # for the programs of Slurm, Ray and the tuner
    "scontrol": 'echo "scontrol $*" >> calls',
    "srun": 'exec "$@"',
    "ray": 'echo "$1 $4 $5" >> calls; while [ "$1" != -- ]; do shift; done; shift; "$@"',
    "autotune": """
        echo "$@" | sed "s/--address [0-9.:]*/--address HERE/" >> calls
        [ "$1" = search ] || exit 0
        mkdir s && touch s/session.json
        trap "echo closed >> calls; exit 130" TERM
        while :; do sleep 0.1; done
    """,
}


def test_a_job_of_slurm_stops_before_its_time_limit_and_resumes_once_it_is_queued_again(tmp_path):
    for name, text in STAND_INS.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    slurm = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "2"}
    run = ["bash", EXAMPLES / "cluster" / "slurm.sbatch", "s", "--trials", "9", "--", "python", "train.py"]
    with subprocess.Popen(run, cwd=tmp_path, env=slurm) as job:
        wait_for((tmp_path / "s" / "session.json").exists)
        time.sleep(0.2)  # until it minds signals
        job.send_signal(signal.SIGUSR1)
        assert job.wait(60) == 130
    started = "symmetric-run --min-nodes 2"
    search = "search --session s --address HERE --trials 9 -- python train.py"
    assert (tmp_path / "calls").read_text().splitlines() == [started, search, "closed", "scontrol requeue 7"]
    (tmp_path / "calls").unlink()
    subprocess.run(run, cwd=tmp_path, env=slurm, check=True)
    assert (tmp_path / "calls").read_text().splitlines() == [started, "resume s --address HERE"]


@pytest.fixture
def shapes(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    import shapes

    yield shapes
    sys.modules.pop("shapes")


@pytest.fixture
def settings():
    """Of the space beside it, with larger batches and fewer evaluations: it is quicker."""
    space = spaces.complete(
        spaces.parse((EXAMPLES / "shapes.yaml").read_text(), "shapes.yaml"), "shapes.yaml"
    )
    assert space.knobs.keys() <= space.baseline.keys()
    return {**space.baseline, "micro_batch_size": 16, "learning_rate": 4e-3, "eval_every_samples": 2000}


@pytest.mark.long
def test_shapes_are_learnt_and_every_image_is_scored(shapes, settings, tmp_path):
    seen = [r for r in shapes.fit({**settings, "epochs": 2}, tmp_path) if "accuracy" in r]
    assert [r["samples"] for r in seen] == [2000, 4000, 6000, 8000]
    first, last = seen[0], seen[-1]
    assert 0.1 <= first["accuracy_chance"] < 0.15
    assert first["accuracy_chance"] < first["accuracy"] < last["accuracy"]
    assert last["val_loss"] < first["val_loss"]
    assert sum(last["accuracy_items"]) / len(last["accuracy_items"]) == pytest.approx(last["accuracy"])
    assert not last["collapsed"]


def test_shapes_continue_from_their_checkpoint(shapes, settings, tmp_path):
    for name in ("whole", "stopped"):
        (tmp_path / name).mkdir()
    whole = list(islice(shapes.fit(settings, tmp_path / "whole"), 60))
    stopped = shapes.fit(settings, tmp_path / "stopped")
    begun = list(islice(stopped, 25))
    stopped.close()
    assert begun + list(islice(shapes.fit(settings, tmp_path / "stopped"), 35)) == whole


@pytest.mark.slow
def test_an_epoch_of_shapes_has_every_image_once(shapes, settings, tmp_path):
    settings |= {"micro_batch_size": 24, "accumulation_steps": 2, "epochs": 1}
    seen = [r["samples"] for r in shapes.fit(settings, tmp_path) if "accuracy" not in r]
    assert (seen[0], seen[-1]) == (48, shapes.TRAIN)


def test_a_network_that_always_answers_the_same_is_collapsed(shapes):
    _, held_out = shapes.data()
    model = shapes.network()
    with torch.no_grad():
        model[-1].weight.zero_()
    found = shapes.evaluate(model, *held_out)
    assert found["collapsed"]
    assert found["accuracy"] <= found["accuracy_chance"]


def test_every_class_is_drawn_to_learn_from_and_to_be_scored(shapes):
    (images, labels), (_, others) = shapes.data()
    assert images.shape == (shapes.TRAIN, 1, shapes.SIDE, shapes.SIDE)
    assert set(labels.tolist()) == set(others.tolist()) == set(range(shapes.CLASSES))


def one_trial(file, samples, place, **config):
    """The report of a trial of the search space in `file`, of so many `samples`."""
    space = spaces.complete(spaces.parse(file.read_text(), file.name), file.name)
    shorter = {"samples_per_trial": samples, "evaluations_per_trial": 2}
    space = space.model_copy(update={"budget": space.budget.model_copy(update=shorter)})
    workload = registry.load(registry.with_absolute_paths(space.workload, file.parent))
    training = TrainingSetup(space, workload, replace(hardware(), gpus=()), Options())
    running = Attempt(training.order(space.baseline_config | config, TrialDir(place)), ForkServer([]))
    while (report := running.step(1.0)).outcome is None:
        pass
    assert report.outcome.status is Status.COMPLETED, report.outcome.reason
    return report.measurement


@pytest.mark.slow
def test_a_training_that_reports_by_itself_is_a_trial(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(EXAMPLES)
    settings = {"micro_batch_size": 512, "learning_rate": 0.05, "seed": 0, "samples": 4096}
    importlib.import_module("push").fit(settings, tmp_path)  # outside of a trial
    found = one_trial(EXAMPLES / "push.yaml", 4096, tmp_path / "trial", micro_batch_size=64)
    assert [point.samples for point in found.curve][:2] == [2048, 4096]
    assert found.throughput.samples_per_s > 0


def test_a_script_with_flags_of_its_own_is_a_trial(tmp_path):
    """Its batches are counted, and its loss is read from its output: while it is, a step may pass or two."""
    found = one_trial(EXAMPLES / "command_line" / "space.yaml", 6400, tmp_path, micro_batch_size=64)
    assert [point.samples for point in found.curve][:2] == pytest.approx([3200, 6400], rel=0.2)
    assert found.curve[1].quality > found.curve[0].quality
    assert found.throughput.samples_per_s > 0


@pytest.mark.long
def test_a_script_with_flags_of_its_own_can_be_tuned(tmp_path):
    for file in (EXAMPLES / "command_line").iterdir():
        if file.is_file():
            (tmp_path / file.name).write_bytes(file.read_bytes())
    shorter = ("--trials", 2, "--samples", 4800, "--repeats", 0)
    command = ("search", "--space", "space.yaml", "--session", "s", "--wandb", "off")
    done = forked.run((*command, *shorter), tmp_path, os.environ)
    assert done.returncode in ENDED, done.stdout + done.stderr
    assert "val_loss 0." in done.stdout
    exported = forked.run(("export", "s", "-o", "best.sh"), tmp_path, os.environ)
    assert exported.returncode == 0, exported.stderr
    assert "train.py --batch_size " in (tmp_path / "best.sh").read_text()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    again = forked.run(("resume", "../s"), elsewhere, os.environ)
    assert again.returncode in ENDED, again.stdout + again.stderr
