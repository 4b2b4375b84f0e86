import hashlib
import json

import pytest

from r2gen.tokenizer import UNKNOWN, Tokenizer

from .golden import GOLDEN, shared

WORDS = ("a-b", "clear", "heart", "lungs", "normal", "the")
SYNTHETIC = json.loads((GOLDEN / "tokenizer_synthetic.json").read_text())


@pytest.fixture
def tokenizer():
    return Tokenizer((".", UNKNOWN, *WORDS), "iu_xray")


@pytest.mark.parametrize("item", SYNTHETIC, ids=lambda item: repr(item["report"]))
def test_odd_reports_are_cleaned_as_the_original_cleans_them(item):
    assert Tokenizer([UNKNOWN], "iu_xray").clean(item["report"]) == item["cleaned_iu"]
    assert Tokenizer([UNKNOWN], "mimic_cxr").clean(item["report"]) == item["cleaned_mimic"]


def test_real_reports_become_the_ids_that_the_original_gives_them():
    golden = json.loads(shared("tokenizer_golden.json").read_text())
    iu, mimic = (Tokenizer(golden["vocab"], name) for name in ("iu_xray", "mimic_cxr"))
    assert hashlib.sha256("\n".join(iu.vocabulary).encode()).hexdigest() == golden["info"]["vocab_sha256"]
    assert golden["items"]
    for item in golden["items"]:
        assert iu.clean(item["report"]) == item["cleaned"]
        assert mimic.clean(item["report"]) == item["cleaned_mimic"]
        assert iu.encode(item["report"]) == item["ids"]
        assert iu.decode(item["ids_trunc60"]) == item["decoded_target"]
    for item in golden["synthetic"]:
        assert iu.encode(item["report"]) == item["ids_iu"]


def test_rare_words_are_left_out_and_the_unknown_word_is_sorted_in():
    reports = ["The heart is normal.", "The heart is large.", "Zebra, zebra; heart"]
    tokenizer = Tokenizer.from_reports(reports, "iu_xray", min_word_count=2)
    assert tokenizer.vocabulary == (".", UNKNOWN, "heart", "is", "the", "zebra")
    assert tokenizer.encode("A large heart") == [0, 2, 2, 3, 1, 0]


def test_numbering_and_runs_of_signs_are_cleaned_by_data_set():
    report = "1. Heart  normal...... 2. Lungs ____ clear"
    iu, mimic = (Tokenizer([UNKNOWN], name) for name in ("iu_xray", "mimic_cxr"))
    assert iu.clean(report) == "heart  normal . lungs  clear ."
    assert mimic.clean(report) == "heart normal . lungs  clear ."
    assert iu.clean("1......... one") == "1 . one ."  # three halvings do not suffice
    assert mimic.clean("1......... one") == "one ."


def test_a_range_of_signs_goes_and_hyphens_stay(tokenizer):
    assert tokenizer.clean("a-b <c> =d= @e: F[g]") == "a-b c d e fg ."


def test_decoding_gives_the_cleaned_report_back(tokenizer):
    assert (
        tokenizer.decode(tokenizer.encode("The lungs, clear. The heart?")) == "the lungs clear . the heart ."
    )


def test_decoding_stops_at_the_first_zero(tokenizer):
    assert tokenizer.decode([5, 1, 0, 5]) == "heart ."
    assert tokenizer.decode([0, 5, 1, 0, 5]) == "heart ."
    assert tokenizer.decode([0, 0, 5]) == ""
    assert tokenizer.decode([]) == ""
