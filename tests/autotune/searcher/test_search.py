"""A search with a real study and without Ray: the tests run the trials themselves."""

import math
import shutil
from dataclasses import replace
from functools import partial

import optuna
import pytest

from autotune.core.measurement import Evaluation, Measurement, Throughput
from autotune.core.settings import COMMON, settings_key
from autotune.core.trial import Failure, Outcome, Repeat, Shortage, Status, Trial
from autotune.judging.decisions import ablation, confirm
from autotune.memory.feasibility import MemoryModel
from autotune.searcher.ports import Environment, SearchOptions
from autotune.searcher.search import Search
from autotune.space import configurations, spaces
from autotune.space.machine import Machine, fit_to
from autotune.space.sections import Budget
from autotune.storage import studies, study_file
from autotune.storage.identity import write_identity, write_verdict
from autotune.storage.store import Options, StoredSession
from autotune.storage.study_file import SearchPlan
from autotune.trials.progress import Phase
from autotune.trials.report import TrialReport
from tests.autotune.conftest import slices_of

COMPLETED = Outcome(Status.COMPLETED)
OOM = Outcome(Status.FAILED, Failure.OOM, "too big")


class Heard:
    """A listener that records events and notes."""

    def __init__(self):
        self.events, self.notes = [], []

    def note(self, text):
        self.notes.append(text)

    def started(self, trial):
        self.events.append(("started", trial.number))

    def progress(self, trial, report):
        self.events.append(("progress", trial.number))

    def ended(self, trial):
        self.events.append(("ended", trial.number, str(trial.outcome)))


@pytest.fixture
def session(tmp_path, space):
    fitted, _ = fit_to(space, Machine(cpus=8, compute_capability=(9, 0), has_torchao=True))
    return StoredSession.create(tmp_path / "s", fitted, Options(), {})


@pytest.fixture
def begin(session, clock):
    """Begins or resumes a search, which confirms nothing without `repeats`."""

    def open_search(trials=5, time_s=None, repeats=0, study=None, until_learnt=False, **rest):
        study = study or studies.open_study(session.study_file, session.space())
        if studies.read(study).plan is None:
            studies.set_plan(study, SearchPlan(trials, time_s))
        heard, space = Heard(), session.space()
        budget = Budget(trials=trials, repeats=repeats, until_learnt=until_learnt)
        chosen = space.model_copy(update={"budget": budget})
        environment = Environment(session.verdict_of, rest.pop("publish", lambda _: None), clock)
        return Search(chosen, study, heard, SearchOptions(**rest), environment), heard

    return open_search


def figures(speed=10.0, quality=0.2):
    curve = tuple(Evaluation(n, n / speed, quality) for n in (100, 200))
    throughput = Throughput(speed, 0.01, 10, 1.0)
    return Measurement(throughput=throughput, quality=quality, quality_samples=200, curve=curve)


def report(number, outcome=COMPLETED, **measured):
    return TrialReport(number, Phase.TRAINING, 9.0, figures(**measured), outcome=outcome)


def race_report(search, trial, speed_of):
    """Returns the result of a race whose members have the speeds that `speed_of` returns for their trials."""
    trials = search.history.trials
    baseline, *others = (speed_of(trials[number]) for number in trial.race)
    factors = {n: speed / baseline for n, speed in zip(trial.race[1:], others, strict=True)}
    measured = Measurement(slices=slices_of(factors, apart=0.01))
    return TrialReport(trial.number, Phase.RACING, 9.0, measured, outcome=COMPLETED)


def by_batch(trial):
    """Reports a speed proportional to the micro-batch."""
    return report(trial.number, speed=10.0 * trial.config["micro_batch_size"])


@pytest.fixture
def faster():
    """Reports for every new setting a higher speed than for those before it."""
    speeds = {}

    def result(trial):
        key = settings_key(trial.config, COMMON.same_speed)
        return report(trial.number, speed=speeds.setdefault(key, 10.0 + 10 * len(speeds)))

    return result


