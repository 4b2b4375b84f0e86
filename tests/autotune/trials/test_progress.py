"""The measurement from a trial's records, counted as they come."""

import math
from dataclasses import replace

import pytest

from autotune.core.measurement import Metric
from autotune.core.trial import Failure, Outcome, Status
from autotune.trials.progress import Phase, Progress

COMPLETED = Outcome(Status.COMPLETED)
SCORE = Metric("bleu_4")
OF_A_LOSS = Metric("val_loss", minimize=True, unit="tokens")


@pytest.fixture
def progress():
    return Progress(SCORE, {"micro_batch_size": 4})


def train(progress, steps, start_s=0.0, samples=0, **more):
    """Counts `steps` of four samples in 0.1 s each; returns the time and the total samples."""
    for i in range(1, steps + 1):
        progress.count({"at_s": start_s + 0.1 * i, "samples": samples + 4 * i, "train_loss": 1.0, **more})
    return start_s + 0.1 * steps, samples + 4 * steps


def evaluate(progress, at_s, samples, quality, **more):
    progress.count({"at_s": at_s, "samples": samples, "bleu_4": quality, **more})


def test_before_the_first_record_there_is_nothing(progress):
    shown = progress.measurement()
    assert (shown.throughput, shown.quality, shown.curve, shown.samples) == (None, None, (), 0)
    assert (progress.evaluated_samples, progress.quality) == (0, None)


def test_every_evaluation_is_a_point_of_the_curve_and_costs_no_training(progress):
    at_s, samples = train(progress, 20)
    evaluate(progress, at_s + 5, samples, 0.1)
    at_s, samples = train(progress, 20, at_s + 5, samples)
    evaluate(progress, at_s + 5, samples, 0.2, rouge_l=0.5)
    shown = progress.measurement()
    assert [(p.samples, p.quality) for p in shown.curve] == [(80, 0.1), (160, 0.2)]
    assert [p.seconds for p in shown.curve] == [pytest.approx(1.9), pytest.approx(3.9)]
    assert (shown.quality, shown.quality_samples, shown.samples) == (0.2, 160, 160)
    assert shown.scores["rouge_l"] == 0.5
    assert shown.throughput.samples_per_s == pytest.approx(40)


def test_an_evaluation_that_is_repeated_after_a_restart_is_one_point(progress):
    at_s, samples = train(progress, 20)
    evaluate(progress, at_s, samples, 0.1)
    progress.count({"attempt": 1.0, "clock_s": 100.0})
    evaluate(progress, 100.0, samples, 0.1)
    assert [p.samples for p in progress.measurement().curve] == [80]


def test_on_another_node_the_throughput_begins_anew(progress):
    progress.count({"attempt": 1.0, "clock_s": 0.0, "node": "a"})
    at_s, samples = train(progress, 20)
    evaluate(progress, at_s, samples, 0.1)
    progress.count({"attempt": 9.0, "clock_s": 500.0, "node": "b"})
    assert progress.measurement().throughput.samples_per_s == pytest.approx(40), "until b shows one"
    for i in range(1, 21):
        progress.count({"at_s": 500 + 0.4 * i, "samples": samples + 4 * i, "train_loss": 1.0})
    evaluate(progress, 509.0, samples + 80, 0.2)
    shown = progress.measurement()
    assert (shown.node, shown.samples) == ("b", 160)
    assert shown.throughput.samples_per_s == pytest.approx(10)
    assert [p.seconds for p in shown.curve] == [pytest.approx(1.9), pytest.approx(1.9 + 7.6)]


def test_on_the_same_node_the_throughput_goes_on(progress):
    progress.count({"attempt": 1.0, "clock_s": 0.0, "node": "a"})
    train(progress, 20)
    steps = progress.measurement().throughput.steps
    progress.count({"attempt": 9.0, "clock_s": 500.0, "node": "a"})
    train(progress, 20, 500.0, 80)
    assert progress.measurement().throughput.steps > steps


def test_what_came_after_the_checkpoint_comes_again_after_a_restart(progress):
    at_s, samples = train(progress, 20)
    for further in range(3):
        evaluate(progress, at_s + further, samples + 80 * further, 0.1)
    progress.count({"attempt": 1.0, "clock_s": 100.0})
    evaluate(progress, 100.0, samples + 80, 0.2)
    assert [(p.samples, p.quality) for p in progress.measurement().curve] == [(80, 0.1), (160, 0.2)]


