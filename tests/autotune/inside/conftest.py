"""Runs scripts with the hook armed, and returns its reports."""

import itertools
import json
import os
from functools import cache
from pathlib import Path

import pytest

from autotune.inside.inbox import SITE, Inbox
from autotune.inside.site import autotune_wire as wire
from tests import forked
from tests.autotune.inside.heard import Heard, all_of

ARMED = f"""
import runpy, sys
sys.path.insert(0, {str(SITE)!r})
runpy.run_path({str(SITE / "sitecustomize.py")!r})
"""


@pytest.fixture(scope="session")
def hear(tmp_path_factory):
    """Runs a function of `trainings` in its own process, forked from one that has imported torch."""
    return cache(hearing("trainings", "trainer", tmp_path_factory.mktemp("hook")))


@pytest.fixture
def hear_trainer(tmp_path):
    """Runs a function of `trainers` in a trial, forked from a process that has imported Transformers.

    It gets the `overrides`, and its own directory unless the environment names one.
    """
    run, works = hearing("trainers", "transformers", tmp_path), map("work{}".format, itertools.count())

    def hear(name, overrides=None, **environment):
        own = {wire.OVERRIDES: json.dumps(overrides or {}), wire.WORKDIR: str(tmp_path / next(works))}
        return run(name, **own | environment)

    return hear


@pytest.fixture
def fit(tmp_path):
    """Runs a function of `lightning_trainings` in the same way, always in one directory."""
    run = hearing("lightning_trainings", "lightning", tmp_path)

    def hear(name, overrides=None, *, stops=False, **environment):
        own = {wire.OVERRIDES: json.dumps(overrides or {}), wire.WORKDIR: str(tmp_path)}
        return run(name, stops=stops, **(own | environment))

    return hear


def hearing(module, warm, directory):
    script = f"{ARMED}import {module}\n{module}.tell(sys.argv[1])"

    def run(name, *, stops=False, **environment):
        with Inbox() as inbox:
            if stops:
                inbox.tell_to_stop()
            given = os.environ | {"PYTHONPATH": str(Path(__file__).parent), "OMP_NUM_THREADS": "1"}
            given |= inbox.environment() | environment
            given = {name: value for name, value in given.items() if value is not None}
            done = forked.run((name,), directory, given, script=script, warm=warm)
            said = done.stdout.splitlines()[-1:]  # Lightning prints as well
            return Heard(json.loads(said[0] if said else "[]"), all_of(inbox), done.stderr)

    return run
