"""A search that is only shown: run under a pseudo-terminal, it draws until its standard input is closed."""

import itertools
import sys
from dataclasses import replace

from rich.console import Console

from autotune.core.trial import Measurement, Outcome, Status, Throughput, Trial
from autotune.display import console as consoles
from autotune.display.snapshot import Snapshot
from autotune.space import space as spaces
from autotune.storage.study_file import Plan
from autotune.trials.progress import Phase
from autotune.trials.reported import Report

SPACE = """
workload: json.tool:main
baseline: {micro_batch_size: 4, num_workers: 2, precision: bf16, channels_last: true, learning_rate: 1e-3}
knobs: {micro_batch_size: {choice: [4, 8]}}
"""


def main() -> None:
    consoles._REFRESH_S = 0.02
    space = spaces.complete(spaces.parse(SPACE, "test"), "test")
    begun = Snapshot("runs/s", "a device", "running", space, Plan(40, None), (), (), 0, None, None)
    with consoles.screen(Console(), begun) as screen:
        screen.note("session runs/s: 40 trials on a device")
        for number in itertools.count():
            trial = Trial(number, dict(space.baseline))
            screen.started(trial)
            for step in range(1, 5):
                shown = Measurement(throughput=Throughput(61.2, None, 9, 9.0), samples=5000 * step)
                screen.progress(trial, Report(number, Phase.TRAINING, 9.0, shown))
                line = sys.stdin.readline()
                if not line:
                    screen.note("it was stopped")
                    return
            reason = f"reason {number} of a trial that was stopped, which takes more than one line to tell"
            figures = Measurement(
                throughput=Throughput(60.0 + number, 0.5, 9, 9.0), quality=0.2, samples=20000
            )
            outcome = Outcome(Status.STOPPED, reason=reason) if number % 3 else Outcome(Status.COMPLETED)
            screen.ended(replace(trial, outcome=outcome, measurement=figures, seconds=9.0))


main()
