"""A report as Markdown: what it says, and that nothing in it is markup that came from outside."""

from dataclasses import replace

import pytest

from autotune.judging.accounts.costs import Cost, Prices
from autotune.reports import figures, markdown
from autotune.reports.model import Answer, Compared, Figure

from .handmade import Made
from .searched import known

HOSTILE = "a|b `c` <script>d</script> *e* _f_ [g](h) ~i~ #j \\k ![l](m) $n$ @o\n# p\r\u2028q"


@pytest.fixture
def report(space):
    return figures.report(known(space))


def test_the_answer_is_a_sentence_a_table_and_the_commands(report):
    text = markdown.render(report)
    lines = text.splitlines()
    assert lines[0] == "## autotune: runs/s"
    assert any(line.startswith("Confirmed: 3.00x faster (2.97x to 3.03x): 10m 59s") for line in lines)
    assert "|  | baseline | trial 1 | factor |" in lines
    assert "| Throughput, samples per second | 10.1 ± 0.5 | 30.4 ± 1.5 | 3.00x (2.97x to 3.03x) |" in lines
    assert "| BLEU-4, mean of 5 seeds | 0.2106 ± 0.0124 | 0.2200 ± 0.0248 | 1.04x |" in lines
    assert "| Peak memory, of 8.0 GiB | 1.0 GiB (12%) | 2.0 GiB (25%) | 2.00x |" in lines
    assert "| Full training, 60,000 samples | 1h 38m ± 4m 57s | 32m 56s ± 1m 41s | 0.33x |" in lines
    assert not any(line.startswith(("| GPU", "| Energy")) for line in lines), "there is no GPU to speak of"
    command = lines.index("python -m autotune export runs/s -o best.yaml")
    assert (lines[command - 1], lines[command + 1]) == ("```sh", "```")
    assert lines[-1] == "created 2026-11-21; 20000 samples per trial"


def test_what_a_gpu_shows_is_a_row_each(report):
    side = replace(report.answer.best, gpu_percent=81.4, joules_per_sample=1.234, mfu=0.412)
    text = markdown.render(replace(report, answer=replace(report.answer, best=side)))
    assert "| GPU utilisation | - | 81% | - |" in text
    assert "| HFU, of the device's peak FLOP/s | - | 41% | - |" in text
    assert "| Energy, per sample | - | 1.23 J | - |" in text


def test_what_a_training_costs_is_a_row_where_prices_are_said(report):
    sides = {
        name: replace(
            side, cost=Cost(Figure(hours), Figure(hours / 4, hours / 5, hours / 3), Figure(2 * hours))
        )
        for name, side, hours in (
            ("baseline", report.answer.baseline, 12.0),
            ("best", report.answer.best, 4.0),
        )
    }
    answer = replace(report.answer, **sides, prices=Prices(2.0, None, "EUR"))
    lines = markdown.render(replace(report, answer=answer)).splitlines()
    cost, kwh = (next(one for one in lines if one.startswith(f"| {name}")) for name in ("Cost", "Electr"))
    assert cost.endswith("2.00 EUR per hour | 24.00 EUR | 8.00 EUR | 0.33x |")
    assert kwh.endswith("| 3.00 kWh ± 0.80 kWh | 1.00 kWh ± 0.27 kWh | 0.33x |")
    assert not any(line.startswith("| Cost") for line in markdown.render(report).splitlines())


def test_a_baseline_that_is_the_best_stands_alone(report):
    alone = replace(report.answer, verdict="baseline", best=report.answer.baseline, commands=())
    text = markdown.render(replace(report, answer=alone))
    assert "|  | baseline |\n" in text
    assert "```" not in text


def test_without_a_result_there_is_a_sentence_and_no_table(report):
    text = markdown.render(replace(report, answer=Answer("none", "No result: why."), elsewhere=None))
    assert "No result: why." in text
    assert "|" not in text


def test_models_that_were_compared_have_a_row_each(report):
    rest = {"config": {}, "status": "completed", "reason": "", "trial": None, "samples": 100, "curve": ()}
    rest |= {"training_peak_bytes": None, "training_memory_is_rising": False, "writing_peak_bytes": None}
    compared = (
        Compared(
            "bf16",
            throughput=Figure(9.0),
            scores={"bleu_4": 0.1, "bleu_4_chance": 0.05},
            reports_per_s=2.0,
            **rest,
        ),
        Compared("fp8", throughput=None, scores={"cider": 0.3}, reports_per_s=None, **rest),
        Compared("fp16", throughput=None, scores={}, reports_per_s=None, **rest),
    )
    lines = markdown.render(replace(report, compared=compared, writes_reports=True)).splitlines()
    start = lines.index(
        "| model | BLEU-4 | CIDEr | reports/s | memory, writing | training samples/s | memory, training |"
    )
    assert lines[start + 2 : start + 6] == [
        "| bf16 | 0.1000 | - | 2.0 | - | 9.0 | - |",
        "| fp8 | - | 0.3000 | - | - | - | - |",
        "| fp16 | - | - | - | - | - | - |",
        "",
    ]


def test_a_workloads_own_tables_have_their_titles_and_no_details(report):
    text = markdown.render(replace(report, own=Made()))
    assert "| Own figures | own score |\n| --- | ---: |\n| bf16 | 0.5 |\n" in text
    assert "Own details" not in text


def test_text_from_outside_is_text(report):
    side = replace(report.answer.best, knobs=HOSTILE)
    answer = replace(
        report.answer, sentence=HOSTILE, best=side, cautions=(HOSTILE,), commands=(HOSTILE, "```")
    )
    hostile = replace(
        report, session=HOSTILE, quality=HOSTILE, answer=answer, provenance={"hardware": HOSTILE}
    )
    plain = replace(report, provenance={"hardware": "x"}, answer=replace(report.answer, cautions=("y",)))
    text = markdown.render(hostile)
    assert len(text.splitlines()) == len(markdown.render(plain).splitlines()) + 1, (
        "no line more than its command"
    )
    code = text.index("````sh")
    rest = text[:code] + text[text.index("````", code + 4) :]
    for special in "`*_[]~#!$@":
        outside = rest.replace(f"\\{special}", "").removeprefix("##").replace("````", "")
        assert special not in outside, special
    assert "<script" not in rest
    row = next(line for line in rest.splitlines() if line.startswith("| settings"))
    assert row.replace("\\|", "").count("|") == 5