def in_memory():
    """A study without a file, for searches of many trials."""
    return optuna.create_study(directions=["maximize", "maximize"])


def run(search, result=by_batch):
    """Runs the search's trials one by one; returns them."""
    ran = []
    while (trial := search.next()) is not None:
        ran.append(trial)
        end(search, trial, result)
    return ran


def end(search, trial, result=by_batch):
    """Ends `trial` with the `result` of its settings, and a race with those of its members."""

    def speed_of(member):
        return result(member).measurement.throughput.samples_per_s

    search.progress(race_report(search, trial, speed_of) if trial.race else result(trial))


def test_a_search_runs_its_baseline_first_and_as_many_trials_as_planned(begin):
    search, heard = begin(trials=3)
    ran = run(search)
    assert ran[0].number == 0
    assert ran[0].config == search.space.baseline_config
    assert len(ran) == 3
    assert search.remaining == 0
    assert heard.events[:3] == [("started", 0), ("progress", 0), ("ended", 0, "completed")]


def test_the_baseline_is_run_twice_before_anything_else(begin):
    search, heard = begin(trials=3, repeats=3)
    baseline = search.next()
    assert search.next() is not None, "other trials may run meanwhile"
    search, heard = begin(trials=3, repeats=3, study=in_memory())
    ran = run(search)
    assert ran[1].repeat == confirm.noise_repeat()
    assert ran[1].config == ran[0].config == baseline.config
    assert sum(t.kind == "searched" for t in ran) == 3
    assert search.threshold.noise == 0.02
    assert heard.notes == [
        "The baseline reaches bleu_4 0.2000 after 200 samples; runs with different seeds vary by 0."
    ]


def test_without_repeats_the_baseline_runs_once(begin):
    search, heard = begin(trials=4, repeats=0)
    assert all(t.kind == "searched" for t in run(search))
    assert heard.notes == []


def collapsed(trial):
    """Reports a speed proportional to the micro-batch, and that nothing was learnt."""
    learnt = by_batch(trial)
    curve = tuple(replace(point, collapsed=True) for point in learnt.measurement.curve)
    return replace(learnt, measurement=replace(learnt.measurement, curve=curve))


def test_a_baseline_that_learnt_nothing_falls_back_to_same_training(begin):
    search, heard = begin(trials=8, repeats=3, study=in_memory(), explain=False)
    ran = run(search, collapsed)
    (note,) = heard.notes
    assert note.startswith("Quality cannot be compared yet: after 200 samples the baseline gives the")
    assert search.space.objective.select == "same-training"
    assert {t.config["learning_rate"] for t in ran} == {ran[0].config["learning_rate"]}
    assert {search.space.effective_batch_size(t.config) for t in ran} == {16}
    assert sum(t.kind == "searched" for t in ran) > 3


def test_trials_alongside_the_pilot_may_be_outside_the_settled_space(begin):
    study = in_memory()
    search, _ = begin(trials=12, repeats=3, study=study, explain=False)
    baseline, second, *others = running = [search.next() for _ in range(4)]
    assert second.repeat == Repeat(0, 0), "it need not wait for the first run of the baseline"
    assert len({t.config["learning_rate"] for t in running}) > 1
    end(search, baseline, collapsed)
    assert search.space.objective.select == "same-training"
    for trial in (second, *others):
        end(search, trial, collapsed)
    run(search, collapsed)
    won = confirm.recommended(search.history)[0]
    assert won.number not in {2, 3}, "another training cannot win"
    later = [t for t in search.history.trials if t.kind == "searched" and t.number > 3]
    assert {search.space.effective_batch_size(t.config) for t in later} == {16}
    assert begin(trials=12, repeats=3, study=study)[0].remaining == 0


