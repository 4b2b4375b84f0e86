"""A picture that is redrawn below permanent lines. `test_console` draws it on a real pseudo-terminal."""

import errno
import io
import sys

import pytest
from rich.console import Console
from rich.text import Text

from autotune.display import live
from autotune.display.live import LiveView
from tests.autotune.terminal import Tty
from tests.waiting import wait_for


@pytest.fixture
def console(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    return Console(file=Tty(), width=40, height=10)


class Gone(Tty):
    def write(self, text):
        raise OSError(errno.EIO, "the terminal is gone")


def left(console):
    """The lines on the terminal, and whether it has its cursor."""
    terminal = console.file.on(40, 10)
    return terminal.left, terminal.has_cursor


def picture():
    return Text("a picture of\ntwo lines")


@pytest.mark.parametrize("text", ["words " * 30, "python -m autotune resume " + "directory/" * 12])
def test_a_line_is_wrapped_at_words_on_a_terminal_and_a_command_is_left_whole(text, capsys):
    live.say(Console(width=40, force_terminal=True), text)
    live.say(Console(width=40, force_terminal=False), text)
    lines = capsys.readouterr().out.splitlines()
    assert text.strip() in [line.strip() for line in lines], "without a terminal it is one line"
    assert len(lines) == (6 if text.startswith("words") else 2)


def test_printed_lines_stay_and_the_picture_goes(console):
    before = sys.stdout, sys.stderr
    with LiveView(console, picture) as view:
        view.say("said")
        print("printed\nas two lines")
        print("an error", file=sys.stderr)
        printed = ["said", "printed", "as two lines", "an error"]
        assert left(console) == ([*printed, "a picture of", "two lines"], False)
    assert left(console)[0] == printed
    assert (sys.stdout, sys.stderr) == before


def test_an_error_leaves_the_terminal_as_it_was(console):
    with pytest.raises(ZeroDivisionError), LiveView(console, picture):
        _ = 1 / 0
    assert left(console) == ([], True)


@pytest.mark.parametrize("name", ["FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"])
def test_there_is_no_view_if_rich_would_not_draw(monkeypatch, name):
    assert live.is_possible(Console(file=Tty()))
    monkeypatch.setenv(name, "" if name == "FORCE_COLOR" else "0")
    assert not live.is_possible(Console(file=Tty()))


def test_a_pipe_is_no_terminal_even_if_colours_are_forced(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert not live.is_possible(Console(file=io.StringIO()))


def test_an_error_in_drawing_is_shown_instead_of_the_picture(console):
    with LiveView(console, lambda: 1 / 0) as view:
        view.say("said")
        assert left(console)[0] == ["said", "cannot be drawn: ZeroDivisionError:", "division by zero"]
        view.close_with("stopping")
        wait_for(lambda: left(console)[0] == ["said", "stopping"])


def test_a_lost_terminal_raises_no_error(console):
    with LiveView(console, picture) as view:
        console.file = Gone()
        view.say("said")
        print("printed")
        view.close_with("stopping")
        wait_for(lambda: not view.is_open)
    print("afterwards")


def test_a_signal_handler_closes_the_view_with_a_last_line(console):
    with LiveView(console, picture) as view:
        view.close_with("stopping")
        wait_for(lambda: left(console)[0] == ["stopping"])
        view.say("stopped")
        view.close()
    assert left(console) == (["stopping", "stopped"], True)
