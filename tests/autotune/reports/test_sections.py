"""A report has only the sections that apply to its workload."""

from dataclasses import replace

import pytest

from autotune.core.settings import PRECISION
from autotune.judging.decisions.history import History
from autotune.reports import figures, markdown, page, tables
from autotune.reports.page import sections
from autotune.workloads.base import Workload
from autotune.workloads.registry import named

from .searched import confirmed, known, trial
from .test_page import Page, words_of

R2GEN_WORDS = ["BLEU", "precision", "fp32", "test split", "validation split", "compare", "F1", "stud"]


@pytest.fixture
def other(space):
    """Returns the space of another workload, with a loss and without a precision."""
    baseline = {name: value for name, value in space.baseline.items() if name != PRECISION}
    knobs = {name: knob for name, knob in space.knobs.items() if name != PRECISION}
    lower = space.revised(objective={"quality": "val_loss", "minimize": "val_loss"})
    return lower.model_copy(update={"workload": "json:loads", "baseline": baseline, "knobs": knobs})


def report_of(space, workload):
    trials = []
    for one in confirmed(space):
        config = {name: value for name, value in one.config.items() if name in space.knobs}
        scores = {space.objective.quality: 0.2, "epoch": 3.0}
        trials.append(replace(one, config=config, measurement=replace(one.measurement, scores=scores)))
    found = replace(known(space), history=History(trials, space), workload=workload)
    return figures.report(found)


def shown(report):
    return Page(page.render(report))


def test_another_workload_has_no_text_about_precisions_and_generated_reports(other):
    report = report_of(other, Workload("json:loads"))
    found = shown(report)
    names = [section.name for section in sections(report)]
    assert names == ["answer", "front", "speed", "quality", "search", "provenance"]
    assert [values["id"] for values in found.all("section")] == names
    assert [values["href"] for values in found.all("a")][1:7] == [f"#{name}" for name in names]
    for text in (words_of(" ".join(found.texts.values())), markdown.render(report)):
        assert [word for word in R2GEN_WORDS if word in text] == []
    assert [word for word in ("not known: the workload", "has no setting") if word in str(found.texts)] == []


def test_the_numbers_of_the_sections_have_no_gap(other):
    report = report_of(other, Workload("json:loads"))
    numbers = [section.number for section in sections(report)]
    assert numbers == list(range(1, len(numbers) + 1))
    found = shown(report)
    heads = [words_of(found.texts[section.name])[0] for section in sections(report)[1:]]
    assert heads == [str(number) for number in numbers[1:]]


def test_r2gens_scores_are_on_the_test_split(space):
    report = report_of(space, named("r2gen"))
    found = shown(report)
    assert "By precision No models have been compared" in words_of(found.texts["quality"])
    assert "and scored on the test split" in found.texts["quality"]


def test_a_workload_with_a_precision_is_compared_by_it_without_written_reports(space):
    report = report_of(space, Workload("json:loads"))
    text = words_of(shown(report).texts["quality"])
    assert "By precision No models have been compared. To train one per precision, run" in text
    assert not {"reports/s", "memory for reports"} & set(tables.scores(report).head)


def test_further_scores_are_a_table(other):
    report = report_of(other, Workload("json:loads"))
    assert tables.search_scores(report) is None
    found, scores = report.answer, {"val_loss": 0.2, "rouge_l": 0.4}
    sides = {name: replace(getattr(found, name), scores=scores) for name in ("baseline", "best")}
    more = replace(report, answer=replace(found, **sides))
    assert tables.search_scores(more).head == ("model", "ROUGE-L", "val_loss")
    assert "Scores model" in words_of(shown(more).texts["quality"])


def test_json_says_if_models_are_compared_by_precision(other):
    assert '"by_precision": false' in report_of(other, Workload("json:loads")).to_json()


def test_without_data_there_is_no_section_on_speed(other):
    knobs = {name: knob for name, knob in other.knobs.items() if name == "num_workers"}
    alone = other.model_copy(update={"knobs": knobs})
    trials = [trial(alone, number, 10.0, 0.2, num_workers=2 * number) for number in (0, 1)]
    found = replace(known(alone), history=History(trials, alone), workload=Workload("json:loads"))
    assert "speed" not in [section.name for section in sections(figures.report(found))]
    begun = replace(found, history=History([], alone))
    assert "speed" in [section.name for section in sections(figures.report(begun))]
