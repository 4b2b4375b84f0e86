"""The ablation from the baseline to the winner, one knob at a time, reusing earlier measurements."""

import itertools
import math
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.configuration import set_hypothesis_home_dir

from autotune.core.measurement import Evaluation, Measurement, Throughput
from autotune.core.settings import COMMON, settings_key
from autotune.core.trial import Failure, Outcome, Repeat, Status, Trial
from autotune.judging.decisions import ablation, confirm
from autotune.judging.decisions.confirm import Proposal
from autotune.judging.decisions.history import History
from autotune.space import configurations
from autotune.space.knobs import KeptBatch
from tests.autotune.conftest import slices_of

COMPLETED, STOPPED = Outcome(Status.COMPLETED), Outcome(Status.STOPPED, reason="slower")
FAILED = Outcome(Status.FAILED, Failure.LOST, "gone")
OOM = Outcome(Status.FAILED, Failure.OOM, "too big")
GIB = 2**30


@pytest.fixture(scope="module", autouse=True)
def _own_home(tmp_path_factory):
    """Moves Hypothesis' database out of the working directory."""
    set_hypothesis_home_dir(tmp_path_factory.mktemp("hypothesis"))


def measured(number, config, speed, outcome=COMPLETED, **rest):
    where = {"shared": rest.pop("shared", False), "device": rest.pop("device", "gpu")}
    curve = (Evaluation(100, 10.0, 0.2),)
    figures = Measurement(throughput=Throughput(speed, 0.1, 20, 5.0), quality=0.2, curve=curve, **where)
    return Trial(number, config, outcome, figures, 10.0, **rest)


def failed(number, config, outcome, **rest):
    return Trial(number, config, outcome, Measurement(device="gpu", memory_limit_bytes=GIB), 10.0, **rest)


def confirmed(space, drawn, others=(), shared=False, learning_rate=1.0):
    """Returns a baseline, trial 1 at three times its speed, `others`, and the trials that confirm trial 1."""
    baseline = space.baseline_config
    winner = configurations.changed(space, baseline, {"learning_rate": learning_rate, **drawn})
    trials = [measured(0, baseline, 10.0, shared=shared), measured(1, winner, 30.0, shared=shared)]
    trials += [replace(t, number=n) for n, t in enumerate(others, start=2)]
    trials += confirming(trials, 1, 3.0)
    assert confirm.confirmed(History(trials, space))[0].number == 1
    return trials


def confirming(trials, winner, factor):
    """A race won by trial `winner`, and seeds of it and of the baseline."""
    slices = slices_of({winner: factor}, apart=0.01)
    race = measured(len(trials), trials[0].config, 10.0, race=(0, winner))
    made = [replace(race, measurement=Measurement(device="gpu", slices=slices))]
    for seed in (1, 2, 3):
        for of in (0, winner):
            before = [t for t in trials if t.repeat and t.repeat.of == of]
            again, number = Repeat(of, len(before) + seed), len(trials) + len(made)
            made.append(measured(number, trials[of].config, trials[of].samples_per_s, repeat=again))
    return made


def config_of(space, **drawn):
    return configurations.changed(space, space.baseline_config, drawn)


def play(trials, space, reads=lambda _: (COMPLETED, 20.0)):
    """Measures every step; returns all trials, and the measured configurations."""
    trials, ran = list(trials), []
    while (proposal := ablation.next_step(History(trials, space))) is not None:
        config, winner = proposal.config, proposal.ablation_of
        ran.append(config)
        outcome, speed = reads(config)
        if outcome.status is Status.FAILED:
            trials.append(failed(len(trials), config, outcome, ablation_of=winner))
        else:
            trials.append(measured(len(trials), config, speed, outcome, ablation_of=winner))
    return trials, ran


def knobs(steps):
    return [step.knob for step in steps]


def factors(steps):
    return [step.factor.value for step in steps if step.factor]


def test_without_a_confirmed_winner_there_is_no_ablation(space):
    trials = confirmed(space, {"precision": "bf16"})
    assert ablation.steps(History([], space)) == []
    assert ablation.steps(History(trials[:4], space)) == [], "not repeated often enough yet"
    assert ablation.next_step(History(trials[:4], space)) is None
    assert ablation.steps(History(trials[:2], space.revised(budget={"repeats": 0}))) == []


