import base64
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from importlib import resources
from itertools import pairwise

import pytest

from autotune.compare.results import StepSummary
from autotune.core.settings import PRECISIONS
from autotune.reports import answer, markdown, page, tables
from autotune.reports.model import Figure

from . import handmade
from .made_trials import HOSTILE

SECTIONS = ("answer", "front", "speed", "quality", "own", "elsewhere", "search", "provenance")
VOID = {"meta", "link", "img", "br", "use", "path", "circle"}


class Page(HTMLParser):
    """Collects every tag of a page with its attributes, and the text of every section."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.scripts, self.texts, self.open = [], [], {}, []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.tags.append((tag, values))
        if tag == "script":
            self.scripts.append((values, ""))
        if tag not in VOID:
            self.open.append((tag, values.get("id")))

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop()[0] == tag

    def handle_data(self, data):
        inside = [tag for tag, _ in self.open]
        if "script" in inside:
            values, before = self.scripts.pop()
            self.scripts.append((values, before + data))
        for tag, name in self.open:
            if tag == "section":
                self.texts[name] = self.texts.get(name, "") + data

    def all(self, tag):
        return [values for name, values in self.tags if name == tag]

    @property
    def ids(self):
        return [values["id"] for _, values in self.tags if "id" in values]


@pytest.fixture(scope="module")
def text(rich):
    return page.render(rich)


@pytest.fixture(scope="module")
def whole(text):
    return Page(text)


def words_of(text):
    return " ".join(text.split())


def test_the_sections_come_in_their_order_and_all_are_filled(whole):
    assert [values["id"] for values in whole.all("section")] == list(SECTIONS)
    assert all(len(words_of(whole.texts[name])) > 60 for name in SECTIONS)


def test_the_answer_says_what_to_run_and_why(whole):
    text = words_of(whole.texts["answer"])
    for part in ("2.86x", "2.69x to 3.03x", "0.1619 ± 0.0034", "mean of 3 seeds", "4.0 GiB (50%)", "93%"):
        assert part in text
    for part in ("1.52 J", "15m 13s", "206,900 samples", "python -m autotune export runs/iu -o best.yaml"):
        assert part in text
    assert "Trial 17 was thermally throttled" in text


def test_changed_settings_come_first_and_the_rest_is_folded(rich):
    settings = answer.settings(rich)
    assert [s.is_changed for s in settings] == sorted((s.is_changed for s in settings), reverse=True)
    changed = ["micro_batch_size", "precision", "num_workers", "channels_last", "learning_rate"]
    assert {s.name for s in settings if s.is_changed} == set(changed)


def test_text_from_outside_is_shown_as_text(text, whole):
    assert "<script>window" not in text
    assert "<img src=x" not in text
    assert HOSTILE.replace("\u202e", " ") in whole.texts["search"]
    assert "<script>window.hacked" in whole.texts["own"]
    assert "\u202e" not in text
    assert whole.all("img") == []


def test_nothing_is_fetched_and_no_script_but_its_own_may_run(whole):
    policy = next(v["content"] for v in whole.all("meta") if "http-equiv" in v)
    assert policy.startswith("default-src 'none'; ")
    hashes = set(re.findall(r"'sha256-([^']+)'", policy))
    scripts = [script for values, script in whole.scripts if "type" not in values]
    assert {base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in scripts} == hashes
    assert len(hashes) == 2
    assert not [v for _, v in whole.tags if re.match(r"(https?:)?//", v.get("src") or v.get("href") or "")]
    assert not [name for _, v in whole.tags for name in v if name.startswith("on")]


def test_an_end_of_script_in_a_text_ends_no_script(rich):
    hostile = replace(rich.trials[5], reason="</script><!--<script>")
    found = Page(page.render(replace(rich, trials=(*rich.trials[:5], hostile, *rich.trials[6:]))))
    figures = next(s for values, s in found.scripts if values.get("id") == "figures")
    assert len(found.scripts) == 3
    assert "&lt;/script&gt;" in json.dumps(json.loads(figures))


def test_every_id_is_there_once_and_every_link_leads_somewhere(whole):
    ids = whole.ids
    assert len(ids) == len(set(ids))
    links = {v["href"][1:] for v in whole.all("a")} | {v["href"][1:] for v in whole.all("use")}
    named = {v[name] for _, v in whole.tags for name in ("aria-labelledby", "data-copies") if name in v}
    assert links | named <= set(ids)


def test_headings_are_in_order(whole):
    levels = [int(tag[1]) for tag, _ in whole.tags if re.fullmatch(r"h\d", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))


def test_everything_visible_has_a_text_alternative(whole):
    drawn = [v for _, v in whole.tags if v.get("role") == "img"]
    assert len(drawn) == 10
    assert all(v["aria-label"] for v in drawn)
    assert all(v.get("aria-hidden") == "true" for v in whole.all("svg"))
    assert next(v for v in whole.all("html"))["lang"] == "en"
    assert {"header", "nav", "main", "footer"} <= {tag for tag, _ in whole.tags}


def test_scores_are_those_of_papers_and_the_searchs_own(rich):
    scores = {"accuracy": 0.9, "bleu_4": 0.2, "val_studies": 60.0}
    models = tuple(replace(each, scores=scores) for each in rich.compared)
    head = tables.scores(replace(rich, quality="accuracy", compared=models)).head
    assert head[:5] == ("model", "seeds", "BLEU-4", "accuracy", "reports/s")


def test_a_validation_loss_is_shown_as_the_test_splits(rich):
    models = tuple(replace(each, scores={"loss": 2.5, "bleu_4": 0.2}) for each in rich.compared)
    compared = replace(rich, quality="val_loss", minimize=True, compared=models)
    assert tables.scores(compared).head[:4] == ("model", "seeds", "BLEU-4", "loss")
    assert "| BLEU-4 | loss |" in markdown.render(compared)


def test_the_precision_to_take_is_named_above_the_scores(whole):
    text = words_of(whole.texts["quality"])
    assert "By precision The fastest precision that keeps 95% of the baseline's improvement in bleu_4" in text
    assert "Throughput, scores and reports/s are means over the seeds." in text


def test_figures_known_for_one_model_have_a_column(rich):
    found = tables.trainings(rich.compared)
    head = "model, final train loss, against fp32, bad steps, overflows, checkpoints"
    assert ", ".join(found.head) == head
    assert found.rows[-1] == ("fp16", "1.8600", "+0.4%", "0", "4", "1.1 GiB")
    assert [row[0] for row in found.rows] == ["baseline", "fp32", "bf16", "fp16"], "fp8 was not trained"
    silent = [replace(each, steps=StepSummary(), beside_fp32=None) for each in rich.compared]
    assert tables.trainings(silent).head == ("model", "checkpoints")
    assert tables.trainings([replace(each, checkpoint_bytes=None) for each in silent]) is None


def test_the_workloads_own_section_has_its_tables_and_its_html(text, whole):
    own = words_of(whole.texts["own"])
    assert own.startswith("5 Own Own figures modelown score bf160.5 What the figures are. Own details")
    assert own.endswith("Escaped by the workload, such as <b>.")
    assert '<a href="#own">Own</a>' in text


def test_a_model_that_did_not_train_says_why(whole):
    assert "fp8 failed: fp8 needs a GPU" in words_of(whole.texts["quality"])


@pytest.mark.parametrize(
    ("state", "going_on", "advice"),
    [
        ("running", "", " The search is running: look again with python -m autotune report runs/begun"),
        ("ended", "python -m autotune resume s", " Continue with python -m autotune resume s"),
        ("ended", "", ""),
    ],
)
def test_a_section_without_figures_says_why_and_what_may_fill_it(bare, state, going_on, advice):
    found = Page(page.render(replace(bare, state=state, going_on=going_on)))
    for name in ("front", "speed", "quality", "search"):
        why, rest = words_of(found.texts[name]).split(" yet.")
        assert " No trial " in why
        assert rest.startswith(advice)
        assert going_on or "resume" not in rest
    assert "python -m autotune compare runs/begun" in words_of(found.texts["quality"])
    assert not [v for _, v in found.tags if "data-figure" in v]


def test_commands_quote_a_session_with_a_space(bare):
    found = Page(page.render(replace(bare, session="runs/my search")))
    assert "python -m autotune compare 'runs/my search'" in found.texts["quality"]


def test_an_unconfirmed_winner_has_neither_a_star_nor_a_factor(rich):
    sentence = "Possibly 1.9x faster, not confirmed. To confirm it: resume s --time 20m"
    open_answer = replace(rich.answer, verdict="unconfirmed", is_open=True, sentence=sentence, commands=())
    trials = tuple(replace(row, kind="trial") if row.kind == "winner" else row for row in rich.trials)
    text = page.render(replace(rich, answer=open_answer, trials=trials, ablation=()))
    section = Page(text).texts["answer"]
    assert sentence in section
    assert f"Trial {rich.answer.best.trial}" in section
    assert "Recommended" not in text
    assert "Run next" not in text
    assert '"star"' not in text
    assert 'class="factor"' not in text


def test_a_baseline_that_stays_has_the_only_column(rich):
    stays = replace(rich.answer, verdict="baseline", best=rich.answer.baseline, factor=None)
    text = Page(page.render(replace(rich, answer=stays, ablation=()))).texts["answer"]
    assert "The baseline stays" in text
    assert "Recommended" not in text
    assert "0.1611" in text


def answer_text(report, **changes):
    """Returns the text of the answer after `changes` of both sides."""
    sides = {name: replace(getattr(report.answer, name), **changes) for name in ("baseline", "best")}
    changed = replace(report, answer=replace(report.answer, **sides))
    return words_of(Page(page.render(changed)).texts["answer"])


def test_unknown_figures_are_named_instead_of_empty_rows(rich):
    names = ("gpu_percent", "joules_per_sample", "full_training_s", "cost")
    text = answer_text(rich, **dict.fromkeys(names))
    assert "Not known here: GPU utilisation, Energy, Full training, Cost." in text
    assert "projected" not in text


def test_the_full_training_says_if_evaluations_are_included(rich):
    caution = "Evaluation is about 31% of the training."
    counted = replace(rich.answer, outside=(caution,), evaluations_counted=True)
    text = answer_text(replace(rich, answer=counted), evaluation_share=0.31)
    assert "206,900 samples, evaluations included" in text
    assert "with evaluations as often as its settings say" in text
    assert caution in text
    assert "Evaluations of the full training, about 31% 31%" in text
    without = answer_text(rich)
    assert "evaluations left out" in without
    assert "Evaluations" not in without


def test_one_run_has_no_interval(rich):
    once = replace(rich.answer.best, throughput=Figure(226.7), quality=Figure(0.16), seeds=1)
    line, *_ = answer.lines(replace(rich, answer=replace(rich.answer, best=once)))
    assert (line.best.text, line.best.detail) == ("226.7", "")


def test_trials_without_figures_are_in_the_table(rich):
    unknown = dict.fromkeys(("throughput", "quality", "peak_memory_bytes", "memory_share"))
    rows = tuple(replace(r, **unknown, config={}, curve=(), on_front=False) for r in rich.trials)
    nothing = replace(rich.answer, verdict="none", baseline=None, best=None, factor=None)
    found = Page(page.render(replace(rich, trials=rows, answer=nothing, predicted=(), ablation=())))
    plots = [v["data-figure"] for _, v in found.tags if "data-figure" in v]
    assert plots == ["compared-samples", "compared-time"]
    failures = sum(r.failure == "oom" for r in rows)
    assert found.texts["search"].count("out of memory: CUDA out of memory") == failures


def test_a_report_of_two_hundred_trials_is_small_enough():
    assert len(page.render(handmade.rich(trials=200)).encode()) < 6_000_000


# Least contrast with the background (WCAG 2.1 AA): text 4.5 to 1, marks 3 to 1.


def colours(scheme):
    style = (resources.files("autotune.reports") / "templates" / "report.css").read_text()
    pairs = re.findall(r"(--[\w-]+): light-dark\(#(\w{6}), #(\w{6})\);", style)
    return {name: (light if scheme == "light" else dark) for name, light, dark in pairs}


def luminance(colour):
    channels = [int(colour[n : n + 2], 16) / 255 for n in (0, 2, 4)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_have_contrast(scheme):
    found = colours(scheme)
    for text in ("ink", "muted", "winner", "failed"):
        for ground in ("page", "surface", "winner-soft"):
            if (text, ground) != ("failed", "winner-soft"):
                assert contrast(found[f"--{text}"], found[f"--{ground}"]) >= 4.5, (text, ground)
    for mark in ("baseline", "completed", "stopped", *PRECISIONS, "other"):
        assert contrast(found[f"--{mark}"], found["--page"]) >= 3, mark