def test_a_resumed_search_keeps_what_the_pilot_settled(begin):
    study = in_memory()
    search, _ = begin(trials=8, repeats=3, study=study)
    for _ in range(2):
        end(search, search.next(), collapsed)
    again, _ = begin(trials=8, repeats=3, study=study)
    assert again.space == search.space
    assert again.space.objective.select == "same-training"


def test_until_learnt_sets_the_samples_of_all_trials(begin):
    search, _ = begin(trials=3, study=in_memory(), until_learnt=True)
    assert search.space.budget.until_learnt
    end(search, search.next())
    assert (search.space.budget.samples_per_trial, search.space.budget.until_learnt) == (200, False)


def test_in_the_end_the_winner_is_raced_and_then_repeated(begin, faster):
    search, _ = begin(trials=4, repeats=3, explain=False)
    ran = run(search, faster)
    assert [t.kind == "searched" for t in ran[:6]] == [True, False, True, True, True, False]
    best = max(search.history.searched, key=lambda t: t.samples_per_s).number
    assert [t.race or t.repeat.of for t in ran[5:7]] == [(0, best), best]
    assert {t.repeat.of for t in ran[6:]} <= {0, best}
    assert all(t.config == search.history.trials[t.repeat.of].config for t in ran[6:])
    assert confirm.confirmed(search.history)[0].number == best
    assert search.remaining == 0


def test_a_search_with_planned_lengths_plateaus_and_confirms(planned):
    """Twice the rate needs half the length, and nothing else helps."""
    space = planned.revised(budget={"trials": 40, "repeats": 3, "time": None})
    search = Search(space, in_memory(), Heard(), SearchOptions(seed=1, explain=False))
    usual, whole = space.learning_rate({}, 1.0), space.samples({})

    def result(trial):
        samples, rate = space.samples(trial.config), float(trial.config["learning_rate"])
        quality = 0.3 + 0.04 * (math.log2(samples / whole) + min(1, math.log2(rate / usual)))
        measured = replace(figures(quality=quality), quality_samples=samples, samples=samples)
        curve = (Evaluation(samples, samples / 10.0, quality),)
        return TrialReport(
            trial.number, Phase.TRAINING, 9.0, replace(measured, curve=curve), outcome=COMPLETED
        )

    ran = run(search, result)
    raised = next(place for place, t in enumerate(ran) if t.config["learning_rate"] == 2 * usual)
    seeds = [t.repeat for t in ran[raised + 1 : raised + 3]]
    assert seeds == [Repeat(0, 1), Repeat(0, 2)], "the baseline's seeds come before the race"
    assert search.has_plateaued
    assert len(search.history.searched) < 12
    winner, claim = confirm.confirmed(search.history)
    assert space.samples(winner.config) == pytest.approx(whole / 2, rel=0.05)
    assert claim.holds


def test_a_race_runs_alone_and_repeats_side_by_side(begin):
    search, _ = begin(trials=3, repeats=4)
    for _ in range(2):
        end(search, search.next())
    first, second = search.next(), search.next()
    assert search.next() is None, "the running trials may change which trial is confirmed"
    search.progress(report(first.number, speed=1000.0))
    assert search.next() is None
    search.progress(report(second.number, speed=2000.0))
    race = search.next()
    assert race.race == (0, second.number)
    assert search.next() is None
    search.progress(race_report(search, race, lambda t: t.samples_per_s))
    repeats = [search.next() for _ in range(4)]
    ours = [Repeat(second.number, n) for n in (1, 2, 3)]
    assert [t.repeat for t in repeats] == [*ours, Repeat(0, 1)]
    assert search.next() is None, "these may decide, before the fourth of each"
    for trial in repeats[1:]:
        search.progress(report(trial.number, speed=10.0))
        assert confirm.confirmed(search.history) is None
        assert search.next() is None
    search.progress(report(repeats[0].number, speed=10.0))
    assert confirm.confirmed(search.history)[0].number == second.number
    assert [t.measurement.shared for t in search.history.trials[-4:]] == [True] * 4