def test_a_single_knob_needs_no_run(space):
    trials = confirmed(space, {"precision": "bf16"})
    (step,) = ablation.steps(History(trials, space))
    assert (step.knob, step.before, step.after) == ("precision", "fp32", "bf16")
    assert step.config == trials[1].config
    assert step.throughput.value == pytest.approx(30.0, 1e-3)
    assert step.factor == History(trials, space).factor(trials[1]), "from the race"
    assert ablation.next_step(History(trials, space)) is None


def test_settings_without_effect_on_speed_are_no_steps(space):
    trials = confirmed(space, {"precision": "bf16"}, learning_rate=1.5)
    assert knobs(ablation.steps(History(trials, space))) == ["precision"]
    assert ablation.steps(History(trials, space))[0].config == trials[1].config
    trials = confirmed(space, {}, learning_rate=1.5)
    assert ablation.steps(History(trials, space)) == []


def test_a_setting_that_follows_the_batch_is_no_step_of_its_own(space):
    knobs_ = {**space.knobs, "accumulation_steps": KeptBatch(keep="effective_batch_size")}
    space = space.model_copy(update={"knobs": knobs_})
    trials = confirmed(space, {"micro_batch_size": 4, "precision": "bf16"})
    assert trials[1].config["accumulation_steps"] == 4
    first, last = ablation.steps(History(trials, space))
    assert [first.knob, last.knob] == ["micro_batch_size", "precision"]
    assert first.config == config_of(space, micro_batch_size=4)


def test_between_the_ends_the_learning_rate_follows_the_batch(space):
    trials = confirmed(space, {"micro_batch_size": 64, "precision": "bf16"}, learning_rate=1.5)
    first, last = ablation.steps(History(trials, space))
    assert (first.knob, first.config["learning_rate"]) == ("micro_batch_size", 2e-4)
    assert (last.knob, last.config["learning_rate"]) == ("precision", 3e-4)


def test_measured_steps_come_first_and_are_not_run_again(space):
    winner = {"micro_batch_size": 64, "precision": "bf16", "num_workers": 8}
    unmeasured = ablation.steps(History(confirmed(space, winner), space))
    assert knobs(unmeasured) == list(winner), "in the order of the space"
    known = [
        measured(2, config_of(space, num_workers=8, learning_rate=1.7), 12.0, STOPPED),
        measured(3, config_of(space, num_workers=8, precision="bf16"), 24.0),
    ]
    trials = confirmed(space, winner, known)
    steps = ablation.steps(History(trials, space))
    assert knobs(steps) == ["num_workers", "precision", "micro_batch_size"]
    assert [s.trial for s in steps[:2]] == [2, 3]
    assert factors(steps) == pytest.approx([1.2, 2.0, 1.25], 1e-3)
    assert ablation.next_step(History(trials, space)) is None


def test_trials_of_equal_settings_are_pooled(space):
    bf16 = config_of(space, precision="bf16")
    known = [measured(2, bf16, 18.0), measured(3, {**bf16, "learning_rate": 1e-3}, 22.0)]
    trials = confirmed(space, {"precision": "bf16", "num_workers": 8}, known)
    first = ablation.steps(History(trials, space))[0]
    assert first.throughput.value == pytest.approx(20.0)
    assert first.throughput.part == pytest.approx(0.1, 0.01), "half of their distance"


@pytest.mark.parametrize("unlike", [{"shared": True}, {"device": "another"}])
def test_shared_or_foreign_measurements_are_repeated(space, unlike):
    bf16 = config_of(space, precision="bf16")
    trials = confirmed(space, {"precision": "bf16", "num_workers": 8}, [measured(2, bf16, 18.0, **unlike)])
    trials, ran = play(trials, space)
    assert ran == [bf16]
    assert ablation.steps(History(trials, space))[0].throughput.value == pytest.approx(20.0)


def test_a_shared_winner_is_represented_by_a_repeat_that_ran_alone(space):
    trials = confirmed(space, {"precision": "bf16"}, shared=True)
    history = History(trials, space)
    assert history.trial(ablation.steps(history)[0].trial).repeat is not None


