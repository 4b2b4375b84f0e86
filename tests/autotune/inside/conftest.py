"""A script that the hook is armed in, and what it has told."""

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
import trainings
trainings.tell(sys.argv[1])
"""


@pytest.fixture(scope="session")
def hear(tmp_path_factory):
    """Runs a function of `trainings` in a process of its own, forked from one that has imported torch."""
    directory = tmp_path_factory.mktemp("hook")

    def run(name, **environment):
        with Inbox() as inbox:
            given = os.environ | {"PYTHONPATH": str(Path(__file__).parent), "OMP_NUM_THREADS": "1"}
            given |= inbox.environment() | environment
            done = forked.run((name,), directory, given, script=_ARMED.format(site=str(SITE)), warm="trainer")
            return Heard(json.loads(done.stdout or "[]"), all_of(inbox), done.stderr)

    return cache(run)
