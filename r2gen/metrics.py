"""Scores of generated reports by pycocoevalcap, as in R2Gen; strings are not tokenized again."""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Self, cast

from pycocoevalcap.bleu.bleu import Bleu
from pycocoevalcap.cider.cider import Cider
from pycocoevalcap.meteor import meteor as packaged
from pycocoevalcap.rouge.rouge import Rouge

from r2gen.errors import printable

# METEOR formats and parses numbers by the locale, which must not write a decimal comma. Java takes 1 GB and
# is exempt from the memory limit of this process. It ignores the signals that Ctrl-C and service managers
# send to every process: the running evaluation needs it.
_COMMAND = (
    *("sh", "-c", "ulimit -S -d unlimited; trap '' INT TERM; exec \"$@\"", "sh"),
    *("java", "-Xmx2G", "-Duser.language=en", "-Dfile.encoding=UTF-8", "-jar", packaged.METEOR_JAR),
    # METEOR does not find its own paraphrase file in a path with spaces.
    *("-", "-", "-stdio", "-l", "en", "-norm", "-a", "data/paraphrase-en.gz"),
)
_EXIT_WAIT_S = 5.0


class Meteor:
    """METEOR 1.5 in its own Java process, from construction to the end of the `with` block.

    If the parent dies, Java's stdin closes, which ends it.
    """

    def __init__(self) -> None:
        # A file, not a pipe: nothing reads it while Java runs, and a full pipe would block Java.
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by __exit__
        self._process = subprocess.Popen(  # noqa: S603 - a constant command line
            _COMMAND,
            cwd=Path(packaged.__file__).parent,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            encoding="utf-8",
        )
        self._stdin = cast("IO[str]", self._process.stdin)
        self._stdout = cast("IO[str]", self._process.stdout)

    @staticmethod
    def available() -> bool:
        """Returns True if there is a Java to run METEOR with."""
        return shutil.which("java") is not None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # Killed: it has nothing to finish, and does not notice the end of its stdin while it loads.
        self._process.kill()
        self._process.wait()
        with suppress(BrokenPipeError):
            self._stdin.close()
        self._stdout.close()
        self._errors.close()

    def score(self, hypotheses: Sequence[str], references: Sequence[str]) -> float:
        """Returns the corpus score; raises RuntimeError with Java's stderr if the process died."""
        pairs = zip(hypotheses, references, strict=True)
        try:
            statistics = [self._ask(f"SCORE ||| {_field(ref)} ||| {_field(hyp)}") for hyp, ref in pairs]
            scores = [self._ask(" ||| ".join(("EVAL", *statistics))), *(self._read() for _ in statistics)]
        except (BrokenPipeError, EOFError):
            raise RuntimeError(self._last_words()) from None
        return float(scores[-1])  # after one score for each pair

    def _ask(self, question: str) -> str:
        self._stdin.write(question + "\n")
        self._stdin.flush()
        return self._read()

    def _read(self) -> str:
        line = self._stdout.readline()
        if not line:
            raise EOFError
        return line.strip()

    def _last_words(self) -> str:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_EXIT_WAIT_S)
        self._errors.seek(0)
        stderr_text = " ".join(self._errors.read().decode(errors="replace").split())[:300]
        return f"METEOR's Java process ended with status {self._process.returncode}: {stderr_text}"


class OptionalMeteor:
    """METEOR while its Java process lives. If it fails, one line on stderr says so, and there is no score.

    The first score starts Java, if METEOR is `wanted` at all; the end of the `with` block stops it.
    """

    def __init__(self, *, wanted: bool = True) -> None:
        self._meteor: Meteor | None = None
        self._given_up = not wanted

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._meteor is not None:
            self._meteor.__exit__()

    def score(self, reports: Sequence[str], references: Sequence[str]) -> dict[str, float]:
        """Returns `meteor`, or nothing if METEOR is unavailable."""
        if self._given_up:
            return {}
        if not Meteor.available():
            return self._give_up("it needs java, which is not installed")
        try:
            self._meteor = self._meteor or Meteor()
            return {"meteor": self._meteor.score(reports, references)}
        except (OSError, RuntimeError, ValueError) as error:  # not started, died, or wrote no score
            return self._give_up(str(error))

    def _give_up(self, reason: str) -> dict[str, float]:
        self._given_up = True
        print(printable(f"METEOR is left out: {reason}"), file=sys.stderr, flush=True)
        return {}


def score(hypotheses: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """Returns corpus scores, one reference per report: bleu_1 to bleu_4, rouge_l, cider.

    Raises ValueError unless there are equally many hypotheses and references, and at least one.
    """
    if not hypotheses:
        raise ValueError("scores need at least one report")
    given = {i: [reference] for i, reference in enumerate(references)}
    written = {i: [hypothesis] for i, (hypothesis, _) in enumerate(zip(hypotheses, references, strict=True))}
    bleu, _ = Bleu(4).compute_score(given, written, verbose=0)
    scores = {f"bleu_{n}": float(value) for n, value in enumerate(bleu, start=1)}
    scores["rouge_l"] = float(Rouge().compute_score(given, written)[0])
    scores["cider"] = float(Cider().compute_score(given, written)[0])
    return scores


def each(hypotheses: Sequence[str], references: Sequence[str]) -> list[dict[str, float]]:
    """Returns bleu_1, bleu_4 and rouge_l of every single report against its reference, in order.

    Their mean is not the corpus BLEU, which pools the n-grams of all reports.
    """
    if not hypotheses:
        return []
    given = {i: [reference] for i, reference in enumerate(references)}
    written = {i: [hypothesis] for i, (hypothesis, _) in enumerate(zip(hypotheses, references, strict=True))}
    _, bleu = Bleu(4).compute_score(given, written, verbose=0)
    _, rouge = Rouge().compute_score(given, written)
    return [
        {"bleu_1": float(one), "bleu_4": float(four), "rouge_l": float(longest)}
        for one, four, longest in zip(bleu[0], bleu[3], rouge, strict=True)
    ]


def _field(text: str) -> str:
    """Removes from `text` everything that would end a field or a line of METEOR's protocol."""
    return " ".join(text.replace("|||", "").split())
