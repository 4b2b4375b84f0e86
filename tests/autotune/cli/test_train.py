"""`autotune train`: runs to its end despite faults, and continues after a stop or a kill."""

import json
import os
import re
import shutil
import signal
import tempfile
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import yaml
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from autotune.__main__ import main
from autotune.cli import train as command
from autotune.cli.options import Trained
from autotune.storage.layout import TrainingDir
from autotune.storage.records import read_records
from autotune.training import events, whole
from autotune.training.events import Kind
from autotune.training.whole import promise_lines
from autotune.trials import child
from tests import forked
from tests.autotune.terminal import OnTerminal
from tests.autotune.trackers.wandb_files import read_runs
from tests.faults import killing, left_by_a_search
from tests.faults.sessions import KEPT
from tests.gpu.fake_nvml import FakeGpu, fake_gpus, nvml_library
from tests.gpu.fake_torch import fake_torch

__all__ = ["fake_gpus", "fake_torch", "nvml_library"]

HERE = Path(__file__).parents[1] / "training"
ENDLESS = 10**6  # samples: a training to be stopped must not have ended before
SPACE = """
workload: long_workload:fit
baseline:
  {{micro_batch_size: 8, accumulation_steps: 1, room: 4, again: {again}, faults: "{faults}", leaks: {leaks}}}
knobs: {{micro_batch_size: {{choice: [4, 8]}}}}
objective: {{quality: score}}
training: {{samples: {samples}}}
"""


@pytest.fixture(autouse=True)
def _workload(monkeypatch):
    monkeypatch.syspath_prepend(str(HERE))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr(whole, "_FIRST_WAIT_S", 0.1)  # the faults of tests pass at once


_begun = []


@pytest.fixture(autouse=True)
def _ended():
    """Ends the endless training that a test has left running."""
    yield
    while _begun:
        process = _begun.pop()
        if process.poll() is None:
            for member in killing.family(process):
                with suppress(psutil.Error):  # it has ended meanwhile
                    member.kill()
            os.kill(process.pid, signal.SIGKILL)
            process.wait(60)


def space(directory, faults="", samples=600, again=False, leaks=0):
    file = directory / "space.yaml"
    file.write_text(SPACE.format(faults=faults, samples=samples, again=str(again).lower(), leaks=leaks))
    return file


def train(directory, *more, faults="", samples=600, again=False):
    file = space(directory, faults, samples, again)
    return main(["train", str(file), "--workdir", str(directory / "t"), "--wandb", "off", *map(str, more)])


def started(directory, *more, samples=ENDLESS, leaks=0):
    """Starts the same training in a process of its own, and waits for its first checkpoint."""
    where = ("--workdir", directory / "t", "--wandb", "off")
    process = begun(directory, "train", space(directory, samples=samples, leaks=leaks), *where, *more)
    place = TrainingDir(directory / "t")
    killing.wait_for(lambda: (place.work / "state.json").exists() or process.poll() is not None)
    return process


def begun(directory, *command):
    (directory / "said").touch()
    _begun.append(forked.Forked(command, directory, os.environ, output=directory / "said"))
    return _begun[-1]


