from dataclasses import replace
from functools import partial

import pytest

from autotune.core.measurement import Outside, Slope
from autotune.core.trial import Repeat
from autotune.display import rows, view
from autotune.judging.decisions import claims, confirm
from autotune.judging.decisions.history import History
from autotune.space.sections import Objective, Training
from autotune.workloads.base import Workload
from autotune.workloads.command.workload import CommandWorkload


@pytest.fixture
def workload():
    return Workload("some.module:fit")


def test_knobs_are_abbreviated():
    config = {"micro_batch_size": 16, "accumulation_steps": 2, "precision": "bf16", "num_workers": 2}
    config["learning_rate"] = 1.234e-4
    assert view.knobs(config) == "batch 32 (2 x 16 accumulated) bf16 workers 2 lr 0.00012"
    assert view.knobs({"x": True, "y": False, "z": 0}) == "x z 0"


def test_a_search_for_speed_alone_promises_no_quality(make_trial, space):
    free = space.revised(objective={"keep": 0})
    assert view.promise(History([make_trial(0, 1, 1)], free)) == (
        "Goal: the shortest training, whatever its bleu_4."
    )


def test_control_characters_never_reach_the_terminal():
    assert view.printable("a\x1b[2Jb\r\nc\u202e") == "a [2Jb  c "
    assert "\x1b" not in view.knobs({"name": "\x1b[31mred"})


def test_trials_are_counted_by_how_they_ended(make_trial):
    trials = [make_trial(0, 1, 1), make_trial(1, failure="oom"), make_trial(2, failure="error")]
    assert view.counts(trials) == "3 trials: 1 completed, 1 out of memory, 1 failed otherwise"
    trials += [make_trial(3, 1, stopped=True), make_trial(4, 1, 1, repeat=Repeat(0, 1))]
    assert view.counts([]) == "0 trials: none ended"
    running = replace(make_trial(5), outcome=None)
    assert view.counts([*trials, running], "running") == (
        "5 trials: 1 completed, 1 stopped early, 1 out of memory, 1 failed otherwise, 1 running; "
        "also 1 run with another seed"
    )
    assert view.counts([*trials, make_trial(6, 1, ablation_of=3)]).endswith(
        "; also 1 run with another seed, 1 ablation run"
    )
    steps = [make_trial(number, 1, ablation_of=3) for number in (6, 7)]
    assert view.counts([trials[0], *steps]) == "1 trial: 1 completed; also 2 ablation runs"


def test_out_of_time_counts_the_trials(make_trial):
    again = make_trial(1, 1, 1, repeat=Repeat(0, 0))
    trials = [make_trial(0, 1, 1), again, make_trial(2, failure="oom")]
    running = replace(make_trial(3), outcome=None)
    out_of_time = partial(view.out_of_time, is_confirmed=False)
    assert out_of_time([*trials, running], 40) == "Out of time after 2 of 40 trials."
    assert out_of_time(trials[:1], 40) == "Out of time after 1 of 40 trials."
    assert out_of_time(trials[:1], 1) == "Out of time after 1 trial, before the winner was confirmed."
    assert out_of_time([running], 40) == "Out of time before any trial ended."
    ended = view.out_of_time(trials[:1], 1, is_confirmed=True)
    assert ended == "Out of time after 1 trial, after the winner was confirmed."


@pytest.fixture
def unrepeated(space):
    return space.revised(budget={"repeats": 0})


def test_an_unconfirmed_gain_is_one_line_with_the_command_that_confirms_it(
    make_trial, space, workload, tmp_path
):
    history = History([make_trial(0, 20, 0.16), make_trial(1, 60, 0.155, x=1)], space)
    *before, line = view.summary(history, workload, tmp_path / "s", "resume s --time 20m")
    assert line == "Possibly 3.0x faster, not confirmed. To confirm it: resume s --time 20m"
    assert before == [view.promise(history)]
    assert view.summary(history, workload, tmp_path / "s")[-1] == "Possibly 3.0x faster, not confirmed"


def test_an_unknown_gain_is_called_unknown(make_trial, space):
    trials = [make_trial(0, 10, curve=[0.2]), make_trial(1, None, curve=[0.1], x=1)]
    history = History(trials, space.revised(objective={"target": 0.2}))
    assert view.gain(history.trial(1), history) == "gain over the baseline unknown"


