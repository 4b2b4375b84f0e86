"""The trial to export."""

from dataclasses import replace

import pytest
import yaml

from autotune.core import files
from autotune.core.errors import InputError
from autotune.core.measurement import Measurement, Throughput
from autotune.core.trial import Outcome, Status, Trial
from autotune.export import formats, winner
from autotune.judging.decisions.history import History
from autotune.workloads import registry
from autotune.workloads.base import Workload
from r2gen import config as trainer

PROVENANCE = {"session": "s", "hardware": "a GPU\nseed: 9", "seed": 3}


@pytest.fixture
def trial(space):
    measured = Measurement(throughput=Throughput(20.0, 0.1, 20, 5.0), quality=0.2)
    config = {**space.baseline_config, "precision": "bf16"}
    return Trial(7, config, Outcome(Status.COMPLETED), measured)


def history_of(trial, space):
    """Returns a history of the trial and a baseline of half its speed."""
    slow = replace(trial.measurement, throughput=Throughput(10.0, 0.1, 20, 5.0))
    return History([replace(trial, number=0, config=space.baseline_config, measurement=slow), trial], space)


def exported(trial, history, workload, provenance):
    return formats.named(None, workload).render(winner.from_trial(trial, history, workload, provenance)).text


def test_the_config_of_a_function_is_its_settings_below_the_evidence(space, trial):
    text = exported(trial, history_of(trial, space), Workload("json:loads"), PROVENANCE)
    assert yaml.safe_load(text) == space.settings(trial.config)
    comments = [line for line in text.splitlines() if line.startswith("#")]
    assert comments[0] == "# trial: 7 of session s"
    assert comments[1].startswith("# measured: Not confirmed: 2.00x faster")
    assert sum(line.startswith("# hardware: a GPU") for line in comments) == 1


def test_the_config_of_a_program_can_be_read_by_it(space, trial):
    settings = {name: space.baseline[name] for name in ("micro_batch_size", "precision")}
    plain = space.model_copy(update={"baseline": {**settings, "data": "d"}, "knobs": {}})
    text = exported(trial, history_of(trial, plain), registry.load("r2gen"), {})
    assert str(trainer.parse(yaml.safe_load(text)).data) == "d"


def test_searched_settings_are_the_knobs_and_their_followers(space, trial):
    counted = {"baseline": {**space.baseline, "warmup": 80, "epochs": 3}, "counted_in_steps": ("warmup",)}
    stepped = space.model_copy(update=counted)
    larger = replace(trial, config={**trial.config, "micro_batch_size": 32})
    found = winner.from_trial(larger, history_of(trial, stepped), Workload("json:loads"), PROVENANCE)
    assert found.searched == {*stepped.knobs, "warmup"}
    assert found.settings["warmup"] == 40


def test_a_file_that_cannot_be_written_is_an_input_error(tmp_path):
    files.write(tmp_path / "best.yaml", "a: 1\n")
    assert (tmp_path / "best.yaml").read_text() == "a: 1\n"
    with pytest.raises(InputError, match="cannot be written"):
        files.write(tmp_path / "best.yaml" / "deeper", "a: 1\n")
