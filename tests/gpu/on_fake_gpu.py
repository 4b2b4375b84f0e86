"""Trials on a fake GPU: real children of a real fork server, in a process that has never seen another one."""

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from autotune.core.trial import Outcome
from tests import forked

HERE = Path(__file__).parent
GIB = 2**30

_CHILDREN = """
import json, os, sys
from pathlib import Path

from dataclasses import asdict
from autotune.core import errors
from autotune.core.measurement import Metric
from autotune.trials.child import Child
from autotune.trials.fork_server import ForkServer
from autotune.trials.order import Ends, Order, TrialLimits

preload, cases = json.loads(sys.argv[1])
server, found = ForkServer(preload), []
for number, case in enumerate(cases):
    Path(os.environ["FAKE_CUDA"]).write_text(json.dumps(case["gpu"]))
    directory = Path(str(number))
    directory.mkdir()
    given = (number, case["workload"], case["config"], str(directory), Metric("r2"))
    order = Order(*given, Ends(1000), TrialLimits(**case["limits"]))
    child, records = Child(order, server), []
    while child.verdict is None:
        records += child.poll(1.0)
    records += child.poll(0.0)
    child.kill()
    log = (directory / "log").read_text()
    found.append({"outcome": asdict(child.verdict), "records": records, "log": log, "note": server.note})
print(json.dumps(found))
"""


@dataclass(frozen=True)
class Case:
    """A trial: `workload` with `config`, what its order limits, and the GPU that it meets."""

    workload: str
    config: Mapping[str, Any] = field(default_factory=dict)
    limits: Mapping[str, Any] = field(default_factory=dict)
    gpu: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Found:
    """How a case ended, its records with their times, its log, and what its server had to say."""

    outcome: Outcome
    records: list[dict[str, Any]]
    log: str
    note: str


def run(directory: Path, preload: Iterable[str], cases: Iterable[Case]) -> list[Found]:
    """Runs the cases one after the other, all forked from a server that has imported `preload`."""
    plain = [
        {"workload": c.workload, "config": c.config, "limits": {"gpus": 1.0, **c.limits}, "gpu": c.gpu}
        for c in cases
    ]
    path = [HERE / "fake_cuda", HERE / "scripts", HERE.parents[1], os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(map(str, path)),
        "FAKE_CUDA": str(directory / "gpu.json"),
    }
    environment.pop("PYTORCH_NVML_BASED_CUDA_CHECK", None)
    arguments = (json.dumps([list(preload), plain]),)
    done = forked.run(arguments, directory, environment, script=_CHILDREN)
    assert done.returncode == 0, done.stderr
    return [
        Found(TypeAdapter(Outcome).validate_python(one["outcome"]), one["records"], one["log"], one["note"])
        for one in json.loads(done.stdout.splitlines()[-1])
    ]
