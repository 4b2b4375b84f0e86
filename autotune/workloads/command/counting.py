"""How far a command has come: samples counted from its steps, and kept for when it is resumed."""

import json
from bisect import bisect_right
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from autotune.core import files
from autotune.inside.site import autotune_journal as journal
from autotune.workloads.command.follow import matching, written_s

_NOTE = ".samples"  # in the workdir: what the checkpoint was saved at
_REJECTED = ".rejected"  # a directory in it: the checkpoint that could not be resumed
_STEPS_KEPT = 100_000


class Counts(NamedTuple):
    """Samples in all, and their tokens, None where not counted."""

    samples: int
    tokens: int | None = None


class Counter:
    """Samples in all: those of the checkpoint that a command resumes from, and those of its steps since.

    `begun` is what the checkpoint had seen; `batch` are the samples of a step that says nothing of them.
    """

    def __init__(self, begun: Counts, batch: int) -> None:
        self.begun, self.samples, self.tokens = begun.samples, begun.samples, begun.tokens
        self.steps = self._stepped = 0  # and the samples that steps have counted
        self._batch = batch
        self._past: deque[tuple[float, Counts]] = deque([(float("-inf"), begun)], maxlen=_STEPS_KEPT)
        self._own_begin: int | None = None

    @property
    def counts(self) -> dict[str, int]:
        """What a record has of it now."""
        known = {} if self.tokens is None else {"tokens": self.tokens}
        return {"samples": self.samples, **known}

    def step(self, at_s: float, samples: int | None, tokens: int | None = None) -> None:
        """Counts a step that ended at `at_s` of the monotonic clock."""
        if tokens is not None:
            self.tokens = (self.tokens or 0) + tokens
        self._reached(at_s, self.samples + (self._batch if samples is None else samples))
        self._stepped = self.samples

    def said(self, at_s: float, samples: int) -> bool:
        """Takes what the script itself says that it has seen; whether that is more than before.

        A resumed script may have restarted its own count.
        """
        if self._own_begin is None:
            self._own_begin = self.begun if samples < self.begun else 0
        total = self._own_begin + samples
        if total <= self.samples:
            return False
        self._reached(at_s, total)
        return True

    def reported(self, at_s: float, record: Mapping[str, Any]) -> dict[str, Any]:
        """A `record` of the script's own, with the samples that it says, or else those until now.

        Until it has passed what its steps have counted before, that stands: samples never decrease.
        """
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
        """What there was up to a moment of the monotonic clock."""
        past = list(self._past)
        after = bisect_right(past, moment_s, key=lambda entry: entry[0])
        return past[max(0, after - 1)][1]


class Checkpoint:
    """A command's checkpoint, files or directories that match `pattern`, and the samples it was saved at.

    They are those of the moment at which it was last written, and are noted a little later. Of a command that
    was killed before that, the hook's journal has them; one whose steps are found in its output has none.
    """

    def __init__(self, pattern: str | None, workdir: Path, *, has_journal: bool = True) -> None:
        self._pattern, self._workdir, self._note = pattern, workdir, workdir / _NOTE
        self._journal, self._has_journal = Path(journal.file_of(str(workdir))), has_journal
        self._noted_ns = self._written_ns()

    @property
    def exists(self) -> bool:
        return self._pattern is not None and bool(matching(self._pattern))

    @property
    def is_known(self) -> bool:
        """Whether it is known what it had seen: a command without a journal may have continued since."""
        return not self.exists or self._has_journal or self._noted()[0] == self._noted_ns

    def counts(self) -> Counts:
        """What it was saved at, at least; nothing where there is no checkpoint."""
        if not self.exists:
            return Counts(0)
        noted_ns, counts = self._noted()
        if noted_ns == self._noted_ns or not self._has_journal:
            return counts
        seen = journal.seen_at(str(self._journal), self._noted_ns or 0)
        return Counts(*seen) if seen else counts

    def begin(self) -> Counts:
        """The same, noted for resuming after this attempt, which begins a journal of its own."""
        counts = self.counts()
        with suppress(OSError):  # a full disk is for the script to tell
            if self.exists:
                self._write(counts, self._noted_ns)
            else:
                self._note.unlink(missing_ok=True)
            self._journal.unlink(missing_ok=True)
        return counts

    def _noted(self) -> tuple[int | None, Counts]:
        """The checkpoint that the note is of, by when that was written, and what it was saved at."""
        with suppress(OSError, ValueError, KeyError, TypeError):
            noted = json.loads(self._note.read_text(encoding="utf-8"))
            tokens = noted.get("tokens")
            written_ns = noted.get("written_ns", self._noted_ns)  # older ones do not say it
            return written_ns, Counts(int(noted["samples"]), None if tokens is None else int(tokens))
        return None, Counts(0)

    def set_aside(self) -> bool:
        """Puts it where it is no checkpoint any more; whether that was done.

        It is done once in a workdir, for another one would fail as well, and with what lies in there alone.
        """
        places = matching(self._pattern) if self._pattern else []
        rejected = self._workdir / _REJECTED
        if rejected.exists() or not all(place.is_relative_to(self._workdir) for place in places):
            return False
        rejected.mkdir()
        for place in places:
            place.rename(rejected / place.name)
        return True

    def look(self, counter: Counter, until_s: float) -> None:
        """Notes the samples of a checkpoint that is new; `counter` has all steps up to `until_s`."""
        written_ns = self._written_ns()
        if written_ns is None or written_ns == self._noted_ns:
            return
        if (moment_s := written_s(written_ns)) > until_s:
            return
        self._noted_ns = written_ns
        with suppress(OSError):  # a full disk is for the script to tell
            self._write(counter.at(moment_s), written_ns)

    def _write(self, counts: Counts, written_ns: int | None) -> None:
        files.write_whole(self._note, json.dumps({**counts._asdict(), "written_ns": written_ns}) + "\n")

    def _written_ns(self) -> int | None:
        """When it was last written; of a directory whatever is in it counts."""
        places = matching(self._pattern) if self._pattern else []
        with suppress(OSError):  # it was there a moment ago
            inside = [file for place in places if place.is_dir() for file in place.rglob("*")]
            return max((file.stat().st_mtime_ns for file in [*places, *inside]), default=None)
        return None
