"""The orders of a session's trials, and their limits."""

import json
from dataclasses import replace
from types import SimpleNamespace

import psutil
import pytest

from autotune.core.measurement import Measurement, Outside, Throughput
from autotune.core.trial import Repeat, Trial
from autotune.inside import stop_request
from autotune.space.sections import Training as WholeTraining
from autotune.storage.layout import TrialDir
from autotune.storage.store import Options, StoredSession
from autotune.system.nvml import Gpu
from autotune.system.telemetry import Hardware
from autotune.trials import order as ordering
from autotune.trials.order import Ends, TrialLimits
from autotune.trials.setup import Setup, TrainingSetup
from autotune.workloads.base import Workload
from autotune.workloads.registry import load
from r2gen import config as trainer

GIB = 2**30
CONTEXT = 600 * 2**20  # assumed until it is measured
GPU = Gpu("Test GPU", 8 * GIB, (9, 0), "GPU-0")
WITH_GPU, WITHOUT = Hardware(2, 16 * GIB, (GPU,), None), Hardware(2, 16 * GIB, (), None)
NOISE, CONFIRMING = Repeat(0, 0), Repeat(3, 2)


@pytest.fixture
def setup_of(tmp_path):
    """Returns the setup of a new session with the given options."""

    def make(space, hardware=WITH_GPU, workload=None, **options):
        root = tmp_path / str(len(list(tmp_path.iterdir())))
        session = StoredSession.create(root, space, Options(**options), {})
        return Setup(session, space, workload or Workload("json:loads"), hardware)

    return make


@pytest.fixture
def ordered(setup_of, space):
    """Returns a trial's order in a session with the given options, on a device of 8 GiB.

    It has the baseline's settings, or `other` ones.
    """

    def make(number=1, *, repeat=None, ablation_of=None, objective=None, budget=None, other=False, **given):
        goal = space.objective.model_copy(update=objective or {})
        spent = space.budget.model_copy(update=budget or {})
        config = space.baseline_config | ({"micro_batch_size": 32} if other else {})
        trial = Trial(number, config, repeat=repeat, ablation_of=ablation_of)
        setup = setup_of(space.model_copy(update={"objective": goal, "budget": spent}), **given)
        return setup.order(trial), setup.session

    return make


def test_an_order_has_all_that_a_trial_needs_in_plain_values(ordered, space):
    order, session = ordered(memory_limit_bytes=GIB, stall_timeout_s=9.0)
    assert order.settings == {**space.baseline, **space.baseline_config}
    assert (order.metric.name, order.ends.samples, order.ends.target) == ("bleu_4", 20000, None)
    assert (order.limits.host_bytes, order.limits.stall_timeout_s) == (GIB, 9.0)
    assert order.directory == str(session.trial_dir(1).root)
    assert order.revision
    assert ordering.ORDER.validate_python(json.loads(json.dumps(ordering.ORDER.dump_python(order)))) == order


def test_only_a_trial_of_a_new_configuration_can_be_beaten(ordered):
    order, session = ordered(number=1)
    assert order.threshold_file == str(session.threshold_file)
    for number, repeat in ((0, None), (1, NOISE), (7, CONFIRMING)):
        assert ordered(number=number, repeat=repeat)[0].threshold_file is None
    assert ordered(number=8, ablation_of=1)[0].threshold_file is not None, (
        "its speed is known before it is stopped"
    )


def test_a_repeat_has_the_seed_of_its_round_and_a_trial_its_own(ordered):
    assert "seed" not in ordered()[0].settings
    assert ordered(repeat=NOISE)[0].settings["seed"] == 1
    assert ordered(repeat=CONFIRMING)[0].settings["seed"] == 3
    assert ordered(repeat=Repeat(0, 2))[0].settings["seed"] == 3, "every member of a round the same"


def test_a_trial_is_capped_at_the_fraction_of_its_share_of_the_gpu(ordered):
    for gpus, share in ((1.0, 1.0), (2.0, 1.0), (0.5, 0.5)):
        order = ordered(other=True, gpus_per_trial=gpus)[0]
        assert (order.limits.gpus, order.limits.device_bytes) == (gpus, share * 8 * GIB)
        assert order.limits.allocator_bytes == int(0.85 * share * 8 * GIB)


def test_the_baseline_is_capped_only_if_it_has_neighbours(ordered):
    assert ordered(gpus_per_trial=1.0)[0].limits.allocator_bytes is None
    assert ordered(gpus_per_trial=1.0, number=7, repeat=Repeat(0, 2))[0].limits.allocator_bytes is None
    shared = ordered(gpus_per_trial=0.5)[0]
    assert shared.limits.allocator_bytes == 4 * GIB - CONTEXT, "all of its share, beside its context"


