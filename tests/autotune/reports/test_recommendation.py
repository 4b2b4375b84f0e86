"""The answer of a report: every figure of the recommendation and of the baseline has the right runs."""

import math
import statistics
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.core.measurement import Outside
from autotune.core.trial import Failure, Outcome, Status
from autotune.display import view
from autotune.judging.accounts.costs import Prices
from autotune.judging.decisions import claims
from autotune.judging.decisions.history import History
from autotune.reports.recommendation import answer
from autotune.workloads import registry
from autotune.workloads.base import Workload
from tests.autotune.conftest import reaching

from .searched import GIB, confirmed, trial

T_2 = 4.302653  # Student's t of 95% with 2 degrees of freedom
HERE = Path("runs/s")


@pytest.fixture
def workload():
    return Workload("some.module:fit")


@pytest.fixture
def unrepeated(space):
    """Returns the space of a search without confirmation."""
    return space.revised(budget={"repeats": 0})


def test_a_confirmed_winner_is_described_by_the_runs_that_confirm_it(space, workload):
    found = answer(History(confirmed(space), space), workload, HERE)
    assert (found.verdict, found.rounds, found.best.trial, found.baseline.trial) == ("confirmed", 20, 1, 0)
    assert found.best.throughput.value == found.factor.value * found.baseline.throughput.value
    assert (found.best.runs, found.baseline.runs) == (4, 5)
    assert found.best.throughput.low < found.best.throughput.value < found.best.throughput.high
    assert (found.best.quality.value, found.best.seeds) == (pytest.approx(0.22), 3)
    assert found.best.quality.high - 0.22 == pytest.approx(T_2 * 0.01 / 3**0.5, rel=1e-5)
    assert found.baseline.throughput.value == pytest.approx(statistics.mean([10, 10, 10.1, 10.2, 10.3]))
    assert (found.baseline.quality.value, found.baseline.seeds) == (pytest.approx(0.2106), 5)
    assert found.best.scores == {"bleu_4": pytest.approx(0.22)}


def test_the_factor_and_the_sentence_are_those_of_the_claim(space, workload):
    history = History(confirmed(space), space)
    found, claim = answer(history, workload, HERE), claims.claim(1, history)
    assert found.factor == claim.factor
    settings = "Trial 1, batch 64 bf16 workers 2 lr 0.0001."
    assert found.sentence == f"{view.confirmation(claim, history)}. {settings}"
    assert found.commands == ("python -m autotune export runs/s -o best.yaml",)


def test_an_unconfirmed_winner_is_neither_recommended_nor_exported(space, workload):
    trials = [trial(space, 0, 10, 0.2), trial(space, 1, 30, 0.2, micro_batch_size=64)]
    found = answer(History(trials, space), workload, HERE, go_on="resume s --time 20m")
    assert (found.verdict, found.is_open, found.best.trial) == ("unconfirmed", True, 1)
    assert found.sentence == "Possibly 3.0x faster, not confirmed. To confirm it: resume s --time 20m"
    assert found.commands == ()


def test_a_single_run_has_the_interval_of_its_steps(unrepeated, workload):
    space = unrepeated
    trials = [trial(space, 0, 10, 0.2), trial(space, 1, 30, 0.2, micro_batch_size=64, shared=True)]
    found = answer(History(trials, space), workload, HERE)
    assert (found.verdict, found.rounds, found.best.runs, found.best.seeds) == ("unconfirmed", 0, 1, 1)
    assert (found.best.throughput.low, found.best.throughput.high) == pytest.approx((29.9, 30.1), 1e-4)
    assert found.best.quality.low is None
    width = math.exp(math.hypot(0.1 / 30, 0.1 / 10))
    factor = found.factor.low, found.factor.value, found.factor.high
    assert factor == pytest.approx((3.0 / width, 3.0, 3.0 * width))
    runs = "Not confirmed: the trial and the baseline ran once, over 20,000 samples each. Other trials"
    assert runs in found.sentence
    assert "Few seeds: the baseline's bleu_4 was measured with 1 seed, trial 1's with 1." in found.cautions


def test_all_runs_count_until_the_repeats_are_done(space, workload):
    found = answer(History(confirmed(space)[:-1], space), workload, HERE)
    assert (found.verdict, found.best.runs, found.baseline.runs) == ("unconfirmed", 3, 5)
    assert found.factor.value == pytest.approx(3.0, 1e-3), "the factor of the race"
    assert found.best.throughput.value == found.factor.value * found.baseline.throughput.value
    assert (found.baseline.seeds, found.best.seeds) == (5, 2)
    assert found.sentence == "Possibly 3.0x faster, not confirmed"


def test_a_figure_of_too_few_steps_has_no_interval(space, workload):
    faster = {"half_width": None, "num_workers": 4}
    trials = [trial(space, 0, 10, 0.2, half_width=None), trial(space, 1, 30, 0.2, **faster)]
    found = answer(History(trials, space), workload, HERE)
    assert (found.best.throughput.low, found.factor.value, found.factor.low) == (None, 3.0, None)


