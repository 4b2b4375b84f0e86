"""SIGKILL of any process of a search at any moment: no trial is lost, none is run or counted twice."""

import itertools
import os
import random
import signal
import time
from pathlib import Path

import pytest

from autotune.storage.layout import TrialDir
from autotune.storage.records import read_records
from tests.endings import ENDED

from . import killing

VICTIMS = (
    *("driver", "its child", "process group", "driver and guardian", "guardian", "raylet", "GCS server"),
    *("supervisor", "fork server", "child", "loader worker"),
)
OF_A_TRIAL = ("supervisor", "fork server", "child", "loader worker")
WITH_THE_DRIVER = ("driver", "its child", "process group", "driver and guardian")
OF_RAY = ("guardian", "raylet", "GCS server")
GIVEN_UP = ", 3 times in a row; nothing is lost; continue with: python -m autotune resume s"
TRIALS = 6
LONGEST_S = 3.0


class Killed:
    """A search that is killed repeatedly, and the invariants after every kill."""

    def __init__(self, directory: Path, rng: random.Random, temporary: Path) -> None:
        directory.mkdir()
        self._environment = {"TMPDIR": str(temporary)}
        (directory / "space.yaml").write_text(killing.SPACE)
        self.directory, self._rng = directory, rng
        self._ended: dict[int, tuple] = {}
        self._spared = True
        self._rays = 0  # killed since a trial last ended
        self.process = killing.begin(
            directory, *killing.SEARCH[:-1], "offline", "--trials", TRIALS, **self._environment
        )
        killing.wait_for((directory / "s" / "session.json").exists)

    def kill_one(self) -> str | None:
        """Kills a process at a random moment, and resumes after a driver's death; None: it had ended."""
        victim = self._rng.choice(VICTIMS)
        # A trial killed three times without an evaluation in between is given up: allow it one.
        if self._spared and victim in OF_A_TRIAL:
            evaluations = self._evaluations()
            if not self._await(lambda: self._evaluations() > evaluations):
                return None
        self._spared = victim in OF_A_TRIAL
        moment = time.monotonic() + self._rng.uniform(0, LONGEST_S)
        if not self._await(lambda: time.monotonic() >= moment and self._pids(victim)):
            return None
        pids, family = self._pids(victim), killing.family(self.process)
        is_guarded = victim != "driver and guardian" and bool(self._pids("guardian"))
        holders = [*killing.children(self.process), *killing.kinds(family).get("guardian", [])]
        for pid in pids:
            try:
                (os.killpg if victim == "process group" else os.kill)(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        if victim in WITH_THE_DRIVER:
            self.process.wait()
            # Only the next command ends the others, once those killed have let go of the directory's lock.
            if not is_guarded:
                killing.wait_for(lambda: not killing.alive(holders), 60, "the end of those killed")
                killing.begin(self.directory, "status", "s", **self._environment).wait(240)
            killing.wait_for(lambda: not killing.alive(family), 60, "the end of everything")
            self.check()
            self.process = killing.begin(self.directory, "resume", "s", **self._environment)
        else:
            self.check()
        self._rays += victim in OF_RAY
        return victim

    def _await(self, condition) -> bool:
        """Waits for `condition`; returns False if the search ends first."""
        deadline = time.monotonic() + 300
        while not condition():
            if self.process.poll() is not None:
                return False
            assert time.monotonic() < deadline, killing.output(self.directory)
            time.sleep(0.05)
        return self.process.poll() is None

    def _pids(self, victim: str) -> list[int]:
        found = killing.kinds(killing.family(self.process))
        if victim == "driver and guardian":
            return [self.process.pid, *(p.pid for p in found.get("guardian", []))]
        if victim == "its child":
            return [child.pid for child in killing.children(self.process)]
        if victim in WITH_THE_DRIVER:
            return [self.process.pid]
        return [p.pid for p in found.get(victim, [])]

    def _evaluations(self) -> int:
        files = (self.directory / "s").glob("trials/*/records.jsonl")
        return sum(file.read_text().count("bleu_4") for file in files)

    def check(self) -> None:
        """Asserts that ended trials are unchanged and were not run again."""
        trials = killing.trials_of(self.directory)
        assert [t.number for t in trials] == list(range(len(trials)))
        ended = [t for t in trials if t.outcome is not None]
        now = {t.number: (t, self._place(t.number).records_file.read_text()) for t in ended}
        assert {number: now.get(number) for number in self._ended} == self._ended
        self._rays = 0 if len(now) > len(self._ended) else self._rays
        self._ended = now

    def finish(self) -> None:
        """Lets the search end, and checks its trials."""
        self.process.wait(240)
        if killing.output(self.directory).rstrip().endswith(GIVEN_UP):
            assert self._rays  # on a busy machine Ray may also die by itself once
            self.process = killing.begin(self.directory, "resume", "s", **self._environment)
            self.process.wait(240)
        assert self.process.returncode in ENDED, killing.output(self.directory)
        assert "Traceback" not in killing.output(self.directory)
        assert "(raylet)" not in killing.output(self.directory)
        self.check()
        trials = killing.trials_of(self.directory)
        assert [t.completed for t in trials] == [True] * TRIALS, killing.output(self.directory)
        for trial in trials:
            check_attempts(list(read_records(self._place(trial.number))))

    def _place(self, number: int) -> TrialDir:
        return TrialDir(self.directory / "s" / "trials" / f"{number:04d}")


def check_attempts(records: list[dict]) -> None:
    """Asserts that every attempt resumes from the last checkpoint, or the one before if it was being written.

    Records yielded just before the supervisor was killed may be missing.
    """
    batch = next(r["samples"] for r in records if "samples" in r)
    evaluated, last = [0, 0], None
    for record in records:
        if "attempt" in record:
            last = None
        elif "bleu_4" in record:
            evaluated += [record["samples"]] if record["samples"] > evaluated[-1] else []
        else:
            assert record["samples"] > evaluated[-2] if last is None else record["samples"] == last + batch
            last = record["samples"]


@pytest.mark.slow
@pytest.mark.timeout(6 * 3600)
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.soak)])
def test_kills_anywhere_lose_and_repeat_nothing(tmp_path, soak, seed):
    rng, kills, done, numbers = random.Random(seed), 100 if soak else 5, [], itertools.count()
    while len(done) < kills:
        with killing.temporary() as temporary:
            search = Killed(tmp_path / f"search-{next(numbers)}", rng, temporary)
            try:
                while len(done) < kills and (victim := search.kill_one()) is not None:
                    print(f"seed {seed}, {search.directory.name}: {victim}")  # shown if the test fails
                    done.append(victim)
                search.finish()
            finally:
                killing.end(search.process)
