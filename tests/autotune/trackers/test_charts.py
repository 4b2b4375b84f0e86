import pytest

from autotune.core.measurement import Measurement, Metric, Throughput
from autotune.core.trial import Failure, Outcome, Status
from autotune.trackers import charts
from autotune.trials.progress import Phase
from autotune.trials.report import TrialReport

QUALITY = "bleu_4"
METRIC = Metric(QUALITY)
TRAINING = {
    "at_s": 50.0,
    "samples": 64,
    "train_loss": 2.5,
    "learning_rate": 1e-4,
    "grad_norm": 0.7,
    "data_s": 0.1,
    "forward_s": 0.2,
    "backward_s": 0.3,
    "optimizer_s": 0.05,
    "memory_allocated_bytes": 1000,
    "memory_peak_bytes": 3000,
    "stands_for": 8,
    "trained_parameters": 900,
    "note": "text is not charted",
    "finished": False,
}
EVALUATION = {"at_s": 52.0, "samples": 64, "bleu_1": 0.4, "bleu_4": 0.16, "meteor": 0.2, "val_loss": 2.0}


def test_a_training_record_is_charted_by_group() -> None:
    assert charts.metrics(TRAINING, METRIC) == {
        "samples": 64.0,
        "train/loss": 2.5,
        "train/learning_rate": 1e-4,
        "train/grad_norm": 0.7,
        "perf/data_s": 0.1,
        "perf/forward_s": 0.2,
        "perf/backward_s": 0.3,
        "perf/optimizer_s": 0.05,
        "memory/allocated_bytes": 1000.0,
        "memory/peak_bytes": 3000.0,
    }


def test_scores_are_validations() -> None:
    assert charts.metrics(EVALUATION, METRIC) == {
        "samples": 64.0,
        "val/bleu_1": 0.4,
        "val/bleu_4": 0.16,
        "val/meteor": 0.2,
        "val/loss": 2.0,
    }


def test_a_metric_unknown_by_name_follows_its_record() -> None:
    assert charts.metrics({"train_loss": 1.0, "accuracy": 0.5}, METRIC)["train/accuracy"] == 0.5
    assert charts.metrics({"accuracy": 0.5}, METRIC) == {"val/accuracy": 0.5}


def test_a_record_with_the_quality_is_an_evaluation_whatever_else_it_has() -> None:
    records = tuple({"samples": n, "train_loss": 1.0, "bleu_4": n / 100, "other": 2.0} for n in (8, 16))
    found = charts.rows(TrialReport(3, Phase.TRAINING, 1.0, records=records), METRIC)
    assert found[0] == {
        "samples": 8.0,
        "seconds": 1.0,
        "train/loss": 1.0,
        "val/bleu_4": 0.08,
        "val/other": 2.0,
    }
    assert [row.get(charts.score(QUALITY)) for row in charts.thin(found)] == [0.08, 0.16, None]
    scores = {"samples": 16.0, "train_loss": 1.0, "bleu_4": 0.16}
    shown = charts.summary(Outcome(Status.COMPLETED), Measurement(scores=scores), METRIC)
    assert (shown["val/bleu_4"], shown["train/loss"]) == (0.16, 1.0)


def test_a_report_is_a_row_for_each_record_at_its_own_second_and_one_for_the_trial() -> None:
    telemetry = {"gpu_power_w": 250.0, "cpu_percent": 180.0, "host_rss_bytes": 7.0}
    shown = Measurement(samples=64)
    report = TrialReport(3, Phase.TRAINING, 12.0, shown, (TRAINING, EVALUATION), telemetry)
    first, second, whole = charts.rows(report, METRIC)
    assert first["seconds"] == pytest.approx(10.0)
    assert first["train/loss"] == 2.5
    assert second["seconds"] == pytest.approx(12.0)
    assert second["val/bleu_4"] == 0.16
    assert whole == {
        "samples": 64.0,
        "seconds": 12.0,
        "gpu/power_w": 250.0,
        "system/cpu_percent": 180.0,
        "system/host_rss_bytes": 7.0,
    }


