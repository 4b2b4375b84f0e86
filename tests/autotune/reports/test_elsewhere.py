"""The forecast for other sizes of memory, as text."""

import json
from dataclasses import replace

import pytest

from autotune.judging.decisions.history import History
from autotune.reports import elsewhere, figures, markdown, page

from .searched import GIB, confirmed, known
from .test_page import Page, words_of


@pytest.fixture
def on_gpu(space):
    """Returns a session whose peaks are of tensors on a GPU."""
    reserved = {"peak_reserved_bytes": 2 * GIB}
    trials = [replace(t, measurement=replace(t.measurement, **reserved)) for t in confirmed(space)]
    return replace(known(space), history=History(trials, space))


@pytest.fixture
def report(on_gpu):
    return figures.report(on_gpu)


def test_every_form_of_a_report_has_it(report):
    rows = elsewhere.table(report.elsewhere).rows
    assert [row[0] for row in rows] == ["8.0 GiB", "12.0 GiB", "16.0 GiB", "24.0 GiB", "48.0 GiB", "80.0 GiB"]
    html = words_of(Page(page.render(report)).texts["elsewhere"])
    text = markdown.render(report)
    assert "On another GPU" in html
    assert "\nOn another GPU:\n" in text
    for row in rows:
        assert "".join(row) in html
        assert f"| {' | '.join(row)} |" in text
    found = json.loads(report.to_json())["elsewhere"]
    assert [fit["config"]["micro_batch_size"] for fit in found["fits"]] == [int(row[1]) for row in rows]
    assert found["trial"] == report.answer.best.trial


def test_the_table_explains_its_basis(report):
    notes = list(elsewhere.notes(report.elsewhere))
    assert "trial 1, with the largest micro-batch" in notes[0]
    assert "bf16 needs compute capability 8.0 or newer." in notes
    assert not any("rising" in note for note in notes)
    rising = replace(report.elsewhere, is_rising=True)
    assert any("a longer training takes more" in note for note in elsewhere.notes(rising))
    host = list(elsewhere.notes(replace(report.elsewhere, is_of_gpu=False)))
    assert any("Measured without a GPU" in note for note in host)
    assert not any("compute capability" in note for note in host)


def test_without_a_gpu_there_is_no_forecast_for_other_gpus(space):
    assert figures.report(known(space)).elsewhere is None


def test_unknown_rows_have_their_reason_below(report):
    unknown = {"config": None, "peak": None, "reason": "not known: because"}
    fits = tuple(replace(fit, **unknown) for fit in report.elsewhere.fits[:2])
    found = replace(report.elsewhere, fits=fits)
    for row in elsewhere.table(found).rows:
        assert row[-1] == "not known"
        assert set(row[1:-1]) == {"-"}
    assert "8.0 GiB, 12.0 GiB: not known: because." in list(elsewhere.notes(found))


def test_without_a_recommendation_there_is_no_such_section(space, on_gpu):
    begun = figures.report(replace(on_gpu, history=History([], space)))
    assert begun.elsewhere is None
    assert "elsewhere" not in Page(page.render(begun)).texts
