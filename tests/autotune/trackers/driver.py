"""Runs scripts that call trackers like a search, each in its own process."""

import os
from dataclasses import dataclass
from pathlib import Path

from tests.forked import Forked

KEY = "made-up-key-" + "0123456789" * 3
USER = "somebody-in-particular"

PROLOGUE = """
import logging, os, sys, time
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from autotune.space import spaces
from autotune.storage.layout import SessionDir
from autotune.storage.layout import TrainingDir
from autotune.trackers import ray_callback, registry, tracking
from autotune.trackers.tracker import Context
from autotune.trials.progress import Phase
from autotune.trials.report import TrialReport
from autotune.core.measurement import Metric
from autotune.core.measurement import Measurement, Throughput
from autotune.core.trial import Failure, Outcome, Status
logging.basicConfig(filename=sys.argv[2], level="WARNING", format="%(message)s")
directory, tracker = Path(sys.argv[1]), sys.argv[3]
modes = {"wandb": "auto"}
def opened(place=SessionDir(directory), **more):
    context = Context(place, "chest", Metric("bleu_4"), wandb=modes.get(tracker, "off"), **more)
    return registry.open_trackers(context, ("mlflow",) if tracker == "mlflow" else ())
def trial(number, **settings):
    return SimpleNamespace(config={"number": number, "config": {"micro_batch_size": 4} | settings})
def measured(samples):
    return Measurement(throughput=Throughput(5.0, None, 9, 9.0), samples=samples)
def report(number, samples, seconds=2.0, records=None, **more):
    steps = ({"samples": samples, "train_loss": 100 / samples, "at_s": 0.0},)
    records = steps if records is None else records
    return TrialReport(number, Phase.TRAINING, seconds, measured(samples), records, **more)
def log(callback, number, *args, **more):
    callback.log_trial_result(1, trial(number), asdict(report(number, *args, **more)))
space = spaces.parse('''
workload: some.module:fit
baseline: {micro_batch_size: 4, precision: fp32, learning_rate: 1e-3}
knobs: {micro_batch_size: {choice: [4, 8]}, precision: {choice: [fp32, null]}, learning_rate: {scale: sqrt}}
''', "test")
"""


@dataclass
class Driver:
    """Runs scripts with TensorBoard and `tracker` as another user, without the trackers' variables."""

    directory: Path
    tracker: str

    def start(self, script: str, *arguments: str, **environment: str) -> Forked:
        home = self.directory / "home" / USER
        home.mkdir(parents=True, exist_ok=True)
        self.session.mkdir(exist_ok=True)
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("WANDB_", "MLFLOW_"))}
        quiet = {"RAY_AIR_NEW_OUTPUT": "0", "RAY_AUTH_MODE": "disabled", "TUNE_PRINT_ALL_TRIAL_ERRORS": "0"}
        who = {"HOME": str(home), "USER": USER, "LOGNAME": USER}
        given = (self.session, self.log, self.tracker, *arguments)
        return Forked(given, self.directory, inherited | quiet | who | environment, script=PROLOGUE + script)

    def run(self, script: str, *arguments: str, **environment: str) -> str:
        """Returns the output of the script, which must succeed."""
        process = self.start(script, *arguments, **environment)
        output = "".join(process.communicate(timeout=120))
        assert process.returncode == 0, output
        return output

    @property
    def session(self) -> Path:
        return self.directory / "session"

    @property
    def log(self) -> Path:
        return self.directory / "log"

    def files_with(self, text: str) -> list[Path]:
        return [f for f in self.directory.rglob("*") if f.is_file() and text.encode() in f.read_bytes()]
