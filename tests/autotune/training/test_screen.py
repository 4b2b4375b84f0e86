"""A training as a panel and as lines. `cli/test_train` tests the panel on a real pseudo-terminal."""

from dataclasses import replace

import pytest
from rich.console import Console

from autotune.core.measurement import Measurement, Metric, Throughput
from autotune.judging.measurement.trends import Point
from autotune.training import screen as screens
from autotune.training.screen import TrainingScreen
from autotune.training.watch import TrainingStatus
from autotune.trials.progress import Phase
from tests.autotune.terminal import Tty
from tests.faults.killing import wait_for

from .test_plan import PLAN, PROMISE

EARLY = TrainingStatus(PLAN, samples=1000, recent_per_s=50.0)


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    return Console(file=Tty(), width=80, height=24)


def shown(console):
    return console.file.on(80, 24).left


def test_lines_show_the_status_every_half_minute(capsys):
    now_s = 1000.0
    with TrainingScreen(Console(force_terminal=False), lambda: now_s) as shows:
        for second in range(61):
            now_s = 1000.0 + second
            shows.update(replace(EARLY, samples=1000 + second))
        shows.say("a name\x1b[2J")
    assert capsys.readouterr().out.splitlines() == [
        "1,000 of 4,000 samples, 50.0 samples/s, 1m 00s of training left",
        "1,030 of 4,000 samples, 50.0 samples/s, 59s of training left",
        "1,060 of 4,000 samples, 50.0 samples/s, 59s of training left",
        "a name [2J",
    ]


def test_the_panel_shows_the_latest_status(terminal):
    with TrainingScreen(terminal) as shows:
        shows.say("it has begun")
        for samples in (1000, 2000):
            shows.update(replace(EARLY, samples=samples))
        wait_for(lambda: any("2,000 of 4,000 samples" in line for line in shown(terminal)))
        assert shown(terminal)[:2] == ["it has begun", "training batch 8"]
    assert shown(terminal) == ["it has begun"]


def test_a_signal_is_answered_whether_there_is_a_panel_or_not(terminal, capfd):
    panel = TrainingScreen(terminal)
    panel.stopping("before it")
    with panel:
        panel.stopping("stopping")
        wait_for(lambda: "stopping" in shown(terminal))
    panel.stopping("after it")
    TrainingScreen(Console(force_terminal=False)).stopping("without one")
    assert capfd.readouterr().out == "before it\nafter it\nwithout one\n"


GIB = 2**30
GPU = {
    "gpu_utilisation_percent": 97.0,
    "gpu_memory_used_bytes": 21.0 * GIB,
    "gpu_memory_free_bytes": 58.0 * GIB,
    "gpu_temperature_c": 64.0,
    "gpu_power_w": 310.4,
    "gpu_sm_clock_mhz": 1980.0,
}
HOST = {
    "cpu_percent": 188.0,
    "allowed_cpus": 4.0,
    "host_rss_bytes": 3.0 * GIB,
    "host_memory_used_bytes": 5.0 * GIB,
    "host_memory_free_bytes": 10.5 * GIB,
}
STANDING = TrainingStatus(
    PLAN,
    epoch=1000,
    phase=Phase.MEASURING,  # its speed; what it does is training
    seconds=725.0,
    samples=3000,
    furthest=3000,
    recent_per_s=90.0,
    step_shares={"data_s": 0.1, "forward_s": 0.9, "optimizer_s": 0.0},
    curve=tuple(Point(1000.0 * n, value) for n, value in enumerate((0.1, 0.5, 0.4), 1)),
    loss=0.51234,
    measurement=Measurement(
        Throughput(95.0, 2.0, 50, 10.0), samples=3000, peak_memory_bytes=2 * GIB, mfu=0.43
    ),
    telemetry={**HOST, **GPU},
)


def lines(standing, width=80, height=1000):
    console = Console(width=width, height=height, force_terminal=True, color_system=None)
    with console.capture() as capture:
        console.print(screens.panel(standing))
    return [line.rstrip() for line in capture.get().splitlines()]