def test_the_summary_states_the_factor_both_qualities_and_what_to_run(
    make_trial, unrepeated, workload, tmp_path
):
    trials = [make_trial(0, 20, 0.16), make_trial(1, 60, 0.155, x=1), make_trial(2, 90, 0.1, x=2)]
    text = "\n".join(view.summary(History(trials, unrepeated), workload, tmp_path / "s"))
    assert "Best, not confirmed: trial 1" in text
    assert "3.00x faster, 60.0 samples/s instead of 20.0" in text
    assert "bleu_4 0.1550 instead of 0.1600" in text
    assert "Not confirmed: the trial and the baseline ran once, over 20,000 samples each." in text
    assert f"python -m autotune export {tmp_path / 's'} -o best.yaml" in text


@pytest.fixture
def searched_command(confirming, make_trial, space, tmp_path, monkeypatch):
    """Returns a history with a confirmed winner, and the command that was searched."""
    monkeypatch.chdir(tmp_path)
    run = "python train.py -b {micro_batch_size} --precision {precision}"
    run += " --lr {learning_rate} -j {num_workers}"
    values = {"kind": "command", "run": run, "directory": ".", "quality": {"bleu_4": "bleu (.*)"}}
    learning = {"accumulation_steps": 1, "num_workers": 2, "learning_rate": 1e-4}
    trials = [make_trial(0, 20, 0.2, half_width=0.1, **learning)]
    faster = {**learning, "micro_batch_size": 32, "learning_rate": 2e-4}
    trials.append(make_trial(1, 60, 0.2, half_width=0.1, **faster))
    history = History([*trials, *confirming(trials, 1)], space)
    return history, CommandWorkload.parse(values, tmp_path)


def test_the_answer_has_the_users_command_and_the_changes(searched_command, tmp_path):
    history, command = searched_command
    text = view.summary(history, command, tmp_path / "s")
    at = text.index("Your command:")
    assert text[at + 1 : at + 4] == [
        "  python train.py -b 32 --precision fp32 --lr 0.0002 -j 2",
        "  # micro_batch_size 32, was 16 (3.00x)",
        "  # learning_rate 0.0002, was 0.0001",
    ]


def test_the_answer_says_when_the_search_has_paid(searched_command, tmp_path):
    """Nine trials take 10 s each; a training of 20,000 samples takes 1000 s, and a third with the winner."""
    history, command = searched_command
    saved = "The trials took 1m 30s. Each training saves 11m 07s"
    paid = f"{saved}, so the search pays off after 1 training, or in one of 2m 15s."
    assert paid in view.summary(history, command, tmp_path / "s")


def test_the_summary_claims_nothing_when_the_baseline_is_best(make_trial, space, workload, tmp_path):
    trials = [make_trial(0, 20, 0.16), make_trial(1, 60, 0.1)]
    text = "\n".join(view.summary(History(trials, space), workload, tmp_path))
    assert "The baseline is the best so far (20.0 samples/s, bleu_4 0.1600)" in text
    assert "x the baseline's" not in text


def test_a_baseline_that_stays_gives_the_reasons(make_trial, space, workload, tmp_path, confirming):
    trials = [make_trial(0, 20, 0.16, half_width=0.1), make_trial(1, 60, 0.16, half_width=0.1, x=1)]
    trials += [make_trial(2, 60, 0.1, half_width=0.1, x=2), make_trial(3, failure="oom")]
    trials += confirming(trials, 1, 0.9)
    *_, refuted, sentence = view.summary(History(trials, space), workload, tmp_path)
    assert refuted.startswith("Trial 1 was not confirmed: measured again, it was 0.90x")
    assert sentence == (
        "The baseline is the best so far (20.0 ± 0.1 samples/s, bleu_4 0.1900): of 3 other trials, "
        "1 looked better, but not when measured again, 1 ran faster but lost quality, "
        "1 ran out of memory."
    )


SHORTEST = "the shortest training that"
TRADE_OFFS = "and the best trade-offs between speed and quality."


