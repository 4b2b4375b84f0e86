"""A report as Markdown: its content, in which text from outside is no markup."""

from dataclasses import replace

import pytest

from autotune.reports import figures, markdown
from autotune.reports.model import Answer

from .searched import known

HOSTILE = "a|b `c` <script>d</script> *e* _f_ [g](h) ~i~ #j \\k ![l](m) $n$ @o\n# p\r\u2028q"


@pytest.fixture
def report(space):
    return figures.report(known(space))


def test_a_baseline_that_is_the_best_stands_alone(report):
    alone = replace(report.answer, verdict="baseline", best=report.answer.baseline, commands=())
    text = markdown.render(replace(report, answer=alone))
    assert "| figure | baseline |\n" in text
    assert "```" not in text


def test_without_a_result_there_is_a_sentence_and_no_table(report):
    text = markdown.render(replace(report, answer=Answer("none", "No result: why."), elsewhere=None))
    assert "No result: why." in text
    assert "|" not in text


def test_text_from_outside_is_no_markup(report):
    side = replace(report.answer.best, knobs=HOSTILE)
    texts = {"sentence": HOSTILE, "cautions": (HOSTILE,), "commands": (HOSTILE, "```")}
    answer, machine = replace(report.answer, best=side, **texts), {"hardware": HOSTILE}
    hostile = replace(report, session=HOSTILE, quality=HOSTILE, answer=answer, provenance=machine)
    plain = replace(report, provenance={"hardware": "x"}, answer=replace(report.answer, cautions=("y",)))
    text = markdown.render(hostile)
    extra = len(text.splitlines()) - len(markdown.render(plain).splitlines())
    assert extra == 1, "the second command is the only further line"
    code = text.index("````sh")
    rest = text[:code] + text[text.index("````", code + 4) :]
    for special in "`*_[]~#!$@":
        outside = rest.replace(f"\\{special}", "").removeprefix("##").replace("````", "")
        assert special not in outside, special
    assert "<script" not in rest
    row = next(line for line in rest.splitlines() if line.startswith("| settings"))
    assert row.replace("\\|", "").count("|") == 5
