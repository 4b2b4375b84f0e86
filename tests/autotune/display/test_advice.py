"""The reasons and the advice of a search without a winner."""

from dataclasses import replace
from pathlib import Path

import pytest

from autotune.display import advice
from autotune.display.advice import WinnerState
from autotune.judging.accounts import reasons
from autotune.judging.decisions import confirm
from autotune.judging.decisions.history import History
from autotune.judging.decisions.objective import Reason
from autotune.space.space import Objective
from autotune.storage.study_file import SearchPlan

SESSION = Path("runs/s")
OPEN, SPENT = SearchPlan(40, None), SearchPlan(40, 60.0, spent_s=61.0)
CURVE = [0.1, 0.15, 0.2]


@pytest.fixture
def baseline(make_trial):
    return make_trial(0, 10, curve=[0.2], half_width=0.1, x=0)


def verdict(trials, space):
    return advice.verdict(confirm.recommended(History(trials, space)))


def test_a_winner_is_confirmed_by_a_race_and_repeats(make_trial, baseline, space, confirming):
    faster = make_trial(1, 30, 0.2, half_width=0.1, x=1)
    assert verdict([baseline, faster], space) is WinnerState.UNCONFIRMED
    assert not advice.has_winner(History([baseline, faster], space))
    trials = [baseline, faster, *confirming([baseline, faster], 1)]
    assert verdict(trials, space) is WinnerState.CONFIRMED
    assert advice.has_winner(History(trials, space))
    refuted = [baseline, faster, *confirming([baseline, faster], 1, 0.9)]
    assert verdict(refuted, space) is WinnerState.BASELINE
    assert not advice.has_winner(History(refuted, space))


def test_without_repeats_one_run_makes_a_winner(make_trial, baseline, space):
    trials = [baseline, make_trial(1, 30, 0.2, half_width=0.1, x=1)]
    unrepeated = space.revised(budget={"repeats": 0})
    assert advice.has_winner(History(trials, unrepeated))
    assert not advice.has_winner(History([baseline], unrepeated))


def test_under_pareto_a_front_counts_as_a_winner(make_trial, baseline, space):
    front = space.revised(objective={"select": "pareto"})
    assert advice.has_winner(History([baseline, make_trial(1, 30, 0.1, half_width=0.1, x=1)], front))
    assert not advice.has_winner(History([baseline, make_trial(1, 9, 0.1, half_width=0.1, x=1)], front))
    assert not advice.has_winner(History([make_trial(0, failure="oom"), make_trial(1, 9, 0.1)], front))


def test_without_a_baseline_there_is_no_winner(make_trial, space):
    assert verdict([make_trial(0, failure="oom")], space) is WinnerState.NONE
    assert not advice.has_winner(History([make_trial(0, failure="oom"), make_trial(1, 30, 0.2)], space))


def test_a_missed_target_is_the_reason(make_trial, space):
    to_target = space.revised(objective={"target": 0.3})
    trials = [make_trial(0, 10, curve=[0.3, 0.3]), make_trial(1, 10, curve=[0.1, 0.2], x=1)]
    assert reasons.counts(History(trials, to_target)) == {Reason.MISSED: 1}
    (hint, _) = advice.what_to_try(History(trials, to_target), OPEN, SESSION, exhausted=False)
    assert "lower objective.target (0.3)" in hint.what


def test_the_reasons_are_counted_the_most_frequent_first(make_trial, baseline, space):
    trials = [baseline, *(make_trial(n, 40, 0.1, half_width=0.1, x=n) for n in range(1, 4))]
    trials += [make_trial(4, failure="oom"), make_trial(5, 9, 0.2, half_width=0.1, x=5)]
    assert advice.no_winner_reason(History(trials, space)) == (
        "No winner: of 5 other trials, 3 ran faster but lost quality, 1 ran out of memory, "
        "1 kept the quality but ran no faster"
    )
    assert advice.no_winner_reason(History([baseline], space)) == "No winner: nothing else was tried"
    assert advice.no_winner_reason(History([], space)) == "No winner: the baseline has not ended"
    failed = History([make_trial(0, failure="oom")], space)
    assert advice.no_winner_reason(failed) == "No winner, because the baseline failed (oom): as made"


def tries(trials, space, exhausted=False, plan=OPEN):
    found = advice.what_to_try(History(trials, space), plan, SESSION, exhausted=exhausted)
    return [(hint.what, hint.command) for hint in found]


def test_advice_follows_from_the_reasons(make_trial, baseline, space, confirming):
    poor, large = make_trial(1, 40, 0.1, half_width=0.1, x=1), make_trial(2, failure="oom")
    assert tries([baseline, poor, large], space) == [
        ("lower objective.keep (0.95) in runs/s/space.yaml", "python -m autotune resume runs/s"),
        (
            (
                "start a new search with smaller batches, or with activation checkpointing as a knob, "
                "in runs/s/space.yaml"
            ),
            "",
        ),
        ("run more trials", "python -m autotune resume runs/s --trials 20"),
    ]
    faster = make_trial(1, 30, 0.2, half_width=0.1, x=1)
    ((what, _), *_) = tries([baseline, faster, *confirming([baseline, faster], 1, 1.0)], space)
    assert what.startswith("set budget.repeats to 6 in runs/s/space.yaml, because more runs")


