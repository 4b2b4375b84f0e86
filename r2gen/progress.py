"""Prints a training's progress: a line a second at most, one per evaluation, and one per epoch."""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

_LINE_EVERY_S = 1.0
_SHOWN_SCORES = (
    *("val_loss", "bleu_1", "bleu_2", "bleu_3", "bleu_4", "full_bleu_4", "rouge_l", "meteor", "cider"),
    "test_bleu_4",
)

Record = Mapping[str, Any]


@dataclass
class _Epoch:
    """Totals of an epoch's training steps in this process, evaluations excluded."""

    number: int
    steps: int = 0
    seconds: float = 0.0
    samples: int = 0  # in these seconds
    losses: list[float] = field(default_factory=list)

    def line(self) -> str:
        """Returns the line to print, without scores: a program that parses the output must find each once."""
        loss = [f"mean loss {math.fsum(self.losses) / len(self.losses):.4f}"] if self.losses else []
        return f"epoch {self.number}: {', '.join([*self._speed(), *loss])}"

    def _speed(self) -> list[str]:
        if not self.seconds:
            return []
        return [f"{self.seconds:.1f} s of training", f"{self.samples / self.seconds:.1f} samples/s"]


class Lines:
    """Prints a line per evaluation, one per epoch, and at most one a second for steps."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._shown_s = self._since_s = clock()
        self._since_samples: int | None = None
        self._last: tuple[float, int] | None = None  # time and samples of the previous record
        self._epoch: _Epoch | None = None

    def record(self, record: Record) -> None:
        now_s = self._clock()
        self._add(record, now_s)
        if "bleu_4" in record:
            _say(f"epoch {record['epoch']}, {record['samples']} samples: {_figures(record)}")
            self._since_samples = None
        elif record["bad_steps"]:
            _say(
                f"epoch {record['epoch']}, step {record['step']}: the loss is {record['train_loss']}, the "
                f"gradient's norm {record['grad_norm']}: this step is skipped"
            )
        elif self._since_samples is None:
            self._since_s, self._since_samples = now_s, record["samples"]
        elif now_s - self._shown_s >= _LINE_EVERY_S:
            rate = (record["samples"] - self._since_samples) / (now_s - self._since_s)
            _say(
                f"epoch {record['epoch']}, {record['samples']} samples: loss {record['train_loss']:.4f}, "
                f"{rate:.1f} samples/s"
            )
            self._shown_s, self._since_s, self._since_samples = now_s, now_s, record["samples"]

    def _add(self, record: Record, now_s: float) -> None:
        """Adds a record to its epoch. The first record starts the clock: startup is not training time."""
        if self._epoch is None or record["epoch"] != self._epoch.number:
            self.end_epoch()
            self._epoch = _Epoch(record["epoch"])
        if "bleu_4" not in record:
            self._epoch.steps += 1
            self._epoch.losses += [loss] if math.isfinite(loss := record["train_loss"]) else []
            if self._last is not None:
                self._epoch.seconds += now_s - self._last[0]
                self._epoch.samples += record["samples"] - self._last[1]
        self._last = now_s, record["samples"]

    def end_epoch(self) -> None:
        """Prints the summary of the epoch that has just ended, if it had a step in this process."""
        if self._epoch is not None and self._epoch.steps:
            _say(self._epoch.line())
        self._epoch = None


def _say(text: str) -> None:
    print(text, flush=True)


def _figures(record: Mapping[str, Any]) -> str:
    """Formats an evaluation's scores, BLEU-4 with its chance level, and a warning if the model collapsed."""
    scores = [(name, f"{name} {record[name]:.4f}") for name in _SHOWN_SCORES if name in record]
    chance = f" (chance {record['bleu_4_chance']:.4f})"
    figures = ", ".join(text + chance * (name == "bleu_4") for name, text in scores)
    return f"{figures}; {_collapse(record)}" if record["collapsed"] else figures


def _collapse(record: Mapping[str, Any]) -> str:
    studies = record["val_studies"]
    distinct = round(record["distinct_reports"] * studies)
    if distinct == 1:
        return f"1 distinct report of {studies}: the model writes the same whatever it sees"
    return f"{distinct} distinct reports of {studies}: what the model writes hardly depends on what it sees"
