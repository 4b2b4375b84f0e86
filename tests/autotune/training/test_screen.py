"""Who is shown a training how. `cli/test_train` has the panel on a real pseudo-terminal."""

from dataclasses import replace

import pytest
from rich.console import Console

from autotune.training import screen as screens
from autotune.training.screen import TrainingScreen
from autotune.training.standing import Standing
from tests.autotune.terminal import Tty
from tests.faults.killing import wait_for

from .test_plan import PLAN

STANDING = Standing(PLAN, samples=1000, recent_per_s=50.0)


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    return Console(file=Tty(), width=80, height=24)


def shown(console):
    return console.file.on(80, 24).left


def test_lines_say_how_it_stands_every_half_minute(capsys, monkeypatch):
    now_s = 1000.0
    monkeypatch.setattr(screens.time, "monotonic", lambda: now_s)
    with TrainingScreen(Console(force_terminal=False)) as shows:
        for second in range(61):
            now_s = 1000.0 + second
            shows.stands(replace(STANDING, samples=1000 + second))
        shows.say("a name\x1b[2J")
    assert capsys.readouterr().out.splitlines() == [
        "1,000 of 4,000 samples, 50.0 samples/s, 1m 00s of training left",
        "1,030 of 4,000 samples, 50.0 samples/s, 59s of training left",
        "1,060 of 4,000 samples, 50.0 samples/s, 59s of training left",
        "a name [2J",
    ]


def test_the_panel_shows_the_last_that_it_heard(terminal, monkeypatch):
    monkeypatch.setattr("autotune.display.live._REFRESH_S", 0.01)
    with TrainingScreen(terminal) as shows:
        shows.say("it has begun")
        for samples in (1000, 2000):
            shows.stands(replace(STANDING, samples=samples))
        wait_for(lambda: any("2,000 of 4,000 samples" in line for line in shown(terminal)))
        assert shown(terminal)[:2] == ["it has begun", "training 8"]
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
