"""Finds the scores that a training prints, logs, or writes into files. Pure."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from autotune.core import units
from autotune.probe import options
from autotune.probe.watching import Watched
from autotune.workloads.command.scores import csv_rows, json_lines

NUMBER = r"([-+]?\d+\.?\d*(?:[eE][-+]?\d+)?|nan)"
_NUMBER = re.compile(r"(?<![\w./@])[-+]?\d+\.?\d*(?:[eE][-+]?\d+)?(?![\w.]*\w)(?!/)")
_LOWER = frozenset(
    {
        *("loss", "losses", "perplexity", "ppl", "nll", "bpc", "bpb", "bpd", "err", "error", "cost"),
        *("mse", "rmse", "mae", "wer", "cer", "fid", "eer"),
    }
)
_HIGHER = frozenset(
    {
        *("acc", "accuracy", "bleu", "f", "auc", "auroc", "map", "ap", "iou", "miou", "dice", "psnr", "ssim"),
        *("rouge", "meteor", "cider", "recall", "precision", "top", "mrr", "ndcg", "reward", "spearman"),
        *("pearson", "mcc", "em", "elo", "score"),
    }
)
# Words for the data of an evaluation, with the short word, and a rank by which one of several is chosen.
_SPLITS = {
    **dict.fromkeys(("val", "valid", "validation", "validate", "heldout"), ("val", 0)),
    **dict.fromkeys(("eval", "evaluate", "evaluation", "evaluating"), ("eval", 1)),
    "dev": ("dev", 1),
    **dict.fromkeys(("test", "testing"), ("test", 2)),
}
_TRAINED = frozenset({"train", "training", "lr", "epoch", "step", "iter", "time", "ms", "s", "it"})
_COSTS = frozenset({"runtime", "time", "second", "seconds", "sec", "samples", "tokens"})  # of an evaluation
_BEST = frozenset({"best", "max", "min", "lowest", "highest"})  # of earlier evaluations too
# The end of a clause in a line.
_CLAUSE = re.compile(r"[,;|\]\t]|\s{2,}|(?<![\w@.-])[-+]?\d[\d./]*(?:[:\s]|$)")
_MARKS = " -()[]%*=>{'\""
_STAMP = re.compile(r"\d{6,}([-_T:.]?\d+)*")  # a date and time in a path, which differ in another run
_MOST_SHOWN = 3


@dataclass(frozen=True)
class Score:
    """A number that a training reports repeatedly."""

    name: str
    kind: str  # "": printed; else csv, jsonl, tensorboard or wandb
    place: str  # the file or directory; empty if it is printed
    pattern: str  # regular expression, or the column or tag
    values: tuple[float, ...]  # in the order in which they came

    @property
    def minimize(self) -> bool | None:
        """True if a lower value is better, False if a higher one; None if the name does not tell."""
        metrics = [word for word in _words(self.name) if word in _LOWER | _HIGHER]
        return metrics[-1] in _LOWER if metrics else None

    @property
    def split(self) -> int | None:
        """Rank of the data set behind the score, 0 for validation data; None if the name does not tell."""
        return next((_SPLITS[word][1] for word in _words(self.name) if word in _SPLITS), None)

    @property
    def is_best(self) -> bool:
        """True for the best value so far, not that of the last evaluation."""
        return bool(_BEST & set(_words(self.name)))

    @property
    def described(self) -> str:
        """The name of the score and its values during the run, for people."""
        logged = " of the trainer" if self.kind == "reported" else " in the output"
        place = f" in {self.place}" if self.place else logged
        shown = [f"{value:.5g}" for value in self.values]
        if len(shown) > _MOST_SHOWN:
            shown = [*shown[: _MOST_SHOWN - 1], "...", shown[-1]]
        return f"{self.name}{place}: {' -> '.join(shown)}"


def scores(seen: Watched) -> list[Score]:
    """Returns the scores that a run has shown, the likeliest first.

    Leaves out constant numbers, settings, what an evaluation costs, printed scores if there are logged ones,
    test scores if there are validation scores, scores of the training if there are any of an evaluation, and
    perplexities if there are losses.
    """
    found = [one for one in _all(seen) if not _COSTS & set(_words(one.name)) and not _is_setting(one, seen)]
    evaluated = [one for one in found if one.split is not None]
    for kinds in (("reported",), ("csv", "jsonl", "tensorboard", "wandb")):
        if any(one.kind in kinds for one in evaluated):
            evaluated = [one for one in evaluated if one.kind in kinds]
    found = [one for one in (evaluated or found) if set(one.values) != {0.0}]  # zeros may become more
    found = [one for one in found if len(one.values) < 2 or len(set(one.values)) > 1]
    evaluated = [one for one in found if one.split is not None]
    best = min((one.split for one in evaluated if one.split is not None), default=None)
    chosen = [one for one in evaluated if one.split == best]
    if not evaluated:  # those that come less often than every second step
        most = max(2, len(seen.steps) // 2)
        rare = [one for one in found if one.minimize is not None and len(one.values) < most]
        chosen = [one for one in rare if not _TRAINED & set(_words(one.name))]
    losses = [one for one in chosen if "loss" in _words(one.name)]
    first_of_name: dict[str, Score] = {}
    for one in sorted(chosen, key=lambda one: (one.is_best, one.minimize is None, one.kind == "")):
        if not any(_is_exponential(one, loss) for loss in losses):
            first_of_name.setdefault(one.name, one)
    return list(first_of_name.values())


def values(seen: Watched, score: Score) -> Iterator[float]:
    """Yields all values of a score that is known from another run, NaN included."""
    found = list(_all(seen))
    same = [one for one in found if replace(one, values=()) == replace(score, values=())]
    # The name identifies the score if its place or pattern differs.
    here = next((one for one in (*same, *found) if one.name == score.name), score)
    if here.kind == "":
        matches = (re.search(here.pattern, text) for text, _ in seen.lines)
        yield from (float(match[1]) for match in matches if match)
    elif here.kind in ("csv", "jsonl"):
        for path, text in seen.tables.items():
            if _place(path) == here.place:
                yield from (row[here.pattern] for row in _rows(path, text) if here.pattern in row)
    else:
        yield from next((one.values for one in found if one == here), ())


def _place(path: str) -> str:
    return _STAMP.sub("*", path)


def _all(seen: Watched) -> Iterator[Score]:
    """Yields the scores that are logged or known to a framework's trainer, in tables, and printed."""
    for logger, place, name in dict.fromkeys(one[:3] for one in seen.logged):
        values = tuple(one[3] for one in seen.logged if one[:3] == (logger, place, name))
        yield Score(cleaned(name), logger, _place(place), name, values)
    for path, text in seen.tables.items():
        rows, kind = _rows(path, text), "csv" if path.endswith(".csv") else "jsonl"
        for name in dict.fromkeys(name for row in rows for name in row):
            if values := tuple(n for row in rows if (n := units.number(row.get(name))) is not None):
                yield Score(cleaned(name), kind, _place(path), name, values)
    yield from _printed(seen)


