"""The judgement of the baseline's first two runs, and how a search adapts to it."""

from dataclasses import replace

import pytest

from autotune.core.measurement import Schedule
from autotune.judging.decisions import confirm, pilot, stopping
from autotune.judging.decisions.history import History
from autotune.space import configurations, spaces

CURVE = [0.1, 0.15, 0.18, 0.2]


def asked(space, budget=None, **objective):
    return space.revised(objective=objective, budget=budget or {})


@pytest.fixture
def runs(make_trial, space):
    """The baseline's two runs, the second one `apart` from the first."""

    def make(apart=0.0, curve=CURVE, **fields):
        config, other = {**space.baseline_config, **fields}, [q * (1 + apart) for q in curve]
        second = make_trial(1, 10, curve=other, repeat=confirm.noise_repeat(), **config)
        return [make_trial(0, 10, curve=curve, **config), second]

    return make


@pytest.mark.parametrize(
    ("objective", "budget", "wanted"),
    [
        ({"select": "same-quality"}, {}, True),
        ({"select": "pareto"}, {}, True),
        ({"select": "same-quality", "target": 0.2}, {}, True),
        ({"select": "same-quality", "keep": 0.0}, {}, False),
        ({"select": "same-training"}, {}, False),
        ({"select": "same-quality"}, {"repeats": 0}, False),
        ({"select": "same-quality"}, {"trials": 1}, False),
    ],
)
def test_the_baseline_runs_twice_if_quality_is_to_be_confirmed(space, objective, budget, wanted):
    assert pilot.is_wanted(asked(space, budget, **objective)) is wanted


def test_before_both_runs_have_completed_nothing_is_known(runs, make_trial, space):
    assert pilot.pilot(History([], space)) is None
    assert pilot.pilot(History(runs()[:1], space)) is None
    failed = make_trial(1, failure="oom", repeat=confirm.noise_repeat())
    assert pilot.pilot(History([runs()[0], failed], space)) is None
    assert pilot.pilot(History([make_trial(0, failure="oom")], space)) is None
    assert pilot.describe(History(runs()[:1], space)) is None
    assert pilot.settled(History(runs()[:1], space)).space == space