def test_a_resumed_search_goes_on_with_repeats_that_were_running(begin):
    study = in_memory()
    search, _ = begin(trials=2, repeats=3, study=study)
    for _ in range(2):
        end(search, search.next())
    second = search.next()
    search.progress(report(second.number, speed=2000.0))
    race = search.next()
    search.progress(race_report(search, race, lambda t: t.samples_per_s))
    begun = [search.next().repeat for _ in range(4)]
    again, _ = begin(trials=2, repeats=3, study=study)
    assert [again.next().repeat for _ in range(4)] == begun
    assert again.next() is None


def test_the_sampler_ignores_races(begin, faster):
    """A race has the baseline's configuration, but is no trial of it."""
    study = in_memory()
    search, _ = begin(trials=4, repeats=3, study=study)
    run(search, faster)
    again, _ = begin(trials=4, repeats=3, study=study)
    assert again.history.trials == search.history.trials
    assert again.next() is None


GAIN = {"fp32": 1.0, "bf16": 1.8}


def by_knob(trial):
    """Reports a speed to which every knob contributes an independent factor."""
    config = trial.config
    speed = config["micro_batch_size"] * (1 + config["num_workers"]) * GAIN[config["precision"]]
    return report(trial.number, speed=speed)


RACE = "race"


@pytest.fixture
def explained(begin, session):
    """A search that has confirmed trial 1, with trials of 10 s; only the ablation is left."""

    def make(study=None, **rest):
        study, space = study or in_memory(), session.space()
        baseline = space.baseline_config
        drawn = {"micro_batch_size": 64, "precision": "bf16", "num_workers": 4}
        configs = (baseline, configurations.changed(space, baseline, drawn))
        repeats = [Repeat(of, seed) for seed in (1, 2, 3) for of in (0, 1)]
        begun = [(0, None), (1, None), (0, confirm.noise_repeat()), *((r.of, r) for r in repeats), (0, RACE)]
        for of, repeat in begun:
            race = (0, 1) if repeat == RACE else ()
            trial = studies.begin(study, space, configs[of], None if race else repeat, race=race)
            measured = by_knob(trial).measurement
            if race:
                measured = Measurement(slices=slices_of({1: 12.0}, apart=0.01))
            ended = replace(trial, outcome=COMPLETED, measurement=measured, seconds=10.0)
            studies.end(study, ended, space.limits.memory_fraction)
        return begin(trials=2, repeats=3, study=study, **rest)[0]

    return make


def test_after_confirmation_every_knob_is_measured(explained):
    search = explained()
    assert search.remaining == 1
    ran = run(search, by_knob)
    assert [(t.number, t.ablation_of, t.kind) for t in ran] == [(10, 1, "step"), (11, 1, "step")]
    steps = ablation.steps(search.history)
    assert [step.knob for step in steps] == ["micro_batch_size", "precision", "num_workers"]
    assert [step.factor.value for step in steps] == pytest.approx([4.0, GAIN["bf16"], 5 / 3], rel=1e-3)
    assert search.remaining == 0


def test_an_ablation_step_runs_alone(explained):
    search = explained()
    step = search.next()
    assert step.ablation_of == 1
    assert search.next() is None
    search.progress(by_knob(step))
    assert not search.history.trials[step.number].measurement.shared


def test_without_confirmation_or_explain_there_is_no_ablation(begin, explained):
    search, _ = begin(trials=4, study=in_memory())
    assert all(t.kind == "searched" for t in run(search))
    assert run(explained(explain=False)) == []


def test_a_failed_or_lost_step_is_not_run_again(explained):
    search = explained()
    failing = search.next()
    search.progress(report(failing.number, Outcome(Status.FAILED, Failure.ERROR, "x")))
    for _ in range(3):
        lost = search.next()
        search.lose(lost.number, "gone")
    assert search.next() is None
    assert search.remaining == 0
    steps = ablation.steps(search.history)
    assert [step.reason for step in steps] == [
        "trial 10 failed (error): x",
        "trial 11 failed (lost): gone; 3 times in a row",
        "",
    ]
    assert confirm.confirmed(search.history)[0].number == 1


