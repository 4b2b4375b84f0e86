"""Finds the quality metrics that a script prints, and regular expressions for them."""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from autotune.init import arguments, syntax
from autotune.init.options import Option
from autotune.init.printed import Hole, Line, lines, words
from autotune.init.sources import Source

NUMBER = r"([-+]?\d+\.?\d*(?:[eE][-+]?\d+)?|nan)"
_LOWER = {
    *(
        "loss",
        "losses",
        "perplexity",
        "ppl",
        "nll",
        "bpc",
        "bpb",
        "bpd",
        "err",
        "error",
        "mse",
        "rmse",
        "mae",
    ),
    *("wer", "cer", "fid", "eer"),
}
_HIGHER = {
    *(
        "acc",
        "accuracy",
        "bleu",
        "f",
        "auc",
        "auroc",
        "map",
        "ap",
        "iou",
        "miou",
        "dice",
        "psnr",
        "ssim",
        "rouge",
    ),
    *("meteor", "cider", "recall", "top", "mrr", "ndcg", "reward", "spearman", "pearson", "mcc", "em", "elo"),
}
_SPLITS: Mapping[str, tuple[str, int]] = {
    **dict.fromkeys(("val", "valid", "validation", "validate", "validating"), ("val", 40)),
    **dict.fromkeys(("eval", "evaluate", "evaluation", "evaluating", "heldout"), ("eval", 35)),
    **dict.fromkeys(("dev",), ("dev", 35)),
    **dict.fromkeys(("test", "testing", "tests"), ("test", 30)),
}
_TRAIN = {"train", "training"}
_BEST = {"best", "max", "min", "lowest", "highest"}  # not the value of this evaluation
_WITH_DIGITS = re.compile(r"(?i)\b(bleu|rouge|f|acc|top|hit|recall)[-_@]?(\d)\b")
_NO_SPLIT, _OF_TRANSFORMERS, _ASKED_FOR = 10, 39, 60
_MONITORED = {"monitor_metric", "metric", "monitor", "metric_for_best_model"}
_OF_TRAINER = r"'eval_loss': '?" + NUMBER


@dataclass(frozen=True)
class Score:
    """Candidate for the quality metric."""

    name: str
    pattern: str  # regular expression, or column
    minimize: bool
    points: int  # higher is likelier
    place: str  # in the code
    guessed: bool = False  # the name itself is not in the code


def scores(sources: Sequence[Source], options: Sequence[Option]) -> list[Score]:
    """Returns candidates for the quality, the likeliest first."""
    printed = [line for source in sources for line in lines(source)]
    candidates = [score for line in printed for score in _of_line(line, printed)]
    candidates += _monitored(sources, options, printed)
    if arguments.is_transformers(sources):
        candidates.append(
            Score(
                "eval_loss",
                _OF_TRAINER,
                minimize=True,
                points=_OF_TRANSFORMERS,
                place="Transformers' Trainer",
            )
        )
    return _ranked(candidates)


def logged(sources: Sequence[Source]) -> list[Score]:
    """Returns the metrics that Lightning modules log, by column name of its CSV files."""
    candidates = []
    for source in sources:
        for call in syntax.calls(source.tree, "log", "log_dict"):
            place = f"{source.path}:{call.lineno}"
            named = (_named(text, Hole(()), "", "") for text in syntax.strings(call))
            texts = zip(syntax.strings(call), named, strict=True)
            candidates += [Score(_clean(text), text, one[1], one[2], place) for text, one in texts if one]
    return _ranked(candidates)


def _ranked(candidates: Iterable[Score]) -> list[Score]:
    """Returns the best score of each name, the likeliest first; drops those of no split if others exist."""
    unique = {score.name: score for score in sorted(candidates, key=lambda one: one.points)}
    of_split = [score for score in unique.values() if score.points != _NO_SPLIT]
    return sorted(of_split or unique.values(), key=lambda one: -one.points)


