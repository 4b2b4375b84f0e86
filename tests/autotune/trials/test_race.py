"""Races of real children: turns, rounds, their ends, and interrupted ones."""

import json
import os
from contextlib import suppress
from dataclasses import replace
from functools import partial
from multiprocessing import forkserver
from pathlib import Path

import psutil
import pytest

from autotune.core.measurement import Metric
from autotune.core.trial import Failure, Outcome, Status
from autotune.judging.decisions import racing
from autotune.judging.measurement import turns
from autotune.storage import identity
from autotune.storage.layout import TrialDir
from autotune.trials import order as orders
from autotune.trials import race
from autotune.trials.fork_server import ForkServer
from autotune.trials.order import NEVER, Ends, Order, RaceOrder, Racer
from autotune.trials.progress import Phase
from tests.faults.sessions import small_disk
from tests.waiting import finish, is_over, status, wait_for

SHORT = race.Least(0.1, 3)
Race = partial(race.Race, least=SHORT)


@pytest.fixture(scope="module")
def server():
    return ForkServer([])


@pytest.fixture
def rounds(monkeypatch):
    """Limits races to a number of rounds, instead of time and results."""

    def run_only(most):
        def next_round(race):
            done = max((one.round for one in race._slices), default=0)
            return tuple(race._lengths) if done < most else ()

        monkeypatch.setattr(racing.Trainings, "next_round", next_round)

    return run_only


@pytest.fixture
def order(tmp_path):
    """Returns an order of a race between settings of the workload `paces`, of trials 0, 7, 14, ..."""

    def make(*settings, together=True, most_s=600.0, workload="workloads_for_tests:paces"):
        members = tuple(
            Racer(
                Order(
                    number=7 * place,
                    workload=workload,
                    settings=one,
                    directory=str(tmp_path / f"member-{7 * place}"),
                    metric=Metric("bleu_4"),
                    ends=Ends(NEVER),
                    revision="as it was",
                ),
                1000,
            )
            for place, one in enumerate(settings)
        )
        return RaceOrder(20, str(tmp_path), members, together, most_s)

    return make


def processes():
    """Returns the members' live processes, guards included: each has its own session.

    They are forked from multiprocessing's server; other tests' searches may be below this process, too.
    """
    top, found = forkserver._forkserver._forkserver_pid, []
    for one in psutil.Process(top).children(recursive=True) if top else []:
        with suppress(ProcessLookupError):
            if os.getsid(one.pid) != os.getsid(0) and not is_over(one.pid):
                found.append(one)
    return found


def test_a_race_closes_when_its_search_has_stopped_and_keeps_its_rounds(order, server, tmp_path):
    given = order({"step_s": 0.02}, {"step_s": 0.02})
    running = Race(replace(given, stop_file=str(tmp_path / "stop")), server)
    wait_for(lambda: running.step(0.2).samples)
    (tmp_path / "stop").touch()
    assert finish(running).outcome == Outcome(Status.INTERRUPTED, reason="was asked to stop")
    assert race.read_slices(TrialDir(tmp_path))
    wait_for(lambda: not processes())


def test_an_order_is_plain_values(order):
    given = order({"step_s": 0.01}, {"step_s": 0.02})
    assert orders.ORDER.validate_python(json.loads(json.dumps(orders.ORDER.dump_python(given)))) == given
    assert given.settings == {"step_s": 0.01}


def test_the_cost_of_evaluations_is_in_every_turn(order, server, tmp_path, rounds):
    rounds(2)
    given = order({"step_s": 0.02}, {"step_s": 0.02})
    alike, slower = given.members
    members = (alike, replace(slower, outside_s=0.1, unsure=0.05))
    finish(Race(replace(given, members=members), server))
    slices = race.read_slices(TrialDir(tmp_path))
    assert [one.outside_s for one in slices if not one.number] == [0.0, 0.0]
    assert all(one.outside_s == pytest.approx(0.1 * one.samples) for one in slices if one.number)
    assert {one.unsure for one in slices if one.number} == {0.05}


