"""The provenance of a session's figures, and the facts that a comparison or a warm start needs unchanged."""

from copy import deepcopy

import pytest

from autotune.core.errors import InputError
from autotune.sessions import prepare
from autotune.storage import provenance, studies
from autotune.storage.store import Options, StoredSession
from autotune.system.telemetry import Hardware
from autotune.workloads.base import Workload

WORKLOAD = Workload("json:loads")
PLACES = ("num_workers",)  # settings that are paths, whose values may differ
OTHER = {  # another value for every fact that a session keeps, and for values in its search space
    "session": "another",
    "created": "2020-01-01",
    "command": "python",
    "hardware": "two GPUs",
    "device": "Another CPU",
    "cpus": 99,
    "driver": "1.0",
    "torch": "0.4",
    "revision": "0123456789ab",
    "data": "0123456789ab",
    "training_samples": 7,
    "versions": "none",
    "seed": 9,
    "space.workload": "json:dumps",
    "space.roles": {"weight_decay": "wd"},
    "space.values": {"precision": {"fp16": "half"}},
    "space.counted_in_steps": ["max_iters"],
    "space.follow_learning_rate": ["own_rate"],
    "space.evaluate_every": "eval_interval",
    "space.unit": "tokens",
    "space.baseline.dropout": 0.1,
    "space.baseline.num_workers": 7,
    "space.baseline.micro_batch_size": 8,
    "space.knobs.micro_batch_size": {"choice": [2, 16]},
    "space.knobs.num_workers": None,
    "space.training.samples": 1234,
    "space.limits.memory_fraction": 0.5,
    "space.objective.quality": "score",
    "space.objective.minimize": "bleu_4",
    "space.objective.keep": 0.5,
    "space.objective.select": "pareto",
    "space.budget.samples_per_trial": 10,
    "space.budget.evaluations_per_trial": 7,
    "space.budget.trials": 3,
}
FORBIDS = {  # a warm start: configurations would run differently, or have other figures
    *("hardware", "revision", "data"),
    *("space.workload", "space.roles", "space.values", "space.unit", "space.baseline.dropout"),
    *("space.counted_in_steps", "space.follow_learning_rate", "space.evaluate_every"),
    *("space.objective.quality", "space.objective.minimize", "space.budget.samples_per_trial"),
}


@pytest.fixture
def now(space):
    baseline = {**space.baseline, "dropout": 0.2, "own_rate": 0.1, "max_iters": 100, "eval_interval": 10}
    whole = space.model_copy(update={"workload": "json:loads", "baseline": baseline})
    return provenance.collect("s", whole, WORKLOAD, Hardware(2, 2**34, (), None), 0)


def changed(facts, *names):
    """Returns `facts` with another value under each of these names; None removes the name."""
    facts = deepcopy(facts)
    for name in names:
        *way, last = name.split(".")
        place = facts
        for key in way:
            place = place[key]
        place[last] = OTHER[name]
        if OTHER[name] is None:
            del place[last]
    return facts


def test_every_fact_is_tried(now):
    assert {name for name in OTHER if "." not in name} | {"space", "hardware"} >= now.keys()
    assert {name.split(".")[1] for name in OTHER if "." in name} == now["space"].keys()


@pytest.mark.parametrize("name", OTHER)
def test_a_session_named_for_a_warm_start_is_accepted(tmp_path, now, space, name):
    then = changed(now, name, "torch")  # speed is measured anew, so this change alone forbids nothing
    earlier = StoredSession.create(tmp_path / "earlier", space, Options(), then)
    studies.open_study(earlier.study_file, space)
    with pytest.raises(InputError) as refused:
        provenance.require_same(earlier.root, then, now, PLACES)
    is_advised = str(refused.value).endswith(f" --warm-start {earlier.root}")
    assert is_advised == (name not in FORBIDS)
    if is_advised:
        assert prepare.warm_start(earlier, now, PLACES) == []
    else:
        with pytest.raises(InputError, match=", now "):
            prepare.warm_start(earlier, now, PLACES)


def test_an_unreadable_space_cannot_warm_start(now):
    then = {**now, "space": {**now["space"], "gone": 1}}
    assert "gone: no such key" in provenance.warm_start_error(then, now, ())