def test_the_baseline_is_the_answer_if_nothing_is_better(space, workload):
    trials = [trial(space, 0, 10, 0.2), trial(space, 1, 30, 0.1, micro_batch_size=64)]
    found = answer(History(trials, space), workload, HERE)
    assert (found.verdict, found.best, found.factor, found.commands) == ("baseline", found.baseline, None, ())
    assert found.sentence.startswith("The baseline is the best so far (10.0 ± 0.1 samples/s, bleu_4 0.2000)")


@pytest.mark.parametrize("go_on", ["python -m autotune resume runs/s", ""])
def test_an_interrupted_search_can_be_resumed(unrepeated, workload, go_on):
    trials = [trial(unrepeated, 0, 10, 0.2), trial(unrepeated, 1, 30, 0.2, micro_batch_size=64)]
    commands = answer(History(trials, unrepeated), workload, HERE, go_on=go_on).commands
    assert commands[1:] == ((go_on,) if go_on else ())
    assert commands[0] == "python -m autotune export runs/s -o best.yaml"


def test_without_a_baseline_there_is_no_answer(space, workload):
    running = replace(trial(space, 0, None, None), outcome=None)
    found = answer(History([running], space), workload, HERE, go_on="python -m autotune resume runs/s")
    assert (found.verdict, found.sentence, found.baseline) == ("none", view.NO_RESULT, None)
    assert found.commands == ("python -m autotune resume runs/s",)


def test_a_failed_baseline_says_why_and_is_not_resumed(space, workload):
    failed = replace(trial(space, 0, None, None), outcome=Outcome(Status.FAILED, Failure.OOM, "no memory"))
    found = answer(History([failed], space), workload, HERE, go_on="python -m autotune resume runs/s")
    assert found.sentence == f"{view.NO_RESULT} It failed (oom): no memory"
    assert found.commands == ("python -m autotune search --space runs/s/space.yaml --session runs/s-2",)


def test_the_gain_to_a_target_is_in_time(space, workload):
    slow, fast = trial(space, 0, 10, 0.2), trial(space, 1, 12, 0.2, micro_batch_size=64)
    trials = [reaching(slow, 10_000), reaching(fast, 4_000)]
    found = answer(History(trials, space.revised(objective={"target": 0.2})), workload, HERE)
    assert (found.best.trial, found.factor.value, found.factor.low) == (1, pytest.approx(3.0), None)


def test_memory_is_the_highest_peak_of_any_run(space, workload):
    trials = confirmed(space)
    trials[7] = replace(trials[7], measurement=replace(trials[7].measurement, peak_memory_bytes=3 * GIB))
    best = answer(History(trials, space), workload, HERE).best
    assert (best.peak_memory_bytes, best.memory_share) == (3 * GIB, 3 / 8)


def test_energy_is_per_sample_and_never_of_a_shared_gpu(space, workload):
    telemetry = {"gpu_energy_j": 40_000.0, "gpu_utilisation_percent": 80.0, "cpu_percent": 150.0}
    baseline = trial(space, 0, 10, 0.2, telemetry=telemetry)
    shared = trial(space, 1, 30, 0.2, telemetry=telemetry, shared=True)
    found = answer(History([baseline, shared], space), workload, HERE)
    assert (found.baseline.joules_per_sample, found.best.joules_per_sample) == (2.0, None)
    assert (found.baseline.gpu_percent, found.baseline.cpu_percent) == (80.0, 150.0)
    assert answer(History(confirmed(space), space), workload, HERE).best.joules_per_sample is None


def test_energy_is_weighted_by_what_the_runs_trained(space, workload):
    trials = confirmed(space)
    used = {5: (10_000.0, 20_000), 7: (60_000.0, 20_000), 9: (5_000.0, 10_000)}
    for number, (joules, samples) in used.items():
        changed = replace(trials[number].measurement, telemetry={"gpu_energy_j": joules}, samples=samples)
        trials[number] = replace(trials[number], measurement=changed)
    assert answer(History(trials, space), workload, HERE).best.joules_per_sample == pytest.approx(75 / 50)


def test_a_step_is_divided_by_the_shares_of_its_phases(space, workload):
    shares = {"data_s": 0.5, "forward_s": 0.3, "backward_s": 0.2}
    trials = [
        trial(space, 0, 8, 0.2, step_shares=shares),
        trial(space, 1, 32, 0.2, accumulation_steps=4, step_shares=shares),
    ]
    found = answer(History(trials, space), workload, HERE)
    # a step of 16 samples at 8 samples/s takes 2 s
    assert found.baseline.step_s == pytest.approx({"data": 1.0, "forward": 0.6, "backward": 0.4})
    assert sum(found.best.step_s.values()) == pytest.approx(64 / 32)
    assert answer(History(confirmed(space), space), workload, HERE).best.step_s == {}