@pytest.mark.slow
@pytest.mark.parametrize("together", [True, False])
def test_a_speedup_of_two_is_measured(order, server, tmp_path, rounds, together):
    rounds(4)
    report = finish(Race(order({"step_s": 0.04}, {"step_s": 0.02}, together=together), server))
    outcome, figures = identity.read_verdict(TrialDir(tmp_path))
    assert report.outcome == outcome
    assert outcome.status is Status.COMPLETED
    assert report.phase == Phase.RACING
    assert report.samples == sum(one.samples for one in figures.slices)
    assert [(one.round, one.number) for one in figures.slices] == [
        (turn, number) for turn in range(1, 5) for number in (0, 7)
    ]
    assert all(one.steps >= 1 and one.samples == 4 * one.steps for one in figures.slices)
    assert turns.ratio(figures.slices, 7, 0).value == pytest.approx(2, rel=0.4)  # equal speeds are excluded
    assert figures.revision == "as it was"
    assert figures.device
    assert not list(tmp_path.glob("*/work"))
    wait_for(lambda: not processes())


@pytest.mark.slow
@pytest.mark.parametrize("together", [True, False])
def test_members_are_launched_anew_after_four_rounds(order, server, monkeypatch, rounds, together):
    """If they cannot be alive at once, every turn starts its process anyway."""
    rounds(10)
    monkeypatch.setattr(racing, "_START_SHARE", 0.0)  # however long a start takes
    given = order({"step_s": 0.01}, {"step_s": 0.01}, together=together)
    slices = finish(Race(given, server)).measurement.slices
    launches = [(turn - 1) // 4 + 1 if together else turn for turn in range(1, 11)]
    assert [one.launch for one in slices if one.number == 0] == launches
    assert [one.launch for one in slices if one.number == 7] == launches
    assert race.read_slices(given.place) == list(slices)


def test_a_race_ends_by_the_rules(order, server, tmp_path):
    """As soon as the gain is certain."""
    finish(Race(order({"step_s": 0.03}, {"step_s": 0.01}), server))
    _, figures = identity.read_verdict(TrialDir(tmp_path))
    assert racing.Trainings(figures.slices, {0: 1000, 7: 1000}).next_round() == ()
    assert turns.ratio(figures.slices, 7, 0).low > 1.2


def test_a_race_ends_when_its_time_is_up(order, server):
    report = finish(Race(order({"step_s": 0.01}, {"step_s": 0.01}, most_s=0.5), server))
    assert report.outcome.status == Status.COMPLETED
    assert report.measurement.slices


def test_only_the_member_whose_turn_it_is_runs(order, server, tmp_path):
    running = Race(order({"step_s": 0.01}, {"step_s": 0.01}, {"step_s": 0.01}), server)
    wait_for(lambda: running.step(0.2).samples)
    members = [one for one in processes() if one.name() != "sh"]
    assert len(members) == 3
    # A sleeping process stops only once it gets the CPU; none has its turn before the next step.
    wait_for(lambda: [status(one.pid) for one in members].count(psutil.STATUS_STOPPED) >= 2)
    running.stop()
    wait_for(lambda: not processes())


def test_an_interrupted_race_keeps_its_complete_rounds(order, server, tmp_path, rounds):
    rounds(3)
    given = order({"step_s": 0.01}, {"step_s": 0.01})
    first = Race(given, server)
    while not race.read_slices(TrialDir(tmp_path)):
        first.step(0.05)
    first.stop()
    kept = race.read_slices(TrialDir(tmp_path))
    assert identity.read_verdict(TrialDir(tmp_path)) is None
    with TrialDir(tmp_path).slices_file.open("a") as file:
        file.write('[{"number": 0, "round": 2, "sam')  # a kill in the middle of a line
    slices = finish(Race(given, server)).measurement.slices
    assert list(slices[: len(kept)]) == kept
    assert [one.round for one in slices] == [1, 1, 2, 2, 3, 3]
    assert [one.round for one in race.read_slices(TrialDir(tmp_path))] == [1, 1, 2, 2, 3, 3]


@pytest.mark.parametrize(("fails_at", "together"), [(0, True), (0, False), (30, True)])
def test_a_member_that_fails_ends_the_race_and_is_named(order, server, rounds, fails_at, together):
    rounds(40)  # in each of them one step at least, however busy the machine
    given = order({"step_s": 0.01}, {"step_s": 0.01, "fails_at": fails_at}, together=together)
    outcome = finish(Race(given, server)).outcome
    assert (outcome.status, outcome.failure) == (Status.FAILED, Failure.OOM)
    assert outcome.reason.startswith("trial 7: MemoryError: no room")
    assert identity.read_verdict(given.place)[0] == outcome
    wait_for(lambda: not processes())
    assert not list(given.place.root.glob("*/work"))


def test_a_member_that_somebody_kills_interrupts_the_race(order, server, tmp_path):
    running = Race(order({"step_s": 0.01}, {"step_s": 0.01}), server)
    wait_for(lambda: running.step(0.2).samples)
    for one in processes():
        one.kill()
    outcome = finish(running).outcome
    assert (outcome.status, outcome.failure) == (Status.INTERRUPTED, Failure.LOST)
    assert identity.read_verdict(TrialDir(tmp_path)) is None
    assert race.read_slices(TrialDir(tmp_path))


@pytest.mark.long
def test_a_workload_that_ends_is_started_anew(order, server, rounds):
    rounds(13)  # in each of them one step at least, however busy the machine
    report = finish(Race(order({"step_s": 0.05, "steps": 12}, {"step_s": 0.05}), server))
    assert report.outcome.status == Status.COMPLETED, report.outcome.reason
    assert sum(one.steps for one in report.measurement.slices if one.number == 0) > 12


def test_a_workload_that_ends_before_it_is_warm_fails_the_race(order, server):
    outcome = finish(Race(order({"step_s": 0.01}, {"step_s": 0.01, "steps": 2}), server)).outcome
    assert (outcome.status, outcome.failure) == (Status.FAILED, Failure.ERROR)
    assert outcome.reason == "trial 7: the workload ended by itself before it was warmed up"


@pytest.mark.slow
def test_a_turn_without_a_step_is_repeated_longer_a_few_times(order, server, monkeypatch, rounds):
    rounds(1)
    turn_s = 0.02
    monkeypatch.setattr(race._Member, "_turn_s", lambda *_: turn_s)
    report = finish(Race(order({"step_s": 0.05}), server))
    assert report.outcome.status == Status.COMPLETED
    assert report.measurement.slices[0].seconds >= 0.05
    turn_s = 0.001
    again = replace(order({"step_s": 0.5}), directory=str(Path(order().directory, "other")))
    outcome = finish(Race(again, server)).outcome
    assert outcome.reason == "trial 0: no whole step in a turn, 4 times in a row"


@pytest.mark.slow
def test_an_evaluation_may_take_longer_than_all_tries_of_a_turn(order, server, rounds):
    rounds(4)
    report = finish(Race(order({"step_s": 0.02, "evaluated_at": 10}, {"step_s": 0.02}), server))
    assert report.outcome.status == Status.COMPLETED, report.outcome.reason
    assert max(one.seconds / one.steps for one in report.measurement.slices) < 1, "it is in no step"


@pytest.mark.slow
def test_a_disk_that_is_full_interrupts_the_race_and_keeps_its_rounds(order, server, tmp_path):
    with small_disk(tmp_path / "small", "64k") as place:
        given = replace(order({"step_s": 0.005}, {"step_s": 0.005}), directory=str(place))
        running = Race(given, server)
        while not race.read_slices(TrialDir(place)):
            running.step(0.05)
        with pytest.raises(OSError, match="No space"):
            (place / "ballast").write_bytes(bytes(2**17))
        outcome = finish(running).outcome
        assert outcome.status == Status.INTERRUPTED
        assert "No space left on device" in outcome.reason
        assert race.read_slices(TrialDir(place))
        (place / "ballast").unlink()
        assert finish(Race(replace(given, most_s=0.1), server)).outcome.status == Status.COMPLETED
