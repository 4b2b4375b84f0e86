"""Invalid records: each ends in an outcome with a reason, none ends the search, none wins."""

import json
import os
import re
import time
from dataclasses import asdict
from pathlib import Path

import pytest

from autotune.core.measurement import Metric
from autotune.core.trial import Failure, Status
from autotune.judging.decisions import confirm
from autotune.judging.decisions.history import History
from autotune.storage import identity, study_file
from autotune.storage.layout import TrialDir
from autotune.storage.records import read_records
from autotune.storage.store import StoredSession
from autotune.trials.attempt import Attempt
from autotune.trials.fork_server import ForkServer
from autotune.trials.order import Ends, Order, TrialLimits
from tests import forked
from tests.endings import ENDED
from tests.faults.garbage_workload import KINDS

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
ERROR, DIVERGED, TIMEOUT = (Failure.ERROR, Failure.DIVERGED, Failure.TIMEOUT)
NOT_A_NUMBER = "bleu_4 is not a number after 80 samples, got "
FAULTS = {
    "quality nan": (ERROR, NOT_A_NUMBER + "nan"),
    "quality inf": (ERROR, NOT_A_NUMBER + "inf"),
    "quality 1e308": (ERROR, NOT_A_NUMBER + "1e+308"),
    "quality huge": (ERROR, NOT_A_NUMBER + "1000"),
    "quality str": (ERROR, NOT_A_NUMBER + "'0.9'"),
    "quality bool": (ERROR, NOT_A_NUMBER + "True"),
    "quality none": (ERROR, NOT_A_NUMBER + "None"),
    "quality list": (ERROR, NOT_A_NUMBER + "[0.9]"),
    "quality tensor": (ERROR, "a record's values must be JSON's, got Tensor"),
    "no quality": (ERROR, "no record has bleu_4 after "),
    "loss nan": (DIVERGED, "train_loss was nan 3 times in a row"),
    "loss inf": (DIVERGED, "train_loss was -inf 3 times in a row"),
    "backwards": (ERROR, "samples must not decrease, got 8 after 36"),
    "samples bool": (ERROR, "samples must be an int, got True"),
    "samples float": (ERROR, "samples must be an int, got 44.0"),
    "samples negative": (ERROR, "samples must be from 0 to 2**53, got -4"),
    "samples huge": (ERROR, "samples must be from 0 to 2**53, got 1000"),
    "samples beyond": (ERROR, "got a number too large to be shown"),
    "no samples": (ERROR, "samples must be an int, got None"),
    "standing still": (TIMEOUT, "no record with more samples for "),
    "evaluated for ever": (TIMEOUT, "no record with more samples for "),
    "nothing": (ERROR, "the workload yielded no record"),
    "text": (ERROR, "a record must be a mapping, got str"),
    "none": (ERROR, "a record must be a mapping, got NoneType"),
    "evaluated too early": (ERROR, "samples, and was last evaluated after 40: have it evaluated at its end"),
    "evaluations only": (ERROR, "its throughput could not be measured"),
}
SANE = KINDS.keys() - FAULTS.keys() - {"leaks"}  # test_safety has that one


@pytest.fixture(scope="module")
def server():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(HERE)
        yield ForkServer([])


@pytest.fixture
def attempt_at(tmp_path, server):
    """Runs a workload as a trial of 80 samples; returns its last report and its figures."""

    def run(kind):
        order = Order(
            number=3,
            workload="garbage_workload:fit",
            settings={"kind": kind},
            directory=str(tmp_path),
            metric=Metric("bleu_4"),
            ends=Ends(80),
            limits=TrialLimits(stall_timeout_s=6.0 if FAULTS.get(kind, (ERROR,))[0] is TIMEOUT else 30.0),
        )
        running, deadline = Attempt(order, server), time.monotonic() + 240
        while time.monotonic() < deadline:
            report = running.step(0.2)
            if report.outcome is not None:
                return report.outcome, running.measurement()
        raise AssertionError("it did not end")

    return run


