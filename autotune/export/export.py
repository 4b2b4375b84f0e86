"""The winner as the trainer's own config file, with where its figures come from."""

from collections.abc import Mapping
from typing import Any

from autotune.core.errors import printable
from autotune.core.trial import Trial
from autotune.display import view
from autotune.judging.history import History
from autotune.workloads import Workload


def render(trial: Trial, history: History, workload: Workload, provenance: Mapping[str, Any]) -> str:
    """The config file of `trial` as text: a comment that says what was measured, and every setting."""
    space = history.space
    facts = {
        "trial": f"{trial.number} of session {provenance.get('session', '')}",
        "measured": view.measured(trial, history),
        "peak memory": view.memory(history.memory(trial)),
        "over": f"{space.budget.samples_per_trial} {space.unit} per run",
        **{
            name: provenance[name]
            for name in ("hardware", "versions", "seed", "command")
            if name in provenance
        },
    }
    header = "".join(f"# {name}: {printable(fact)}\n" for name, fact in facts.items())
    return header + workload.exported(space.for_workload(space.settings(trial.config)))