def test_a_steps_time_excludes_evaluations_even_if_speed_includes_them(space, workload):
    wall = space.revised(objective={"speed": "wall"}, training={"samples_per_evaluation": 64})
    made = trial(space, 0, 8, 0.2, step_shares={"forward_s": 1.0})
    timed = replace(made, measurement=replace(made.measurement, outside=Outside(4, 4.0, 0.1)))
    found = answer(History([timed], wall), workload, HERE, training_samples=640)
    assert found.baseline.step_s == {"forward": pytest.approx(16 * (1 / 8 - 4 / 64))}
    assert found.baseline.full_training_s == pytest.approx(80)


def test_the_whole_training_takes_its_samples_over_the_throughput(space, workload):
    found = answer(History(confirmed(space), space), workload, HERE, training_samples=60_000)
    assert found.full_training_samples == 60_000
    assert found.best.full_training_s == 60_000 / found.best.throughput.value
    assert answer(History(confirmed(space), space), workload, HERE).best.full_training_s is None


def test_a_trainings_cost_follows_from_its_known_figures(space, workload):
    trials = [trial(space, 0, 10, 0.2), trial(space, 1, 30, 0.2, micro_batch_size=64)]
    history, per_hour = History(trials, space), Prices(per_hour=2.0)
    found = answer(history, workload, HERE, training_samples=72_000, prices=per_hour)
    assert found.baseline.cost.hours.value == pytest.approx(2.0)
    assert found.baseline.cost.hours.high > 2.0
    assert found.baseline.cost.money.value == pytest.approx(4.0)
    assert found.best.cost.money.value == pytest.approx(4.0 / 3)
    assert not any("No cost" in line for line in found.cautions)
    endless = answer(history, workload, HERE, prices=per_hour)
    assert endless.best.cost is None
    assert "training.samples in the search space" in endless.cautions[-1]
    dark = answer(history, workload, HERE, training_samples=72_000, prices=Prices(2.0, 0.3))
    assert dark.best.cost.money is None
    assert "--price-per-kwh needs it" in dark.cautions[-1]
    assert answer(history, workload, HERE, training_samples=72_000).best.cost.money is None


def test_a_small_validation_split_and_a_throttled_gpu_are_pointed_out(space, workload):
    r2gen = registry.load("r2gen")

    def cautions(studies, of=r2gen):
        scores, hot = {"bleu_4": 0.2, "val_studies": studies}, {"gpu_throttled": 0.5}
        trials = [trial(space, 0, 10, 0.2, scores=scores, telemetry=hot)]
        return answer(History(trials, space), of, HERE).cautions

    assert "Small validation split: bleu_4 is measured on 60 studies." in cautions(60.0)
    assert not [line for line in cautions(296.0) if "validation" in line]
    assert not [line for line in cautions(60.0, workload) if "validation" in line], "a score like others"
    assert "Slowed down by heat: trials 0." in cautions(60.0)


def test_enough_seeds_need_no_caution(space, workload):
    cautions = answer(History(confirmed(space), space), workload, HERE).cautions
    assert not [line for line in cautions if "seeds" in line]


def test_refuted_trials_are_named(space, workload):
    trials = confirmed(space, factor=0.9)
    found = answer(History(trials, space), workload, HERE)
    assert found.verdict == "baseline"
    assert any("Trial 1 was not confirmed" in line for line in found.cautions)


def test_the_full_training_includes_evaluations_if_their_frequency_is_known(space, workload):
    trials = [trial(space, 0, 10, 0.2), trial(space, 1, 30, 0.2, micro_batch_size=64)]
    outside = Outside(4, 20.0, 1.0, 0.1)
    timed = [replace(t, measurement=replace(t.measurement, outside=outside)) for t in trials]
    known = space.revised(training={"samples_per_evaluation": 600})
    found = answer(History(timed, known), workload, HERE, training_samples=6000)
    assert found.evaluations_counted
    assert found.baseline.full_training_s == pytest.approx(600 + 10 * 20)
    assert found.best.full_training_s == pytest.approx(200 + 10 * 20)
    assert (found.baseline.evaluation_share, found.best.evaluation_share) == pytest.approx((0.25, 0.5))
    assert found.best.pause_share == pytest.approx(0.05)
    assert found.outside[0].startswith("Evaluation is about 50% of the training with trial 1's settings, 25%")
    unknown = answer(History(timed, space), workload, HERE, training_samples=6000)
    assert (unknown.evaluations_counted, unknown.best.full_training_s) == (False, pytest.approx(200))
    partly = answer(History([timed[0], trials[1]], known), workload, HERE, training_samples=6000)
    assert (partly.evaluations_counted, partly.baseline.full_training_s) == (False, 600)