def test_a_search_killed_during_the_ablation_continues_with_the_same_step(explained, begin, session):
    killed = explained(studies.open_study(session.study_file, session.space())).next()
    again, _ = begin(trials=2, repeats=3)
    first = again.next()
    assert first == killed
    assert again.next() is None, "it runs alone"
    again.progress(by_knob(first))
    assert [t.number for t in run(again, by_knob)] == [11]
    assert all(step.trial for step in ablation.steps(again.history))


def test_a_step_is_begun_only_if_there_is_time_for_a_whole_trial(explained, clock):
    search = explained(time_s=100.0)
    clock.now = 85.0
    step = search.next()
    clock.now = 93.0
    search.progress(by_knob(step))
    assert ablation.next_step(search.history) is not None
    assert search.next() is None
    assert search.remaining == 0
    assert search.stopping is None


def test_searching_and_confirming_come_before_the_ablation(explained):
    study = in_memory()
    studies.set_plan(study, SearchPlan(3, None))
    search = explained(study)
    assert search.next().kind == "searched"


def test_overlapping_trials_are_marked_as_shared(begin):
    search, _ = begin(trials=4)
    baseline = search.next()
    search.progress(by_batch(baseline))
    first, second = search.next(), search.next()
    search.progress(by_batch(first))
    search.progress(by_batch(second))
    last = search.next()
    search.progress(by_batch(last))
    assert [t.measurement.shared for t in search.history.trials] == [False, True, True, False]


def test_a_failing_baseline_ends_the_search_with_its_reason(begin):
    search, _ = begin()
    search.next()
    search.progress(report(0, OOM))
    assert search.is_over()
    assert "the baseline itself failed: too big" in search.stopping
    assert search.next() is None


def test_a_failed_trial_does_not_end_the_search(begin):
    search, heard = begin()
    search.next()
    search.progress(report(0))
    second = search.next()
    search.progress(report(second.number, OOM))
    assert heard.events[-1] == ("ended", second.number, "failed (oom)")
    assert search.next() is not None


def toy(trial, memory_gib=24.0):
    """Reports like a toy GPU: throughput saturates with the batch, half precision takes 60% of the memory."""
    batch, half = trial.config["micro_batch_size"], trial.config["precision"] in {"bf16", "fp16", "fp8"}
    if 2 + batch * (0.3 if half else 0.5) > memory_gib:
        return report(trial.number, OOM)
    return report(trial.number, speed=100 * batch / (batch + 24) * (3 if half else 1), quality=0.16)


@pytest.fixture
def found(begin):
    """A search of forty trials on the toy GPU."""
    search, _ = begin(trials=40, study=in_memory())
    run(search, toy)
    return search


def test_the_search_learns_from_out_of_memory_and_finds_the_fastest(found):
    trials = found.history.trials
    assert len(trials) == 40
    assert sum(t.out_of_memory for t in trials) <= 4
    assert max(t.samples_per_s or 0 for t in trials if t.completed) >= 0.95 * 300 * 64 / 88


def test_no_trial_is_known_not_to_fit_or_repeated_or_outside_the_limits(found):
    trials = found.history.trials
    for number, trial in enumerate(trials):
        assert "ran out of it" not in (MemoryModel(trials[:number]).explain_misfit(trial.config) or "")
        assert trial.config not in [t.config for t in trials[:number]]
        assert 8 <= found.space.effective_batch_size(trial.config) <= 128


def test_rejected_suggestions_are_recorded_with_their_reasons(begin):
    study = in_memory()
    search, _ = begin(trials=40, study=study)
    run(search, toy)
    passed = studies.read(study).passed_over
    assert passed
    assert all(set(one.config) == set(search.space.knobs) and one.reason for one in passed)


