"""An interrupted search loses no completed step; one whose session is deleted leaves nothing."""

import shutil
import signal

import pytest

from .searches import Place, end, wait_for

pytestmark = pytest.mark.slow

SLOW = """
workload: trivial:slow
baseline: {hang: none, learning_rate: 1e-3, step_s: 8.0}
knobs: {learning_rate: {loguniform: [1e-4, 1e-2]}}
objective: {select: pareto}
budget: {trials: 1, samples_per_trial: 400, repeats: 0}
"""


@pytest.fixture
def place(tmp_path):
    with Place(tmp_path) as here:
        yield here


@pytest.mark.long
def test_a_step_longer_than_ray_tune_waits_is_not_lost(place):
    """Ray Tune would kill after five seconds, and this workload writes its checkpoint only when closed."""
    process = place.search(SLOW, "--wandb", "off")
    wait_for(lambda: any("train_loss" in record for record in place.records(0)))
    process.send_signal(signal.SIGINT)
    output, errors = end(process)
    assert (process.returncode, errors) == (130, "")
    assert "a second Ctrl-C does not wait" in output
    trained = [record["samples"] for record in place.records(0) if "train_loss" in record]
    assert trained[-1] >= 8, "the step that it was in was finished"
    assert (place.session / "trials" / "0000" / "work" / "samples").read_text() == str(trained[-1])
    assert not (place.session / "stop").exists()
    wait_for(lambda: not place.left())


def test_a_search_whose_session_is_deleted_reports_it_and_leaves_nothing(place):
    process = place.search(SLOW.replace("8.0", "0.04"), "--wandb", "off")
    wait_for(lambda: len(place.records(0)) > 5)
    shutil.rmtree(place.session, ignore_errors=True)
    shutil.rmtree(place.session, ignore_errors=True)  # what was written in the meantime
    _, errors = end(process)
    assert process.returncode == 2
    assert errors.startswith("autotune: session s: its directory was deleted, moved or replaced")
    assert errors.count("\n") == 1
    assert sorted(p.name for p in place.directory.iterdir()) == ["space.yaml"]
    wait_for(lambda: not place.left())
