"""Studies side by side, and the sheet for blind readers, which has every report and reveals no model."""

import re
from collections import Counter
from collections.abc import Mapping
from html import unescape
from importlib import resources
from pathlib import Path

import pytest
from PIL import Image

from r2gen.compared import entries, page
from r2gen.compared.answers import MARKS, id_of
from r2gen.compared.entries import Entry, Shown

from .written import HOSTILE, entry

LABELS = ("baseline", "bf16", "fp16", "fp8")


def written() -> Mapping[str, list[Entry]]:
    """Returns the reports of four models: all different, except that two agree on the first study."""
    return {
        label: [
            entry(
                f"CXR{n}",
                "the same" if n == 0 and label in LABELS[:2] else f"text {n * 7 + k}",
                f"what is true of {n}",
                scores={"bleu_4": 0.123456},
                found=("cardiomegaly",),
            )
            for n in range(30)
        ]
        for k, label in enumerate(LABELS)
    }


STUDIES = entries.spread(written(), 30)


@pytest.fixture(scope="module")
def text() -> str:
    return page.sheet(STUDIES)


def test_every_report_is_there_once_and_can_be_marked(text: str) -> None:
    ids = re.findall(r'data-report="(\w+)"', text)
    assert set(ids) == {id_of(e.id, e.report) for found in written().values() for e in found}
    assert len(ids) == 30 * 4 - 1, "what two wrote alike is read once"
    assert text.count('type="radio"') == len(ids) * len(MARKS)
    shown = [unescape(one) for one in re.findall(r'<p class="text">(.*?)</p>', text)]
    assert Counter(shown) == Counter(report for study in STUDIES for report in page.texts(study).values())


def test_it_reveals_no_model_score_or_study(text: str) -> None:
    for told in (*LABELS, "bleu", "0.1234", "cardiomegaly", "CXR"):
        assert told not in text


def test_the_order_of_the_reports_reveals_no_model() -> None:
    """Each model is in each place about equally often."""
    by_text = {e.report: label for label, found in written().items() for e in found}
    first = Counter(by_text[next(iter(page.texts(study).values()))] for study in STUDIES[1:])
    assert max(first.values()) < 16
    assert len(first) == len(LABELS)


def test_the_order_is_the_same_every_time(text: str) -> None:
    assert page.sheet(entries.spread(dict(reversed(written().items())), 30)) == text


def test_text_from_outside_is_shown_as_text_and_nothing_may_be_fetched() -> None:
    found = page.sheet([Shown({"bf16": entry("1", HOSTILE, HOSTILE, images=("absent.png",))})])
    assert "<script>window" not in found
    assert "<img src=x" not in found
    assert "image not found" in found
    assert "absent" not in found, "a file may have the model's name"
    assert re.search(r"content=\"default-src &#39;none&#39;; script-src &#39;sha256-", found)


def test_a_model_without_reports_is_marked() -> None:
    study = Shown({"bf16": entry("1", "")})
    assert '<p class="text"><em>nothing written</em></p>' in page.sheet([study])
    assert "nothing written" in page.side_by_side([Shown({"bf16": entry("1", "", "")})])


def test_differences_and_findings_are_distinguishable_without_colour() -> None:
    true = ("cardiomegaly", "edema")
    one = entry("1", "the heart is normal", "the heart is large", found=("edema", "hernia"), true=true)
    text = page.side_by_side([Shown({"bf16": one})])
    assert "the heart is <del>large</del> <ins>normal</ins>" in text
    for symbol, name, kind in (
        ("✓", "edema", "agreed"),
        ("\N{MINUS SIGN}", "cardiomegaly", "missed"),
        ("+", "hernia", "invented"),
    ):
        said = f'<span aria-hidden="true">{symbol}</span> {name} <span class="unseen">{kind}</span>'
        assert text.count(said) == 1
    assert "<small>bleu_4 0.1000</small>" in text


def test_studies_side_by_side_have_text_and_images_and_nothing_else_from_outside(tmp_path: Path) -> None:
    Image.new("L", (512, 600)).save(tmp_path / "there.png")
    (tmp_path / "broken.png").write_text("no image")
    files = tuple(str(tmp_path / name) for name in ("there.png", "broken.png", "absent.png"))
    text = page.side_by_side([Shown({HOSTILE: entry(HOSTILE, HOSTILE, HOSTILE, images=files)})])
    assert "<script>window" not in text
    assert "\u202e" not in text
    assert re.findall(r'<img src="([^,"]*)', text) == ["data:image/jpeg;base64"]
    for said in ("image cannot be read", "image not found", f"{tmp_path.name}/absent.png"):
        assert said in text
    assert page.side_by_side([]) == ""


@pytest.mark.parametrize("style", ["studies.css", "sheet.css"])
def test_colours_of_text_have_contrast(style: str) -> None:
    text = (resources.files("r2gen.compared") / "templates" / style).read_text()
    pairs = re.findall(r"(--[\w-]+): light-dark\(#(\w{6}), #(\w{6})\);", text)
    for scheme in (1, 2):
        found = {pair[0]: _luminance(pair[scheme]) for pair in pairs}
        texts = [name for name in found if name in {"--invented", "--ink", "--muted"}]
        grounds = [name for name in found if name in {"--invented-soft", "--page", "--surface"}]
        assert texts
        assert grounds
        for one, other in ((found[a], found[b]) for a in texts for b in grounds):
            assert (max(one, other) + 0.05) / (min(one, other) + 0.05) >= 4.5


def _luminance(colour: str) -> float:
    channels = [int(colour[n : n + 2], 16) / 255 for n in (0, 2, 4)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