def test_a_shared_baseline_without_repeats_is_measured_alone(space):
    known = confirmed(space, {"precision": "bf16", "num_workers": 8}, shared=True)
    space = space.revised(objective={"keep": 0.0})
    trials = [t for t in known if not (t.repeat and t.repeat.of == 0)]
    assert ablation.next_step(History(trials, space)) == Proposal(space.baseline_config, ablation_of=1)
    trials, ran = play(trials, space)
    assert ran == [space.baseline_config, config_of(space, precision="bf16")]
    assert all(step.factor for step in ablation.steps(History(trials, space)))


def test_a_winner_confirmed_without_seeds_has_an_ablation(space):
    """If any quality will do, the race alone confirms."""
    free = space.revised(objective={"keep": 0.0})
    trials = [t for t in confirmed(space, {"precision": "bf16", "num_workers": 8}) if not t.repeat]
    trials, ran = play(trials, free)
    assert ran == [config_of(space, precision="bf16")]
    assert factors(ablation.steps(History(trials, free))) == pytest.approx([2.0, 1.5], 1e-3)


def test_a_step_on_another_device_is_not_run_again(space):
    trials = confirmed(space, {"precision": "bf16", "num_workers": 8})
    config = ablation.next_step(History(trials, space)).config
    trials.append(measured(len(trials), config, 20.0, device="another", ablation_of=1))
    assert ablation.next_step(History(trials, space)) is None
    assert "was measured on another device" in ablation.steps(History(trials, space))[0].reason


def test_after_a_failed_step_the_next_factor_covers_both(space):
    trials = confirmed(space, {"precision": "bf16", "num_workers": 8, "accumulation_steps": 2})
    reads = {1: (FAILED, None), 2: (COMPLETED, 20.0)}
    trials, ran = play(trials, space, lambda config: reads[1 + (config["precision"] == "bf16")])
    assert len(ran) == 2
    gap, second, last = ablation.steps(History(trials, space))
    assert (gap.knob, gap.trial, gap.throughput, gap.factor) == ("accumulation_steps", None, None, None)
    assert gap.reason == "trial 9 failed (lost): gone"
    assert factors([second, last]) == pytest.approx([2.0, 1.5], 1e-3)
    assert (gap.together, second.together, last.together) == ((), ("accumulation_steps",), ())


def test_a_running_step_is_not_begun_again(space):
    trials = confirmed(space, {"precision": "bf16", "num_workers": 8})
    trials.append(Trial(len(trials), ablation.next_step(History(trials, space)).config, ablation_of=1))
    assert ablation.next_step(History(trials, space)) is None
    assert ablation.steps(History(trials, space))[0].reason == "trial 9 has not ended"


def test_a_path_around_an_out_of_memory_is_preferred(space):
    winner = {"micro_batch_size": 64, "precision": "bf16"}
    known = [failed(2, config_of(space, micro_batch_size=64), OOM)]
    steps = ablation.steps(History(confirmed(space, winner, known), space))
    assert knobs(steps) == ["precision", "micro_batch_size"]
    assert [s.reason for s in steps] == ["", ""]


def test_a_path_within_the_limits_is_preferred(space):
    larger = space.model_copy(update={"baseline": {**space.baseline, "accumulation_steps": 4}})
    trials = confirmed(larger, {"micro_batch_size": 64, "accumulation_steps": 1})
    assert knobs(ablation.steps(History(trials, larger))) == ["accumulation_steps", "micro_batch_size"]


def test_if_every_path_has_a_gap_it_is_reported_and_not_run(space):
    winner = {"micro_batch_size": 64, "precision": "bf16"}
    crash = Outcome(Status.FAILED, Failure.ERROR, "no such kernel")
    known = [
        failed(2, config_of(space, micro_batch_size=64), OOM),
        failed(3, config_of(space, precision="bf16", learning_rate=1.3), crash),
    ]
    trials = confirmed(space, winner, known)
    assert ablation.next_step(History(trials, space)) is None
    gap, last = ablation.steps(History(trials, space))
    assert gap.knob == "micro_batch_size"
    assert gap.reason == "needs no less memory than trial 2, which ran out of it"
    assert factors([last]) == pytest.approx([3.0], 1e-3)
    assert last.together == ("micro_batch_size",)