def further(directory):
    """Returns a number of samples that the training has not reached, and at which it is evaluated."""
    checkpoint = json.loads((directory / "t" / "work" / "state.json").read_text())[0]
    return (max(checkpoint, records(directory)[-1]["samples"]) // 200 + 3) * 200


def happened(directory):
    return [event.kind for event in events.read(TrainingDir(directory / "t").events_file)]


def records(directory):
    return [record for record in read_records(TrainingDir(directory / "t")) if "samples" in record]


def evaluations(directory):
    """Returns the samples at the evaluations."""
    return [record["samples"] for record in records(directory) if "score" in record]


def test_a_training_ends_when_it_has_all_its_samples(tmp_path, capsys):
    assert train(tmp_path, "--resume") == 0  # a requeued job always passes it
    said = capsys.readouterr().out
    assert f"{tmp_path / 't'}: no training to continue" in said
    assert "training for 600 samples" in said
    assert "after 400 samples: score 0.4000" in said
    assert int(re.search(r"completed after (\d+) samples", said)[1]) >= 600
    assert happened(tmp_path) == [Kind.BEGUN, Kind.ENDED]
    assert evaluations(tmp_path)[:3] == [200, 400, 600]

    assert train(tmp_path) == 2  # nothing is silently trained twice
    assert "already holds a training: add --resume to continue it" in capsys.readouterr().err
    assert train(tmp_path, "--resume") == 0
    assert "has completed already" in capsys.readouterr().out
    assert main(["report", str(tmp_path / "t")]) == 2
    assert "a training has no report" in capsys.readouterr().err


@pytest.mark.slow
def test_five_kills_and_a_transient_fault_lose_no_record(tmp_path, capsys):
    """The kills come at different points between two evaluations, and once just after one."""
    killed = [104, 200, 296, 400, 552]
    assert train(tmp_path, faults=" ".join(["passing@504", *(f"killed@{at}" for at in killed)])) == 0
    assert happened(tmp_path) == [Kind.BEGUN, *[Kind.RETRIED] * 6, Kind.ENDED]
    steps = [record["samples"] for record in records(tmp_path) if "train_loss" in record]
    assert steps == list(range(8, steps[-1] + 1, 8))
    assert evaluations(tmp_path)[:3] == [200, 400, 600]
    said = capsys.readouterr().out
    assert said.count("killed by SIGKILL") == 5
    assert "unspecified launch failure; continues from its checkpoint" in said


@pytest.mark.long
def test_a_loader_that_hangs_is_ended_and_the_training_goes_on(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(child.Child.__init__, "__defaults__", (child.Stalls(shortest_s=3.0),))
    assert train(tmp_path, faults="hung@300") == 0
    first, *between, last = happened(tmp_path)
    assert (first, set(between), last) == (Kind.BEGUN, {Kind.RETRIED}, Kind.ENDED)
    assert re.search(
        r"failed \(timeout\) after 304 samples: no record .* for 3 s; .* continues", capsys.readouterr().out
    )
    assert evaluations(tmp_path)[:3] == [200, 400, 600]
    worker = int((tmp_path / "t" / "work" / "worker").read_text())
    assert not killing.alive(one for one in psutil.process_iter() if one.pid == worker)
    assert "in hung" in (tmp_path / "t" / "log").read_text()  # a line of its stack


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_a_leak_is_reported_long_before_memory_is_full(tmp_path):
    """It is a leak of some megabytes a second, which shows after half a minute."""
    process = started(tmp_path, samples=10**10, leaks=8192)
    killing.wait_for(lambda: Kind.LEAK in happened(tmp_path) or process.poll() is not None, seconds=540.0)
    os.kill(process.pid, signal.SIGINT)
    assert process.wait(120) == 130
    assert happened(tmp_path) == [Kind.BEGUN, Kind.LEAK, Kind.STOPPED]
    said = (tmp_path / "said").read_text()
    assert re.search(r"use of the host's memory grows by .*; at this rate it is full after \d+", said)


def test_out_of_memory_is_answered_with_smaller_micro_batches(tmp_path, capsys):
    assert train(tmp_path, faults="out_of_memory@300") == 0
    assert happened(tmp_path) == [Kind.BEGUN, Kind.HALVED, Kind.ENDED]
    assert "batch 8 (2 x 4 accumulated) instead of batch 8" in capsys.readouterr().out
    assert {r["batch"] for r in records(tmp_path) if "batch" in r} == {8}  # the effective one stays
    assert json.loads((tmp_path / "t" / "plan.json").read_text())["changes"] == {
        "micro_batch_size": 4,
        "accumulation_steps": 2,
    }


def test_repeated_failures_without_progress_end_the_training(tmp_path, capsys):
    assert train(tmp_path, "--retries", 1, faults="passing@100", again=True) == 1
    assert happened(tmp_path) == [Kind.BEGUN, Kind.RETRIED, Kind.ENDED]
    assert "failed (error) after 104 samples: RuntimeError: CUDA error" in capsys.readouterr().out


def test_a_permanent_failure_ends_the_training_and_keeps_its_checkpoint(tmp_path, capsys):
    assert train(tmp_path, faults="lasting@300") == 1
    assert happened(tmp_path) == [Kind.BEGUN, Kind.ENDED]
    assert "ValueError: image 7 has no caption" in capsys.readouterr().out
    assert (tmp_path / "t" / "work" / "state.json").exists()


@pytest.fixture
def temporary(monkeypatch):
    """TMPDIR, short enough for sockets in it."""
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        monkeypatch.setenv("TMPDIR", directory)
        yield Path(directory)


@pytest.mark.parametrize(
    ("number", "code"),
    [pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow), (signal.SIGKILL, -signal.SIGKILL)],
)
def test_it_continues_from_its_checkpoint_after_a_stop_or_a_kill(tmp_path, temporary, number, code):
    process = started(tmp_path)
    family = killing.family(process)
    os.kill(process.pid, number)
    assert process.wait(120) == code
    killing.wait_for(lambda: not killing.alive(family), 60, "the end of everything")
    killing.wait_for(lambda: not list(temporary.glob("[!p]*")), 60, "no file but pymp-*, of multiprocessing")
    if number != signal.SIGKILL:
        said = (tmp_path / "said").read_text()
        assert "a second Ctrl-C, or a second SIGTERM, does not wait for it\n" in said
        assert "stopped; to continue, give the same command with --resume" in said
        stopped = list(events.read(TrainingDir(tmp_path / "t").events_file))[-1]
        assert (stopped.kind, stopped.samples) == (Kind.STOPPED, records(tmp_path)[-1]["samples"])

    enough = further(tmp_path)
    assert started(tmp_path, "--resume", samples=enough).wait(120) == 0
    assert happened(tmp_path)[-2:] == [Kind.CONTINUED, Kind.ENDED]
    unheard = set(range(200, enough + 1, 200)) - set(evaluations(tmp_path))
    assert not unheard or number == signal.SIGKILL  # evaluations of a trial whose tuner is dead
    assert enough not in unheard


@pytest.fixture
def watched(tmp_path):
    """Starts a training on a terminal, and waits until its panel has figures."""
    started = []

    def start(faults=""):
        where = ("--workdir", tmp_path / "t", "--wandb", "off")
        file = space(tmp_path, faults, samples=ENDLESS)
        started.append(OnTerminal(80, 30, "-m", "autotune", "train", file, *where))
        return started[-1]

    yield start
    for one in started:
        one.process.kill()
        one.process.wait()


def panels(lines):
    return sum(line.startswith("throughput ") for line in lines), lines.count("training batch 8")


@pytest.mark.slow
def test_on_a_terminal_a_panel_shows_progress_and_leaves_printed_lines_intact(watched):
    it = watched()
    evaluated = re.compile("quality .* after ")
    it.read_until(lambda lines: panels(lines) == (1, 1) and any(map(evaluated.match, lines)), 120)
    it.resize(40, 24)
    it.read_until(lambda lines: panels(lines) == (1, 1) and max(map(len, lines)) <= 40)
    it.process.send_signal(signal.SIGTERM)
    assert it.end() == 143
    assert it.terminal.has_cursor
    assert panels(it.left) == (0, 0)
    assert any(line.startswith("after 400 samples: score 0.4000") for line in it.left)
    said = " ".join(" ".join(it.left).split())
    assert said.count("stopping: the checkpoint is written after the next record") == 1
    assert "stopped; to continue" in said


@pytest.mark.slow
def test_a_second_signal_finds_the_terminal_as_it_was(watched):
    it = watched("hung@400")
    it.read_until(lambda lines: panels(lines) == (1, 1) and any("after 400" in line for line in lines), 120)
    it.process.send_signal(signal.SIGTERM)
    it.read_until(lambda lines: any(line.startswith("stopping: ") for line in lines))
    it.process.send_signal(signal.SIGTERM)
    assert it.end() == -signal.SIGTERM
    assert it.terminal.has_cursor
    assert panels(it.left) == (0, 0)


@pytest.mark.slow
def test_a_job_whose_processes_all_get_the_signal_continues_as_one_run_in_tensorboard_and_wandb(tmp_path):
    follow = ("--wandb", "offline", "--tag", "thesis")
    process = started(tmp_path, *follow)
    (trained,) = killing.kinds(killing.family(process))["child"]
    for pid in (trained.pid, process.pid):
        os.kill(pid, signal.SIGTERM)
    assert process.wait(120) == 143
    assert happened(tmp_path)[-1] == Kind.STOPPED
    assert "to continue, give the same command with --resume" in (tmp_path / "said").read_text()
    enough = max(1000, further(tmp_path))
    assert started(tmp_path, "--resume", *follow, samples=enough).wait(120) == 0

    stopped, ended = sorted(read_runs(tmp_path / "t"), key=lambda run: run.exit_code, reverse=True)
    assert (stopped.id, stopped.name, stopped.group) == (ended.id, "t-training", "t")
    assert (stopped.exit_code, ended.exit_code) == (255, 0)
    assert {"long_workload:fit", "thesis"} <= set(ended.tags)
    assert ended.config["micro_batch_size"] == 8
    assert ended.summary["status"] == "completed"
    assert ended.column("val/score")[-1] == 1.0
    assert {"train/loss", "perf/throughput", "system/host_rss_bytes"} <= ended.summary.keys()

    board = EventAccumulator(str(tmp_path / "t" / "tensorboard" / "t"), size_guidance={"scalars": 0}).Reload()
    steps = [event.step for event in board.Scalars("val/score")]
    assert steps == sorted(set(steps))
    assert enough in steps


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--wandb", "maybe"], "--wandb: must be one of auto, online, offline, off, got 'maybe'"),
        (["--tag", "x" * 65], "--tag: a tag has 1 to 64 characters"),
        (["--trial", "3"], "--trial 3: needs a session"),
        (["--gpus-per-trial", "1"], "--gpus-per-trial: must be 0, because there is no GPU here, got 1"),
        (["--workdir", "{here}"], "must be empty or hold a training"),
    ],
)
def test_wrong_input_is_one_line(tmp_path, capsys, arguments, said):
    file = space(tmp_path)
    given = [argument.format(here=tmp_path) for argument in arguments]
    assert main(["train", str(file), "--workdir", str(tmp_path / "t"), *given]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.slow
def test_an_endless_training_needs_a_length(tmp_path, capsys):
    file = space(tmp_path)
    file.write_text(file.read_text().replace("training: {samples: 600}\n", ""))
    assert main(["train", str(file), "--workdir", str(tmp_path / "t")]) == 2
    assert "training.samples: has to say how long the whole training is" in capsys.readouterr().err


def test_a_training_without_a_directory_continues_in_the_one_it_began_in(tmp_path):
    file = space(tmp_path, samples=ENDLESS)
    process = begun(tmp_path, "train", file, "--wandb", "off")
    killing.wait_for(lambda: list(tmp_path.glob("runs/train-*/work/state.json")))
    os.kill(process.pid, signal.SIGINT)
    assert process.wait(120) == 130
    (place,) = tmp_path.glob("runs/train-*")
    said = (tmp_path / "said").read_text()
    assert f"to continue, give the same command with --workdir {place.relative_to(tmp_path)} --resume" in said

    assert begun(tmp_path, "train", file, "--wandb", "off", "--resume").wait(120) == 2
    assert "name the training's directory with --workdir" in (tmp_path / "said").read_text()
    assert list(tmp_path.glob("runs/*")) == [place]


@pytest.fixture(scope="module")
def left(tmp_path_factory):
    return left_by_a_search.make(tmp_path_factory.mktemp("left") / "s").root


@pytest.fixture
def session(left, tmp_path):
    """A copy of a session after its search; takes the samples of its whole training."""
    root = shutil.copytree(left, tmp_path / "s")

    def lasting(samples):
        space = yaml.safe_load((root / "space.yaml").read_text())
        (root / "space.yaml").write_text(yaml.safe_dump({**space, "training": {"samples": samples}}))
        return root

    return lasting


@pytest.mark.long
def test_a_sessions_winner_is_checked_against_its_promise(session, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(KEPT), os.environ["PYTHONPATH"]]))
    root = session(ENDLESS)
    place = TrainingDir(root / "training" / "winner")
    command = ("train", root, "--wandb", "off")
    process = begun(tmp_path, *command)

    def evaluated():
        return [r["samples"] for r in read_records(place) if "bleu_4" in r]

    killing.wait_for(lambda: evaluated()[-1:] >= [400] or process.poll() is not None)
    os.kill(process.pid, signal.SIGINT)
    assert process.wait(120) == 130
    stopped = (tmp_path / "said").read_text()
    assert "\n- quality held: bleu_4 0.2000 after 400 samples, " in stopped
    for line in promise_lines(place):
        assert f"\n{line}" in stopped

    session(evaluated()[-1] + 400)
    assert begun(tmp_path, *command, "--resume").wait(120) == 0
    ended = (tmp_path / "said").read_text().removeprefix(stopped)
    assert "completed after" in ended
    lines = list(promise_lines(place))
    assert "compared with trial" in lines[0]
    for line in lines:
        assert f"\n{line}" in ended


