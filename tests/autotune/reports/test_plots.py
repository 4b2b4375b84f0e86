import json
import math
import re
from dataclasses import replace
from importlib import resources

import pytest
from plotly.graph_objects import Figure as Checked

from autotune.core.settings import PRECISIONS
from autotune.display import words
from autotune.judging.decisions.ablation import AblationStep
from autotune.reports import marks, page, plots_bars, plots_front, plots_quality, plots_speed
from autotune.reports.model import Figure

from . import made_trials

TEMPLATES = resources.files("autotune.reports") / "templates"
GIB = 2**30


def every(report):
    return [plot for place in page.plots_of(report).values() for plot in place]


def named(report, name):
    return next(plot for plot in every(report) if plot.id == name)


def trace(plot, name):
    return next(t for t in plot.data if t.get("name") == name)


def strings(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from strings(inner)
    elif isinstance(value, (list, tuple, range)):
        for inner in value:
            yield from strings(inner)


@pytest.fixture(params=["rich", "many"])
def report(request):
    return request.getfixturevalue(request.param)


def test_plotly_accepts_every_figure(report):
    found = every(report)
    assert len(found) == 10
    for plot in found:
        Checked(plot.figure)
        json.dumps(plot.figure, allow_nan=False)


def test_no_plot_needs_a_gpu(report):
    assert {t["type"] for plot in every(report) for t in plot.data} == {"scatter", "bar"}


def test_every_colour_is_one_of_the_page_and_every_marker_has_its_glyph(report):
    style = (TEMPLATES / "report.css").read_text()
    known = set(re.findall(r"(--[\w-]+): light-dark\(", style))
    glyphs = set(re.findall(r'id="glyph-([\w-]+)"', (TEMPLATES / "parts.html.j2").read_text()))
    for plot in every(report):
        legend = [mark.colour for mark in plot.legend]
        used = {name for s in strings([plot.figure, legend]) for name in re.findall(r"var\((--[\w-]+)\)", s)}
        assert used <= known
        assert {mark.symbol for mark in plot.legend} <= glyphs
    assert {marks.precision(name).symbol for name in PRECISIONS} <= glyphs


def test_every_plot_has_a_label_and_its_figures_as_a_table(report):
    found = every(report)
    tables = {f"table-{plot.id}" for plot in found if plot.table} | {"trials"}
    for plot in found:
        assert plot.label
        assert plot.table or plot.elsewhere
        assert plot.elsewhere is None or plot.elsewhere[0] in tables
        for row in plot.table.rows if plot.table else ():
            assert len(row) == len(plot.table.head)


def test_nothing_is_drawn_before_a_trial_has_ended(bare):
    assert every(bare) == []


def test_text_from_outside_is_escaped_in_plots(rich):
    texts = [s for plot in every(rich) for s in strings(plot.figure) if "window.hacked" in s]
    assert texts
    assert not any("<script" in s or "<img" in s or "\u202e" in s for s in texts)


# The front.


def test_the_front_has_every_trial_with_a_throughput_once(report):
    plot = plots_front.front(report)
    drawn = [t for t in plot.data if t.get("hoverinfo") == "text"]
    numbers = [int(re.match(r"<b>Trial (\d+)</b>", text)[1]) for t in drawn for text in t["text"]]
    assert sorted(numbers) == [r.number for r in report.trials if r.throughput is not None]


def test_baseline_and_winner_have_the_answers_figures(rich):
    plot = plots_front.front(rich)
    for name, side in (("baseline", rich.answer.baseline), ("recommended", rich.answer.best)):
        drawn = trace(plot, name)
        assert (drawn["x"], drawn["y"]) == ([side.throughput.value], [side.quality.value])
        assert drawn["error_y"]["array"] == [pytest.approx(side.quality.high - side.quality.value)]


def test_a_single_run_has_no_mean(rich):
    best = replace(rich.answer.best, runs=1, seeds=1, quality=Figure(0.16))
    plot = plots_front.front(replace(rich, answer=replace(rich.answer, best=best)))
    assert trace(plot, "recommended")["error_y"] == {"visible": False}
    assert "means" not in trace(plot, "recommended")["text"][0]


def test_incomplete_trials_are_in_the_rug(rich):
    plot = plots_front.front(rich)
    stopped = trace(plot, "stopped early")
    assert stopped["yaxis"] == "y2"
    assert len(stopped["x"]) == sum(r.status == "stopped" for r in rich.trials)
    assert "yaxis" not in trace(plot, "recommended")


def test_outcomes_differ_by_marker_and_by_name(rich):
    legend = plots_front.front(rich).legend
    assert len({mark.symbol for mark in legend}) == len({mark.label for mark in legend}) == len(legend)


def test_the_region_begins_at_the_least_quality(rich):
    region = next(s for s in plots_front.front(rich).layout["shapes"] if s["type"] == "rect")
    assert region["y0"] == rich.least_quality
    assert plots_front.front(replace(rich, least_quality=None)).layout["shapes"] == []


def test_the_front_goes_from_the_best_quality_to_the_best_throughput(report):
    front = trace(plots_front.front(report), "Pareto front")
    assert front["x"] == sorted(front["x"])
    assert front["y"] == sorted(front["y"], reverse=True)
    assert len(front["x"]) == sum(r.on_front for r in report.trials)


def test_a_nan_quality_is_not_drawn(rich):
    spoilt = replace(rich.trials[22], quality=math.nan, on_front=False)
    report = replace(rich, trials=(*rich.trials[:22], spoilt, *rich.trials[23:]))
    json.dumps([plot.figure for plot in every(report)], allow_nan=False)
    kept, all_kept = (trace(plots_front.front(r), "keeps the quality")["x"] for r in (report, rich))
    assert len(kept) == len(all_kept) - 1


# Where the speed comes from.


def test_the_lines_join_the_fastest_of_each_precision(rich):
    plot = named(rich, "speed-by-batch")
    lines = {t["name"]: t for t in plot.data if t["mode"] == "lines"}
    fastest = {}
    for row in rich.trials:
        if row.throughput and row.kind != "repeat":
            key = row.config["precision"], row.config["micro_batch_size"]
            fastest[key] = max(fastest.get(key, 0), row.throughput.value)
    for name, line in lines.items():
        assert line["y"] == [value for (p, _), value in sorted(fastest.items()) if p == name]
        assert line["x"] == sorted(line["x"])


def test_micro_batches_are_at_equal_distances_and_named(rich):
    axis = named(rich, "speed-by-batch").layout["xaxis"]
    assert axis["type"] == "log"
    assert axis["ticktext"] == [str(n) for n in axis["tickvals"]]
    assert {8, 16, 32, 64, 128} <= set(axis["tickvals"])


def test_memory_has_its_limit_with_failed_trials_above(rich):
    plot = named(rich, "memory-by-batch")
    assert [shape["y0"] for shape in plot.layout["shapes"]] == pytest.approx([8, 6.8])
    assert min(trace(plot, "out of memory")["y"]) > 8
    assert plot.layout["yaxis"]["range"][1] > max(trace(plot, "out of memory")["y"])


def test_little_memory_is_shown_in_small_units(rich):
    small = tuple(replace(r, peak_memory_bytes=(r.peak_memory_bytes or 0) // 2**10) for r in rich.trials)
    plot = plots_speed.by_batch(replace(rich, trials=small, memory_limit_bytes=None))[1]
    assert plot.axes.startswith("↑ MiB")
    assert 1 < max(trace(plot, "recommended")["y"]) < 1024


def test_a_rising_peak_is_marked_as_a_lower_bound(rich):
    rising = tuple(replace(r, memory_is_rising=True) for r in rich.trials)
    assert "still" not in plots_speed.by_batch(rich)[1].axes
    assert "still rose at the end" in plots_speed.by_batch(replace(rich, trials=rising))[1].axes


def test_the_predicted_band_is_drawn_in_the_colour_of_its_precision(rich):
    bands = [t for t in named(rich, "memory-by-batch").data if t.get("fill") == "toself"]
    assert [band["fillcolor"] for band in bands] == ["var(--fp32)", "var(--bf16)", "var(--fp8)"]
    first = rich.predicted[0]
    assert bands[0]["y"] == [v / GIB for v in (*first.high_bytes, *reversed(first.low_bytes))]


def test_a_search_without_a_micro_batch_has_no_plots_by_it(rich):
    rows = tuple(replace(r, config={"lanes": 2}) for r in rich.trials)
    assert plots_speed.by_batch(replace(rich, trials=rows)) == []


def test_a_custom_precision_is_drawn(rich):
    rows = tuple(replace(r, config={**r.config, "precision": "int4"}) for r in rich.trials)
    legend = plots_speed.by_batch(replace(rich, trials=rows))[0].legend
    assert legend[0].label == "int4"


def test_phases_add_up_to_a_samples_time(rich):
    plot = plots_bars.step_time(rich)
    sides = (rich.answer.baseline, rich.answer.best)
    for row, side in enumerate(sides):
        assert sum(t["x"][row] for t in plot.data) == pytest.approx(1000 / side.throughput.value)
    assert [mark.label for mark in plot.legend] == ["data", "transfer", "forward", "backward", "optimizer"]


def test_a_baseline_that_stays_is_drawn_once(rich):
    stays = replace(rich.answer, best=rich.answer.baseline, verdict="baseline", factor=None)
    report = replace(rich, answer=stays, ablation=())
    assert plots_bars.step_time(report).data[0]["y"] == [0]
    assert plots_bars.ablation(report) is None


def test_the_ablation_goes_from_bar_to_bar(rich):
    plot = plots_bars.ablation(rich)
    gains = trace(plot, "faster by this setting")
    reached = rich.answer.baseline.throughput.value
    for begin, length in zip(gains["base"], gains["x"], strict=True):
        assert begin == pytest.approx(reached)
        reached = begin + length
    assert reached == pytest.approx(rich.ablation[-2].throughput.value)
    assert len(gains["x"]) == sum(step.throughput is not None for step in rich.ablation)
    errors = [0.012 * (base + x) for base, x in zip(gains["base"], gains["x"], strict=True)]
    assert gains["error_x"]["array"] == pytest.approx(errors)


def test_a_factor_of_the_ablation_has_its_interval_and_names_its_knobs(rich):
    first, second, *others = rich.ablation
    joined = replace(second, together=(first.knob,))
    gap = replace(first, trial=None, throughput=None, factor=None, reason="it does not fit")
    notes = [note["text"] for note in notes_of(replace(rich, ablation=(gap, joined, *others)))]
    (title,) = [text for text in notes if text.startswith(f"<b>{second.knob} ")]
    assert f", with {first.knob}</b>" in title
    assert title.endswith(words.factor.interval(second.factor))
    assert words.factor(second.factor) in notes


def test_with_a_target_fewer_samples_are_the_rest_of_the_gain(rich):
    gain = Figure(1.5 * rich.answer.speed.value)
    sooner = replace(rich, target=0.15, answer=replace(rich.answer, factor=gain))
    assert "<b>samples to the target BLEU-4 0.15</b>" in [n["text"] for n in notes_of(sooner)]
    *_, rest = plots_bars.ablation(sooner).table.rows
    assert (rest[0], rest[4]) == ("samples to the target BLEU-4 0.15", words.factor(1.5))


def notes_of(report):
    return plots_bars.ablation(report).layout["annotations"]


def test_a_step_that_was_not_measured_says_why(rich):
    notes = " ".join(note["text"] for note in notes_of(rich))
    assert "not measured: it does not change the speed" in notes


def test_a_step_that_slowed_down_is_named_slower(rich):
    slower = AblationStep("compile", "off", "default", 60, Figure(70.0), Figure(0.88))
    plot = plots_bars.ablation(replace(rich, ablation=(slower, *rich.ablation)))
    loss = trace(plot, "slower by this setting")
    assert loss["x"][0] < 0
    assert [mark.label for mark in plot.legend] == ["faster by this setting", "slower by this setting"]


# Quality.


def test_all_runs_of_baseline_winner_and_finalists_have_their_curves(rich):
    samples, seconds = plots_quality.search_runs(rich)
    assert [mark.label for mark in samples.legend] == ["baseline", "recommended", "finalist, trial 22"]
    assert len(samples.data) == len(seconds.data) == 3 * (1 + made_trials.SEEDS)
    assert samples.data[0]["y"] == seconds.data[0]["y"]
    assert samples.data[0]["x"] != seconds.data[0]["x"]


def test_a_finalist_whose_own_row_is_lost_has_the_curves_of_its_repeats(rich):
    rest = tuple(row for row in rich.trials if row.number != 22)
    samples, _ = plots_quality.search_runs(replace(rich, trials=rest))
    assert [mark.label for mark in samples.legend] == ["baseline", "recommended", "finalist, trial 22"]
    assert len(samples.data) == 2 * (1 + made_trials.SEEDS) + made_trials.SEEDS


def test_a_target_replaces_the_least_quality(rich):
    notes = plots_quality.search_runs(replace(rich, target=0.15))[0].layout["annotations"]
    assert [note["text"] for note in notes] == ["target: 0.1500"]


def test_compared_models_have_the_colour_of_their_precision(rich):
    legend = plots_quality.compared_models(rich)[0].legend
    assert [mark.colour for mark in legend] == [f"var(--{n})" for n in ("baseline", "fp32", "bf16", "fp16")]


# The search.


def test_the_running_best_never_falls_and_keeps_the_quality(report):
    best = trace(plots_front.history(report), "best so far that keeps the quality")
    assert best["y"] == sorted(best["y"])
    kept = {r.throughput.value for r in report.trials if r.keeps_quality}
    assert set(best["y"]) <= kept
    assert best["x"][-1] == report.trials[-1].number


def test_history_has_every_trial(report):
    drawn = [t for t in plots_front.history(report).data if t["mode"] == "markers"]
    assert sorted(n for t in drawn for n in t["x"]) == [r.number for r in report.trials]


def test_if_lower_is_better_the_region_is_below_its_edge(rich):
    """The same figures are taken as losses, with work counted in tokens."""
    lower = replace(rich, minimize=True, unit="tokens", quality="val_loss")
    plot = named(lower, "front")
    region, edge = plot.layout["shapes"]
    assert region["y1"] < region["y0"] == edge["y0"] == lower.least_quality
    assert plot.axes.startswith("↑ val_loss, lower is better. The best are at the bottom right.")
    assert plot.layout["xaxis"]["title"] == "tokens per second"
    assert plot.layout["annotations"][0]["text"].startswith("95% of the baseline's improvement in val_loss: ")
    assert "with at least 95% of the baseline's improvement in val_loss" in plot.label
    curves = named(lower, "quality-samples")
    assert (curves.title, curves.axes) == ("val_loss over tokens", "↑ val_loss, lower is better")
    texts = [s for p in every(lower) for s in strings([p.data, p.layout, p.axes, p.label])]
    assert not [text for text in texts if re.search(r"\bsamples?\b(?!-)", text)]