@pytest.mark.parametrize(
    ("goal", "promise"),
    [
        ({}, f"{SHORTEST} keeps 95% of the baseline's improvement in bleu_4."),
        ({"within": 0.01, "keep": None}, f"{SHORTEST} keeps bleu_4 within 0.01 of the baseline's."),
        ({"target": 0.3}, "bleu_4 0.3 in the least time."),
        (
            {"select": "pareto", "quality": "f1"},
            f"{SHORTEST} keeps 95% of the baseline's improvement in f1, {TRADE_OFFS}",
        ),
    ],
)
def test_the_promise_names_the_goal(make_trial, space, goal, promise):
    history = History([make_trial(0, 20, curve=[0.2])], space.revised(objective=goal))
    assert view.promise(history) == f"Goal: {promise}"


def test_without_a_baseline_there_is_no_result(make_trial, space, workload, tmp_path):
    text = "\n".join(view.summary(History([make_trial(0, failure="oom")], space), workload, tmp_path))
    assert text.startswith("No result: the baseline has not completed")


def test_the_summary_lists_the_front(make_trial, space, workload, tmp_path):
    figures = [(20, 0.16), (60, 0.155), (90, 0.1), (50, 0.1)]
    trials = [make_trial(n, *shown, x=n) for n, shown in enumerate(figures)]
    front = space.revised(objective={"select": "pareto"})
    text = "\n".join(view.summary(History(trials, front), workload, tmp_path))
    assert [f"trial {n}," in text.partition("Best:")[0] for n in range(4)] == [True, True, True, False]


@pytest.fixture
def confirmed(make_trial, confirming, space):
    """Returns a maker of a baseline, a faster trial, a race that it wins by `factor`, and seeds of both."""

    def make(factor=3.0, **figures_of_seeds):
        figures = {"curve": [0.2], "half_width": 0.1}
        settings = space.baseline_config
        trials = [make_trial(0, 10, **figures, **settings), make_trial(1, 31, **figures, **settings, x=1)]
        return [*trials, *confirming(trials, 1, factor, **figures_of_seeds)]

    return make


def test_a_confirmed_winner_is_stated_with_both_trainings_their_times_and_qualities(
    confirmed, space, workload, tmp_path
):
    trials = confirmed()
    text = "\n".join(view.summary(History(trials, space), workload, tmp_path))
    expected = (
        "Confirmed: 3.00x faster (2.97x to 3.03x), 11m 07s of training instead of 33m 20s. "
        "Final bleu_4 0.2000, not worse than the baseline's 0.2000 (3 and 4 seeds)"
    )
    assert expected in text
    assert "ran once" not in text
    timed = Outside(4, 5.0)
    outside = [replace(t, measurement=replace(t.measurement, outside=timed)) for t in trials]
    training = space.training.model_copy(update={"samples_per_evaluation": 1000})
    whole = view.compare_with_baseline(
        trials[1], History(outside, space.model_copy(update={"training": training}))
    )
    assert "3.00x faster (2.97x to 3.03x) without evaluations; with them, " in whole
    assert view.compare_with_baseline(trials[1], History(trials, space)).startswith(expected)
    assert "ran once" in view.compare_with_baseline(trials[1], History(trials[:2], space))
    assert view.compare_with_baseline(trials[0], History(trials, space)) == "the baseline"


def test_whole_trainings_are_also_stated_from_start_to_end(confirmed, planned, workload, tmp_path):
    """What the steps save may be lost at the start: the break-even counts what the runs saved."""
    took = {0: 100.0, 1: 50.0}
    trials = [
        replace(t, config={**t.config, "length": 20_000}, seconds=took.get(t.original, 50.0))
        for t in confirmed()
    ]
    lines = view.summary(History(trials, planned), workload, tmp_path)
    assert any(
        " without start-up and evaluations; with them, a run takes 50s instead of 1m 40s. F" in line
        for line in lines
    )
    assert any("Each training saves 50s, so the search pays off after" in line for line in lines)


def test_a_refuted_winner_is_named_with_the_reason(confirmed, space, workload, tmp_path):
    text = "\n".join(view.summary(History(confirmed(curve=[0.1]), space), workload, tmp_path))
    assert "Trial 1 was not confirmed: worse bleu_4, 0.1000 instead of 0.2000 (49.8% to 50" in text
    assert "The baseline is the best so far" in text