def test_slower_settings_are_not_run_with_another_learning_rate(begin):
    search, _ = begin(trials=40, study=in_memory())
    fastest, speeds = 0.0, {}
    while (trial := search.next()) is not None:
        speed = 10.0 * trial.config["micro_batch_size"]
        key = tuple(v for n, v in trial.config.items() if n != "learning_rate")
        assert key not in speeds or speeds[key] >= 0.99 * fastest
        speeds[key], fastest = speed, max(fastest, speed)
        search.progress(report(trial.number, speed=speed))


def test_the_threshold_is_published_after_every_trial(begin):
    thresholds = []
    search, _ = begin(trials=3, publish=thresholds.append)
    run(search)
    assert len(thresholds) == 4
    assert thresholds[0].rivals == ()
    assert thresholds[1].rivals[0].number == 0
    assert thresholds[-1] == search.threshold


def test_running_trials_hear_which_of_them_share_the_machine(begin):
    thresholds = []
    search, _ = begin(trials=9, publish=thresholds.append)
    search.progress(report(search.next().number))
    first = search.next()
    assert thresholds[-1].shared == ()
    second, third = search.next(), search.next()
    assert thresholds[-1].shared == (first.number, second.number, third.number)
    search.progress(report(first.number))
    assert thresholds[-1].shared == (second.number, third.number)
    search.progress(report(second.number, speed=1000.0))
    assert thresholds[-1].rivals[0].shared


def test_a_killed_search_continues_with_its_running_trial(begin):
    search, _ = begin(trials=3)
    search.next()
    search.progress(report(0))
    running = search.next()

    again, _ = begin(trials=3)
    first = again.next()
    assert (first.number, first.config) == (running.number, running.config)
    again.progress(report(first.number))
    third = again.next()
    again.progress(report(third.number))
    assert again.next() is None
    assert [t.number for t in again.history.trials] == [0, 1, 2]


def test_a_search_killed_while_it_confirms_continues_with_the_same_race_and_seed(begin, faster):
    search, _ = begin(trials=2, repeats=3)
    for _ in range(3):
        end(search, search.next(), faster)
    killed = search.next()
    assert killed.race
    again, _ = begin(trials=2, repeats=3)
    first = again.next()
    assert (first.number, first.race) == (killed.number, killed.race)
    assert again.next() is None
    end(again, first, faster)
    killed = again.next()
    assert killed.repeat.round == 1
    again, _ = begin(trials=2, repeats=3)
    first = again.next()
    assert (first.number, first.repeat) == (killed.number, killed.repeat)
    end(again, first, faster)
    run(again, faster)
    assert again.remaining == 0
    assert confirm.confirmed(again.history)


@pytest.fixture
def begin_unreported(begin, session):
    """Resumes a search that was killed before it had recorded the baseline's outcome."""

    def resumed(outcome):
        search, _ = begin()
        search.next()
        place = session.trial_dir(0)
        place.root.mkdir(parents=True)
        write_identity(place, session.identity_of(search.history.trials[0]))
        write_verdict(place, outcome, figures())
        return begin()[0]

    return resumed


def test_an_unreported_verdict_counts(begin_unreported):
    again = begin_unreported(COMPLETED)
    assert again.history.trials[0].outcome == COMPLETED
    assert again.next().number != 0


def test_an_unreported_failure_of_the_baseline_ends_the_search(begin_unreported):
    again = begin_unreported(Outcome(Status.FAILED, Failure.ERROR, "no disk"))
    assert again.next() is None
    assert again.stopping == "the baseline itself failed: no disk"


