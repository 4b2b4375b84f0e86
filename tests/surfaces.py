"""Every place that shows what a session has found, read back: which figure each of them gives for a thing.

A thing is a figure of a trial's settings, or of one run, such as `("factor", 3)`. Figures are compared as
they are printed, and to the last digit where none is rounded.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import redirect_stdout
from html import unescape
from io import StringIO
from pathlib import Path
from typing import Any

from rich.console import Console

from autotune.cli import report as reporting
from autotune.cli import status
from autotune.core import units
from autotune.core.trial import Trial
from autotune.display import console, draw, snapshot, words
from autotune.export import formats, winner
from autotune.judging.decisions.history import History
from autotune.reports import page, read
from autotune.sessions import exporting
from autotune.storage.store import StoredSession
from autotune.trackers import overview
from autotune.trials.progress import Phase, Progress
from autotune.trials.report import TrialReport
from autotune.workloads import registry

Thing = tuple[str, int]
Told = tuple[str, Thing, str]  # where, what, and the figure

NONE = {"-", words.NOTHING, ""}
_ROW = re.compile(
    r"^ *(?P<number>\d+) .*? (?P<speed>[\d.]+|-)( ± [\d.]+)? +(?P<quality>-?[\d.]+|-) +"
    r"(?P<memory>>?[\d.]+ \w+|-)( +(?P<factor>[\d.]+)x)?$"
)
_FACTOR = re.compile(r"(?<!is )(?<!again, it was )(?<!Possibly )(?<![\d.])([\d.]+)x (?:faster|as fast)")
_AGAINST = re.compile(r", ([\d.]+)(?: ± [\d.]+)? \w+/s instead of ([\d.]+)")
_QUALITIES = re.compile(r", \w+ (-?[\d.]+) instead of (-?[\d.]*\d)")
_STAYS = re.compile(r"is the best so far \(([\d.]+)(?: ± [\d.]+)? \w+/s, \w+ (-?[\d.]+)\)")
_ENDED = re.compile(
    r"trial (?P<number>\d+) completed: (?P<speed>[\d.]+)( ± [\d.]+)? \w+/s, "
    r"\w+ (?P<quality>-?[\d.]+|-), memory (?:at least )?(?P<memory>[\d.]+ \w+)[^,]*"
    r"(?:, still rising)?(?:, (?P<factor>[\d.]+)x)?"
)
_REPEAT = re.compile(r"^ *(\d+) (?:trial \d+|baseline)'s settings", re.MULTILINE)
_HOVER = re.compile(r"<b>Trial (\d+)</b> (.*)", re.DOTALL)
_WINNER = re.compile(r": trial (\d+)[:,] ")
_PEAK = re.compile(r"# peak memory: (?:at least )?([\d.]+ \w+)")


def contradictions(told: Iterable[Told]) -> dict[Thing, dict[str, list[str]]]:
    """Returns the quantities with different figures: each figure, and the surfaces that show it."""
    found: dict[Thing, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for where, thing, figure in told:
        if figure not in NONE:
            found[thing][figure].append(where)
    return {thing: dict(figures) for thing, figures in found.items() if len(figures) > 1}


def told(place: Path) -> Iterator[Told]:
    """All that every surface says of the session in `place`."""
    written = json.loads(_said(reporting.report, place, "json", Path("-"), 1))
    best, history = (
        written["answer"]["best"]["trial"],
        snapshot.take(StoredSession.open(place), place).history,
    )
    yield from _of_status(_said(status.status, place))
    yield from _of_json(json.loads(_said(status.status, place, as_json=True)))
    yield from _of_report(written)
    yield from _of_text("markdown", _said(reporting.report, place, "md", Path("-"), 1), best)
    yield from _of_page(_said(reporting.report, place, "html", Path("-"), 1), best)
    exporting.export(place, place / "best.yaml", best, None, None)
    yield from _of_export("export", (place / "best.yaml").read_text(), best)
    for trial in history.trials:
        if trial.completed and not trial.race:
            workload = registry.load(history.space.workload)
            form = formats.named(None, workload)
            text = form.render(winner.from_trial(trial, history, workload, {})).text
            yield from _of_export("export --trial", text, trial.repeat.of if trial.repeat else trial.number)
    yield from _of_tracker(history)
    yield from _of_live(place)
    yield from _of_log(place, history)
    yield from _of_plots(place, history)


def texts(place: Path) -> Iterator[str]:
    """What the commands print about the session in `place`, and write."""
    yield _said(status.status, place)
    yield _said(status.status, place, as_json=True)
    for form in ("json", "md", "html"):
        yield _said(reporting.report, place, form, Path("-"), 1)
    best = json.loads(_said(status.status, place, as_json=True))["best"]["trial"]
    exporting.export(place, place / "best.yaml", best, None, None)
    yield (place / "best.yaml").read_text()


def _said(command: Any, *arguments: Any, **options: Any) -> str:
    with redirect_stdout(StringIO()) as out:
        command(*arguments, **options)
    return out.getvalue()


def _is_race(row: dict[str, Any]) -> bool:
    return row["kind"] == "race"


def _of_status(text: str) -> Iterator[Told]:
    """The tables, and the sentences below them."""
    repeats = {int(n) for n in _REPEAT.findall(text)}
    for line in text.splitlines():
        if row := _ROW.match(line.rstrip()):
            yield from _of_line("status", int(row["number"]), row.groupdict(), repeats)
    best = _WINNER.search(text)
    yield from _of_text("summary", text[text.find("Goal: ") :], int(best[1]) if best else 0)


def _of_line(where: str, number: int, figures: dict[str, str], repeats: set[int]) -> Iterator[Told]:
    """A line of a trial; of a repeat all but the factor are of its run."""
    of = " of a run" if number in repeats else ""
    memory = figures["memory"].removeprefix(">")
    yield where, (f"speed{of}", number), figures["speed"]
    yield where, (f"quality{of}", number), figures["quality"]
    yield where, (f"memory{of}", number), memory
    yield where, ("factor", number), figures["factor"] or ""


def _of_text(where: str, text: str, best: int) -> Iterator[Told]:
    """Sentences about the best beside the baseline, or about a baseline that stays."""
    plain = text.replace("\\", "")
    for factor in _FACTOR.findall(plain)[:1]:
        yield where, ("factor", best), factor
    for speed, baseline in _AGAINST.findall(plain)[:1]:
        yield where, ("speed", best), speed
        yield where, ("speed", 0), baseline
    for quality, baseline in _QUALITIES.findall(plain)[:1]:
        yield where, ("quality", best), quality
        yield where, ("quality", 0), baseline
    for speed, quality in _STAYS.findall(plain):
        yield where, ("speed", 0), speed
        yield where, ("quality", 0), quality


def _of_json(status: dict[str, Any]) -> Iterator[Told]:
    running = [trial | {"factor": None} for trial in status["running"]]
    for trial in [*status["trials"], *running, *filter(None, (status["best"], status["baseline"]))]:
        if trial["throughput"] is not None or trial["quality"] is not None:
            yield from _exactly(
                "status --json", trial["trial"], trial, is_repeat=trial["repeats"] is not None
            )
    if status["factor"]:
        yield from _factor("status --json", status["best"]["trial"], status["factor"]["value"])


def _exactly(where: str, number: int, trial: dict[str, Any], *, is_repeat: bool) -> Iterator[Told]:
    of = " of a run" if is_repeat else ""
    speed, quality, peak = trial["throughput"], trial["quality"], trial["peak_memory_bytes"]
    speed = speed["value"] if isinstance(speed, dict) else speed
    factor = trial["factor"]
    factor = factor["value"] if isinstance(factor, dict) else factor
    if speed is not None:
        yield where, (f"speed{of}", number), f"{speed:.1f}" if speed >= 1 else f"{speed:.3f}"
        yield where, (f"exact speed{of}", number), repr(speed)
    if quality is not None:
        yield where, (f"quality{of}", number), f"{quality:.4f}"
        yield where, (f"exact quality{of}", number), repr(quality)
    if peak is not None:
        yield where, (f"memory{of}", number), units.format_bytes(peak)
    if factor is not None:
        yield from _factor(where, number, factor)


def _factor(where: str, number: int, value: float) -> Iterator[Told]:
    yield where, ("factor", number), f"{value:.2f}"
    yield where, ("exact factor", number), repr(value)


def _of_report(report: dict[str, Any]) -> Iterator[Told]:
    for row in report["trials"]:
        if not _is_race(row):
            yield from _exactly("report.json", row["number"], row, is_repeat=row["repeats"] is not None)
    answer = report["answer"]
    for side in (answer["baseline"], answer["best"]):
        figures = side | {"quality": side["quality"] and side["quality"]["value"], "factor": None}
        yield from _exactly("report.json answer", side["trial"], figures, is_repeat=False)
    if answer["factor"]:
        yield from _factor("report.json answer", answer["best"]["trial"], answer["factor"]["value"])


def _of_page(page: str, best: int) -> Iterator[Told]:
    """The table of all trials, the figures beside each other, and the sentence."""
    page = unescape(page.partition('<script type="application/json"')[0])
    rows = re.findall(r'<tr><th scope="row" class="n">(\d+)</th><td>.*?</td>(.*?)</tr>', page)
    for number, rest in rows:
        cells = re.findall(r'<td class="n">(.*?)</td>', rest)
        of = " of a run" if "with another seed" in rest else ""
        if len(cells) == 5 and "race" not in rest:
            speed, factor, quality, memory, _ = (cell.split(" ± ")[0].replace(",", "") for cell in cells)
            yield "page", (f"speed{of}", int(number)), speed
            yield "page", ("factor", int(number)), factor[:-1]
            yield "page", (f"quality{of}", int(number)), quality
            yield (
                "page",
                (f"memory{of}", int(number)),
                memory.removeprefix("at least ").removesuffix(" still rising").split(" (")[0],
            )
    (sentence,) = re.findall(r'<p class="sentence">(.*?)</p>', page)
    yield from _of_text("page", sentence, best)
    if headline := re.search(r'<p class="factor"><strong>([\d.]+)', page):
        yield "page", ("factor", best), headline[1]


def _of_export(where: str, text: str, number: int) -> Iterator[Told]:
    """What the file of a trial says of it, and that of a repeat of what it repeats."""
    yield from _of_text(where, text, number)
    if peak := _PEAK.search(text):
        yield where, ("memory", number), peak[1]


def _of_tracker(history: History) -> Iterator[Told]:
    """The summary and the table of the session's own run in W&B."""
    quality = history.space.objective.quality
    found = overview.figures(history)
    for who in ("baseline", "winner"):
        figures = {name.removeprefix(f"{who}/"): value for name, value in found.items()}
        figures |= {"quality": figures[quality], "factor": None}
        yield from _exactly("W&B", int(figures["trial"]), figures, is_repeat=False)
    if found["gain/factor"] is not None:
        yield from _factor("W&B", int(found["winner/trial"]), found["gain/factor"])
    table = overview.table([t for t in history.trials if not t.race], history)
    for row in zip(*table.values(), strict=True):
        figures = dict(zip(table, row, strict=True))
        figures |= {"quality": figures[quality]}
        is_repeat = figures["repeat_of"] is not None
        yield from _exactly("W&B table", figures["trial"], figures, is_repeat=is_repeat)