def test_a_winner_that_loses_its_race_is_named_too(confirmed, space, workload, tmp_path):
    text = "\n".join(view.summary(History(confirmed(factor=0.9), space), workload, tmp_path))
    assert "Trial 1 was not confirmed" in text


def test_without_repeats_the_summary_does_not_mention_them(make_trial, unrepeated, workload, tmp_path):
    trials = [make_trial(0, 20, 0.16), make_trial(1, 60, 0.155)]
    text = "\n".join(view.summary(History(trials, unrepeated), workload, tmp_path))
    assert "Not confirmed" in text
    assert "was not confirmed" not in text


def test_varying_speeds_and_a_throttled_gpu_are_pointed_out(make_trial, space, workload, tmp_path):
    hot = make_trial(2, 50, 0.2, half_width=0.1, micro_batch_size=4)
    hot = replace(hot, measurement=replace(hot.measurement, telemetry={"gpu_throttled": 0.5}))
    trials = [make_trial(0, 10, 0.2, half_width=0.1), make_trial(1, 12, 0.2, half_width=0.1), hot]
    text = "\n".join(view.summary(History(trials, space), workload, tmp_path))
    assert "trial 1 ran 20% faster than trial 0 with the same settings" in text
    assert "Slowed down by heat: trials 2." in text


def test_a_rising_peak_is_shown_as_a_lower_bound(make_trial, space):
    def measured(**memory):
        return make_trial(0, 10, 0.2, **memory).measurement

    settled, rising = measured(peak=2**29, limit=2**30), measured(peak=2**29, limit=2**30, rising=True)
    assert [rows.run_figures(m, space.objective).peak for m in (settled, rising, measured())] == [
        "512 MiB (50%)",
        "at least 512 MiB (50%), still rising",
        "-",
    ]


def busy(trial, cpus=0.0, gpu=0.0):
    """Returns `trial`, during which other programs used these shares of the CPUs and of the GPU."""
    others = {"others_cpu_percent": 800 * cpus, "allowed_cpus": 8.0, "others_gpu_percent": 100 * gpu}
    return replace(trial, measurement=replace(trial.measurement, telemetry=others))


def test_use_by_other_programs_is_pointed_out(make_trial, cautions):
    trials = [make_trial(n, 10 + n, 0.2, micro_batch_size=2**n) for n in range(4)]
    assert cautions([busy(t, 0.04) for t in trials]) == ""
    assert cautions([trials[0], busy(trials[1], 0.38), busy(trials[2], 0.01), trials[3]]) == (
        "Other programs used 38% of this machine's CPUs during trial 1."
    )
    assert cautions([busy(trials[0], 0.1), trials[1], busy(trials[2], 0.2), busy(trials[3], 0.38, 0.5)]) == (
        "Other programs used up to 38% of this machine's CPUs during trials 0, 2, 3 (most in trial 3).\n"
        "Other programs used 50% of this machine's GPU during trial 3."
    )


def test_a_race_says_what_else_used_the_machine(confirmed, space):
    trials = confirmed()
    (winner, claim) = confirm.confirmed(History(trials, space))
    space = space.revised(objective={"target": 0.2})
    race = claims.race_of(winner.number, History(trials, space))

    def text(busy_trial, cpus):
        during = [busy(t, cpus) if t is busy_trial else t for t in trials]
        return view.confirmation(claim, History(during, space))

    assert text(None, 0.0).endswith("; 3 seeds)")
    assert "other programs" not in text(winner, 0.5), "the claim uses the race only"
    assert text(race, 0.38).endswith("; 3 seeds, while other programs used 38% of the CPUs)")
    assert view.contention([busy(winner, 0.38, 0.1), busy(winner, 0.2)]) == (
        "while other programs used up to 38% of the CPUs and 10% of the GPU"
    )


def test_the_name_of_a_trial_describes_its_purpose(make_trial):
    repeat = make_trial(4, 10, 0.2, micro_batch_size=8, repeat=confirm.noise_repeat())
    assert view.name(repeat) == "baseline's settings, another seed"
    assert view.name(make_trial(4, 10, ablation_of=3)) == "ablation of trial 3: batch 16 fp32"
    assert view.name(make_trial(4, race=(0, 3))) == "speed comparison of trials 0 and 3"
    assert view.name(make_trial(4, 10, 0.2)) == "batch 16 fp32"


