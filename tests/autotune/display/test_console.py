"""The screen of a running search: lines, JSON, and a live view on a real pseudo-terminal."""

import io
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from autotune.core.measurement import Measurement, Throughput
from autotune.core.trial import Repeat
from autotune.display import console as consoles
from autotune.display.console import Events, Picture, Screen
from autotune.display.snapshot import Snapshot
from autotune.storage.study_file import SearchPlan
from autotune.system.node_kinds import Cluster, ClusterNode, NodeKind
from autotune.trials import failures
from autotune.trials.progress import Phase
from autotune.trials.report import TrialReport
from tests.autotune.terminal import OnTerminal, Tty

SHOWN = Path(__file__).parents[1] / "shown_search.py"


@pytest.fixture
def begun(space):
    plan = SearchPlan(9, 3600.0, 60.0)
    return Snapshot("runs/s", "a device", "running", space, plan, (), (), 0, None, None)


@pytest.fixture
def console():
    return Console(width=200, force_terminal=False)


def report(phase=Phase.TRAINING, elapsed_s=0.0, **figures):
    measured = Measurement(throughput=Throughput(61.2, 0.4, 9, 9.0), samples=5000, **figures)
    return TrialReport(0, phase, elapsed_s, measured)


def test_the_screen_depends_on_the_terminal(begun, console, monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    terminal = Console(file=Tty())
    assert type(consoles.screen(console, begun)) is Screen
    assert type(consoles.screen(terminal, begun)) is Picture
    assert type(consoles.screen(terminal, begun, as_json=True)) is Events
    coloured = Console(file=io.StringIO(), force_terminal=True)  # as with FORCE_COLOR in a pipe
    assert type(consoles.screen(coloured, begun)) is Screen
    monkeypatch.setenv("TERM", "dumb")
    assert type(consoles.screen(terminal, begun)) is Screen


def test_the_baselines_settings_at_another_length_are_called_so(begun, console, make_trial, planned, capsys):
    whole = planned.baseline_config
    half = {**whole, "length": whole["length"] // 2}
    with consoles.screen(console, replace(begun, space=planned)) as screen:
        for trial in (
            make_trial(0, **whole),
            make_trial(1, **half),
            make_trial(2, **half | {"num_workers": 4}),
        ):
            screen.started(trial)
    roles = [line.partition(": ")[2].partition(" (")[2] for line in capsys.readouterr().out.splitlines()]
    assert roles == ["baseline)", "the baseline, shorter)", ""]


def test_without_a_terminal_each_event_is_a_line(begun, console, make_trial, capsys):
    with consoles.screen(console, begun) as screen:
        baseline, failed = make_trial(0, 20, 0.2), make_trial(1, failure="oom")
        repeat, poor = make_trial(2, 60, 0.19, repeat=Repeat(0, 1)), make_trial(3, 60, 0.1, x=1)
        for trial in (baseline, failed, repeat, poor):
            screen.started(replace(trial, outcome=None))
            screen.progress(trial, report())
            screen.ended(trial)
        screen.conclude(["Best: none"], {})
    lost = "cannot win: its bleu_4 0.1000 is below the required 0.1852"
    assert [re.sub(r"^\[ 1m \d+s\] ", "", line) for line in capsys.readouterr().out.splitlines()] == [
        "trial 0 started: batch 16 fp32 (baseline)",
        "trial 0 completed: 20.0 samples/s, bleu_4 0.2000, memory -",
        "trial 1 started: batch 16 fp32",
        "trial 1 failed (oom): batch 16 fp32, as made",
        "trial 2 started: baseline's settings, another seed",
        "trial 2 completed: 60.0 samples/s, bleu_4 0.1900, memory -",
        "trial 3 started: batch 16 fp32 x 1",
        f"trial 3 completed: 60.0 samples/s, bleu_4 0.1000, memory -, 3.00x as fast as the baseline; {lost}",
        "Best: none",
    ]


def test_stamps_continue_from_the_end_of_an_earlier_run_of_the_session(begun, console, make_trial, capsys):
    """The earlier run took 60 s, which `status` and the live view include."""
    now = 1000.0
    screen = Screen(console, begun, lambda: now)
    now += 5
    screen.started(make_trial(0))
    assert capsys.readouterr().out.startswith("[ 1m 05s] trial 0 started")
    assert screen.snapshot().plan.spent_s == 65


def test_the_state_follows_the_events(begun, console, make_trial):
    screen = Screen(console, begun)
    screen.restore([make_trial(0, 20, 0.2), replace(make_trial(1), outcome=None)])
    assert [t.number for t in screen.snapshot().trials] == [0]
    assert screen.snapshot().best[0].number == 0
    trial = replace(make_trial(2, x=1), outcome=None)
    screen.started(trial)
    assert [(r.trial.number, r.phase) for r in screen.snapshot().running] == [(2, "start")]
    screen.progress(trial, report(quality=0.1, peak_memory_bytes=7, elapsed_s=3.0))
    (running,) = screen.snapshot().running
    assert (running.phase, running.seconds) == ("training", 3.0)
    m = running.trial.measurement
    assert (m.samples, m.quality, m.peak_memory_bytes) == (5000, 0.1, 7)
    assert (m.throughput.samples_per_s, m.throughput.half_width_per_s) == (61.2, 0.4)
    screen.ended(make_trial(2, 60, 0.2, x=1))
    assert screen.snapshot().running == ()
    assert screen.snapshot().best[0].number == 2
    assert screen.snapshot().plan.spent_s >= 60.0


def test_a_trial_that_was_put_back_has_not_ended(begun, console, make_trial):
    screen = Screen(console, begun)
    screen.started(make_trial(0))
    screen.ended(replace(make_trial(0), outcome=failures.lost_attempt("killed")))
    assert (screen.snapshot().running, screen.snapshot().trials) == ((), ())


def test_the_estimate_counts_down_and_is_renewed_when_a_trial_ends(begun, console, make_trial):
    screen = Screen(console, begun)
    assert screen.snapshot().remaining.is_capped, "only the limit is known"
    screen.restore([make_trial(n, 20, 0.2, x=n) for n in range(4)])
    first, second = screen.snapshot().remaining, screen.snapshot().remaining
    assert 0 < second.high_s < first.high_s
    for number in range(4, 9):
        screen.ended(make_trial(number, 20, 0.2, x=number))
    assert screen.snapshot().remaining.low_s == 0.0, "no trial is left, and none is to be confirmed"


def printed_events(capsys):
    """Returns the printed events; each line must be strict JSON."""

    def refuse(name):
        raise ValueError(name)

    return [json.loads(line, parse_constant=refuse) for line in capsys.readouterr().out.splitlines()]


COMMON = {"event", "time", "session"}
STARTED = {"trial", "repeats", "config", "knobs", "node"}
FIGURES = {"samples", "throughput", "quality", "peak_memory_bytes", "memory_is_rising", "memory_share"}
FIGURES |= {"seconds"}


def test_json_events_have_the_documented_keys(begun, console, make_trial, capsys):
    with consoles.screen(console, begun, as_json=True) as screen:
        screen.note("data: 4 studies\n")
        screen.started(replace(make_trial(0), outcome=None))
        screen.progress(make_trial(0), report(quality=float("nan")))
        screen.ended(make_trial(0, 20, 0.2, half_width=0.5, peak=50, limit=100))
        screen.ended(make_trial(1, failure="oom", repeat=Repeat(0, 1)))
        screen.conclude(["not this"], {"exit_code": 1})
    note, started, progress, ended, failed, result = printed_events(capsys)
    assert (note["event"], note["text"]) == ("note", "data: 4 studies\n")
    assert started.keys() == COMMON | STARTED
    assert progress.keys() == COMMON | STARTED | FIGURES | {"phase", "share", "remaining_s"}
    assert progress["quality"] is None, "JSON has no NaN"
    assert progress["share"] == 0.25
    assert progress["throughput"] == pytest.approx({"value": 61.2, "low": 60.8, "high": 61.6})
    verdict = {"status", "failure", "stopped_for", "reason"}
    assert ended.keys() == COMMON | STARTED | FIGURES | verdict | {"run", "factor"}
    assert (ended["status"], ended["factor"], ended["memory_share"]) == ("completed", 1.0, 0.5)
    assert (failed["failure"], failed["repeats"], failed["throughput"]) == ("oom", 0, None)
    assert (result["event"], result["exit_code"]) == ("result", 1)
    assert {e["session"] for e in (note, started, progress, ended, failed, result)} == {"runs/s"}
    documented = (Path(__file__).parents[3] / "docs" / "reference" / "events.md").read_text()
    for key in COMMON | STARTED | FIGURES | progress.keys() | ended.keys():
        assert f"`{key}`" in documented, key


def test_progress_has_a_bounded_rate_but_a_new_phase_is_written_at_once(begun, console, make_trial, capsys):
    now = 1000.0
    screen = Events(console, begun, lambda: now)
    for _ in range(60):
        now += 0.5
        screen.progress(make_trial(0), report())
    assert len(printed_events(capsys)) == 6, "in half a minute"
    screen.progress(make_trial(0), report(Phase.EVALUATING))
    screen.progress(make_trial(1), report())
    assert [(e["trial"], e["phase"]) for e in printed_events(capsys)] == [(0, "evaluating"), (1, "training")]


@pytest.mark.parametrize("as_json", [False, True])
def test_in_a_cluster_a_trial_has_started_once_a_node_runs_it(begun, console, make_trial, capsys, as_json):
    on_cluster = replace(begun, cluster=Cluster(NodeKind(), (ClusterNode("1", "b"),)))
    screen, trial = (
        consoles.screen(console, on_cluster, as_json=as_json),
        replace(make_trial(1), outcome=None),
    )
    screen.started(trial)
    assert capsys.readouterr().out == ""
    assert [running.phase for running in screen.snapshot().running] == ["waiting"]
    screen.progress(trial, report(node="b"))
    screen.progress(trial, report(node="b"))
    out = capsys.readouterr().out
    if as_json:
        events = [json.loads(line) for line in out.splitlines()]
        assert [(event["event"], event["node"]) for event in events] == [("started", "b"), ("progress", "b")]
    else:
        assert out.endswith("trial 1 started on b: batch 16 fp32\n")
    assert screen.snapshot().running[0].trial.measurement.node == "b"


@pytest.fixture
def live_view():
    """Returns a function that starts a live view in its own process."""
    started = []

    def start(columns, lines, *words):
        started.append(OnTerminal(columns, lines, SHOWN, *words))
        return started[-1]

    yield start
    for terminal in started:
        terminal.process.kill()
        terminal.process.wait()


def is_drawn(lines):
    return sum("trials ended" in line for line in lines) == 1 and any("best so far" in line for line in lines)


def is_picture(line):
    return "trials ended" in line or "best so far" in line


def run_trials(view):
    """Lets twelve trials end, each shown in the picture before the next."""
    for number in range(1, 13):
        view.step(4)
        view.read_until(lambda lines, n=f" {number} ": is_drawn(lines) and any(n in one[:5] for one in lines))


def test_the_picture_stays_one_picture_whatever_is_printed_above_it(live_view):
    view = live_view(80, 24)
    view.read_until(is_drawn)
    run_trials(view)
    assert view.terminal.cleared == view.terminal.wrapped == 0
    assert not any(map(is_picture, view.terminal.above)), "no part of a picture is left behind"
    assert view.end() == 0
    assert not any(map(is_picture, view.left)), "the picture is removed at the end"
    ends = [int(line.split("trial ")[1].split()[0]) for line in view.left if line.startswith("[")]
    assert ends == list(range(12)), "every line is there, once and in order"
    assert "it was stopped" in view.left


@pytest.mark.slow
def test_output_of_libraries_stays_whole_above_the_picture(live_view):
    """One thread prints it while another redraws the picture."""
    view = live_view(80, 24, "talking")
    run_trials(view)
    view.read_until(lambda lines: any("and more of 100" in line for line in [*view.terminal.above, *lines]))
    assert view.terminal.cleared == view.terminal.wrapped == 0
    assert view.end() == 0
    assert not any(map(is_picture, view.left))
    printed = [line for line in view.left if "says" in line or "and more" in line]
    pairs = [(f"(library) says {n},", f"and more of {n}") for n in range(len(printed) // 2)]
    assert printed == [line for pair in pairs for line in pair]


def test_the_picture_follows_the_size_of_the_terminal(live_view):
    view = live_view(80, 24)
    view.step(40)
    view.read_until(lambda lines: is_drawn(lines) and any("10 of 40" in line for line in lines))
    for columns, lines in ((100, 40), (80, 24), (70, 16), (120, 30)):
        view.resize(columns, lines)
        least = min(columns, 100) - 4
        view.read_until(lambda rows, n=least: is_drawn(rows) and max(map(len, rows)) > n, seconds=10)
        drawn = view.terminal.shown
        assert len(drawn) <= lines, (columns, lines)
        assert max(map(len, drawn)) <= columns, (columns, lines)
    assert view.end() == 0