def test_a_training_that_ends_by_itself_is_as_long_as_the_baseline_was(runs, make_trial, space):
    """Whatever was planned: otherwise trials stopped on the way would seem to train longer than it."""
    planned = space.budget.samples_per_trial
    baseline, second = runs()
    ended = replace(baseline.measurement, ended=True, samples=planned // 2)
    settled = pilot.settled(History([replace(baseline, measurement=ended), second], space))
    assert (settled.whole, settled.space.budget.samples_per_trial) == (planned // 2, planned)
    quicker = make_trial(2, 18, curve=[0.2], half_width=0.1, stopped=True)
    assert settled.after(quicker).length_ratio(quicker) == 1
    assert stopping.verdict(quicker.measurement, stopping.threshold(settled), planned, quicker.config) is None


def test_if_the_baseline_did_not_end_by_itself_its_length_is_that_of_all(runs, make_trial, space):
    noisy = make_trial(2, 10, curve=[0.2], half_width=2.0)
    noisy = replace(noisy, measurement=replace(noisy.measurement, ended=True, samples=100))
    assert History([*runs(), noisy], space).length_ratio(noisy) == 1


def test_one_run_is_enough_if_no_second_one_was_asked_for(runs, space):
    found = pilot.pilot(History(runs()[:1], asked(space, {"repeats": 0})))
    assert (found.quality, found.noise) == (0.2, None)


def test_the_pilot_measures_quality_chance_and_noise(runs, space):
    found = pilot.pilot(History(runs(apart=0.1, chance=0.05), space))
    assert found.samples == 400
    assert found.quality == pytest.approx(0.21)
    assert found.noise == pytest.approx(0.02 / 2**0.5), "in the units of the quality"
    assert found.chance == 0.05


@pytest.mark.parametrize(
    ("fields", "why_not"),
    [
        ({}, None),
        ({"chance": 0.15}, None),
        (
            {"chance": 0.185},
            "after 400 samples the baseline's bleu_4 0.2000 is not clearly above chance, 0.1850",
        ),
        (
            {"chance": 0.25},
            "after 400 samples the baseline's bleu_4 0.2000 is not clearly above chance, 0.2500",
        ),
        (
            {"collapsed": True},
            "after 400 samples the baseline gives the same answer to every input (bleu_4 0.2000)",
        ),
    ],
)
def test_a_quality_not_clearly_above_chance_cannot_be_compared(runs, space, fields, why_not):
    found = pilot.pilot(History(runs(**fields), space))
    assert found.why_not == why_not
    assert not why_not or found.samples_needed == 1600


def test_noise_may_hide_a_quality_above_chance(runs, space):
    why_not = pilot.pilot(History(runs(apart=0.1, chance=0.185), space)).why_not
    assert why_not.endswith("bleu_4 0.2100 is not clearly above chance, 0.1850")


def test_one_collapsed_run_prevents_comparison(runs, space):
    trials = [runs(collapsed=True)[0], runs()[1]]
    assert (
        "gives the same answer to every input in one of its runs"
        in pilot.pilot(History(trials, space)).why_not
    )


def test_noise_beyond_the_required_precision_is_reported(runs, space):
    assert pilot.pilot(History(runs(apart=0.005), space)).doubt is None
    noisy = runs(apart=0.2)
    found = pilot.pilot(History(noisy, space))
    assert found.why_not is None, "a clearly better quality can still be recognised"
    assert found.doubt == "after 400 samples, 3 seeds show bleu_4 to within 0.049, but keep 0.95 needs 0.011"
    assert found.samples_needed == 800
    assert "a larger --repeats" in pilot.describe(History(noisy, space))
    assert pilot.settled(History(noisy, space)).space == space
    assert pilot.pilot(History(noisy, asked(space, keep=0.5))).doubt is None, "less has to be kept"
    many = asked(space, {"repeats": 100})
    assert pilot.pilot(History(noisy, many)).doubt is None, "so many seeds are enough"
    to_target = asked(space, target=0.2)
    assert pilot.pilot(History(noisy, to_target)).doubt is None


def test_with_planned_lengths_the_second_run_is_a_shorter_one(runs, planned):
    first = History(runs()[:1], planned)
    assert pilot.is_wanted(planned)
    assert not pilot.is_due(first)
    assert pilot.pilot(first).noise is None
    to_target = asked(planned, target=0.2)
    assert pilot.is_due(History(first.trials, to_target)), "a target needs equal trainings"


def test_the_pilot_sets_no_target_and_keeps_one_that_is_given(runs, space):
    assert pilot.settled(History(runs(), space)).space.objective.target is None
    given = asked(space, target=0.3)
    assert pilot.settled(History(runs(), given)).space.objective.target == 0.3


def test_a_constant_learning_rate_sets_a_target(runs, planned, space):
    """Such a training may end at any point, so it can stop once it is good enough."""

    def scheduled(schedule):
        return [replace(t, measurement=replace(t.measurement, schedule=schedule)) for t in runs(apart=0.02)]

    constant = scheduled(Schedule(1e-3, 1e-3, 100))
    assert pilot.settled(History(constant, space)).space.objective.target == pytest.approx(0.1919)
    assert pilot.describe(History(constant, space)).endswith("The first configuration to reach 0.1919 wins.")
    given = asked(space, target=0.3)
    assert pilot.settled(History(constant, given)).space.objective.target == 0.3
    single = [
        replace(t, measurement=replace(t.measurement, curve=t.measurement.curve[-1:])) for t in constant
    ]
    assert pilot.settled(History(single, space)).space.objective.target is None, (
        "when it is reached is unseen"
    )
    for schedule in (None, Schedule(1e-3, 1e-4, 400)):
        history = History(scheduled(schedule), space)
        assert pilot.settled(history).space.objective.target is None
    assert pilot.settled(History(constant, planned)).space.objective.target is None, "its length is planned"


@pytest.mark.parametrize("target", [None, 0.3])
def test_incomparable_qualities_fall_back_to_same_training(runs, space, target):
    goal = asked(space, target=target)
    settled = pilot.settled(History(runs(collapsed=True), goal)).space
    assert (settled.objective.select, settled.objective.target) == ("same-training", None)
    assert settled == pilot.same_training(settled)
    reason = pilot.fallback_reason(History(runs(collapsed=True), goal))
    assert reason.startswith("after 400 samples the baseline gives")
    assert pilot.fallback_reason(History(runs(), goal)) is None
    assert pilot.fallback_reason(History(runs()[:1], goal)) is None


def test_a_front_and_the_same_training_do_not_depend_on_the_pilot(runs, space):
    front = asked(space, select="pareto")
    assert pilot.settled(History(runs(collapsed=True), front)).space == front
    assert pilot.fallback_reason(History(runs(collapsed=True), front)) is None
    same = asked(space, select="same-training")
    assert pilot.settled(History([], same)).space == pilot.same_training(same)
    assert pilot.fallback_reason(History(runs(collapsed=True), same)) is None


def test_same_training_fixes_batch_and_result_settings(space):
    text = spaces.dump(space).replace("knobs:", "knobs:\n  dropout: {choice: [0.1, 0.2]}", 1)
    text = text.replace("baseline:", "baseline:\n  dropout: 0.1", 1)
    wide = spaces.complete(spaces.parse(text, "test"), "test")
    fixed = pilot.same_training(wide)
    assert fixed.knobs["dropout"].choice == (0.1,)
    assert fixed.limits.effective_batch_size == (16, 16)
    for free in ("micro_batch_size", "accumulation_steps", "precision", "num_workers"):
        assert fixed.knobs[free] == wide.knobs[free]
    drawn = {"micro_batch_size": 8, "accumulation_steps": 2}
    config = configurations.changed(fixed, fixed.baseline_config, drawn)
    assert config["learning_rate"] == wide.baseline["learning_rate"]
    assert fixed.violation(config) is None
    assert fixed.violation({**config, "accumulation_steps": 1}) is not None


def test_same_training_fixes_the_length(planned):
    fixed = pilot.same_training(planned)
    assert fixed.knobs["length"].share == (1.0, 1.0)
    assert configurations.contains(fixed, fixed.baseline_config)
    assert not configurations.contains(fixed, {**fixed.baseline_config, "length": 10_000})


def test_until_learnt_takes_the_baselines_samples(make_trial, space, runs):
    open_ended = asked(space, {"until_learnt": True, "samples_per_trial": 1000, "evaluations_per_trial": 10})
    assert pilot.settled(History([], open_ended)).space == open_ended
    trials = [replace(t, measurement=replace(t.measurement, quality_samples=400)) for t in runs()]
    budget = pilot.settled(History(trials[:1], open_ended)).space.budget
    assert (budget.samples_per_trial, budget.evaluations_per_trial, budget.until_learnt) == (400, 4, False)


def test_the_description_summarises_the_pilot(runs, space):
    text = pilot.describe(History(runs(apart=0.01, chance=0.1), space))
    assert text == (
        "The baseline reaches bleu_4 0.2010 (chance 0.1000) after 400 samples; "
        "runs with different seeds vary by 0.0014."
    )


def test_the_description_advises_if_qualities_cannot_be_compared(runs, space):
    text = pilot.describe(History(runs(collapsed=True), space))
    assert text == (
        "Quality cannot be compared yet: after 400 samples the baseline gives the same answer to every input "
        "(bleu_4 0.2000). The search continues with settings that leave the training the same and "
        "only make it faster. To compare quality, try --samples 1600 or more, or --samples auto."
    )
    front = pilot.describe(History(runs(collapsed=True), asked(space, select="pareto")))
    assert "The search continues" not in front
    assert pilot.describe(History(runs(), asked(space, select="same-training"))) is None


def test_the_description_shows_a_loss_in_the_users_sign(runs, space):
    """Inside the tuner, a loss is negative."""
    losses = runs(curve=[-4.0, -3.0, -2.5, -2.0])
    given = {"quality": "val_loss", "minimize": "val_loss", "keep": 0.98}
    ours = asked(space, **given).model_copy(update={"unit": "tokens"})
    text = "The baseline reaches val_loss 2.0000 after 400 tokens"
    assert pilot.describe(History(losses, ours)).startswith(text)
    assert History(losses, ours).start == -4.0, "its first evaluation"
    luck = pilot.describe(History(runs(0.01, curve=[-4.0, -3.0, -2.5, -2.0], chance=-2.01), ours))
    assert "the baseline's val_loss 2.0100 is not clearly below chance, 2.0100" in luck


def test_a_slack_below_the_noise_is_reported(runs, space):
    given = {"quality": "val_loss", "minimize": "val_loss", "keep": None, "within": 0.02}
    doubt = pilot.pilot(History(runs(0.2, curve=[-4.0, -3.0, -2.5, -2.0]), asked(space, **given))).doubt
    assert "but within 0.02 needs" in doubt