def test_a_copy_of_the_studys_file_alone_has_a_trial_as_soon_as_it_has_ended(session, tmp_path):
    study = studies.open_study(session.study_file, session.space(), session.key)
    settle = partial(studies.checkpoint, session.study_file)
    search = Search(session.space(), study, Heard(), environment=Environment(settle=settle))
    end(search, search.next(), by_batch)
    shutil.copy(session.study_file, tmp_path / "copy.db")
    assert study_file.load_study(tmp_path / "copy.db").trials[0].outcome == COMPLETED


def test_files_in_a_trials_directory_are_set_aside_before_it_starts(session):
    place = session.trial_dir(0)
    place.root.mkdir(parents=True)
    write_verdict(place, COMPLETED, figures())
    study, heard = studies.open_study(session.study_file, session.space(), session.key), Heard()
    environment = Environment(verdict_of=session.verdict_of, clear=session.clear)
    Search(session.space(), study, heard, environment=environment).next()
    assert not place.root.exists()
    (note,) = heard.notes
    assert "set aside as 0000.aside-1" in note


def test_a_search_whose_session_is_gone_is_over(session):
    study = studies.open_study(session.study_file, session.space(), session.key)
    search = Search(session.space(), study, Heard(), environment=Environment(is_in_place=lambda: False))
    assert search.is_over()
    assert search.next() is None


def test_a_trial_whose_supervisor_died_runs_again_but_not_forever(begin):
    search, _ = begin()
    trial = search.next()
    search.lose(trial.number, "gone")
    again = search.next()
    assert again == trial
    search.lose(trial.number, "gone")
    assert search.next() == trial
    search.lose(trial.number, "gone")
    assert search.history.trials[0].outcome == Outcome(Status.FAILED, Failure.LOST, "gone; 3 times in a row")


def test_a_trial_that_makes_progress_is_not_given_up(begin):
    search, _ = begin()
    trial = search.next()
    for evaluated in range(100, 1000, 100):
        search.progress(TrialReport(0, Phase.TRAINING, 9.0, Measurement(quality_samples=evaluated)))
        search.lose(0, "gone")
        assert search.next() == trial


def test_kills_are_counted_per_trial(begin):
    search, _ = begin()
    while (trial := search.next()) is not None:
        for _ in range(2):
            search.lose(trial.number, "gone")
            assert search.next() == trial
        end(search, trial)
    assert {t.outcome for t in search.history.trials} == {COMPLETED}


def test_a_trial_that_exhausted_the_machines_memory_is_not_run_again(begin):
    search, _ = begin()
    search.lose(search.next().number, "no room", out_of_memory=True)
    ended = Outcome(Status.FAILED, Failure.OOM, "no room", Shortage.MACHINE)
    assert search.history.trials[0].outcome == ended


def test_a_killed_attempt_is_resumed_and_the_search_continues(begin):
    search, _ = begin()
    trial = search.next()
    killed = Outcome(Status.INTERRUPTED, Failure.LOST, "killed by SIGKILL")
    search.progress(report(0, killed))
    assert search.stopping is None
    assert search.history.trials[0].outcome is None
    assert search.next() == trial


def test_a_trials_seconds_are_those_of_all_its_attempts(begin, clock):
    search, _ = begin()
    search.next()
    clock.now += 5.0  # the end of a trial that began long before this run of the search
    search.progress(replace(report(0), elapsed_s=3600.0))
    assert search.history.trials[0].seconds == 3600.0


def test_an_abort_blames_no_trial(begin):
    search, _ = begin()
    trial = search.next()
    for _ in range(9):
        search.put_back(0, "Ray Tune aborted")
        assert search.next() == trial


def test_an_end_reported_twice_counts_once(begin):
    search, heard = begin()
    search.next()
    search.progress(report(0, speed=10.0))
    search.progress(report(0, speed=99.0))
    search.lose(0, "late")
    assert search.history.trials[0].samples_per_s == 10.0
    assert [e[0] for e in heard.events].count("ended") == 1


def test_a_note_in_every_report_is_shown_once(begin):
    search, heard = begin()
    search.next()
    for _ in range(3):
        search.progress(replace(report(0, outcome=None), note="imports anew"))
    assert heard.notes.count("imports anew") == 1


