"""A trial as an order to run it."""

import json

import pytest

from autotune import orders
from autotune.nvml import Gpu
from autotune.store import Options, Session
from autotune.telemetry import Hardware
from autotune.trial import Repeat, Trial
from autotune.workloads import Workload

GIB = 2**30
NOISE, CONFIRMING = Repeat(0, 0, (0,)), Repeat(3, 2, (3, 0))


@pytest.fixture
def ordered(tmp_path, space):
    """The order of a trial of a session with the given options, on a device of 8 GiB."""

    def make(number=1, device_bytes=8 * GIB, repeat=None, way_to=None, **options):
        root = tmp_path / str(len(list(tmp_path.iterdir())))
        session = Session.create(root, space, Options(**options), {})
        trial = Trial(number, space.baseline_config, repeat=repeat, way_to=way_to)
        return orders.order(trial, session, space, Workload("json:loads"), device_bytes), session

    return make


def test_an_order_has_all_that_a_trial_needs_in_plain_values(ordered, space):
    order, session = ordered(memory_limit_bytes=GIB, stall_timeout_s=9.0)
    assert order.settings == {**space.baseline, **space.baseline_config}
    assert (order.quality, order.samples, order.target) == ("bleu_4", 20000, None)
    assert (order.memory_limit_bytes, order.stall_timeout_s) == (GIB, 9.0)
    assert order.directory == str(session.trial_dir(1))
    assert order.revision
    assert json.loads(json.dumps(order.to_dict())) == order.to_dict()
    assert type(order).from_dict(order.to_dict()) == order


def test_only_a_trial_of_a_new_configuration_can_be_beaten(ordered):
    order, session = ordered(number=1)
    assert order.bar_file == str(session.bar_file)
    for number, repeat in ((0, None), (1, NOISE), (7, CONFIRMING)):
        assert ordered(number=number, repeat=repeat)[0].bar_file is None
    assert ordered(number=8, way_to=1)[0].bar_file is not None, "its speed is known before it is stopped"


def test_a_repeat_has_the_seed_of_its_round_and_a_trial_its_own(ordered):
    assert "seed" not in ordered()[0].settings
    assert ordered(repeat=NOISE)[0].settings["seed"] == 1
    assert ordered(repeat=CONFIRMING)[0].settings["seed"] == 3
    assert ordered(repeat=Repeat(0, 2, (3, 0)))[0].settings["seed"] == 3, "every member of a round the same"


def test_what_confirms_has_the_whole_device(ordered):
    shared = ordered(gpus_per_trial=0.5)[0]
    assert shared.gpu_memory_fraction == pytest.approx(0.5 - 600 / 8192)
    assert shared.device_memory_bytes == pytest.approx(shared.gpu_memory_fraction * 8 * GIB, abs=1)
    alone = ordered(gpus_per_trial=0.5, repeat=CONFIRMING)[0]
    assert (alone.gpu_memory_fraction, alone.device_memory_bytes) == (None, 8 * GIB)
    assert ordered(gpus_per_trial=0.5, way_to=3)[0].gpu_memory_fraction is None
    assert ordered(gpus_per_trial=0.5, repeat=NOISE)[0].gpu_memory_fraction == shared.gpu_memory_fraction


def test_without_a_gpu_there_is_nothing_to_share(ordered):
    order = ordered(device_bytes=None)[0]
    assert (order.gpu_memory_fraction, order.device_memory_bytes) == (None, None)


def test_a_part_of_a_gpu_leaves_room_for_every_context():
    total = 8 * GIB
    assert orders.gpu_memory_fraction(1.0, total) is None
    assert orders.gpu_memory_fraction(2.0, total) is None
    assert orders.gpu_memory_fraction(0.0, None) is None
    for trials in (2, 4):
        kept = orders.gpu_memory_fraction(1 / trials, total)
        assert 0 < kept * total * trials + trials * 600 * 2**20 <= total + 1


def test_the_limit_of_a_trial_is_its_devices_or_else_the_hosts():
    gpu = Gpu("Test GPU", 8 * GIB, (9, 0), "GPU-0")
    with_gpu, without = Hardware(2, 16 * GIB, (gpu,), None), Hardware(2, 16 * GIB, (), None)
    assert orders.memory_limit(Options(gpus_per_trial=1.0), with_gpu) == 8 * GIB
    assert orders.memory_limit(Options(gpus_per_trial=0.5), with_gpu) == 4 * GIB - 600 * 2**20
    assert orders.memory_limit(Options(memory_limit_bytes=5), without) == 5
    assert orders.memory_limit(Options(), without) == 16 * GIB
    assert orders.memory_limit(Options(cpus_per_trial=1), without) == 8 * GIB