def test_a_sessions_training_is_tracked_as_the_session_was_unless_options_differ(
    session, tmp_path, monkeypatch
):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(KEPT), os.environ["PYTHONPATH"]]))
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    root = session(400)
    info = json.loads((root / "session.json").read_text())
    info["options"] |= {"wandb": "offline", "tags": ["thesis", "b"]}
    (root / "session.json").write_text(json.dumps(info))
    assert begun(tmp_path, "train", root).wait(120) == 0
    (run,) = read_runs(root / "training" / "winner")
    assert {"thesis", "b"} <= set(run.tags)

    told = ("--workdir", tmp_path / "t", "--wandb", "off")
    assert begun(tmp_path, "train", root, *told).wait(120) == 0
    assert not (tmp_path / "t" / "wandb").exists()


@pytest.mark.parametrize("options", [["--data"], ["--baseline"], ["--data", "--baseline"]])
def test_options_for_a_search_space_are_refused_for_a_session(session, capsys, options):
    root = session(400)
    assert main(["train", str(root), *(word for option in options for word in (option, "x"))]) == 2
    said = f"{', '.join(options)}: only with a search space: {root} is a session"
    assert said in capsys.readouterr().err
    assert not (root / "training").exists()


def test_settings_from_another_machine_must_run_here(session, monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(KEPT))
    root = session(400)
    kept = yaml.safe_load((root / "space.yaml").read_text())
    kept["baseline"]["precision"] = "fp16"
    (root / "space.yaml").write_text(yaml.safe_dump(kept))
    assert main(["train", str(root), "--trial", "0"]) == 2
    said = f"this machine cannot run trial 0 of {root}: precision 'fp16' needs a CUDA device"
    assert said in capsys.readouterr().err
    assert not (root / "training").exists()