def test_a_report_without_records_is_one_row() -> None:
    shown = Measurement(throughput=Throughput(4.5, None, 9, 9.0))
    assert charts.rows(TrialReport(3, Phase.TRAINING, 1.0, shown), METRIC) == [
        {"samples": 0.0, "seconds": 1.0, "perf/throughput": 4.5, "perf/steps_per_s": 1.0}
    ]


def test_the_flops_of_the_device_are_charted_if_known() -> None:
    speed = Throughput(10.0, None, 5, 5.0)
    counted = Measurement(throughput=speed, flops_per_sample={"bf16": 3e12, "fp32": 1e12}, mfu=0.4)
    (row,) = charts.rows(TrialReport(3, Phase.TRAINING, 1.0, counted), METRIC)
    assert row["perf/tflops_per_s"] == 40.0
    assert row["perf/hfu"] == 0.4
    (row,) = charts.rows(TrialReport(3, Phase.TRAINING, 1.0, Measurement(throughput=speed)), METRIC)
    assert row.keys() == {"samples", "seconds", "perf/throughput", "perf/steps_per_s"}


def test_the_summary_is_the_whole_trials() -> None:
    measurement = Measurement(
        throughput=Throughput(31.0, 0.5, 90, 60.0),
        samples=2000,
        peak_memory_bytes=3000,
        memory_limit_bytes=4000,
        memory_is_rising=True,
        trained_parameters=900,
        scores={"samples": 1800.0, "bleu_4": 0.17},  # as in an evaluation's record
        telemetry={"gpu_energy_j": 5000.0},
    )
    assert charts.summary(Outcome(Status.COMPLETED), measurement, METRIC) == {
        "status": "completed",
        "failure": "",
        "stopped_for": "",
        "reason": "",
        "perf/throughput": 31.0,
        "perf/steps_per_s": 1.5,
        "samples": 2000.0,
        "memory/peak_bytes": 3000.0,
        "memory/peak_share": 0.75,
        "memory/is_rising": True,
        "trained_parameters": 900,
        "val/bleu_4": 0.17,
        "gpu/energy_j": 5000.0,
    }


def test_a_failures_summary_has_its_reason_without_the_users_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    outcome = Outcome(Status.FAILED, Failure.OOM, "see /home/somebody/runs/1/log")
    assert charts.summary(outcome, None, METRIC) == {
        "status": "failed",
        "failure": "oom",
        "stopped_for": "",
        "reason": "see ~/runs/1/log",
    }


def test_each_of_several_gpus_has_charts_of_its_own() -> None:
    seen = {"gpu_power_w": 500.0, "gpu_0_power_w": 300.0, "gpu_11_memory_clock_mhz": 2619.0}
    assert charts.metrics(seen, METRIC) == {
        "gpu/power_w": 500.0,
        "gpu/0/power_w": 300.0,
        "gpu/11/memory_clock_mhz": 2619.0,
    }


def test_a_score_has_the_same_chart_name_everywhere() -> None:
    for name in ("val_loss", "bleu_4"):
        assert charts.metrics({name: 2.5}, Metric(name)) == {charts.score(name): 2.5}


def test_tokens_are_the_axis_if_they_are_the_unit() -> None:
    record = {"samples": 2048, "tokens": 2048, "train_loss": 2.5}
    assert charts.metrics(record, Metric(QUALITY, unit="tokens")) == {"tokens": 2048.0, "train/loss": 2.5}
    assert charts.axes("tokens").keys() == {"tokens", "seconds"}
    shown = Measurement(throughput=Throughput(4.5, None, 9, 9.0), samples=64)
    (row,) = charts.rows(TrialReport(3, Phase.TRAINING, 1.0, shown), Metric(QUALITY, unit="tokens"))
    assert row == {"tokens": 64.0, "seconds": 1.0, "perf/throughput": 4.5, "perf/steps_per_s": 1.0}
