"""The page of a training."""

import json
from dataclasses import replace

import pytest

from autotune.core.metric import Metric
from autotune.display import words
from autotune.judging.accounts.promise import PromiseAnswer
from autotune.reports import markdown, page
from autotune.reports.curves import CurveEvent, CurvePoint
from autotune.reports.training import plots, read, wording
from autotune.reports.training.model import Curves
from autotune.training.events import Kind
from tests.autotune.reports.test_page import Page, words_of

from . import handmade


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return read.read(handmade.write(tmp_path_factory.mktemp("training") / "t").root)


@pytest.fixture(scope="module")
def text(found):
    return page.render(found)


@pytest.fixture(scope="module")
def whole(text):
    return Page(text)


def test_it_begins_with_the_verdict_and_all_sections_are_filled(whole):
    sections = [values["id"] for values in whole.all("section")]
    assert sections == ["answer", "learning", "speed", "machine", "events", "settings"]
    assert all(len(words_of(whole.texts[name])) > 100 for name in sections)
    text = words_of(whole.texts["answer"])
    assert "✓ As promised The training is as good as" in text
    assert "Completed after 2,000 of 2,000" in text
    assert "16.0 ± 0.416.0 ± 0.0held" in text


def test_text_from_outside_is_shown_as_text(text, whole):
    assert "<script>window" not in text
    assert "\u202e" not in text
    assert "<script>window.hacked" in whole.texts["events"]
    figures = json.loads(next(s for values, s in whole.scripts if values.get("id") == "figures"))
    assert "&lt;script&gt;" in json.dumps(figures)


def test_every_plot_has_its_figures_in_words_and_in_a_table(whole):
    drawn = [values for _, values in whole.tags if values.get("role") == "img"]
    assert len(drawn) == 12
    assert all(values["aria-label"] for values in drawn)
    tables = {name for name in whole.ids if name.startswith("table-")}
    assert len(tables) == 10  # loss and quality have one each for their two plots
    links = {values["href"][1:] for values in whole.all("a")}
    assert links <= set(whole.ids)


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (PromiseAnswer.BROKEN, "✗ Not as promised The training is not as good as trial 11 of session iu."),
        (PromiseAnswer.UNDECIDED, "≈ Not decided yet The training is not clearly as good as trial 11"),
    ],
)
def test_the_verdict_is_distinguishable_without_colour(found, answer, text):
    judged = replace(found, promised=replace(found.promised, answer=answer))
    assert text in words_of(Page(page.render(judged)).texts["answer"])


def test_figures_are_shown_without_a_promise(found):
    text = words_of(Page(page.render(replace(found, promised=None))).texts["answer"])
    assert "Nothing to compare with" in text
    assert "Promised and measured" not in text
    assert "16.0 ± 0.0" in text


SLOWER = CurveEvent(
    2.0, 800, 90.0, Kind.DRIFT, "12% slower since 800 samples; likely because of other programs"
)


def test_a_terminal_gets_a_line_for_every_figure_and_possible_reasons(found):
    slowed = replace(found, events=(*found.events, SLOWER))
    assert wording.terminal_lines(slowed) == [
        "As promised, compared with trial 11 of session iu",
        *(f"- {one.what} held: {one.text}" for one in found.promised.kept),
        f"- during the training: {SLOWER.text}",
    ]
    assert wording.terminal_lines(replace(slowed, promised=None)) == []


def test_figures_that_are_not_measured_yet_are_dashes(found):
    missing = tuple(replace(one, answer=PromiseAnswer.UNDECIDED, found=None) for one in found.promised.kept)
    begun = replace(found, promised=replace(found.promised, answer=PromiseAnswer.UNDECIDED, kept=missing))
    assert {row[2] for row in wording.promise_table(begun).rows} == {words.NOTHING}
    assert "There is nothing yet to compare with" in wording.sentence(begun)


def test_an_evaluations_other_figures_are_not_scores(found):
    assert [name for name, _ in wording.scores(found)] == ["BLEU-4", "ROUGE-L"]


def test_the_verdict_comes_with_what_slowed_the_training_down(found, whole):
    slowed = replace(found, events=(*found.events, SLOWER))
    assert "During the training 12% slower" in words_of(Page(page.render(slowed)).texts["answer"])
    assert "- 12% slower since 800 samples" in markdown.render(slowed)
    assert "During the training" not in whole.texts["answer"]


def test_missing_figures_say_how_to_update_the_report(found):
    begun = replace(found, state="running", outcome=None, curves=Curves(), events=())
    shown = Page(page.render(begun))
    advice = "The training is running: look again with python -m autotune report"
    for name in ("learning", "speed", "machine"):
        assert advice in words_of(shown.texts[name])


