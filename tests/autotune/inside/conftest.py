"""A script that the hook is armed in, and what it has told."""

import functools
import json
import os
from functools import cache
from pathlib import Path

import pytest

from autotune.inside.inbox import SITE, Inbox
from tests import forked
from tests.autotune.inside.heard import Heard, all_of

_ARMED = """
import sys
sys.path.insert(0, {site!r})
import autotune_step_hook
autotune_step_hook.arm()
import {module}
{module}.tell(sys.argv[1])
"""


@pytest.fixture(scope="session")
def hear(tmp_path_factory):
    """Runs a function of `trainings` in a process of its own, forked from one that has imported torch."""
    return cache(functools.partial(_heard, "trainings", "trainer", tmp_path_factory.mktemp("hook")))


@pytest.fixture
def fit(tmp_path):
    """The same of `lightning_trainings`, in a directory that several share, with what is put into them."""

    def run(name, overrides=None, *, stops=False, **environment):
        given = {"AUTOTUNE_WORKDIR": str(tmp_path), "AUTOTUNE_OVERRIDES": json.dumps(overrides or {})}
        module, own = "lightning_trainings", given | environment
        return _heard(module, "lightning", tmp_path, name, stops=stops, **own)

    return run


def _heard(module, warm, directory, name, *, stops=False, **environment):
    with Inbox() as inbox:
        if stops:
            inbox.tell_to_stop()
        given = os.environ | {"PYTHONPATH": str(Path(__file__).parent), "OMP_NUM_THREADS": "1"}
        given |= inbox.environment() | environment
        armed = _ARMED.format(site=str(SITE), module=module)
        done = forked.run((name,), directory, given, script=armed, warm=warm)
        said = done.stdout.strip().splitlines()  # frameworks talk, too
        return Heard(json.loads(said[-1] if said else "[]"), all_of(inbox), done.stderr)