def test_the_time_between_attempts_does_not_count(progress):
    at_s, samples = train(progress, 20)
    progress.count({"attempt": 1.0, "clock_s": 1000.0})
    train(progress, 20, at_s + 1000, samples)
    assert progress.measurement().throughput.samples_per_s == pytest.approx(40)


def test_the_highest_memory_counts(progress):
    for peak, reserved, context in ((3, 5, 2), (4, 9, None), (None, 7, 1)):
        held = {"memory_peak_bytes": peak, "memory_peak_reserved_bytes": reserved}
        progress.count({"at_s": 0.0, "samples": 4, **held, "memory_context_bytes": context})
    shown = progress.measurement()
    assert (shown.peak_memory_bytes, shown.peak_reserved_bytes, shown.context_bytes) == (4, 9, 2)


MIB = 2**20


def test_memory_of_children_is_added_to_the_process(progress):
    train(progress, 2, memory_peak_bytes=3 * MIB, memory_children_bytes=50 * MIB)
    train(progress, 2, memory_peak_bytes=4 * MIB, memory_children_bytes=40 * MIB)
    shown = progress.measurement()
    assert (shown.peak_memory_bytes, shown.own_peak_bytes) == (54 * MIB, 4 * MIB)


def test_memory_that_a_script_reports_is_part_of_its_children(progress):
    """The tuner's own process adds to it, and a short-lived script may be gone before it is sampled."""
    train(progress, 2, memory_peak_bytes=3 * MIB, memory_script_bytes=60 * MIB)
    assert progress.measurement().peak_memory_bytes == 63 * MIB
    train(progress, 2, memory_script_bytes=60 * MIB, memory_children_bytes=70 * MIB)
    shown = progress.measurement()
    assert (shown.peak_memory_bytes, shown.own_peak_bytes) == (73 * MIB, 60 * MIB)


def test_on_a_gpu_its_allocator_alone_counts(progress):
    held = {"memory_peak_bytes": 7 * MIB, "memory_peak_reserved_bytes": 9 * MIB}
    train(progress, 2, **held, memory_children_bytes=50 * MIB)
    shown = progress.measurement()
    assert (shown.peak_memory_bytes, shown.own_peak_bytes) == (7 * MIB, 7 * MIB)
    assert shown.peak_reserved_bytes == 9 * MIB


def test_a_step_that_compiled_or_had_not_ended_is_not_timed_by_its_record(progress):
    at_s, samples = train(progress, 20)
    progress.count({"at_s": at_s + 60, "samples": samples + 4, "is_compiling": True})
    progress.count({"at_s": at_s + 60, "samples": samples + 8, "is_queued": True})
    train(progress, 20, at_s + 60, samples + 8)
    assert progress.measurement().throughput.samples_per_s == pytest.approx(40, rel=0.01)


@pytest.mark.parametrize("held", [{}, {"memory_peak_bytes": 0}, {"memory_peak_bytes": 4096}])
def test_an_implausibly_small_peak_is_not_reported(progress, held):
    train(progress, 20, **held)
    shown = progress.measurement()
    assert (shown.peak_memory_bytes, shown.memory_is_rising) == (None, False)


def hold(progress, peaks):
    """Counts a step of four samples for each of `peaks`, in MiB; returns whether memory rises."""
    for i, peak in enumerate(peaks, start=1):
        progress.count({"at_s": 0.1 * i, "samples": 4 * i, "memory_peak_bytes": int(peak * MIB)})
    return progress.measurement().memory_is_rising


@pytest.mark.parametrize(
    ("peaks", "is_rising"),
    [
        ([100 + n for n in range(30)], True),  # a leak
        ([100] * 29 + [110], True),
        ([100 + n for n in range(20)] + [119] * 10, False),  # settled before the last third
        ([100] * 29 + [101.9], False),
        ([100] * 29 + [102.5], True),
        ([100 + 0.1 * n for n in range(30)], False),  # 1% in the last third
        ([100, 110, 120, 130, 140, 150, 160, 170], False),  # too few steps
        ([], False),
    ],
)
def test_a_peak_that_grows_by_two_percent_in_the_last_third_is_rising(progress, peaks, is_rising):
    assert hold(progress, peaks) is is_rising