def test_an_exhausted_space_needs_more_knobs(make_trial, baseline, space):
    ((what, command),) = tries([baseline], space, exhausted=True)
    assert what == "add knobs or values in runs/s/space.yaml, because everything in it was tried"
    assert command == "python -m autotune search --space runs/s/space.yaml --session runs/s-2"


def test_an_unconfirmed_gain_is_the_only_reason(make_trial, baseline, space):
    """Its factor is left out if it rounds to 1."""
    faster = make_trial(1, 30, 0.2, half_width=0.1, x=1)
    history = History([baseline, faster], space)
    possible = "Possibly 3.0x faster, not confirmed"
    assert advice.no_winner_reason(history) == possible
    assert advice.possible_gain(history, "resume s") == f"{possible}. To confirm it: resume s"
    confirm_it = ("give it time for the confirmation", "python -m autotune resume runs/s --time 5m")
    assert tries([baseline, faster], space, plan=SPENT) == [confirm_it]
    barely = [baseline, make_trial(1, 10.4, 0.2, half_width=0.001, x=1)]
    assert advice.possible_gain(History(barely, space)) == "Possibly faster, not confirmed"
    assert not advice.is_unconfirmed(History([baseline, faster], space.revised(budget={"repeats": 0})))
    assert not advice.is_unconfirmed(History([baseline], space))


def test_the_recommended_time_follows_from_the_duration_of_trials(make_trial, baseline, space):
    slower = make_trial(1, 5, 0.2, half_width=0.1, x=1)
    minute, hour = ([replace(t, seconds=s) for t in (baseline, slower)] for s in (60.0, 3600.0))
    assert tries(minute, space, plan=SPENT) == [
        ("give it more time", "python -m autotune resume runs/s --time 10m")
    ]
    assert tries(hour, space, plan=SPENT)[-1][1].endswith("--time 12h")
    assert tries([baseline, slower], space, plan=SPENT)[-1][1].endswith("--time 5m")


def test_a_failed_or_missing_baseline_has_its_own_advice(make_trial, space):
    assert tries([], space, plan=SPENT) == [
        ("give it more time", "python -m autotune resume runs/s --time 1h")
    ]
    assert "a --baseline that fits" in tries([make_trial(0, failure="oom")], space)[0][0]
    assert "runs/s/trials/0000/log" in tries([make_trial(0, failure="error")], space)[0][0]


def test_if_qualities_could_not_be_compared_longer_trials_come_first(make_trial, baseline, space):
    poor = make_trial(1, 40, 0.1, half_width=0.1, x=1)
    history, reason = History([baseline, poor], space), "the baseline has learnt nothing"
    (first, *_) = advice.what_to_try(history, OPEN, SESSION, exhausted=False, fallback_reason=reason)
    assert first.what == "run longer trials, because the baseline has learnt nothing"
    assert first.command.endswith("--session runs/s-2 --samples auto")


def test_undecided_finalists_need_seeds_and_chance_needs_longer_trials(
    make_trial, baseline, space, confirming
):
    faster = make_trial(1, 30, 0.2, half_width=0.1, x=1)
    spread = confirming([baseline, faster], 1, curve=[0.192], apart=0.01)
    (what, _) = tries([baseline, faster, *spread], space)[0]
    assert what == (
        "set budget.repeats to 6 in runs/s/space.yaml, because more seeds show whether the quality is kept"
    )
    at_chance = make_trial(1, 30, curve=[0.2], chance=0.2, half_width=0.1, x=1)
    (what, command) = tries([baseline, at_chance], space)[0]
    assert what == "run longer trials, which learn more"
    assert command.endswith("--samples auto")


def test_a_broken_constraint_is_counted_and_may_be_loosened(make_trial, space):
    constrained = space.revised(objective={"constraints": {"rouge_l": ">= 0.2"}})
    baseline = make_trial(0, 10, curve=[0.2], half_width=0.1, x=0, scores={"rouge_l": 0.3})
    trials = [baseline, make_trial(1, 30, 0.2, half_width=0.1, x=1, scores={"rouge_l": 0.1})]
    history = History(trials, constrained)
    assert reasons.counts(history) == {Reason.BROKEN: 1}
    assert advice.no_winner_reason(history) == "No winner: of 1 other trial, 1 broke a constraint"
    assert tries(trials, constrained)[0][0].startswith("loosen objective.constraints")


@pytest.mark.parametrize(
    ("limit", "advised"),
    [({"within": 0.02}, "within (0.02)"), ({"target": 1.5}, "target (1.5)")],
)
def test_advice_for_a_loss_raises_its_limit(make_trial, space, limit, advised):
    goal = Objective(minimize="val_loss", select="same-quality", **limit)
    trials = [make_trial(0, 10, curve=[-2.0], half_width=0.1)]
    trials.append(make_trial(1, 30, curve=[-3.0], half_width=0.1, x=1))
    (first, *_) = tries(trials, space.model_copy(update={"objective": goal}))
    assert first[0].startswith(f"raise objective.{advised} in")