def _clean(text: str) -> str:
    return re.sub(r"\W+", "_", text).lower()


def _of_line(line: Line, printed: Sequence[Line]) -> Iterator[Score]:
    """Yields the scores among the values of a line."""
    for number, part in enumerate(line.parts):
        label = line.parts[number - 1] if number else ""
        if isinstance(part, Hole) and isinstance(label, str) and (own := _label(label)):
            before = " ".join(str(p) for p in line.parts[:number] if isinstance(p, str))
            if (named := _named(own, part, before, line.function)) is not None:
                name, minimize, points = named
                yield Score(name, _pattern(line, number, own, printed), minimize, points, line.place)


def _label(text: str) -> str:
    """Returns the last clause before a value."""
    return re.split(r"[,;|]\s|\t|\s{2,}", text.lstrip(" \t,;|-()[]%"))[-1].lstrip(" \t,;:|-()[]%*=>")


def _named(label: str, hole: Hole, before: str, function: str) -> tuple[str, bool, int] | None:
    """Returns name, direction and points of a value; None if it is not an evaluation score."""
    own, expression = words(label), list(hole.words)
    metric = next((w for w in (*reversed(own), *expression) if w in _LOWER | _HIGHER), None)
    context = (*own, *expression, *words(before), *words(function))
    split = next((word for word in context if word in _SPLITS or word in _TRAIN), None)
    if metric is None or not own or split in _TRAIN or hole.is_count:
        return None
    kind, points = _SPLITS[split] if split else ("", _NO_SPLIT)
    points += 2 * (metric in _HIGHER) - 25 * bool(_BEST & {*own, *expression})
    digit = _WITH_DIGITS.search(label)
    name = f"{metric}_{digit[2]}" if digit and words(digit[1]) == [metric] else metric
    return "_".join(filter(None, (kind, name))), metric in _LOWER, points


def _pattern(line: Line, number: int, label: str, printed: Sequence[Line]) -> str:
    """Returns a pattern for a value: its label if unique, else the line from its beginning."""
    short = _beginning(label) + _regex(label) + NUMBER
    others = {one.text("1.0") for one in printed if one.parts != line.parts}
    twice = len(re.findall(short, line.text("1.0"))) > 1
    if not twice and not any(re.search(short, other) for other in others):
        return short
    return (
        "".join(
            r".*?" if isinstance(part, Hole) else _regex(part.lstrip() if n == 0 else part)
            for n, part in enumerate(line.parts[:number])
        )
        + NUMBER
    )


def _beginning(label: str) -> str:
    return r"\b" if label[:1].isalnum() else ""


def _regex(text: str) -> str:
    """Returns `text` as a pattern that accepts any amount of blanks."""
    return r"\s+".join(map(re.escape, text.split())) + r"\s*"


def _monitored(
    sources: Sequence[Source], options: Sequence[Option], printed: Sequence[Line]
) -> Iterator[Score]:
    """Yields the metric that an option names, if names and values are printed as pairs."""
    pairs = [line for line in printed if re.fullmatch(r"\s*\0\s*[:=]\s*\0\s*", line.text("\0"))]
    mode = next((str(one.value) for one in options if one.key in {"monitor_mode", "mode"}), "")
    for option in options:
        if option.key in _MONITORED and pairs and isinstance(option.value, str) and option.value:
            prefix = next((text for one in sources for text in _prefixes(one.tree)), "")
            name = f"{prefix}{option.value}"
            minimize = mode == "min" or (not mode and bool(_LOWER & set(words(option.value))))
            pattern = rf"\b{re.escape(name)}\s*[:=]\s*{NUMBER}"
            yield Score(_clean(name), pattern, minimize, _ASKED_FOR, pairs[0].place, guessed=True)


def _prefixes(tree: ast.Module) -> Iterator[str]:
    """Yields prefixes of metric names in the code, such as `val_`."""
    yield from (text for text in syntax.strings(tree) if re.fullmatch(r"(val|valid|eval|dev)[_/]", text))
