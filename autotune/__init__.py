"""Finds the training settings that are fastest on this hardware at the same quality, and proves it.

A training that is tuned may call these: `report` sends a step or an evaluation, `should_stop` asks whether to
end, `workdir` and `settings` are the trial's.
"""

from autotune.inside.client import report, settings, should_stop, workdir

__all__ = ["report", "settings", "should_stop", "workdir"]
