"""The number of processes that a launcher starts is read from its command line."""

import pytest

from autotune.core.errors import InputError
from autotune.workloads.command.line import processes
from autotune.workloads.command.workload import CommandWorkload


@pytest.mark.parametrize(
    ("run", "found"),
    [
        ("torchrun --standalone --nproc_per_node 2 train.py", "2"),
        ("/usr/bin/torchrun --nproc-per-node=4 train.py --num_processes 3", "4"),
        ("python -m torch.distributed.run --nproc_per_node={gpus} -m train", "{gpus}"),
        ("accelerate launch --num_processes 8 train.py", "8"),
        ("deepspeed --num_gpus 2 train.py", "2"),
        ("srun -n 8 torchrun --nproc-per-node=4 train.py", "4"),
        ("torchrun train.py", None),
        ("torchrun train.py -n 3", None),
        ("torchrun train.py --nproc_per_node", None),
        ("python train.py --num_processes 4", None),
    ],
)
def test_a_launchers_line_has_the_number_of_processes(run, found):
    assert processes(run.split()) == found


def of(run, tmp_path):
    return CommandWorkload.parse({"kind": "command", "run": run, "quality": {"acc": "acc (.*)"}}, tmp_path)


def test_their_number_is_a_setting_and_an_own_one_wins(tmp_path):
    workload = of("torchrun --nproc_per_node 2 train.py", tmp_path)
    assert workload.complete({"micro_batch_size": 8}) == {"micro_batch_size": 8, "processes": 2}
    assert workload.complete({"processes": 1}) == {"processes": 1}
    assert (
        workload.for_trial({"micro_batch_size": 8, "processes": 2}, 100, 2, "acc")["effective_batch_size"]
        == 16
    )
    workload.check({"processes": 2})
    assert of("torchrun --nproc_per_node gpu train.py", tmp_path).complete({}) == {}


def test_a_setting_for_the_number_of_processes_needs_its_role(tmp_path):
    workload = of("torchrun --nproc_per_node {gpus} train.py", tmp_path)
    assert workload.complete({"processes": 2}) == {"processes": 2}, "it has the role"
    with pytest.raises(InputError, match=r"say so in roles: \{processes: gpus\}"):
        workload.complete({"gpus": 2})