def test_a_leak_shows_as_a_slope_of_the_peak_without_evaluations(progress):
    hold(progress, [100 + n for n in range(31)])
    found = progress.measurement().memory_slope
    assert found.per_sample == found.low == MIB / 4
    progress.count({"at_s": 3.2, "samples": 124, "bleu_4": 0.1, "memory_peak_bytes": 900 * MIB})
    for i in range(33, 93):
        progress.count({"at_s": 0.1 * i, "samples": 4 * i, "memory_peak_bytes": (900 + i) * MIB})
    assert progress.measurement().memory_slope.per_sample == pytest.approx(MIB / 4, rel=0.1)


def test_the_operations_of_a_step_are_those_of_its_samples_and_of_no_evaluation(progress):
    train(progress, 2)
    assert progress.measurement().flops_per_sample == {}
    progress.count({"at_s": 0.3, "samples": 12, "step_flops": {"bf16": 400, "fp32": 80}})
    progress.count({"at_s": 0.4, "samples": 16, "step_flops": {"bf16": 480}})
    evaluate(progress, 0.5, 16, 0.1)
    progress.count({"at_s": 0.6, "samples": 20, "step_flops": {"bf16": 10**6}})
    progress.count({"at_s": 0.7, "samples": 20, "step_flops": {"bf16": 10**6}})
    progress.count({"at_s": 0.8, "samples": 24, "step_flops": "many"})
    assert progress.measurement().flops_per_sample == {"bf16": 110, "fp32": 10}


def test_the_phases_of_a_step_whose_operations_are_counted_do_not_count(progress):
    train(progress, 2, forward_s=1.0, data_s=3.0)
    progress.count({"at_s": 9.0, "samples": 12, "step_flops": {"fp32": 4}, "forward_s": 6.0, "data_s": 0.0})
    shares = progress.measurement().step_shares
    assert (shares["forward_s"], shares["data_s"]) == (0.25, 0.75)


def test_a_new_process_has_a_slope_of_its_own(progress):
    hold(progress, [100 + n for n in range(60)])
    progress.restart()
    assert progress.measurement().memory_slope is None
    hold(progress, [100] * 60)
    assert progress.measurement().memory_slope.per_sample == 0


def test_memory_of_an_evaluation_and_of_the_step_after_it_is_no_rise(progress):
    at_s, samples = train(progress, 30, memory_peak_bytes=100 * MIB)
    evaluate(progress, at_s + 1, samples, 0.1, memory_peak_bytes=150 * MIB)
    train(progress, 1, at_s + 1, samples, memory_peak_bytes=180 * MIB)
    assert not progress.measurement().memory_is_rising
    train(progress, 2, at_s + 2, samples + 4, memory_peak_bytes=200 * MIB)
    assert progress.measurement().memory_is_rising


def test_children_that_grow_make_the_peak_rise(progress):
    train(progress, 28, memory_peak_bytes=2 * MIB, memory_children_bytes=100 * MIB)
    train(progress, 2, 3.0, 112, memory_peak_bytes=2.5 * MIB, memory_children_bytes=100 * MIB)
    assert not progress.measurement().memory_is_rising, "half a MiB of 102"
    train(progress, 2, 4.0, 120, memory_peak_bytes=2.5 * MIB, memory_children_bytes=120 * MIB)
    assert progress.measurement().memory_is_rising


def test_the_phases_are_shares_of_a_step(progress):
    train(progress, 4, forward_s=0.03, backward_s=0.01)
    shares = progress.measurement().step_shares
    assert shares == pytest.approx(
        {"forward_s": 0.75, "backward_s": 0.25, "data_s": 0, "transfer_s": 0, "optimizer_s": 0}
    )


@pytest.mark.parametrize("quality", [math.nan, math.inf, "good", None, True])
def test_a_quality_that_is_no_number_is_a_failure(progress, quality):
    train(progress, 20)
    evaluate(progress, 2.0, 80, quality)
    verdict = progress.conclude(COMPLETED)
    assert (verdict.status, verdict.failure) == (Status.FAILED, Failure.ERROR)
    assert verdict.reason == f"bleu_4 is not a number after 80 samples, got {quality!r}"


