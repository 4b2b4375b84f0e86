"""A search that is only shown: run under a pseudo-terminal, it draws until its standard input is closed."""

import itertools
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from rich.console import Console

from autotune.core.measurement import Measurement, Throughput
from autotune.core.trial import Outcome, Status, Trial
from autotune.display import console as consoles
from autotune.display import live
from autotune.display.snapshot import Snapshot
from autotune.space import spaces
from autotune.storage.study_file import SearchPlan
from autotune.trials.progress import Phase
from autotune.trials.report import TrialReport

SPACE = """
workload: json.tool:main
baseline: {micro_batch_size: 4, num_workers: 2, precision: bf16, channels_last: true, learning_rate: 1e-3}
knobs: {micro_batch_size: {choice: [4, 8]}}
"""


def talk(over: threading.Event) -> None:
    """Prints as libraries do: in a thread, now and then, in colour, and several lines at once."""
    for number in itertools.count():
        stream = sys.stderr if number % 2 else sys.stdout
        print(f"\x1b[36m(library)\x1b[0m says {number},\nand more of {number}", file=stream)
        if over.is_set():
            return


@contextmanager
def a_library(is_there: bool) -> Iterator[None]:
    """One that prints while the search runs, where it is there."""
    over = threading.Event()
    thread = threading.Thread(target=talk, args=(over,))
    if is_there:
        thread.start()
    try:
        yield
    finally:
        over.set()
        if is_there:
            thread.join()


def main() -> None:
    live._REFRESH_S = 0.02
    space = spaces.complete(spaces.parse(SPACE, "test"), "test")
    begun = Snapshot("runs/s", "a device", "running", space, SearchPlan(40, None), (), (), 0, None, None)
    with consoles.screen(Console(), begun) as screen, a_library("talking" in sys.argv):
        screen.note("session runs/s: 40 trials on a device")
        for number in itertools.count():
            trial = Trial(number, dict(space.baseline))
            screen.started(trial)
            for step in range(1, 5):
                shown = Measurement(throughput=Throughput(61.2, None, 9, 9.0), samples=5000 * step)
                screen.progress(trial, TrialReport(number, Phase.TRAINING, 9.0, shown))
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
