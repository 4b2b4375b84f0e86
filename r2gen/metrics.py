"""Scores of generated reports, by pycocoevalcap as in R2Gen: strings go in as they are, untokenized."""

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

# METEOR prints numbers with a point, and would not read them back under a locale that writes a comma.
# A cap on this process's memory is about training: Java, which takes 1 GB, is let off. Ctrl-C and service
# managers signal every process, and the evaluation that is under way needs it.
_COMMAND = (
    *("sh", "-c", "ulimit -S -d unlimited; trap '' INT TERM; exec \"$@\"", "sh"),
    *("java", "-Xmx2G", "-Duser.language=en", "-Dfile.encoding=UTF-8", "-jar", packaged.METEOR_JAR),
    # The file is named because METEOR does not find its own in a path with spaces.
    *("-", "-", "-stdio", "-l", "en", "-norm", "-a", "data/paraphrase-en.gz"),
)
_EXIT_WAIT_S = 5.0


class Meteor:
    """METEOR 1.5 in a Java process of its own, from construction to the end of the `with` block.

    It ends by itself when its parent dies of whatever cause, for then its stdin ends.
    """

    def __init__(self) -> None:
        # A file and not a pipe: it is not read while Java runs, and a full pipe would stop Java.
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
        """Whether there is a Java to run METEOR with."""
        return shutil.which("java") is not None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # It has nothing to finish, and while it loads it would not notice that its stdin ended.
        self._process.kill()
        self._process.wait()
        with suppress(BrokenPipeError):
            self._stdin.close()
        self._stdout.close()
        self._errors.close()

    def score(self, hypotheses: Sequence[str], references: Sequence[str]) -> float:
        """The score of all pairs together; raises RuntimeError with Java's last words if it died."""
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
        said = " ".join(self._errors.read().decode(errors="replace").split())[:300]
        return f"METEOR's Java process ended with status {self._process.returncode}: {said}"


class OptionalMeteor:
    """METEOR for as long as its Java process lives. Where it does not, one line says so; there is no score.

    Java is started by the first score, if METEOR is `wanted` at all, and ends with the `with` block.
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
        """`meteor`, or nothing."""
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
    """Corpus scores of generated reports, each against its one reference: bleu_1 to bleu_4, rouge_l, cider.

    Raises ValueError unless there are as many hypotheses as references, and at least one.
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
    """bleu_1, bleu_4 and rouge_l of every report by itself against its reference, in order.

    A corpus's BLEU is not their mean: it counts the n-grams of all reports together.
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
    """`text` without what would end a field or a line of METEOR's protocol."""
    return " ".join(text.replace("|||", "").split())