@pytest.mark.usefixtures("fake_torch")
@pytest.mark.parametrize(("asked", "count"), [(None, 1), (0, 0), (0.5, 1), (2, 2)])
def test_it_has_the_requested_gpus_or_those_of_its_session(  # noqa: PLR0917 - fixtures
    session, tmp_path, monkeypatch, fake_gpus, asked, count
):
    there = [FakeGpu(), FakeGpu(), FakeGpu()]
    fake_gpus(*there)
    monkeypatch.syspath_prepend(str(KEPT))
    root = session(400)
    info = json.loads((root / "session.json").read_text())
    info["options"]["gpus_per_trial"] = 1.0
    (root / "session.json").write_text(json.dumps(info))
    place, shown = TrainingDir(tmp_path / "t"), [gpu.uuid(index) for index, gpu in enumerate(there[:count])]

    def check(found):
        assert found.training.whole_training(found.config, place).limits.gpus == count
        assert os.environ.pop("CUDA_VISIBLE_DEVICES") == ",".join(shown)

    check(command._of_session(root, Trained(gpus_per_trial=asked)))
    check(command._of_space(str(space(tmp_path)), Trained(gpus_per_trial=asked)))


def test_two_trainings_in_one_directory_are_refused(tmp_path, capsys):
    process = started(tmp_path)
    assert train(tmp_path, "--resume", samples=ENDLESS) == 2
    assert "is in use by pid" in capsys.readouterr().err
    os.kill(process.pid, signal.SIGINT)
    assert process.wait(120) == 130
