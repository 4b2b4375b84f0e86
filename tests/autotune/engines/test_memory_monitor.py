"""Ray's own memory monitor, which kills a supervisor when it finds the machine too full: a real kill."""

import os
import subprocess
import sys
from pathlib import Path

from autotune.core.trial import Failure
from autotune.storage import study as record

# The monitor is off in a search. Here it is on, and finds any machine too full.
DRIVER = """
import sys
from autotune.engines import engine_cluster
from autotune.__main__ import main
engine_cluster._ENVIRONMENT.update(RAY_memory_monitor_refresh_ms="100", RAY_memory_usage_threshold="0.001")
sys.exit(main(sys.argv[1:]))
"""
SPACE = """
workload: toy_workload:fit
baseline: {micro_batch_size: 4, learning_rate: 1e-3, step_s: 0.05}
knobs: {micro_batch_size: {choice: [4, 8]}}
"""


def test_a_trial_that_ray_kills_for_memory_is_out_of_memory_and_the_search_ends_in_order(tmp_path):
    (tmp_path / "space.yaml").write_text(SPACE)
    done = subprocess.run(
        [
            *(sys.executable, "-c", DRIVER, "search", "--space", "space.yaml", "--session", "s"),
            *("--wandb", "off"),
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert "Traceback" not in done.stderr
    assert done.returncode == 1, done.stdout + done.stderr
    (trial,) = record.trials(record.load_study(tmp_path / "s" / "study.db"))
    assert trial.outcome.failure is Failure.OOM
    assert "Ray's memory monitor killed it" in trial.outcome.reason
