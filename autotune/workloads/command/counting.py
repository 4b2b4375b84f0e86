"""Counts a command's samples, and notes the count behind its checkpoint, to resume from."""

import json
import math
import shutil
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from autotune.core import files
from autotune.inside.site import autotune_saves as saves
from autotune.inside.site import autotune_wire as wire
from autotune.inside.site.autotune_saves import Counts
from autotune.workloads.command.scores import matching, written_s

_NOTE = ".samples"  # file in the workdir: counts of the checkpoint, if the hook does not note them
_BY_SCRIPT = "by script"  # instead of a stamp: the script counts its samples itself
_REJECTED = ".rejected"  # directory in the workdir for a checkpoint that could not be resumed
_STEPS_KEPT = 100_000


class Counter:
    """Counts all samples, starting from the counts `begun`; `batch` is the default for a step's samples."""

    def __init__(self, begun: Counts, batch: int) -> None:
        self.begun, self.samples, self.tokens = begun.samples, begun.samples, begun.tokens
        self.steps = self._stepped = 0  # number of steps; samples after the last of them
        self.batch = batch
        self._past: deque[tuple[float, Counts]] = deque([(float("-inf"), begun)], maxlen=_STEPS_KEPT)
        self._own_begin: int | None = None

    @property
    def counts(self) -> dict[str, int]:
        """Current counts, as fields of a record."""
        known = {} if self.tokens is None else {"tokens": self.tokens}
        return {"samples": self.samples, **known}

    def step(self, at_s: float, samples: int | None, tokens: int | None = None) -> None:
        """Counts a step that ended at `at_s` on the monotonic clock."""
        if tokens is not None:
            self.tokens = (self.tokens or 0) + tokens
        self._reached(at_s, self.samples + (self.batch if samples is None else samples))
        self._stepped = self.samples

    def take_printed(self, at_s: float, samples: int) -> bool:
        """Takes a count printed by the script, maybe from zero again; returns True if the total grew."""
        if self._own_begin is None:
            self._own_begin = self.begun if samples < self.begun else 0
        total = self._own_begin + samples
        if total <= self.samples:
            return False
        self._reached(at_s, total)
        return True

    def complete(self, at_s: float, record: Mapping[str, Any]) -> dict[str, Any]:
        """Returns a record that the script reported, with a sample count that never decreases."""
        samples = record.get("samples")
        if not isinstance(samples, int):
            return {**self.counts, **record}
        if samples > self.samples:
            self._reached(at_s, samples)
        return {**self.counts, **record, "samples": max(samples, self._stepped)}

    def _reached(self, at_s: float, total: int) -> None:
        self.samples = total
        self.steps += 1
        self._past.append((at_s, Counts(total, self.tokens)))

    def at(self, moment_s: float) -> Counts:
        """Returns the counts at a moment on the monotonic clock."""
        past = list(self._past)
        after = bisect_right(past, moment_s, key=lambda entry: entry[0])
        return past[max(0, after - 1)][1]


class Checkpoint:
    """A command's checkpoint, files or directories that match `pattern`, and its sample count.

    Normally the hook notes the count as the script saves; else it is derived from the time of writing.
    """

    def __init__(self, pattern: str | None, workdir: Path) -> None:
        self._pattern, self._workdir, self._note = pattern, workdir, workdir / _NOTE
        self._written = self._stamp()
        self._newest, self._newest_s, self._looked_s = self._written, -math.inf, time.monotonic()

    @property
    def exists(self) -> bool:
        return self._pattern is not None and bool(matching(self._pattern))

    def counts(self) -> Counts | None:
        """Returns the counts at which the checkpoint was saved; zero if there is none, None if unknown."""
        if not self.exists:
            return Counts(0)
        noted, stamp = self._noted()
        if stamp not in {self._written, _BY_SCRIPT}:
            noted = None  # of an earlier checkpoint
        saved = saves.read_notes(saves.notes_file(str(self._workdir)))
        counts = []
        for file in self._files() if saved else ():
            with suppress(OSError):
                if file.is_file() and (digest := saves.digest_of(file)) in saved:
                    counts.append(saved[digest])
        return max(counts, key=lambda one: one.samples, default=None) or noted

    def begin(self) -> Counts | None:
        """Returns the counts to resume from; None to start anew, as a trial does if they are unknown."""
        if not self.exists:
            with suppress(OSError):
                self._note.unlink()
            return None
        said, counts = "continues from the checkpoint, after", self.counts()
        if counts is None and wire.is_whole():  # from those of an earlier checkpoint
            said, counts = f"{said} at least", self._noted()[0] or Counts(0)
        if counts is None:
            self.set_aside()
            said = "it is not known at how many samples the checkpoint was saved"
            print(f"autotune: {said}; the training starts from the beginning", flush=True)
        else:
            print(f"autotune: {said} {counts.samples:,} samples", flush=True)
        return counts

    def _noted(self) -> tuple[Counts | None, str]:
        """Returns the counts in the note, and the stamp of the checkpoint that they are of."""
        with suppress(OSError, ValueError, KeyError, TypeError):
            note = json.loads(self._note.read_text(encoding="utf-8"))
            tokens = None if note["tokens"] is None else int(note["tokens"])
            return Counts(int(note["samples"]), tokens), str(note["stamp"])
        return None, ""

    def set_aside(self) -> bool:
        """Moves a rejected checkpoint aside; returns False if it is outside of the workdir."""
        places = matching(self._pattern) if self._pattern else []
        if not all(place.is_relative_to(self._workdir) for place in places):
            return False
        rejected = self._workdir / _REJECTED
        shutil.rmtree(rejected, ignore_errors=True)
        rejected.mkdir()
        for place in places:
            place.rename(rejected / place.name)
        return True

    @property
    def was_set_aside(self) -> bool:
        return (self._workdir / _REJECTED).exists()

    def trust(self, counter: Counter) -> None:
        """Notes that the script counts its samples itself, so that its own count is used after resuming."""
        self._write(counter.at(math.inf), _BY_SCRIPT)

    def look(self, counter: Counter, until_s: float) -> None:
        """Notes the counts behind a new checkpoint; `counter` has all steps up to `until_s`."""
        before_s, self._looked_s = self._looked_s, time.monotonic()
        if (stamp := self._stamp()) != self._newest:
            self._newest, clocked_s = stamp, written_s(int(stamp.partition(" ")[0] or 0))
            self._newest_s = min(max(clocked_s, before_s), self._looked_s)  # file system clocks differ
        if stamp and stamp != self._written and self._newest_s <= until_s:
            self._written = stamp
            self._write(counter.at(self._newest_s), stamp)

    def _write(self, counts: Counts, stamp: str) -> None:
        with suppress(OSError):  # a full disk is reported by the script
            files.write_whole(self._note, json.dumps({**counts._asdict(), "stamp": stamp}) + "\n")

    def _stamp(self) -> str:
        """Returns the latest mtime in ns and total size, which change with every write; "" without files."""
        with suppress(OSError):  # removed meanwhile
            stats = [file.stat() for file in self._files()]
            newest = max((one.st_mtime_ns for one in stats), default=None)
            return "" if newest is None else f"{newest} {sum(one.st_size for one in stats)}"
        return ""

    def _files(self) -> list[Path]:
        places = matching(self._pattern) if self._pattern else []
        return [*places, *(file for place in places if place.is_dir() for file in place.rglob("*"))]
