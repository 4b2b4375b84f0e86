"""The findings that a report asserts. Phrases are invented; real reports are only counted."""

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2gen.findings import PHRASES, asserted
from r2gen.tokenizer import Tokenizer

ROOT = Path(__file__).parents[2]
REAL = ROOT.parent / "shared" / "data" / "iu_xray" / "annotation.json"
FILLERS = ("the", "there", "mild", "left", "seen", "lungs", "heart", "is", "and", "or", "of", "unk", "3")


@pytest.mark.parametrize(
    ("text", "findings"),
    [
        # present
        ("there is cardiomegaly .", {"cardiomegaly"}),
        ("the heart size is mildly enlarged .", {"cardiomegaly"}),
        ("the cardiac silhouette is again moderately to severely enlarged .", {"cardiomegaly"}),
        ("stable enlargement of the cardiac silhouette .", {"cardiomegaly"}),
        ("the heart is slightly large .", {"cardiomegaly"}),
        ("the mediastinum appears widened .", {"enlarged mediastinum"}),
        ("small bilateral pleural effusions .", {"effusion"}),
        ("a right apical pneumothorax is present .", {"pneumothorax"}),
        ("large hydropneumothorax .", {"effusion", "pneumothorax"}),
        ("left lower lobe consolidation suggests pneumonia .", {"consolidation"}),
        ("mild pulmonary vascular congestion with interstitial edema .", {"edema"}),
        ("bibasilar subsegmental atelectasis .", {"atelectasis"}),
        ("there is complete collapse of the left lung .", {"atelectasis"}),
        ("patchy air space disease and increased interstitial markings .", {"opacity"}),
        ("a 9 mm nodular opacity in the left apex .", {"nodule or mass", "opacity"}),
        ("the lungs are hyperexpanded with flattening of the diaphragms .", {"emphysema"}),
        ("lung volumes are low .", {"low lung volumes"}),
        ("scarring and blunting of the left costophrenic angle .", {"scarring", "pleural thickening"}),
        ("mild elevation of the right hemidiaphragm .", {"raised diaphragm"}),
        ("calcified granulomas and a tortuous aorta .", {"calcification", "aortic disease"}),
        ("large hiatal hernia . old rib fractures .", {"hernia", "fracture"}),
        ("dextroscoliosis and degenerative changes of the spine .", {"scoliosis", "degenerative change"}),
        ("a pacemaker is seen . sternotomy wires are intact .", {"support device", "surgical change"}),
        # normal
        ("the heart size is normal . the lungs are clear .", set()),
        ("heart size is normal the aorta is enlarged .", set()),
        ("cardiomediastinal silhouette within normal limits bony structures intact .", set()),
        # negated
        ("no pleural effusion or pneumothorax .", set()),
        ("the heart is not significantly enlarged .", set()),
        ("lungs are clear without focal consolidation effusion or edema .", set()),
        ("the lungs are free of focal airspace disease .", set()),
        ("negative for pneumothorax and clear of infiltrate .", set()),
        ("the previously seen effusion has resolved .", set()),
        ("a pneumothorax is no longer seen .", set()),
        ("pleural effusion is not identified .", set()),
        ("consolidation is considered unlikely .", set()),
        ("interval removal of the chest tube .", set()),
        ("no large effusion . no acute fracture .", set()),
        # the scope of a negation
        ("no pneumothorax but a small effusion is present .", {"effusion"}),
        ("there is no focal consolidation however there is atelectasis .", {"atelectasis"}),
        ("no pneumothorax there is a small effusion .", {"effusion"}),
        ("cardiomegaly without edema .", {"cardiomegaly"}),
        ("clear aside from mild scarring .", {"scarring"}),
        ("no effusion . there is cardiomegaly", {"cardiomegaly"}),
        # only looks like a negation
        ("no significant interval change in the small effusion .", {"effusion"}),
        ("the cardiomegaly is not changed .", {"cardiomegaly"}),
        ("pneumonia cannot be excluded .", {"consolidation"}),
        ("this does not exclude a small pneumothorax .", {"pneumothorax"}),
        # uncertain
        ("possible small left effusion .", {"effusion"}),
        (
            "opacity which may represent atelectasis versus pneumonia .",
            {"opacity", "atelectasis", "consolidation"},
        ),
        # another finding
        ("there may be a pericardial effusion .", set()),
        ("subcutaneous emphysema .", set()),
        ("the midline trachea .", set()),
        ("portable view .", set()),
    ],
)
def test_what_a_sentence_asserts(text: str, findings: set[str]) -> None:
    assert set(asserted(text)) == findings


def test_a_report_as_dictated_asserts_the_same_as_a_cleaned_one() -> None:
    raw = (
        "Heart is ENLARGED; no effusion.\nCalcified granuloma, 1.2 cm, unchanged. No pneumothorax, but edema?"
    )
    assert asserted(raw) == ["cardiomegaly", "edema", "calcification"]


@given(st.text())
def test_any_text_has_findings_or_none(text: str) -> None:
    found = asserted(text)
    assert found == [name for name in PHRASES if name in found]


def _spelt(phrase: str) -> st.SearchStrategy[str]:
    """Draws one spelling of `phrase`."""
    words = [st.just("") if w == "..." else st.sampled_from(w.split("/")) for w in phrase.split()]
    return st.tuples(*words).map(lambda chosen: " ".join(filter(None, chosen)))


_PHRASE = st.sampled_from(
    [(name, phrase) for name, phrases in PHRASES.items() for phrase in phrases.split(", ")]
).flatmap(lambda pair: st.tuples(st.just(pair[0]), _spelt(pair[1])))


@given(_PHRASE)
def test_every_phrase_asserts_its_finding_and_denied_does_not(pair: tuple[str, str]) -> None:
    name, phrase = pair
    assert name in asserted(f"{phrase} .")
    for denied in (f"no {phrase} .", f"negative for {phrase} .", f"{phrase} is not seen ."):
        assert asserted(denied) == []


_SENTENCE = st.lists(
    st.one_of(st.sampled_from(FILLERS), _PHRASE.map(lambda pair: pair[1])), min_size=1, max_size=8
).map(" ".join)


@given(_SENTENCE, _SENTENCE)
def test_sentences_are_judged_by_themselves_and_a_denied_one_asserts_nothing(one: str, other: str) -> None:
    both = f"{one} . {other} ."
    assert set(asserted(both)) == set(asserted(one)) | set(asserted(other))
    if "there is" not in one:
        assert set(asserted(f"no {one} . {other} .")) == set(asserted(other))


def test_real_reports_have_the_findings_that_chest_x_rays_have() -> None:
    """Shares as in any emergency department; most mentions of an effusion or a pneumothorax are negated."""
    if not REAL.exists():
        pytest.skip("the reports are not on this machine")
    clean = Tokenizer(["<unk>"], "iu_xray").clean
    studies = [study for split in json.loads(REAL.read_text()).values() for study in split]
    reports = [clean(study["report"]) for study in studies]
    found = [asserted(report) for report in reports]
    share = {name: n / len(reports) for name, n in Counter(name for f in found for name in f).items()}
    mentioned = sum("pneumothora" in report for report in reports) / len(reports)
    assert share["pneumothorax"] < 0.03
    assert mentioned > 0.5
    assert 0.01 < share["effusion"] < 0.1
    assert 0.03 < share["cardiomegaly"] < 0.15
    assert 0.1 < share["calcification"] < 0.3
    assert 0.2 < sum(not f for f in found) / len(found) < 0.6, "healthy, or nothing that is looked for"
    assert set(share) == set(PHRASES)