@pytest.mark.parametrize("kind", FAULTS)
def test_garbage_is_a_failure_with_its_reason(attempt_at, tmp_path, kind):
    outcome, shown = attempt_at(kind)
    assert (outcome.status, outcome.failure) == (Status.FAILED, FAULTS[kind][0]), outcome
    # The load of the machine determines how far a trial has come when it is stopped.
    assert FAULTS[kind][1] in re.sub(r"after \d+ samples", "after 80 samples", outcome.reason)
    assert "\n" not in outcome.reason
    assert identity.read_verdict(TrialDir(tmp_path))[0] == outcome
    json.dumps(asdict(shown), allow_nan=False)  # the study's content must be standard JSON


@pytest.mark.parametrize("kind", sorted(SANE))
def test_irrelevant_values_in_records_do_no_harm(attempt_at, kind):
    outcome, shown = attempt_at(kind)
    assert outcome.status == Status.COMPLETED, outcome
    assert shown.quality == 0.2
    assert [point.samples for point in shown.curve][-1] >= (40 if kind == "shorter" else 80)
    assert 0 < shown.throughput.samples_per_s < 20_000
    assert sum(shown.step_shares.values()) in {0, 1}
    json.dumps(asdict(shown), allow_nan=False)


def test_damaged_lines_of_a_trials_records_are_skipped(tmp_path):
    good = {"at_s": 1.0, "samples": 4}
    lines = [
        "7",
        "[]",
        "null",
        '{"samples": "x", "at_s": 1}',
        '{"samples": 4}',
        "\x00",
        "[" * 10**5,
        '{"a": 1}',
    ]
    (tmp_path / "records.jsonl").write_text("\n".join([*lines, json.dumps(good)]), encoding="utf-8")
    assert list(read_records(TrialDir(tmp_path))) == [good]


SPACE = """
workload: garbage_workload:fit
baseline: {kind: sane, note: "[red]x[/] \\x1b[31m NOTE"}
knobs: {kind: {choice: [KINDS]}}
objective: {quality: bleu_4, keep: 0.9, select: SELECT}
budget: {trials: 60, samples_per_trial: 400, repeats: 0}
"""


SOME = ["sane", "fast", "quality 1e308", "no quality", "loss inf", "backwards", "nothing", "text", "none"]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("select", ["same-quality", pytest.param("pareto", marks=pytest.mark.soak)])
def test_a_search_through_garbage_ends_with_a_sane_winner(tmp_path, soak, select):
    kinds = list(KINDS) if soak else SOME
    # Three bytes per character: no file could be named after the settings.
    space = SPACE.replace("NOTE", "数据" * 60)
    text = space.replace("KINDS", ", ".join(f'"{kind}"' for kind in kinds)).replace("SELECT", select)
    (tmp_path / "space.yaml").write_text(text, encoding="utf-8")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]),
    }
    search = ("search", "--space", "space.yaml", "--session", "s", "--wandb", "off", "--stall-timeout", "6s")
    done = forked.run(search, tmp_path, environment, timeout=800)
    assert done.returncode in ENDED, done.stdout + done.stderr
    assert done.stderr == ""
    assert "Every configuration was tried" in done.stdout
    session = StoredSession.open(tmp_path / "s")
    trials = study_file.load_study(session.study_file).trials
    assert {t.config["kind"] for t in trials} == set(kinds)
    logs = [session.trial_dir(t.number).log.read_text() for t in trials]
    assert len({log.partition("forked by ")[2].split()[0] for log in logs}) == 1, (
        "no failure costs a supervisor"
    )
    for trial in trials:
        assert trial.outcome is not None
        if trial.config["kind"] in FAULTS:
            assert not trial.completed, trial
            assert trial.outcome.reason
    history = History(trials, session.space())
    best, _ = confirm.recommended(history)
    assert best.config["kind"] in SANE  # the baseline, if the machine was too busy for the fast one
    if select == "pareto":
        assert {t.config["kind"] for t in history.front} <= SANE