def test_events_are_marked_except_begin_and_end(found):
    drawn, _ = plots.by_section(found)["speed"]
    marks = drawn.data[-1]
    assert [found.events[n].seconds / 60 for n in (1, 2)] == marks["x"]
    assert marks["text"][0].startswith("retried: failed")
    quiet = tuple(e for e in found.events if e.kind in {Kind.BEGUN, Kind.ENDED})
    drawn, _ = plots.by_section(replace(found, events=quiet))["speed"]
    assert (len(drawn.data), len(drawn.legend)) == (1, 2)


def test_all_plots_over_time_share_one_axis(found):
    sections = plots.by_section(found)
    drawn = [*sections["learning"], *sections["speed"], *sections["machine"]]
    ranges = [tuple(p.layout["xaxis"]["range"]) for p in drawn if p.id.endswith("-time")]
    assert len(ranges) == 9
    assert len(set(ranges)) == 1


def test_phases_add_up_to_the_time_of_a_sample(found):
    """A step of 8 samples takes 0.5 s, a quarter of it waiting for data."""
    _, drawn = plots.by_section(found)["speed"]
    data, forward = (trace["y"] for trace in drawn.data[:2])
    assert [mark.label for mark in drawn.legend[:2]] == ["data", "forward"]
    assert data == pytest.approx([62.5 / 4] * len(data))
    assert forward == pytest.approx([62.5 * 3 / 4] * len(data))
    parts = "data: 15.6 ms at first, 15.6 ms in the end; forward: 46.9 ms at first, 46.9 ms in the end"
    assert drawn.label == f"Milliseconds of a sample. {parts}"
    silent = replace(found, curves=replace(found.curves, phases_s={}))
    assert [plot.id for plot in plots.by_section(silent)["speed"]] == ["speed-time"]


def test_cpu_use_is_relative_to_the_allowed_cpus(found):
    use = next(plot for plot in plots.by_section(found)["machine"] if plot.id == "use-time")
    assert max(use.data[0]["y"]) == 170.0 / 4


def test_a_gpu_of_several_is_named(found):
    memory = next(plot for plot in plots.by_section(found)["machine"] if plot.id == "memory-time")
    labels = [mark.label for mark in memory.legend]
    assert [label for label in labels if "GPU" in label] == ["GPU, used", "GPU 0, used"]
    power = next(plot for plot in plots.by_section(found)["machine"] if plot.id == "power-time")
    assert power.legend[0].label == "GPU"


def test_scores_are_the_last_evaluations(found):
    scores = {"bleu_4": 0.2, "memory_children_bytes": 1.1e9, "memory_context_bytes": 5e8, "epoch": 3.0}
    measured = replace(found.measured, scores=scores)
    assert wording.scores(replace(found, measured=measured)) == [("BLEU-4", "0.2000")]


def test_the_best_evaluation_is_shown_if_it_is_not_the_last(found):
    points = (CurvePoint(200, 1.0, 0.2), CurvePoint(400, 2.0, 0.3), CurvePoint(600, 3.0, 0.1))
    fallen = replace(found, curves=replace(found.curves, quality=points))
    assert dict(wording.figures(fallen))["BLEU-4"] == "0.1000, the best 0.3000 after 400 samples"
    loss = replace(fallen, metric=Metric("val_loss", minimize=True))
    assert dict(wording.figures(loss))["val_loss"] == "0.1000"


def test_many_evaluations_are_thinned_in_plots_and_keep_the_best(found):
    points = tuple(CurvePoint(n, float(n), 0.9 if n == 7 else 0.1) for n in range(20_000))
    long = replace(found, curves=replace(found.curves, quality=points))
    assert dict(wording.figures(long))["BLEU-4"] == "0.1000, the best 0.9000 after 7 samples"
    drawn = [plot for plot in plots.by_section(long)["learning"] if plot.id.startswith("quality")]
    assert [len(plot.data[0]["y"]) for plot in drawn] == [300, 300]


def test_a_page_of_a_long_training_stays_small(found):
    many = tuple(CurveEvent(float(n), n, float(n), Kind.RETRIED, "killed by SIGKILL") for n in range(1000))
    points = tuple(CurvePoint(n, float(n), 1.0) for n in range(300))
    machine = dict.fromkeys(found.curves.machine, points)
    long = replace(found, events=many, curves=Curves(points, points, points, {}, machine))
    assert len(page.render(long)) < 7_000_000


@pytest.mark.parametrize("at", [None, float("nan"), 9e15, -9e15, 1e308])
def test_a_time_that_is_no_date_is_a_dash(at):
    assert wording.moment(at) == words.NOTHING