def test_a_new_winner_has_an_ablation_of_its_own(space):
    trials, _ = play(confirmed(space, {"micro_batch_size": 64, "precision": "bf16"}), space)
    better = config_of(space, micro_batch_size=64, precision="bf16", num_workers=8)
    number = len(trials)
    trials.append(measured(number, better, 60.0))
    trials += confirming(trials, number, 6.0)
    steps = ablation.steps(History(trials, space))
    assert knobs(steps) == ["micro_batch_size", "precision", "num_workers"]
    assert all(step.trial is not None for step in steps), "this path includes the earlier one"


CHANGES = st.fixed_dictionaries(
    {},
    optional={
        "micro_batch_size": st.sampled_from([8, 32, 64]),
        "accumulation_steps": st.sampled_from([2, 4]),
        "precision": st.sampled_from(["bf16", "fp16"]),
        "num_workers": st.sampled_from([0, 4, 8]),
        "learning_rate": st.floats(0.5, 2.0),
    },
)
RESULTS = st.sampled_from([COMPLETED, STOPPED, FAILED, OOM])
FIXTURE = HealthCheck.function_scoped_fixture


def between(changes, space):
    """Yields every inner configuration of any path, with the knobs that it has from the winner."""
    names = [name for name in changes if name not in COMMON.same_speed]
    for size in range(1, len(names)):
        for chosen in itertools.combinations(names, size):
            yield frozenset(chosen), config_of(space, **{name: changes[name] for name in chosen})


def speeds_differ(one, other):
    """Returns the knobs that move speed and differ."""
    return [name for name in one if name not in COMMON.same_speed and one[name] != other[name]]


@pytest.mark.slow
@settings(derandomize=True, database=None, max_examples=150, suppress_health_check=[FIXTURE])
@given(changes=CHANGES, data=st.data())
def test_any_path_is_complete_stable_and_takes_the_cheapest_steps(space, changes, data):
    if space.violation(config_of(space, **changes)):
        return
    inner = dict(between(changes, space))
    tried = data.draw(
        st.lists(st.sampled_from(list(inner.values())), unique_by=str) if inner else st.just([])
    )
    known = [measured(2, config, 15.0, data.draw(st.sampled_from([COMPLETED, STOPPED]))) for config in tried]
    trials = confirmed(space, changes, known)
    planned = ablation.steps(History(trials, space))
    runs = sum(s.trial is None and not s.reason for s in planned)
    assert [cost(step) for step in planned] == cheapest(knobs(planned), inner, tried, space)

    seen, ran = play(trials, space, lambda _: (data.draw(RESULTS), data.draw(st.floats(1.0, 100.0))))
    assert len({settings_key(config, COMMON.same_speed) for config in ran}) == len(ran) <= runs
    for count in range(len(trials), len(seen) + 1):
        assert knobs(ablation.steps(History(seen[:count], space))) == knobs(planned)

    steps = ablation.steps(History(seen, space))
    assert all((step.trial is None) == bool(step.reason) for step in steps)
    before = space.baseline_config
    for step in steps:
        assert speeds_differ(before, step.config) == [step.knob]
        assert (step.before, step.after) == (before[step.knob], step.config[step.knob])
        assert configurations.contains(space, step.config)
        before = step.config
    assert knobs(steps) == [] or before == trials[1].config
    assert sorted(knobs(steps)) == sorted(speeds_differ(space.baseline_config, trials[1].config))
    if steps:
        gain = History(seen, space).factor(trials[1])
        assert math.prod(factors(steps)) == pytest.approx(gain.value, 1e-12)


def cost(step):
    """Returns 0 for a measured step, 1 for one to run, 2 for a gap."""
    return 2 if step.reason else int(step.trial is None)


def cheapest(order, inner, tried, space):
    """Returns, for each step in `order`, the least cost of a step to any remaining knob."""

    def price(chosen):
        config = inner.get(frozenset(chosen))
        if config is None or config in tried:
            return 0
        return 2 if space.violation(config) else 1

    return [min(price({*order[:at], name}) for name in order[at:]) for at in range(len(order))]