def _is_setting(score: Score, seen: Watched) -> bool:
    """Returns True if a score is an option of the script with its value, which many scripts print."""
    own = [one.value for one in seen.options if cleaned(one.placeholder) == score.name]
    return any(options.is_number(value) and {value} == set(score.values) for value in own)


def _is_exponential(score: Score, loss: Score) -> bool:
    """Returns True if a score is the exponential of a loss, as a perplexity is."""
    pairs = list(zip(score.values, loss.values, strict=False))
    return bool(pairs) and all(a >= 1 and math.isclose(math.log(a), b, abs_tol=0.02) for a, b in pairs)


def is_clear(candidates: Sequence[Score]) -> bool:
    """Returns True if there is only one score of an evaluation, not counting its best value so far."""
    current = [one for one in candidates if not one.is_best]
    likely = [one for one in current if one.minimize is not None] or current
    return len(likely) == 1 and likely[0].split is not None


def _words(name: str) -> list[str]:
    return re.findall(r"[a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower())


def _rows(path: str, text: str) -> list[dict[str, float]]:
    """Returns the numbers in the rows of a file, as a search reads them."""
    return (csv_rows if path.endswith(".csv") else json_lines)(text.encode(), 0).rows


def _printed(seen: Watched) -> Iterator[Score]:
    """Yields the scores among the labelled numbers in the output: one for equal labels of equal data."""
    found: dict[tuple[str, str], tuple[str, list[float]]] = {}  # the word for the data, and the values
    for text, _ in seen.lines:
        for label, between, before, value in _labelled(text):
            if (name := _named(label, before)) is not None:
                word = next((word for word in reversed(_words(before)) if word in _SPLITS), "")
                found.setdefault((_pattern(label, between, text), name), (word, []))[1].append(value)
    names_of = Counter(pattern for pattern, _ in found)
    for (pattern, name), (word, values) in found.items():
        # `Train epoch 1, loss: 2` and `Val epoch 1, loss: 3` differ by a word before the label.
        if names_of[pattern] == 1:
            yield Score(name, "", "", pattern, tuple(values))
        elif word:
            start = rf"^.*?(?<![A-Za-z])(?i:{word})(?![a-z]).*?"
            yield Score(name, "", "", start + pattern.removeprefix("^.*?"), tuple(values))


def _labelled(text: str) -> Iterator[tuple[str, str, str, float]]:
    """Yields every number in a line, with its label, a pattern for the text between, and the text before."""
    for match in _NUMBER.finditer(text):
        before = text[: match.start()].rstrip()
        pieces = _CLAUSE.split(before)
        label, between = pieces[-1].lstrip(_MARKS), ""
        # A label may be before another number: `score: 43/500 = 8.6`.
        if len(pieces) > 1 and before.endswith("=") and not re.search(r"[A-Za-z]", label):
            label, between = pieces[-2].strip().lstrip(_MARKS), ".*="
        if re.search(r"[A-Za-z]", label):
            yield label, between, before, float(match[0])


def _named(label: str, before: str) -> str | None:
    """Returns the name of a printed score; None if the label names no metric, or a metric of the training."""
    own, line = _words(label), _words(before)
    if len(own) == 1 and own[0] in _SPLITS and label.endswith((":", "=")):
        return _SPLITS[own[0]][0]  # the label names only the data: `Val: 0.712`
    metric = next((word for word in reversed(own) if word in _LOWER | _HIGHER), None)
    if metric is None or set(own) & {"train", "training"}:
        return None
    split = next((_SPLITS[word][0] for word in (*reversed(own), *reversed(line)) if word in _SPLITS), None)
    best = next((word for word in own if word in _BEST), None)
    if split is None and best is None:
        return "_".join(own)
    digit = re.search(rf"(?i)\b{metric}[-_@]?(\d)\b", label)  # as in BLEU-4 and top-5
    full = f"{metric}_{digit[1]}" if digit else metric
    return "_".join(dict.fromkeys(filter(None, (best, split, full))))


def _pattern(label: str, between: str, text: str) -> str:
    """Returns a pattern for the number that follows a label, the first one if the line repeats the label."""
    own = r"\s+".join(map(re.escape, label.split())) + between + r"\s*"
    start = r"\b" if label[:1].isalnum() else ""
    short = f"{start}{own}{NUMBER}"
    return short if len(re.findall(short, text)) == 1 else f"^.*?{short}"


def cleaned(name: str) -> str:
    """Returns a name of letters, digits and underscores."""
    return re.sub(r"\W+", "_", name).strip("_").lower()


def named(candidates: Iterable[Score], name: str) -> Score | None:
    """Returns the score called `name`, by its own spelling or the cleaned one; None if there is none."""
    return next(
        (one for one in candidates if name in (one.name, one.pattern) or cleaned(name) == one.name), None
    )
