"""The sheet for blind readers: it has every report, and nothing that tells a model."""

import json
import re
from collections import Counter
from html import unescape

import pytest

from autotune.compare import blind
from autotune.compare.results import Written
from autotune.core.settings import PRECISIONS
from autotune.reports import clinical, sheet

from .made_trials import HOSTILE

KEY = bytes(range(32))
LABELS = ("baseline", "bf16", "fp16", "fp8")


def written(studies=30):
    """What four models wrote: all different, except that two of them agree on the first study."""
    return {
        label: [
            Written(
                f"CXR{n}",
                (),
                f"what is true of {n}",
                "the same" if n == 0 and label in LABELS[:2] else f"text {n * 7 + k}",
                scores={"bleu_4": 0.123456},
                found=("cardiomegaly",),
            )
            for n in range(studies)
        ]
        for k, label in enumerate(LABELS)
    }


@pytest.fixture(scope="module")
def items():
    return sheet.items(clinical.samples(written(), 30), KEY)


@pytest.fixture(scope="module")
def text(items):
    return sheet.render(items)


def test_every_report_is_there_once_and_can_be_marked(items, text):
    ids = re.findall(r'data-report="(\w+)"', text)
    assert sorted(ids) == sorted(blind.wrote(KEY, written()))
    assert len(ids) == 30 * 4 - 1, "what two wrote alike is read once"
    assert text.count('type="radio"') == len(ids) * len(blind.MARKS)
    shown = [unescape(one) for one in re.findall(r'<p class="text">(.*?)</p>', text)]
    assert Counter(shown) == Counter(report for item in items for report in item.reports.values())


def test_nothing_in_it_tells_a_model_a_score_or_a_study(text):
    for label in (*LABELS, *PRECISIONS):
        assert label not in text
    for told in ("bleu", "0.1234", "cardiomegaly", "CXR", KEY.hex()):
        assert told not in text
    there = blind.wrote(bytes(32), written())
    assert not [name for name in there if name in text], "without the session's key no id is found"


def test_the_order_of_the_reports_tells_no_model_either(items):
    """Each model has each place about as often as any other one."""
    by_text = {w.report: label for label, reports in written().items() for w in reports}
    first = Counter(by_text[next(iter(item.reports.values()))] for item in items[1:])
    assert max(first.values()) < 16
    assert len(first) == len(LABELS)


def test_the_order_is_the_same_every_time(items, text):
    again = sheet.items(clinical.samples(dict(reversed(written().items())), 30), KEY)
    assert [list(item.reports) for item in again] == [list(item.reports) for item in items]
    assert sheet.render(items) == text


def test_text_from_outside_is_shown_as_text_and_nothing_may_be_fetched():
    wrote = {"bf16": [Written("1", ("absent.png",), HOSTILE, HOSTILE)]}
    found = sheet.render(sheet.items(clinical.samples(wrote, 1), KEY))
    assert "<script>window" not in found
    assert "<img src=x" not in found
    assert "image not found" in found
    assert "absent" not in found, "a file may have the model's name"
    assert re.search(r"content=\"default-src &#39;none&#39;; script-src &#39;sha256-", found)


def test_a_model_that_wrote_nothing_says_so():
    wrote = {"bf16": [Written("1", (), "reference", "")]}
    found = sheet.render(sheet.items(clinical.samples(wrote, 1), KEY))
    assert '<p class="text"><em>nothing written</em></p>' in found


def test_what_a_sheet_asks_is_what_is_read_back(items):
    name = next(iter(items[0].reports))
    told = {"format": blind.FORMAT, "reader": "AB", "marks": {name: {"mark": blind.MARKS[1], "note": ""}}}
    _, answers = blind.parse(json.dumps(told), "answers.json")
    (one,) = blind.unblinded({"AB": answers}, KEY, written())
    assert one.study == "CXR0"