def test_only_a_trial_that_runs_alone_has_the_whole_device(ordered):
    alone = ordered(gpus_per_trial=0.5, other=True, ablation_of=3)[0]
    assert (alone.limits.gpus, alone.limits.device_bytes) == (1.0, 8 * GIB)
    assert alone.limits.allocator_bytes == int(0.85 * 8 * GIB)
    for repeat in (NOISE, CONFIRMING):
        assert ordered(gpus_per_trial=0.5, repeat=repeat)[0].limits.gpus == 0.5, (
            "as the trial that it repeats"
        )


def test_memory_used_by_others_reduces_the_limit(ordered):
    used = Hardware(2, 16 * GIB, (replace(GPU, used_bytes=3 * GIB),), None)
    order = ordered(hardware=used, other=True, gpus_per_trial=0.5)[0]
    assert order.limits.device_bytes <= 2.5 * GIB
    assert order.limits.allocator_bytes <= 2.5 * GIB - CONTEXT


def test_without_a_gpu_there_is_nothing_to_share(ordered):
    order = ordered(hardware=WITHOUT)[0]
    assert (order.limits.gpus, order.limits.device_bytes, order.limits.allocator_bytes) == (0.0, None, None)


@pytest.mark.parametrize("trials", [2, 4])
def test_a_part_of_a_gpu_leaves_room_for_every_context(ordered, trials):
    for other in (True, False):
        order = ordered(gpus_per_trial=1 / trials, other=other)[0]
        assert 0 < (order.limits.allocator_bytes + CONTEXT) * trials <= 8 * GIB
        if other:
            assert order.limits.allocator_bytes == int(0.85 * order.limits.device_bytes)


def test_only_a_process_on_the_host_is_itself_refused_memory(ordered):
    limited = {"memory_limit_bytes": GIB}
    assert ordered(hardware=WITHOUT, **limited)[0].limits.caps_process
    assert not ordered(**limited)[0].limits.caps_process
    assert not ordered(hardware=WITHOUT)[0].limits.caps_process


def test_the_limit_of_a_trial_is_its_devices_or_else_the_hosts(setup_of, space):
    def limit(hardware, **options):
        return setup_of(space, hardware, **options).memory_limit_bytes

    assert limit(WITH_GPU, gpus_per_trial=1.0) == 8 * GIB
    assert limit(WITH_GPU, gpus_per_trial=0.5) == 4 * GIB
    assert limit(WITH_GPU, gpus_per_trial=0.25) == int((2 * GIB - CONTEXT) / 0.85)
    assert limit(WITHOUT, memory_limit_bytes=5) == 5
    assert limit(WITHOUT) == 16 * GIB
    assert limit(WITHOUT, cpus_per_trial=1) == 8 * GIB


def test_a_shorter_training_has_fewer_samples(space, planned):
    def samples(of, **changes):
        training = TrainingSetup(of, Workload("a:fit"), WITHOUT, Options(gpus_per_trial=0))
        return training.training_samples({**of.baseline_config, **changes})

    whole = planned.revised(training={"samples": 40_000})
    half = planned.budget.samples_per_trial // 2
    assert (samples(whole), samples(whole, length=half)) == (40_000, 20_000)
    assert samples(space.revised(training={"samples": 40_000})) == 40_000
    assert samples(space) is None


def test_a_whole_training_has_no_limits_but_the_time_to_close(tmp_path, space):
    options = Options(memory_limit_bytes=GIB, gpus_per_trial=1.0)
    known = space.model_copy(update={"training": WholeTraining(samples=5000)})
    training = TrainingSetup(known, Workload("json:loads"), WITH_GPU, options)
    order = training.whole_training(space.baseline_config, TrialDir(tmp_path))
    assert order.limits == TrialLimits(gpus=1.0, device_bytes=8 * GIB, closing_s=stop_request.WHOLE_CLOSING_S)
    assert (order.ends, order.whole) == (Ends(5000), True)


def test_a_training_by_itself_has_the_device_and_all_its_samples(tmp_path, space):
    goal = space.objective.model_copy(update=TO_TARGET)
    asked = space.model_copy(update={"objective": goal})
    options = Options(gpus_per_trial=0.5, memory_limit_bytes=GIB, keep_checkpoints=True)
    training = TrainingSetup(asked, Workload("json:loads"), WITH_GPU, options)
    order = training.order(space.baseline_config, TrialDir(tmp_path), seed=2)
    assert (order.number, order.directory, order.settings["seed"]) == (0, str(tmp_path), 2)
    assert (order.ends.samples, order.ends.target, order.threshold_file) == (20000, None, None)
    assert (order.limits.gpus, order.limits.device_bytes, order.limits.allocator_bytes) == (
        1.0,
        8 * GIB,
        None,
    )
    assert (order.limits.host_bytes, order.keep_work) == (GIB, False)