SCORES = {"bleu_4": 0.1234, "rouge_l": 0.2345}


@pytest.fixture
def cautions(space):
    """Returns a function that returns the cautions about trials as a text."""
    return lambda trials: "\n".join(view.cautions(History(trials, space)))


@pytest.mark.parametrize("figures", [{"scores": SCORES}, {"curve": [0.1, 0.2, 0.3]}])
def test_a_seed_that_changes_nothing_is_pointed_out(make_trial, figures, cautions):
    twins = [make_trial(0, 10, 0.2, **figures), make_trial(1, 10, 0.2, **figures, repeat=Repeat(0, 0))]
    assert cautions(twins) == (
        "Trials 0 and 1 have different seeds and exactly the same figures: does the training use its seed?"
    )
    again = make_trial(2, 10, 0.2, **figures, repeat=Repeat(0, 1))
    assert cautions([*twins, again]) == cautions(twins), "one pair is named"


@pytest.mark.parametrize(
    "figures",
    [
        {"scores": SCORES | {"rouge_l": 0.2345000001}},
        {"scores": SCORES, "failure": "error"},
        {"scores": SCORES, "curve": [0.1, 0.2], "collapsed": True},
    ],
)
def test_a_seed_that_changes_something_is_not_mentioned(make_trial, figures, cautions):
    other = make_trial(1, 10, **{"quality": 0.2, **figures}, repeat=Repeat(0, 0))
    assert cautions([make_trial(0, 10, 0.2, scores=SCORES), other]) == ""


def test_memory_is_not_compared_between_seeds(make_trial, cautions):
    """The memory of subprocesses differs from run to run."""
    first, second = ({**SCORES, "memory_children_bytes": 1000.0 + n, "samples": 400.0} for n in (0, 1))
    twins = [make_trial(0, 10, 0.2, scores=first), make_trial(1, 10, 0.2, scores=second, repeat=Repeat(0, 0))]
    assert "have different seeds and exactly the same figures" in cautions(twins)


def test_few_numbers_may_be_equal_by_chance(make_trial, cautions):
    repeat = Repeat(0, 0)
    for figures in (
        {"curve": [0.008, 1.0]},
        {"curve": [0.0, 0.0]},
        {"scores": {"bleu_4": 0.0, "samples": 400.0}},
        {},
    ):
        twins = [make_trial(0, 10, 0.0, **figures), make_trial(1, 10, 0.0, **figures, repeat=repeat)]
        assert cautions(twins) == ""


@pytest.mark.parametrize(
    ("changes", "knob"),
    [
        ({"dropout": 0.2}, "dropout"),
        ({"precision": "bf16"}, "precision"),
        ({"num_workers": 4}, None),
        ({"activation_checkpointing": True}, None),
        ({"dropout": 0.2, "precision": "bf16"}, None),
        ({}, None),
    ],
)
def test_a_knob_that_changes_nothing_is_pointed_out(make_trial, changes, knob, cautions):
    config = {"dropout": 0.1, "num_workers": 0, "activation_checkpointing": False}
    trials = [make_trial(3, 10, 0.2, scores=SCORES, **config)]
    trials.append(make_trial(7, 10, 0.2, scores=SCORES, **config | changes))
    text = f"{knob} changes nothing: trials 3 and 7 differ only in it and have exactly the same figures."
    assert cautions(trials) == (text if knob else "")


def test_the_summary_of_a_loss_names_the_limit_and_that_lower_is_better(
    make_trial, unrepeated, workload, tmp_path
):
    goal = Objective(minimize="val_loss", keep=0.98, select="same-quality")
    lower = unrepeated.model_copy(update={"objective": goal, "unit": "tokens"})
    trials = [make_trial(0, 20, curve=[-2.0]), make_trial(1, 60, curve=[-2.03], x=1)]
    text = "\n".join(view.summary(History(trials, lower), workload, tmp_path / "s"))
    assert "keeps 98% of the baseline's improvement in val_loss; lower val_loss is better." in text
    assert "60.0 tokens/s instead of 20.0, val_loss 2.0300 instead of 2.0000" in text
    assert "over 20,000 tokens each." in text


