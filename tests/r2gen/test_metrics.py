import json
import math
import signal
import subprocess
import sys

import psutil
import pytest

from r2gen.metrics import Meteor, each, score

from .golden import GOLDEN, shared

needs_java = pytest.mark.skipif(not Meteor.available(), reason="METEOR needs java")

HYPOTHESES = ["the heart is normal .", "the lungs are clear . no effusion ."]
REFERENCES = ["the heart is normal .", "lungs are clear . there is no effusion ."]


ODD = json.loads((GOLDEN / "metrics_golden.json").read_text())["edge"]


@pytest.fixture
def golden():
    return json.loads(shared("metrics_golden.json").read_text())


@pytest.fixture(scope="module")
def meteor():
    with Meteor() as running:
        yield running


def written(pairs):
    return [pair["res"] for pair in pairs], [pair["gt"] for pair in pairs]


def lowered(scores):
    return {name.lower(): value for name, value in scores.items() if name != "METEOR"}


def exactly(expected):
    return pytest.approx(expected, rel=0, abs=1e-9)


def test_corpus_scores_are_the_originals(golden):
    scores = score(*written(golden["pairs"]))
    assert scores.pop("cider") == exactly(golden["extra_CIDEr_not_in_compute_scores"])
    assert scores == exactly(lowered(golden["scores"]))


def test_scores_of_odd_reports_are_the_originals():
    scores = score(*written(ODD["pairs"]))
    del scores["cider"]
    assert scores == exactly(lowered(ODD["scores"]))


def test_scores_of_single_reports_are_the_originals(golden):
    for i, pair in enumerate(golden["pairs"][:10]):
        scores = score([pair["res"]], [pair["gt"]])
        assert scores["rouge_l"] == exactly(golden["per_pair"]["ROUGE_L"][i])


def test_scores_of_a_known_pair():
    """Counted by hand: 12 of the 13 generated words are in their references, which have 14."""
    scores = score(HYPOTHESES, REFERENCES)
    assert set(scores) == {"bleu_1", "bleu_2", "bleu_3", "bleu_4", "rouge_l", "cider"}
    assert scores["bleu_1"] == pytest.approx(12 / 13 * math.exp(1 - 14 / 13), abs=1e-6)
    assert all(isinstance(value, float) for value in scores.values())


def test_perfect_reports_have_the_highest_scores():
    scores = score(REFERENCES, REFERENCES)
    assert [scores[f"bleu_{n}"] for n in (1, 2, 3, 4)] == pytest.approx([1] * 4, abs=1e-6)
    assert scores["rouge_l"] == 1
    assert scores["cider"] == pytest.approx(10)


def test_every_report_has_scores_of_its_own(golden):
    pairs = golden["pairs"][:10]
    own = each(*written(pairs))
    assert [scores["rouge_l"] for scores in own] == exactly(golden["per_pair"]["ROUGE_L"][:10])
    for scores, pair in zip(own, pairs, strict=True):
        alone = score([pair["res"]], [pair["gt"]])
        assert scores == {name: exactly(alone[name]) for name in ("bleu_1", "bleu_4", "rouge_l")}


def test_scores_of_each_of_a_known_pair():
    """Counted by hand: 7 of the second report's 8 words are in its reference, which has 9."""
    first, second = each(HYPOTHESES, REFERENCES)
    assert (first["bleu_4"], first["rouge_l"]) == (pytest.approx(1, abs=1e-6), 1)
    assert second["bleu_1"] == pytest.approx(7 / 8 * math.exp(1 - 9 / 8), abs=1e-6)
    assert all(type(value) is float for value in second.values())
    assert each([], []) == []


def test_nothing_is_printed(capfd):
    score(HYPOTHESES, REFERENCES)
    each(HYPOTHESES, REFERENCES)
    assert capfd.readouterr() == ("", "")


def test_nothing_to_score_and_lists_of_other_lengths_are_refused():
    with pytest.raises(ValueError, match="at least one"):
        score([], [])
    with pytest.raises(ValueError, match="zip"):
        score(["a"], ["a", "b"])


@pytest.mark.long
@needs_java
def test_meteor_is_the_originals(golden, meteor):
    assert meteor.score(*written(golden["pairs"])) == exactly(golden["scores"]["METEOR"])
    for i, pair in enumerate(golden["pairs"][:5]):
        assert meteor.score([pair["res"]], [pair["gt"]]) == exactly(golden["per_pair"]["METEOR"][i])


@needs_java
def test_meteor_of_odd_reports_is_the_originals(meteor):
    assert meteor.score(*written(ODD["pairs"])) == exactly(ODD["scores"]["METEOR"])


@needs_java
def test_meteor_is_over_all_reports_together(meteor):
    first, second = (meteor.score([h], [r]) for h, r in zip(HYPOTHESES, REFERENCES, strict=True))
    assert second < meteor.score(HYPOTHESES, REFERENCES) < first == 1


@needs_java
def test_meteor_accepts_text_that_would_break_its_protocol(meteor):
    plain = meteor.score(["the heart is normal"], ["the heart is normal"])
    assert meteor.score(["the heart\nis ||| normal"], ["the |||heart is\r\nnormal"]) == plain
    assert 0 <= meteor.score(["é\u2028ö", ""], ["", "é"]) <= 1


@needs_java
@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long)])
def test_meteor_survives_signals_to_every_process(number):
    """The running evaluation is finished first."""
    with Meteor() as meteor:
        before = meteor.score(HYPOTHESES, REFERENCES)
        meteor._process.send_signal(number)
        with pytest.raises(subprocess.TimeoutExpired):
            meteor._process.wait(0.5)
        assert meteor.score(HYPOTHESES, REFERENCES) == before


@needs_java
def test_meteor_ends_with_its_block_even_after_an_error():
    processes = []

    def fail():
        with Meteor() as meteor:
            processes.append(psutil.Process(meteor._process.pid))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert not processes[0].is_running()


@pytest.mark.long
@needs_java
def test_the_last_words_of_a_meteor_that_died_are_passed_on():
    with Meteor() as meteor:
        with pytest.raises(EOFError):
            meteor._ask("EVAL ||| 1.0 2.0")  # too few numbers
        with pytest.raises(RuntimeError, match=r"ended with status 1: .*NoSuchElementException"):
            meteor.score(HYPOTHESES, REFERENCES)


@pytest.mark.long
@needs_java
def test_meteor_does_not_outlive_a_killed_parent():
    script = (
        "from r2gen.metrics import Meteor\n"
        "with Meteor() as meteor:\n"
        "    meteor.score(['a'], ['a'])\n"
        "    print(meteor._process.pid, flush=True)\n"
        "    input()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        java = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
    psutil.wait_procs([java], timeout=30)
    assert not java.is_running() or java.status() == psutil.STATUS_ZOMBIE