def test_processes_that_share_the_batch_of_one_are_a_fault_of_the_trial():
    """As with Accelerate's `split_batches`, or a launcher that starts one process instead of two."""
    shares = Progress(SCORE, {"micro_batch_size": 4, "processes": 2})
    time_s, samples = train(shares, 4)
    assert shares.fault(1000, is_first=True) is None
    train(shares, 1, time_s, samples)
    assert "a step trains 4 samples, but 2 processes with these settings would train 8" in shares.fault(
        1000, is_first=True
    )
    assert shares.fault(1000, is_first=False) is None


@pytest.mark.parametrize("settings", [{"micro_batch_size": 2, "processes": 2}, {"micro_batch_size": 4}])
def test_processes_that_train_their_own_batches_are_none(settings):
    trained = Progress(SCORE, settings)
    time_s, samples = train(trained, 20)
    trained.count({"at_s": time_s + 1, "samples": samples + 2})  # the last batch of an epoch
    assert trained.fault(1000, is_first=True) is None


def test_a_trial_far_beyond_its_end_without_an_evaluation_is_a_fault(progress):
    train(progress, 99)
    assert progress.fault(100, is_first=False) is None
    train(progress, 1, 10, 4 * 99)
    assert "no record has bleu_4 after 400 samples" in progress.fault(100, is_first=False)


def test_without_an_evaluation_nothing_is_complete(progress):
    train(progress, 20)
    assert "without a record that has bleu_4" in progress.conclude(COMPLETED).reason


def test_a_verdict_stands_with_a_quality_or_after_a_failure(progress):
    oom = Outcome(Status.FAILED, Failure.OOM, "x")
    assert progress.conclude(oom) == oom
    train(progress, 20)
    evaluate(progress, 2.0, 80, 0.1)
    assert progress.conclude(COMPLETED) == COMPLETED


def test_the_phases_of_a_trial_follow_from_its_records(progress):
    assert progress.phase(silent_s=1000.0) is Phase.START, "before its first record there is nothing to miss"
    train(progress, 1)
    assert progress.phase(0.0) is Phase.WARM_UP
    at_s, samples = train(progress, 3, start_s=0.1, samples=4)
    assert progress.phase(0.0) is Phase.MEASURING
    for i in range(12):
        at_s, samples = at_s + 0.05 * (1 + i), samples + 4
        progress.count({"at_s": at_s, "samples": samples, "train_loss": 1.0})
    assert progress.phase(0.0) is Phase.MEASURING, "its interval is still wide"
    train(progress, 4000, start_s=at_s, samples=samples)
    assert progress.phase(0.0) is Phase.TRAINING


def test_the_speed_is_known_once_it_is_narrow_and_an_evaluation_was_seen(progress):
    at_s, samples = train(progress, 20)
    assert not progress.has_known_speed(), "what an evaluation takes of the memory is not"
    evaluate(progress, at_s + 5, samples, 0.1)
    assert progress.has_known_speed()


def test_a_speed_that_scatters_is_not_known(progress):
    at_s = 0.0
    for step in range(1, 21):
        at_s += 0.1 if step % 4 else 1.0
        progress.count({"at_s": at_s, "samples": 4 * step})
    evaluate(progress, at_s + 5, 80, 0.1)
    assert not progress.has_known_speed()


def test_silence_of_many_steps_is_taken_for_an_evaluation(progress):
    at_s, samples = train(progress, 40)
    assert progress.phase(1.9) is Phase.TRAINING, "a step of milliseconds is late for any reason"
    assert progress.phase(2.1) is Phase.EVALUATING
    evaluate(progress, at_s + 5, samples, 0.1)
    assert progress.phase(0.0) is Phase.TRAINING


def test_silence_is_measured_in_steps_if_they_are_long():
    slow = Progress(SCORE, {})
    for i in range(10):
        slow.count({"at_s": 30.0 * i, "samples": 4 * i, "train_loss": 1.0})
    assert slow.phase(200.0) is Phase.TRAINING
    assert slow.phase(301.0) is Phase.EVALUATING


def test_a_new_attempt_starts_anew(progress):
    train(progress, 40)
    progress.restart()
    assert progress.phase(0.0) is Phase.START