def _reported(place: Path) -> Iterator[tuple[Trial, TrialReport]]:
    """The trials that have not ended, with what their supervisors report of the records so far."""
    session = StoredSession.open(place)
    study, space = session.study(), session.space()
    for trial in study.trials:
        if trial.outcome is None:
            progress = Progress(space.metric_of(trial.config), space.settings(trial.config))
            for record in session.records_of(trial):
                progress.count(record)
            yield trial, TrialReport(trial.number, Phase.TRAINING, 9.0, progress.live_measurement())


def _of_live(place: Path) -> Iterator[Told]:
    """The picture that a search draws, once it knows the same trials."""
    shown = snapshot.take(StoredSession.open(place), place)
    screen = console.Screen(Console(), shown)
    screen.restore(shown.trials)
    for trial, reported in _reported(place):
        screen.started(trial)
        screen.progress(trial, reported)
    out = Console(width=80, file=StringIO())
    out.print(draw.full_picture(screen.snapshot()))
    yield from ((where.replace("status", "live"), *rest) for where, *rest in _of_status(out.file.getvalue()))


def _of_log(place: Path, history: History) -> Iterator[Told]:
    """The lines, and the events, of trials that end, once all others are known."""
    begun = snapshot.take(StoredSession.open(place), place)
    repeats = {trial.number for trial in history.trials if trial.repeat}
    out = Console(width=200, file=StringIO())
    lines, written = console.Screen(out, begun), console.Events(out, begun)
    for screen in (lines, written):
        screen.restore(history.trials)
    for trial, reported in _reported(place):
        written.started(trial)
        written.progress(trial, reported)
    for trial in history.trials:
        if trial.completed and not trial.race:
            lines.ended(trial)
            written.ended(trial)
    for line in out.file.getvalue().splitlines():
        if line.startswith("{"):
            event = {"factor": None} | json.loads(line)
            if event["event"] == "started":
                continue
            yield from _exactly("events", event["trial"], event, is_repeat=event["repeats"] is not None)
        elif row := _ENDED.search(line):
            yield from _of_line("log", int(row["number"]), row.groupdict(), repeats)


def _of_plots(place: Path, history: History) -> Iterator[Told]:
    """The markers of the front with their texts, and the ends of the curves, reached and planned."""
    shown = read.read(place, 1)
    drawn = page.plots_of(shown)
    name, repeats = words.metric(shown.quality), {t.number for t in history.trials if t.repeat}
    for trace in (trace for plot in drawn["front"] for trace in plot.data if "text" in trace):
        for text, y in zip(trace["text"], trace["y"], strict=True):
            if (found := _HOVER.match(text)) and "means of its runs" not in text:
                of = " of a run" if int(found[1]) in repeats else ""
                said = re.search(rf"{re.escape(name)}(?: |<br>)(-?[\d.]+)", found[2])
                if said and "yaxis" not in trace:
                    yield "front", (f"quality{of}", int(found[1])), said[1]
                    yield "front", (f"quality{of}", int(found[1])), f"{y:.4f}"
    edges = [
        shape["y0"]
        for plot in (*drawn["front"], *drawn["quality"])
        for shape in plot.layout.get("shapes", ())
    ]
    for edge in edges:
        yield "plots", ("least quality", -1), f"{edge:.4f}"
    if shown.least_quality is not None:
        yield "report.json", ("least quality", -1), f"{shown.least_quality:.4f}"
