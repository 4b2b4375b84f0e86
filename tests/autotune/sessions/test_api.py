"""Searches that a Python program runs end like those of the command line, and leave nothing behind."""

import os
from pathlib import Path

import psutil
import pytest

import autotune
from autotune.core.errors import InputError, SessionBusyError
from tests.faults.searches import wait_for
from tests.forked import Forked
from tests.waiting import alive

FAULTS = Path(__file__).parents[2] / "faults"
SPACE = {
    "workload": "trivial:slow",
    "baseline": {"hang": "none", "learning_rate": 1e-3, "step_s": 0.01},
    "knobs": {"learning_rate": {"loguniform": [1e-4, 1e-2]}},
    "objective": {"select": "pareto"},
    "budget": {"trials": 1, "samples_per_trial": 40, "repeats": 0},
}


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(FAULTS))
    return tmp_path


def test_the_public_names():
    in_a_training = {"report", "settings", "should_stop", "workdir"}
    assert set(autotune.__all__) == {"Evidence", "Session", "open", "resume", "search"} | in_a_training
    assert all(callable(getattr(autotune, name)) for name in autotune.__all__)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"trails": 3}, "trails is not an option, did you mean trials"),
        ({"trials": "many"}, "trials: "),
        ({"time": "2hours"}, "--time: a duration is a positive number"),
        ({"space": {**SPACE, "workload": "nowhere:fit"}}, "nowhere"),
        ({"space": {**SPACE, "knobs": {}}}, "search space given: knobs: "),
    ],
)
def test_an_invalid_search_is_an_error_as_on_the_command_line(options, said):
    with pytest.raises(InputError, match=said):
        autotune.search(**{"space": SPACE, "session": "s", **options})
    assert not Path("s").exists()


@pytest.mark.long
def test_an_error_of_the_program_ends_the_search_which_can_be_resumed_and_reports_its_events():
    events = []

    def stop(event):
        events.append(event["event"])
        if event["event"] == "progress":
            raise KeyboardInterrupt

    slow = SPACE | {"baseline": {**SPACE["baseline"], "step_s": 0.04}}
    with pytest.raises(KeyboardInterrupt):
        autotune.search(slow, session="s", wandb="off", on_event=stop)
    session = autotune.open("s")
    assert list(session.trials["status"]) in (["interrupted"], [""])
    assert events == ["note", "started", "progress"]
    resumed = autotune.resume("s", trials=1, on_event=lambda event: events.append(event["event"]))
    assert [event for event in events[3:] if event != "progress"] == [
        *("note", "started", "ended", "started", "ended", "result")
    ]
    assert list(resumed.trials["status"]) == ["completed", "completed"]


PROGRAM = """
import autotune
autotune.search("space.yaml", session="s", wandb="off")
"""


@pytest.mark.long
def test_a_program_that_is_killed_leaves_no_search(tmp_path):
    slow = SPACE | {
        "baseline": {**SPACE["baseline"], "step_s": 3.0},
        "budget": {**SPACE["budget"], "samples_per_trial": 400},
    }
    Path("space.yaml").write_text(repr(slow))
    program = Forked((), tmp_path, os.environ, script=PROGRAM)
    records = tmp_path / "s" / "trials" / "0000" / "records.jsonl"
    wait_for(lambda: records.exists() and records.read_text().count("\n") > 1)
    with pytest.raises(SessionBusyError):
        autotune.resume("s")
    family = psutil.Process(program.pid).children(recursive=True)
    program.kill()
    program.wait()
    wait_for(lambda: not alive(family), 60)