def test_an_evaluations_chance_and_collapse_are_on_its_point(progress):
    train(progress, 4)
    evaluate(progress, 1.0, 16, 0.1)
    evaluate(progress, 2.0, 32, 0.2, bleu_4_chance=0.15, collapsed=True)
    evaluate(progress, 3.0, 48, 0.3, bleu_4_chance="high", collapsed="yes")
    points = progress.measurement().curve
    assert [(p.chance, p.collapsed) for p in points] == [(None, False), (0.15, True), (None, False)]


def test_items_are_averaged_over_the_last_evaluations(progress):
    train(progress, 4)
    for number in range(1, 9):
        evaluate(progress, number, 16 * number, 0.1, bleu_4_items=[0.1 * number, 0.2])
    assert progress.measurement().items == (pytest.approx(0.75), pytest.approx(0.2))
    assert "bleu_4_items" not in progress.measurement().scores


@pytest.mark.parametrize(
    "items", [None, "0.1", [], [0.1, None], [0.1, "0.2"], [0.1, math.nan], [True], {"0": 0.1}]
)
def test_items_that_are_no_numbers_are_left_out(progress, items):
    train(progress, 4)
    evaluate(progress, 1.0, 16, 0.1, bleu_4_items=items)
    assert progress.measurement().items == ()
    assert progress.measurement().quality == 0.1


def test_items_of_varying_number_are_left_out(progress):
    train(progress, 4)
    for number in range(1, 9):
        evaluate(progress, number, 16 * number, 0.1, bleu_4_items=[0.1] * number)
    assert progress.measurement().items == ()


def test_an_evaluation_that_is_repeated_after_a_restart_has_its_items_once(progress):
    train(progress, 4)
    evaluate(progress, 1.0, 16, 0.1, bleu_4_items=[0.1, 0.3])
    progress.restart()
    evaluate(progress, 9.0, 16, 0.2, bleu_4_items=[0.2, 0.4])
    assert progress.measurement().items == (0.2, 0.4)


def test_a_loss_is_negated_on_its_point_and_unchanged_in_the_scores():
    progress = Progress(OF_A_LOSS, {"micro_batch_size": 4})
    at_s, samples = train(progress, 20, tokens=4)
    said = {"val_loss_chance": 6.5, "val_loss_items": [3.0, 2.0, 0.0]}
    progress.count({"at_s": at_s, "samples": samples, "tokens": samples, "val_loss": 2.5, **said})
    shown = progress.measurement()
    assert [(p.samples, p.quality, p.chance) for p in shown.curve] == [(80, -2.5, -6.5)]
    assert (shown.quality, shown.items) == (-2.5, (-3.0, -2.0, 0.0))
    assert (shown.scores["val_loss"], shown.scores["val_loss_chance"]) == (2.5, 6.5)
    assert "tokens" not in shown.scores, "they are the samples"
    assert progress.conclude(COMPLETED) == COMPLETED


def test_a_missing_quality_is_reported_in_the_unit_of_work():
    progress = Progress(OF_A_LOSS, {"micro_batch_size": 4})
    progress.count({"at_s": 1.0, "samples": 8, "val_loss": math.nan})
    reason = "val_loss is not a number after 8 tokens, got nan"
    assert progress.conclude(COMPLETED).reason == reason


@pytest.mark.parametrize(("every", "samples_per_s"), [(None, 400 / 20), (80, 400 / 35), (400, 400 / 15)])
def test_evaluations_count_for_the_speed_as_often_as_in_the_real_training(every, samples_per_s):
    """400 samples take 10 s, an evaluation 5 s; the trial evaluates every 200, 80 or 400 samples."""
    counted = Progress(replace(SCORE, counts_evaluations=True, samples_per_evaluation=every), {})
    at_s, samples = 0.0, 0
    for taken_s in (5.0, 5.0):
        assert counted.measurement().throughput is None or samples
        at_s, samples = train(counted, 50, at_s, samples)
        at_s += taken_s
        evaluate(counted, at_s, samples, 0.1)
    assert counted.measurement().throughput.samples_per_s == pytest.approx(samples_per_s)
    assert counted.measurement().outside.evaluation_s == pytest.approx(5.0)
    assert counted.conclude(COMPLETED) == COMPLETED


