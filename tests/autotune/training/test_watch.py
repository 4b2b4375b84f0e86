"""The messages about a training while it runs."""

import random
import re
from dataclasses import replace

import pytest

from autotune.core.measurement import Measurement, Metric
from autotune.training.events import Kind
from autotune.training.watch import MicroBatch, Watch
from autotune.trials.progress import Phase
from autotune.trials.report import TrialReport

LENGTH = {"samples": 10**7, "epoch": 1000}
MIB = 2**20


def reports(
    seconds, *, begun=0, rate=lambda s: 100.0, held=lambda s: 500 * MIB, free=8 * 2**30, seen=lambda s: {}
):
    """Yields a report of two steps every second, with an evaluation every 200 s."""
    rng, samples, at_s = random.Random(0), begun, 0.0
    for second in range(seconds):
        records = []
        for _ in range(2):
            at_s += 0.5
            samples += round(rate(second) * 0.5 * rng.uniform(0.98, 1.02))
            records.append({"samples": samples, "at_s": at_s, "data_s": 0.1, "forward_s": 0.4})
        if second % 200 == 199:
            at_s += 20
            records.append({"samples": samples, "at_s": at_s, "score": 0.5})
        telemetry = {"host_rss_bytes": held(second), "host_memory_free_bytes": free, **seen(second)}
        yield TrialReport(0, Phase.TRAINING, at_s, Measurement(samples=samples), tuple(records), telemetry)


def heard(told, length=LENGTH):
    watch = Watch(Metric("score"), **length)
    return [(report.samples, said) for report in told for said in watch.hear(report)]


def test_a_steady_training_has_no_messages():
    assert heard(reports(4000)) == []


def test_a_neighbour_is_reported_once_by_name():
    found = heard(
        reports(
            5400,
            rate=lambda s: 100.0 if s < 2000 else 60.0,
            seen=lambda s: {"others_cpu_percent": 0.0 if s < 2000 else 95.0, "allowed_cpus": 2.0},
        )
    )
    ((samples, said),) = found
    assert (said.kind, "likely because of other programs" in said.text) == (Kind.DRIFT, True)
    assert "40% slower" in said.text
    assert 200_000 < samples < 300_000  # within half an hour of the change


def test_the_recent_speed_is_current():
    """A neighbour that comes after an hour is noticed within minutes, unlike in the mean speed."""
    watch = Watch(Metric("score"), **LENGTH)
    assert watch.recent_per_s is None
    for report in reports(4000, rate=lambda s: 100.0 if s < 3600 else 10.0):
        watch.hear(report)
    assert watch.recent_per_s == pytest.approx(10.0, rel=0.05)


def leaking(per_sample):
    """Yields reports of 100 samples a second; free memory shrinks by the leak."""
    for r in reports(600):
        grown = per_sample * 100 * r.elapsed_s
        telemetry = {
            "host_rss_bytes": 500 * MIB + grown,
            "host_memory_free_bytes": 8 * 2**30 - grown,
        }
        yield replace(r, telemetry=telemetry)


@pytest.mark.parametrize("per_sample", [10_000.0, 100_000.0])
def test_a_leak_is_reported_with_the_point_at_which_memory_is_full(per_sample):
    found = heard(leaking(per_sample))
    assert [said.kind for _, said in found] == [Kind.LEAK]
    assert found[0][1].text.startswith("use of the host's memory grows by ")
    assert found[0][1].text.endswith(", before the training ends")
    said_full = float(found[0][1].text.partition("full after ")[2].split()[0].replace(",", ""))
    assert said_full == pytest.approx(8 * 2**30 / per_sample, rel=0.2)


def test_a_training_of_unknown_length_is_warned_before_memory_is_full():
    """The warning comes before half of the memory is lost."""
    found = heard(leaking(100_000.0), {"samples": None, "epoch": None})
    ((samples, said),) = found
    at_this_slope = r"full after ([\d,]+) samples, in about (\d+)m (\d+)s of training$"
    said_full, minutes, seconds = (
        int(part.replace(",", "")) for part in re.search(at_this_slope, said.text).groups()
    )
    full = 8 * 2**30 / 100_000
    assert said_full == pytest.approx(full, rel=0.2)
    assert 60 * minutes + seconds == pytest.approx((full - samples) / 100, rel=0.2)
    assert full / 5 < samples < full / 2
    assert heard(leaking(1000.0), {"samples": None, "epoch": None}) == []


def test_a_leak_that_does_not_fill_memory_is_not_reported():
    told = reports(600, held=lambda s: 500 * MIB + 1000 * s)
    assert heard(told) == []


def test_growth_within_the_first_epoch_is_not_reported():
    told = reports(600, held=lambda s: 500 * MIB + 10 * MIB * s)
    assert heard(told, LENGTH | {"epoch": 10**6}) == []


def test_a_resumed_process_gets_an_epoch_to_fill_its_caches():
    growing = {"begun": 5 * 10**6, "held": lambda s: 500 * MIB + 10 * MIB * s}
    length = LENGTH | {"epoch": 20_000}
    assert heard(reports(180, **growing), length) == []
    ((samples, said),) = heard(reports(300, **growing), length)
    assert said.kind is Kind.LEAK
    assert samples > 5 * 10**6 + 20_000


def heard_of(records):
    watch = Watch(Metric("score"), **LENGTH)
    return [s for r in records for s in watch.hear(TrialReport(0, Phase.TRAINING, 0.0, records=(r,)))]


@pytest.mark.parametrize(("beside", "trained"), [({"val_loss": 1.0}, 0), ({"is_compiling": True}, 200)])
def test_only_steps_count_for_the_speed(beside, trained):
    """Each step of 12 s is a window; a pause of 30 s between them, such as an evaluation, is not."""
    records, samples, at_s = [], 0, 0.0
    for step in range(240):
        samples, at_s = samples + 1200, at_s + 12.0
        records.append({"samples": samples, "at_s": at_s})
        if step >= 120:
            samples, at_s = samples + trained, at_s + 30.0
            records.append({"samples": samples, "at_s": at_s, **beside})
    assert heard_of(records) == []


SETTINGS = {"micro_batch_size": 16, "accumulation_steps": 2}
BY_16, BY_8, BY_4 = (f"batch 32 ({32 // n} x {n} accumulated)" for n in (16, 8, 4))


@pytest.mark.parametrize(
    ("settings", "sizes", "said"),
    [
        (
            SETTINGS,
            [None, 8, 8, None, 8, 4, None, 4],
            [f"{BY_8} instead of {BY_16}", f"{BY_4} instead of {BY_8}"],
        ),
        (SETTINGS, [16, 16], []),
        (SETTINGS, [8, 8, 16, 16, 8, 8], [f"{BY_8} instead of {BY_16}"]),
        (SETTINGS, [16, 11, 16, 16, 11, 16], []),  # the last batch of an epoch is smaller
        (SETTINGS, [0, 0, -1, -1, "8", "8", float("nan"), float("nan"), True, True], []),
        ({"micro_batch_size": 5}, [3, 3], ["batch 6 (2 x 3 accumulated) instead of batch 5"]),
        ({"learning_rate": 1e-3}, [8, 8], []),
    ],
)
def test_a_smaller_micro_batch_is_reported_once(settings, sizes, said):
    known = MicroBatch(settings)
    records = [{"samples": 1} if size is None else {"samples": 1, "micro_batch_size": size} for size in sizes]
    told = [text for record in records if (text := known.hear(record))]
    assert told == [
        f"the trainer halved its micro-batch to {one}; batch norms see smaller batches" for one in said
    ]
