"""The client that a training calls from its own loop: without effect outside of a trial, and harmless."""

import importlib
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import autotune
from autotune.inside import client
from autotune.inside.inbox import Inbox, trial_environment
from autotune.inside.site import autotune_wire
from tests.autotune.inside.heard import all_of


@pytest.fixture
def wire(monkeypatch):
    """A connection for the test: the module's belongs to the process."""
    wire = autotune_wire.Wire(patience_s=1)
    monkeypatch.setattr(client, "_wire", wire)
    return wire


@pytest.fixture
def inbox(monkeypatch, wire):
    with Inbox() as inbox:
        for name, value in inbox.environment().items():
            monkeypatch.setenv(name, value)
        yield inbox


def test_the_public_names_are_listed():
    assert {"report", "settings", "should_stop", "workdir"} <= set(autotune.__all__)


def test_importing_it_imports_only_the_standard_library():
    text = "import sys; import autotune; print(*{name.partition('.')[0] for name in sys.modules})"
    environment = {"PYTHONPATH": str(Path(autotune.__file__).parents[1])}
    said = subprocess.run(
        [sys.executable, "-S", "-c", text], env=environment, capture_output=True, text=True, check=True
    )
    assert set(said.stdout.split()) <= {*sys.stdlib_module_names, "autotune", "__main__"}


def test_outside_of_a_trial_nothing_happens(wire, monkeypatch):
    wired = autotune_wire.SOCKET, autotune_wire.WORKDIR, autotune_wire.SETTINGS, autotune_wire.OVERRIDES
    for name in wired:
        monkeypatch.delenv(name, raising=False)
    autotune.report(samples=1, anything=object())
    assert not autotune.should_stop()
    assert (autotune.workdir(), autotune.settings()) == (None, {})
    assert wire._socket is None


def test_a_trial_knows_its_directory_and_its_settings(monkeypatch, tmp_path):
    for name, value in trial_environment(tmp_path, {"optim": {"lr": 0.5}, "sizes": [1, 2]}, 100).items():
        monkeypatch.setenv(name, value)
    assert autotune.workdir() == tmp_path
    assert autotune.settings() == {"optim": {"lr": 0.5}, "sizes": [1, 2]}


def test_an_exported_command_may_only_have_the_settings_that_are_put_in(monkeypatch):
    monkeypatch.delenv(autotune_wire.SETTINGS, raising=False)
    monkeypatch.setenv(autotune_wire.OVERRIDES, '{"optimizer": {"lr": 0.5}}')
    assert autotune.settings() == {"optimizer": {"lr": 0.5}}


def test_a_failure_to_send_is_printed_and_not_raised(inbox):
    ring = []
    ring.append(ring)
    for value in (object(), ring, b"bytes", "x" * autotune_wire.LONGEST_BYTES):
        autotune.report(samples=1, value=value)
    assert [message.content.type for message in all_of(inbox)] == ["TypeError", "ValueError"] * 2


def test_reports_to_a_tuner_that_is_gone_do_nothing(inbox):
    autotune.report(samples=1)
    inbox.__exit__(None, None, None)
    for _ in range(3):
        autotune.report(samples=2)
    assert not autotune.should_stop()


def test_a_hanging_tuner_does_not_block_a_training_forever(wire, monkeypatch, tmp_path):
    with socket.socket(socket.AF_UNIX) as hanging:
        hanging.bind(place := str(tmp_path / "socket"))
        hanging.listen()
        monkeypatch.setenv(autotune_wire.SOCKET, place)
        for samples in range(4):
            autotune.report(samples=samples, text="x" * 2**20)
    assert wire._has_failed


def test_a_signal_handler_may_report_in_the_middle_of_a_report(inbox):
    before = signal.signal(signal.SIGALRM, lambda *_: autotune.report(samples=0, who="handler"))
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    try:
        for samples in range(2000):
            autotune.report(samples=samples, who="itself")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    heard = [message.content.record for message in all_of(inbox)]
    assert sum(record["who"] == "itself" for record in heard) == 2000


def test_a_fork_has_a_connection_of_its_own(inbox):
    autotune.report(samples=1)
    if not (pid := os.fork()):
        inherited = client._wire._socket
        autotune.report(samples=2)
        os._exit(inherited is not None)
    assert os.waitpid(pid, 0) == (pid, 0)
    autotune.report(samples=3)
    assert [message.content.record["samples"] for message in all_of(inbox)] == [1, 2, 3]


def test_report_works_after_the_package_of_that_name_is_imported(inbox):
    importlib.import_module("autotune.reports")
    autotune.report(samples=7)
    assert [message.content.record for message in all_of(inbox)] == [{"samples": 7}]