def test_the_live_figures_agree_with_the_final_ones(progress):
    at_s, samples = train(progress, 30, memory_peak_bytes=10 * MIB)
    evaluate(progress, at_s + 1, samples, 0.1, bleu_4_items=[0.1] * 5)
    shown, whole = progress.live_measurement(), progress.measurement()
    assert shown.throughput == whole.throughput is not None
    assert (shown.quality, shown.samples, shown.peak_memory_bytes) == (0.1, samples, 10 * MIB)
    assert (shown.curve, shown.items) == ((), ())
    assert len(whole.items) == 5


def test_an_evaluation_before_the_first_step_is_the_start_and_no_point_of_the_curve(progress):
    evaluate(progress, 0.0, 0, 0.01)
    at_s, samples = train(progress, 20)
    evaluate(progress, at_s, samples, 0.1)
    shown = progress.measurement()
    assert (shown.start, [p.samples for p in shown.curve]) == (0.01, [80])
    assert shown.quality == 0.1


def test_a_loss_before_the_first_step_has_its_sign_turned_as_every_other_one():
    progress = Progress(OF_A_LOSS, {"micro_batch_size": 4})
    progress.count({"at_s": 0.0, "samples": 0, "tokens": 0, "val_loss": 9.0})
    assert progress.measurement().start == -9.0


@pytest.mark.parametrize(
    ("trained", "seen", "planned", "why_not"),
    [
        (20, 20, 0, None),
        (20, 20, 80, None),
        (21, 20, 0, None),  # an epoch may drop a batch
        (
            20,
            20,
            160,
            "the training ended after 80 samples, and was planned for 160: the settings of the length",
        ),
        (
            40,
            20,
            0,
            "the training ended after 160 samples, and was last evaluated after 80: have it evaluated",
        ),
    ],
)
def test_a_training_that_ends_itself_is_whole_if_it_was_evaluated_there(
    progress, trained, seen, planned, why_not
):
    at_s, samples = train(progress, seen)
    evaluate(progress, at_s, samples, 0.1)
    train(progress, trained - seen, at_s, samples)
    found = progress.incompleteness(planned)
    assert found is None if why_not is None else found.startswith(why_not)


def test_the_end_of_a_workload_by_itself_is_noted(progress):
    assert not progress.measurement().ended
    progress.ended = True
    assert progress.measurement().ended


@pytest.mark.parametrize(
    ("losses", "first", "start"),
    [
        ([9.2, 7.0, 6.4], 6.6, -9.2),
        ([9.2, 7.0, 6.4], 2.0, None),  # a different loss from that of the steps
        ([6.4, 6.4], 6.6, None),  # no evidence of a gain
        ([], 6.6, None),
    ],
)
def test_a_loss_starts_at_the_first_steps(losses, first, start):
    progress = Progress(Metric("val_loss", minimize=True), {"micro_batch_size": 4})
    for i, loss in enumerate(losses, start=1):
        progress.count({"at_s": 0.1 * i, "samples": 4 * i, "train_loss": loss})
    progress.count({"at_s": 5.0, "samples": 40, "val_loss": first})
    progress.count({"at_s": 5.1, "samples": 44, "train_loss": 20.0})
    progress.count({"at_s": 6.0, "samples": 44, "val_loss": first})
    assert progress.measurement().start == start


def test_an_evaluation_before_the_first_step_overrides_its_loss_as_the_start():
    progress = Progress(Metric("val_loss", minimize=True), {"micro_batch_size": 4})
    progress.count({"at_s": 0.0, "samples": 0, "val_loss": 8.0})
    progress.count({"at_s": 0.1, "samples": 4, "train_loss": 9.2})
    progress.count({"at_s": 0.2, "samples": 8, "val_loss": 9.0})
    assert progress.measurement().start == -8.0


def test_an_end_long_after_the_last_evaluation_is_reported():
    progress = Progress(SCORE, {"micro_batch_size": 4})
    at_s, samples = train(progress, 10)
    evaluate(progress, at_s, samples, 0.1)
    train(progress, 10, at_s, samples)
    assert progress.incompleteness(80) == (
        "the training ended after 80 samples, and was last evaluated after 40: have it evaluated at its end"
    )
    assert "was planned for 160" in progress.incompleteness(160)


def test_a_short_training_may_be_evaluated_a_step_before_its_end():
    progress = Progress(SCORE, {"micro_batch_size": 4})
    at_s, samples = train(progress, 10)
    evaluate(progress, at_s, samples, 0.1)
    train(progress, 1, at_s, samples)
    assert progress.incompleteness(44) is None
