"""What fits where there is another memory, as text."""

import json
from dataclasses import replace

import pytest

from autotune.judging.history import History
from autotune.reports import as_json, elsewhere, figures, markdown, page

from .searched import GIB, confirmed, known
from .test_page import Page, words_of


@pytest.fixture
def report(space):
    return figures.report(known(space), 5)


def test_every_form_of_a_report_has_it(report):
    rows = elsewhere.table(report.elsewhere).rows
    assert [row[0] for row in rows] == ["8.0 GiB", "12.0 GiB", "16.0 GiB", "24.0 GiB", "48.0 GiB", "80.0 GiB"]
    html = words_of(Page(page.render(report)).texts["elsewhere"])
    text = markdown.render(report)
    assert "With another memory limit" in html
    assert "\nWith another memory limit:\n" in text
    for row in rows:
        assert "".join(row) in html
        assert f"| {' | '.join(row)} |" in text
    told = json.loads(as_json.render(report))["elsewhere"]
    assert [fit["config"]["micro_batch_size"] for fit in told["fits"]] == [int(row[1]) for row in rows]
    assert told["trial"] == report.answer.best.trial


def test_what_it_rests_on_is_said(space, report):
    host = " ".join(elsewhere.notes(report.elsewhere))
    assert "trial 1 with the largest micro-batch" in host
    assert "Measured without a GPU" in host
    on_gpu = [
        replace(t, measurement=replace(t.measurement, peak_reserved_bytes=2 * GIB)) for t in confirmed(space)
    ]
    found = figures.report(replace(known(space), history=History(on_gpu, space)), 5).elsewhere
    assert elsewhere.title(found) == "On another GPU"
    assert "bf16 needs compute capability 8.0 or newer." in list(elsewhere.notes(found))


def test_what_is_not_known_has_its_reason_in_its_row(report):
    unknown = replace(report.elsewhere.fits[0], config=None, peak=None, reason="not known: because")
    (row,) = elsewhere.table(replace(report.elsewhere, fits=(unknown,))).rows
    assert row[-1] == "not known: because"
    assert set(row[1:-1]) == {"\N{EN DASH}"}


def test_before_there_is_anything_to_recommend_there_is_no_such_section(space):
    begun = figures.report(replace(known(space), history=History([], space)), 5)
    assert begun.elsewhere is None
    assert "elsewhere" not in Page(page.render(begun)).texts