@pytest.fixture
def raced(setup_of, space):
    def make(*members, **given):
        race = Trial(9, members[0].config, race=tuple(one.number for one in members))
        setup = setup_of(space, **given)
        return setup.race(race, members), setup.session

    return make


def test_a_race_has_the_settings_of_its_members_and_no_evaluation(raced, space):
    others = {**space.baseline_config, "micro_batch_size": 32}
    small = Measurement(peak_memory_bytes=GIB)
    members = (
        Trial(0, space.baseline_config, measurement=small, seconds=15.0),
        Trial(4, others, measurement=small, repeat=CONFIRMING),
    )
    order, session = raced(*members, gpus_per_trial=0.5, stall_timeout_s=9.0)
    first, second = (one.order for one in order.members)
    assert (order.number, order.together, order.most_s) == (9, True, 60.0)
    assert order.directory == str(session.trial_dir(9).root)
    assert [one.order.number for one in order.members] == [0, 4]
    assert second.directory == str(session.trial_dir(9).member(4).root)
    assert first.settings == order.settings == {**space.baseline, **space.baseline_config}
    assert second.settings == {**space.baseline, **others}, "with its own seed"
    assert (first.limits.gpus, first.limits.device_bytes) == (0.5, 8 * GIB), "they are on the GPU at once"
    assert (second.threshold_file, second.ends.target, second.limits.stall_timeout_s) == (None, None, 9.0)
    assert ordering.ORDER.validate_python(json.loads(json.dumps(ordering.ORDER.dump_python(order)))) == order


def test_r2gen_takes_the_settings_of_a_race(raced, space):
    order, _ = raced(Trial(0, space.baseline_config), workload=load("r2gen"))
    config = trainer.parse({**order.settings, "data": "somewhere"})
    assert config.eval_every_samples == 2**31


@pytest.fixture
def together(raced, space):
    """True if trials with these memory peaks run concurrently in a race."""

    def ask(*peaks, seen_bytes=None, hardware=WITH_GPU):
        shown = [Measurement(peak_memory_bytes=peak) for peak in peaks]
        shown += [Measurement(telemetry={"host_rss_bytes": float(seen_bytes)})] if seen_bytes else []
        members = [Trial(n, space.baseline_config, measurement=m) for n, m in enumerate(shown)]
        order, _ = raced(*members, hardware=hardware)
        return order.together

    return ask


def test_members_run_together_if_all_peaks_and_contexts_fit(together):
    assert together(4 * GIB, 2 * GIB)
    assert not together(4 * GIB, 3 * GIB), "two contexts, and a tenth for what differs from run to run"
    assert not together(GIB, None)
    assert together(GIB, seen_bytes=GIB)
    assert not together(6 * GIB, seen_bytes=GIB)


def test_members_are_apart_on_a_gpu_for_one_process_at_a_time(together):
    exclusive = replace(WITH_GPU, gpus=(replace(GPU, exclusive=True),))
    assert not together(GIB, GIB, hardware=exclusive)


def test_members_that_are_on_one_gpu_at_once_cannot_take_each_others_memory(raced, space):
    held = [Measurement(peak_memory_bytes=GIB, peak_reserved_bytes=size * GIB) for size in (4, 2)]
    baseline = Trial(0, space.baseline_config, measurement=held[0])
    other = Trial(4, space.baseline_config | {"micro_batch_size": 32}, measurement=held[1])
    caps = [one.order.limits.allocator_bytes for one in raced(baseline, other)[0].members]
    assert caps[0] == pytest.approx(2 * caps[1], abs=2)
    assert sum(caps) + 2 * CONTEXT == pytest.approx(8 * GIB, abs=2)
    apart = raced(baseline, replace(other, measurement=held[0]))[0]
    assert not apart.together, "what is cached is held, too"
    assert [one.order.limits.allocator_bytes for one in apart.members] == [None, int(0.85 * 8 * GIB)]


def test_without_a_gpu_the_members_of_a_race_share_what_is_free_of_the_hosts_memory(together, monkeypatch):
    host = SimpleNamespace(available=32 * GIB)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: host)
    assert together(7 * GIB, 7 * GIB, hardware=WITHOUT)
    assert not together(8 * GIB, 7 * GIB, hardware=WITHOUT)
    host.available = 12 * GIB
    assert not together(7 * GIB, 7 * GIB, hardware=WITHOUT)


def test_a_race_with_a_start_before_every_turn_may_take_longer(raced, space):
    fits, _ = raced(Trial(0, space.baseline_config, measurement=Measurement(peak_memory_bytes=GIB)))
    apart, _ = raced(Trial(0, space.baseline_config))
    assert (fits.together, apart.together, apart.most_s) == (True, False, 1800.0)


TO_TARGET = {"select": "same-quality", "target": 0.2}