def test_trials_that_break_a_constraint_are_named(make_trial, space):
    constrained = space.revised(objective={"constraints": {"rouge_l": ">= 0.2"}})
    trials = [make_trial(n, 20, 0.16, x=n, scores={"rouge_l": n / 10}) for n in (3, 1, 0)]
    found = view.cautions(History(trials, constrained))
    assert "The baseline itself violates a constraint: rouge_l is 0, and must be >= 0.2." in found
    assert "Your constraints rule out trial 1 (rouge_l is 0.1, and must be >= 0.2)." in found
    trials.append(make_trial(4, 20, 0.16, x=4, scores={"rouge_l": 0.15}))
    both = "Your constraints rule out trials 1, 4 (trial 1: rouge_l is 0.1, and must be >= 0.2)."
    assert both in view.cautions(History(trials, constrained))


def test_a_confirmed_loss_is_shown_in_the_users_sign(make_trial, space, confirming):
    lower = space.model_copy(update={"objective": Objective(minimize="val_loss", keep=0.9)})
    trials = [make_trial(0, 20, curve=[-4.0, -2.0]), make_trial(1, 60, curve=[-4.0, -2.01], x=1)]
    history = History([*trials, *confirming(trials, 1, curve=[-4.0, -2.01], apart=0.01)], lower)
    (_, claim) = confirm.confirmed(history)
    assert view.final_qualities(claim, history) == (
        "Final val_loss 2.0100 ± 0.0248, not worse than the baseline's 2.0000 (3 and 4 seeds)"
    )
    unjudged = replace(claim, kept=None)
    assert view.final_qualities(unjudged, history).endswith("(3 and 4 seeds)")


def test_qualities_of_miniatures_are_named_so(make_trial, planned, confirming):
    miniature = planned.revised(training={"samples": 40_000})
    config = planned.baseline_config
    trials = [
        make_trial(0, 20, curve=[0.1, 0.2], **config),
        make_trial(1, 60, curve=[0.1, 0.2], **{**config, "precision": "bf16"}),
    ]
    history = History([*trials, *confirming(trials, 1)], miniature)
    text = view.confirmation(claims.claim(1, history), history)
    assert "In trials of 50% of the training, final bleu_4 0.2000, not worse than the baseline's" in text


def leaking(trial, per_sample=65_536.0):
    """Returns `trial` with a peak of 2 GiB of 32 that grew by `per_sample` bytes."""
    slope = Slope(per_sample, 0.9 * per_sample, 1.1 * per_sample)
    grown = {"samples": 400, "peak_memory_bytes": 2 * 2**30, "memory_limit_bytes": 32 * 2**30}
    return replace(trial, measurement=replace(trial.measurement, **grown, memory_slope=slope))


def test_a_leak_of_the_winner_is_a_caution(confirmed, space):
    trials, training = confirmed(), Training(samples=1_200_000, samples_per_epoch=12_000)
    winner = confirm.confirmed(History(trials, space))[0].number
    long = space.model_copy(update={"training": training})
    leak = History([leaking(t) if t.number == winner else t for t in trials], long)
    line = (
        f"Trial {winner}'s memory grows by 62 MiB (56 MiB to 69 MiB) per 1,000 samples, from a leak or a "
        "filling cache. At this rate it is full after 491,920 samples, in epoch 41."
    )
    assert view.cautions(leak) == [line]
    unknown = History(leak.trials, space)
    assert view.cautions(unknown) == [], "without a length, a hundred trials' samples do not fill memory"


def test_only_a_leak_of_the_baseline_or_the_winner_is_a_caution(confirmed, space):
    long = space.model_copy(update={"training": Training(samples=10**9)})
    trials = confirmed()
    winner = confirm.confirmed(History(trials, long))[0].number
    others = [t for t in trials if t.config != trials[winner].config]
    assert len(others) > 1
    found = view.cautions(History([leaking(t) if t in others else t for t in trials], long))
    assert [line.partition("'s memory grows")[0] for line in found] == ["The baseline"]
    assert "in epoch" not in found[0]


def test_a_setting_is_a_plain_number_if_it_is_neither_huge_nor_tiny():
    assert view.knobs({"learning_rate": 151.3}) == "lr 150"
    assert view.knobs({"learning_rate": 0.00141}) == "lr 0.0014"
    assert view.knobs({"learning_rate": 1e-5}) == "lr 1e-05"
