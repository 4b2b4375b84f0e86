"""The table of known settings, and what a workload adds to it."""

from dataclasses import replace
from typing import get_args

import pytest

from autotune.core import settings
from autotune.core.settings import COMMON, PRECISIONS, KnownSetting, MemoryEffect, Result
from autotune.judging.decisions.history import History
from autotune.judging.measurement.speeds import Speeds
from autotune.memory.feasibility import MemoryModel
from autotune.space.knobs import Distribution
from autotune.workloads import registry
from r2gen import config as trainer

OWN = COMMON.with_own(
    [
        KnownSetting("clip", moves_speed=False, moves_memory=MemoryEffect.NOT),
        KnownSetting("frames", power=3),
        KnownSetting("cache", moves_result=Result.EQUAL),
    ]
)


def test_an_unknown_setting_may_change_everything():
    unknown = COMMON["clip"]
    assert unknown.moves_speed
    assert (unknown.moves_result, unknown.moves_memory) == (Result.OTHER, MemoryEffect.SOMEHOW)
    assert unknown.needs_for("any") == settings.Needs()


def test_stricter_equality_allows_fewer_settings():
    assert COMMON.same_quality < COMMON.same_figures < COMMON.same_training
    assert not COMMON.same_training & COMMON.same_speed, "no setting is without any effect"


def test_known_settings_have_the_trainers_names():
    assert COMMON.by_name.keys() - {settings.PROCESSES, settings.LENGTH} <= trainer.Config.model_fields.keys()
    known = registry.known_settings("r2gen").by_name.keys()
    assert known - {settings.PROCESSES, settings.LENGTH} <= trainer.Config.model_fields.keys()
    assert tuple(PRECISIONS) == get_args(trainer.Precision)
    of_r2gen = registry.known_settings("r2gen")[settings.COMPILE]
    assert of_r2gen.needs.keys() | {"off"} == set(get_args(trainer.CompileMode))


def test_a_workloads_own_settings_are_unknown_to_others():
    known, other = registry.known_settings("r2gen"), registry.known_settings("package.module:fit")
    assert known["grad_clip_value"].moves_memory is MemoryEffect.NOT
    assert other["grad_clip_value"].moves_memory is MemoryEffect.SOMEHOW
    assert other.by_name == COMMON.by_name


def test_settings_without_effect_on_speed_pool_throughput(make_trial):
    one, other = make_trial(1, 10.0, half_width=0.1, clip=1), make_trial(2, 12.0, half_width=0.1, clip=2)
    assert Speeds([one, other], OWN).pooled_throughput(one).samples_per_s == pytest.approx(11)
    assert Speeds([one, other]).pooled_throughput(one).samples_per_s == 10


def test_settings_without_effect_on_memory_share_an_out_of_memory(make_trial):
    failed = make_trial(1, failure="oom", clip=1)
    wanted = {**failed.config, "clip": 2}
    assert MemoryModel([failed], known=OWN).explain_misfit(wanted)
    assert MemoryModel([failed]).explain_misfit(wanted) is None


def test_memory_grows_with_the_declared_power_of_a_setting(make_trial):
    trials = [make_trial(n, 1.0, 0.1, peak=2**30, limit=2**34, frames=2) for n in range(4)]
    wanted = {**trials[0].config, "frames": 4}
    grown, unknown = (MemoryModel(trials, known=known).predict(wanted) for known in (OWN, COMMON))
    assert grown.expected_bytes > 2 * unknown.expected_bytes


def test_same_training_allows_settings_without_effect_on_the_result(make_trial, space):
    same = space.revised(objective={"select": "same-training"})
    moves = {"cache": ("speed", "memory"), "clip": ("quality",)}
    knobs = {name: Distribution(choice=(0, 1, 2), moves=moved) for name, moved in moves.items()}
    declared = same.model_copy(update={"knobs": space.knobs | knobs})
    baseline, faster = (make_trial(n, 10.0 + n, 0.2, half_width=0.1, cache=n) for n in range(2))
    assert History([baseline, faster], same).best is baseline
    assert History([baseline, faster], declared).best is faster
    clipped = replace(faster, config={**faster.config, "clip": 2})
    assert History([baseline, clipped], declared).best is baseline


def test_prefetched_batches_are_workers_times_prefetch_factor():
    assert settings.prefetched_batches({}) == 0
    assert settings.prefetched_batches({"num_workers": 3}) == 6
    assert settings.prefetched_batches({"num_workers": 3, "prefetch_factor": 4}) == 12


def test_the_effective_batch_is_a_product():
    assert settings.effective_batch({"micro_batch_size": 8, "accumulation_steps": 4}) == 32
    assert settings.effective_batch({"micro_batch_size": 8}) == 8
    assert settings.effective_batch({"micro_batch_size": 8, "accumulation_steps": 2, "processes": 3}) == 48
