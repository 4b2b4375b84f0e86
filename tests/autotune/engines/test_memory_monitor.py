"""Ray's memory monitor, which kills a supervisor if the machine's memory is too full: a real kill."""

import os
from pathlib import Path

import pytest

from autotune.core.trial import Failure
from autotune.storage import study_file
from tests import forked

HERE = Path(__file__).parents[1]

# The monitor is off in a search. Here it is on, with a threshold that any machine exceeds.
WATCHED = """
from autotune.engines import engine_cluster
engine_cluster._ENVIRONMENT.update(RAY_memory_monitor_refresh_ms="100", RAY_memory_usage_threshold="0.001")
"""
SPACE = """
workload: toy_workload:fit
baseline: {micro_batch_size: 4, learning_rate: 1e-3, step_s: 0.05}
knobs: {micro_batch_size: {choice: [4, 8]}}
"""


@pytest.mark.slow
def test_a_trial_that_ray_kills_for_memory_is_out_of_memory_and_the_search_ends_in_order(tmp_path):
    (tmp_path / "space.yaml").write_text(SPACE)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])}
    search = ("search", "--space", "space.yaml", "--session", "s", "--wandb", "off")
    done = forked.run(search, tmp_path, environment, script=f"{WATCHED}\n{forked.COMMAND}")
    assert "Traceback" not in done.stderr
    assert done.returncode == 1, done.stdout + done.stderr
    (trial,) = study_file.load_study(tmp_path / "s" / "study.db").trials
    assert trial.outcome.failure is Failure.OOM
    assert "Ray's memory monitor killed it" in trial.outcome.reason