def test_the_panel_has_all_figures():
    drawn = lines(STANDING)
    assert drawn[0] == "training batch 8"
    assert drawn[1] == "trial 4 of session s, on some CPU"
    assert drawn[2].startswith("training    ━━━")
    assert drawn[2].endswith(" 75% 12m 05s")
    assert drawn[3:] == [
        "3,000 of 4,000 samples, epoch 3.0 of 4.0, 11s of training left",
        "",
        "throughput  90.0 samples/s now, 95.0 ± 2.0 so far, HFU 43%",
        "promised    100.0 ± 5.0 samples/s (now 10% slower), score 0.8000 after 1,200",
        "quality     score 0.4000 after 3,000, best 0.5000 after 2,000",
        "loss        0.5123",
        "step        forward 90%, data 10%",
        "memory      3.0 GiB on the host, peak 2.0 GiB, the machine 5.0 GiB of 15.5 GiB",
        "CPUs        1.9 of 4 busy",
        "GPU         97% busy, 21.0 GiB of 79.0 GiB, 64 °C, 310 W, 1980 MHz",
    ]


def test_a_training_that_has_just_begun_shows_no_figures():
    assert lines(TrainingStatus(replace(PLAN, promise=None, samples=None)), width=40) == [
        "training batch 8",
        "on some CPU",
        "start                                 0s",
        "0 samples",
        "",
        "throughput  not known yet",
        "quality     no evaluation has score yet",
    ]


def test_an_unknown_length_has_no_share_and_no_end():
    drawn = "\n".join(lines(replace(STANDING, plan=replace(PLAN, samples=None))))
    assert "\n3,000 samples, epoch 3.0\n" in drawn
    assert "left" not in drawn
    assert "75%" not in drawn


def test_every_gpu_has_its_line():
    each = {f"gpu_{n}_{name[4:]}": value + n for n in range(8) for name, value in GPU.items()}
    drawn = lines(replace(STANDING, telemetry={**GPU, **each, "gpu_throttled": 1.0}))
    assert [line[:5] for line in drawn if "°C" in line] == [f"GPU {n}" for n in range(8)]
    assert "71 °C" in drawn[-2]
    assert drawn[-1] == "meanwhile   the GPU was slowed down by heat or its power limit"


def test_changed_settings_replace_planned_ones():
    halved = replace(PLAN, changes={"micro_batch_size": 4, "accumulation_steps": 2})
    assert lines(replace(STANDING, plan=halved))[0] == "training batch 8 (2 x 4 accumulated)"


@pytest.mark.parametrize(
    ("now", "counts", "told"),
    [
        (96.0, False, "as promised"),
        (80.0, False, "20% slower"),
        (80.0, True, "as promised"),
        (None, False, "as promised"),
    ],
)
def test_speed_with_evaluations_is_compared_with_a_promise_that_counts_them(now, counts, told):
    plan = replace(PLAN, metric=replace(PLAN.metric, counts_evaluations=counts))
    measured = replace(STANDING.measurement, throughput=Throughput(98.0, None, 50, 10.0))
    drawn = "\n".join(lines(replace(STANDING, plan=plan, recent_per_s=now, measurement=measured)))
    assert f"promised    100.0 ± 5.0 samples/s (now {told})" in drawn


def test_a_quality_to_minimize_has_the_users_sign():
    plan = replace(
        PLAN, metric=Metric("score", minimize=True), promise=replace(PROMISE, quality=-0.8, least=-0.9)
    )
    drawn = " ".join(" ".join(lines(replace(STANDING, plan=plan))).split())
    assert "score 0.8000 after 1,200 quality score 0.4000 after 3,000, best 0.1000 after 1,000" in drawn


@pytest.mark.parametrize("width", [20, 40, 80, 200])
def test_no_line_is_wider_than_the_terminal_or_than_readable(width):
    long = replace(
        PLAN, metric=Metric("a_quality_with_a_name_as_long_as_a_terminal"), device="a device " * 20
    )
    for standing in (STANDING, replace(STANDING, plan=long), TrainingStatus(long)):
        assert max(map(len, lines(standing, width))) <= min(width, 100)