def test_a_disk_fault_ends_no_trial(begin):
    search, heard = begin()
    search.next()
    fault = Outcome(Status.INTERRUPTED, reason="x: cannot be written: No space left on device")
    search.progress(report(0, fault))
    assert search.is_over()
    assert search.fault == fault.reason
    assert heard.events[-1] == ("ended", 0, "interrupted")
    assert [t.outcome for t in search.history.trials] == [None]
    again, _ = begin()
    assert again.next().number == 0


def test_time_runs_out_across_runs(begin, session, clock):
    search, _ = begin(time_s=1000.0)
    assert not search.is_over()
    study = studies.open_study(session.study_file, session.space())
    studies.set_plan(study, replace(studies.read(study).plan, spent_s=900.0))
    again, _ = begin()
    clock.now = 100.1
    assert again.is_over()
    assert again.stopping == "the time is up"
    assert again.next() is None


def test_time_is_reserved_for_confirming(begin, clock):
    """A race and three seeds of two configurations of 20 s each take 180 of the 1000 s."""
    search, _ = begin(trials=500, time_s=1000.0, repeats=3, study=in_memory())
    while (trial := search.next()) is not None:
        clock.now += 60.0 if trial.race else 20.0
        end(search, trial)
    assert 35 <= len(search.history.searched) <= 42
    assert confirm.confirmed(search.history)
    assert search.stopping is None


def test_time_is_reserved_only_if_there_is_something_to_confirm(begin, clock):
    """All others are slower than the baseline: the search goes on to the end of its time."""
    search, _ = begin(trials=500, time_s=1000.0, repeats=3, study=in_memory())

    while (trial := search.next()) is not None:
        clock.now += 20.0
        is_slower = trial.kind == "searched" and trial.number
        search.progress(report(trial.number, speed=5.0 if is_slower else 10.0))
    assert len(search.history.trials) >= 50
    assert search.stopping == "the time is up"


def test_an_exhausted_space_ends_the_search(begin, session, grid):
    session.space_file.write_text(spaces.dump(grid))
    search, _ = begin(trials=100, study=in_memory())
    ran = run(search, lambda trial: report(trial.number, speed=10.0))
    assert search.is_exhausted
    assert search.remaining == 0
    assert len(ran) == len(configurations.allowed(grid))


def test_an_out_of_memory_of_an_earlier_session_is_not_repeated(begin, session):
    config = session.space().baseline_config | {"micro_batch_size": 64}
    earlier = [Trial(7, config, OOM), Trial(8, config | {"precision": "bf16"}, OOM)]
    search, _ = begin(trials=20, study=in_memory(), earlier=earlier)
    tried = [t.config for t in run(search) if t.config["precision"] in {"fp32", "bf16", "tf32", "fp16"}]
    assert tried
    assert all(config["micro_batch_size"] < 64 for config in tried)
    assert all(t.number < 20 for t in search.history.trials)


def test_the_space_is_not_exhausted_while_trials_run(begin, session, grid):
    session.space_file.write_text(spaces.dump(grid))
    search, _ = begin(trials=100, study=in_memory())
    running = []
    while (trial := search.next()) is not None:
        running.append(trial)
    assert not search.is_exhausted
    for trial in running:
        search.progress(report(trial.number, speed=10.0))
    run(search, lambda trial: report(trial.number, speed=10.0))
    assert search.is_exhausted
    assert search.next() is None
    assert search.is_exhausted


def test_the_first_reason_to_stop_is_kept(begin):
    first, _ = begin()
    first.stop("interrupted", interrupted=True)
    assert (first.is_interrupted, first.stopping) == (True, "interrupted")
    second, _ = begin()
    second.stop("the time is up")
    second.stop("interrupted", interrupted=True)
    assert (second.is_interrupted, second.stopping) == (False, "the time is up")