def test_a_race_to_a_target_has_more_samples_and_ends_there(ordered):
    pilot = [ordered(number=0, objective=TO_TARGET)[0], ordered(repeat=NOISE, objective=TO_TARGET)[0]]
    assert [(order.ends.samples, order.ends.target) for order in pilot] == [(20000, None)] * 2, (
        "to its own end"
    )
    for repeat in (None, CONFIRMING):
        order, _ = ordered(repeat=repeat, objective=TO_TARGET)
        assert (order.ends.samples, order.ends.target) == (160_000, 0.2)
    assert ordered(objective={"select": "same-quality"})[0].ends.target is None, (
        "whole trainings are compared"
    )


def test_a_training_of_a_planned_length_does_not_go_on_to_a_target(setup_of, planned):
    setup = setup_of(planned.revised(objective=TO_TARGET))
    ends = setup.order(Trial(3, planned.baseline_config)).ends
    assert (ends.samples, ends.target) == (20_000, 0.2)


def test_only_an_open_ended_baseline_ends_when_it_has_learnt(ordered):
    learning = {"until_learnt": True}
    assert ordered(number=0, budget=learning)[0].ends.until_learnt == 4
    assert ordered(number=0)[0].ends.until_learnt == 0
    assert ordered(number=1, budget=learning)[0].ends.until_learnt == 0
    assert ordered(number=1, repeat=NOISE, budget=learning)[0].ends.until_learnt == 0


def test_a_trial_ends_when_its_speed_is_known_if_nothing_else_decides(ordered):
    alone = {"select": "same-training"}
    assert ordered(number=1, objective=alone)[0].ends.until_timed
    assert not ordered(number=0, objective=alone)[0].ends.until_timed, "the baseline's quality is to be kept"
    assert not ordered(number=1, objective=alone, repeat=CONFIRMING)[0].ends.until_timed, "so it is checked"
    nothing = {"select": "same-quality", "keep": 0.0}
    assert all(ordered(number=n, objective=nothing)[0].ends.until_timed for n in (0, 1)), (
        "there is nothing to keep"
    )
    assert not ordered(number=1, objective={"select": "same-quality", "keep": 0.9})[0].ends.until_timed
    assert not ordered(number=1, objective=alone | {"constraints": {"rouge_l": ">= 0.1"}})[0].ends.until_timed


def test_an_order_of_a_minimized_objective_has_a_negated_target(ordered):
    """Internally, higher is better."""
    goal = {"minimize": "bleu_4", "select": "same-quality", "target": 2.5}
    order, _ = ordered(number=3, objective=goal)
    assert (order.metric.minimize, order.ends.target, order.metric.unit) == (True, -2.5, "samples")
    assert not ordered(number=3)[0].metric.minimize


def test_an_order_has_the_real_trainings_evaluation_interval(ordered):
    metric = ordered()[0].metric
    assert (metric.counts_evaluations, metric.samples_per_evaluation) == (False, None)
    assert ordered(objective={"speed": "wall"})[0].metric.counts_evaluations


def test_in_a_race_evaluations_are_added_if_they_count_for_the_speed(setup_of, space):
    shown = Measurement(throughput=Throughput(100.0, 1.0, 50, 5.0), outside=Outside(4, 3.0, 0.1))
    trials = [Trial(number, space.baseline_config, measurement=shown) for number in (0, 1)]
    for speed, outside_s in (("wall", 3.0 / 500), ("throughput", 0.0)):
        goal = space.objective.model_copy(update={"speed": speed})
        training = {"training": WholeTraining(samples_per_evaluation=500), "objective": goal}
        setup = setup_of(space.model_copy(update=training), WITHOUT)
        race = setup.race(Trial(2, space.baseline_config, race=(0, 1)), trials)
        assert [one.outside_s for one in race.members] == [pytest.approx(outside_s)] * 2
        assert all((one.unsure > 0) == (speed == "wall") for one in race.members)


def test_a_planned_length_is_the_trials_own_and_in_a_race_none_is_over_before_it(setup_of, planned):
    setup = setup_of(planned, WITHOUT)
    half = {**planned.baseline_config, "length": 10_000}
    members = [Trial(0, planned.baseline_config), Trial(1, half)]
    order = setup.order(members[1])
    assert (order.ends.samples, order.ends.planned, order.given["max_iters"]) == (10_000, True, 625)
    assert "length" not in order.given
    race = setup.race(Trial(2, planned.baseline_config, race=(0, 1)), members)
    assert [one.samples for one in race.members] == [20_000, 10_000]
    assert [one.order.given["max_iters"] for one in race.members] == [25_000, 12_500]
    assert min(one.order.ends.samples for one in race.members) > 2 * 10**9
    assert ordering.ORDER.validate_python(json.loads(json.dumps(ordering.ORDER.dump_python(race)))) == race
