"""W&B is slow, killed, hung or without room: the search does not notice, and runs can be synced later."""

import os
import signal
import subprocess
import sys

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.endings import ENDED

from ..autotune.trackers.wandb_files import read_runs  # noqa: TID252 - the root need not be on the path
from .searches import SLOW, Place, end, wait_for
from .wandb_server import serving

pytestmark = pytest.mark.slow

KEY = "0123456789" * 4
IMPATIENT = (
    "from autotune.trackers import tracking, wandb; tracking.Trackers.drain_s = wandb._INIT_TIMEOUT_S = 10.0"
)


@pytest.fixture
def place(tmp_path):
    with Place(tmp_path) as here:
        yield here


def whole(runs):
    """Returns the complete runs by trial, those with their last evaluation and outcome."""
    return {r.config["trial"] for r in runs if r.exit_code == 0 and r.column("val/bleu_4")}


def test_a_search_and_its_runs_continue_if_wandbs_service_is_killed(place):
    process = place.search(SLOW, "--wandb", "offline")
    wait_for(lambda: len(place.records(1)) > 20 and place.left("wandb-core"))
    [service] = place.left("wandb-core")
    service.kill()
    _, errors = end(process)
    assert process.returncode in ENDED, errors
    assert errors.startswith("W&B: ")
    assert errors.endswith("; the search continues\n")
    assert errors.count("\n") == 1
    assert all(t.completed for t in place.trials())
    runs = read_runs(place.session)
    assert whole(runs) == {0, 1, 2}
    assert len({r.id for r in runs}) == 4, "the trials' and the session's own"
    wait_for(lambda: not place.left())


@pytest.mark.long
def test_runs_continue_with_a_new_service_after_ray_dies(place):
    """The driver then replaces itself, and its W&B process is gone."""
    process = place.search(SLOW, "--wandb", "offline")
    wait_for(lambda: len(place.records(0)) > 20 and place.left("wandb-core"))
    for raylet in place.left("raylet/raylet"):
        raylet.kill()
    output, errors = end(process)
    assert process.returncode in ENDED, errors
    assert "Ray died: it is started again" in output + errors
    assert "W&B" not in errors
    assert whole(read_runs(place.session)) == {0, 1, 2}
    wait_for(lambda: not place.left())


@pytest.mark.long
def test_a_search_ends_even_if_wandbs_service_hangs(place):
    process = place.search(SLOW, "--wandb", "offline", "--trials", 2, patch=IMPATIENT)
    wait_for(lambda: len(place.records(0)) > 20 and place.left("wandb-core"))
    [service] = place.left("wandb-core")
    service.send_signal(signal.SIGSTOP)
    _, errors = end(process)
    assert process.returncode in ENDED, errors
    assert "W&B did not receive everything" in errors
    assert "Traceback" not in errors
    assert all(t.completed for t in place.trials())
    wait_for(lambda: not place.left())


@pytest.fixture
def small_disk(place):
    """Mounts a file system of 8 MiB for the session; skips the test if that is not allowed."""
    place.session.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "test", place.session]
    if subprocess.run(mount, check=False).returncode:
        pytest.skip("may not mount a file system")
    yield place.session
    subprocess.run(["umount", "--lazy", place.session], check=True)


@pytest.mark.soak
def test_a_disk_that_fills_up_stops_the_search_with_wandb_as_without(place, small_disk):
    process = place.search(SLOW, "--wandb", "offline", "--trials", 2, patch=IMPATIENT)
    wait_for(lambda: len(place.records(0)) > 20)
    ballast = small_disk / "ballast"
    subprocess.run(["dd", "if=/dev/zero", f"of={ballast}", "bs=4k"], check=False, capture_output=True)
    _, errors = end(process)
    assert process.returncode == 2, errors
    assert "No space left on device; nothing is lost" in errors
    assert "Traceback" not in errors
    wait_for(lambda: not place.left())
    ballast.unlink()
    again = place.start("resume", "s")
    _, errors = end(again)
    assert again.returncode in ENDED, errors
    assert all(t.completed for t in place.trials())
    assert whole(read_runs(place.session)) == {0, 1}


@pytest.mark.long
def test_a_resumed_trial_has_one_run_that_can_be_synced(place):
    slower = SLOW.replace("step_s: 0.04", "step_s: 0.2")
    process = place.search(slower, "--wandb", "offline", "--trials", 1)
    wait_for(lambda: any(r.history for r in read_runs(place.session)))
    process.kill()
    wait_for(lambda: not place.left("trial"))
    wait_for(lambda: not place.left("wandb-core"))
    again = place.start("resume", "s")
    _, errors = end(again)
    assert again.returncode in ENDED, errors

    first, second, summary = read_runs(place.session)
    assert first.id == second.id
    assert first.exit_code is None
    assert first.column("train/loss"), "what a killed driver had written can be read"
    assert second.column("seconds")[0] > first.column("seconds")[-1] - 1.0, "its clock goes on"
    charted = EventAccumulator(str(place.session / "tensorboard" / "0000")).Reload().Scalars("train/loss")
    assert [e.step for e in charted] == sorted({e.step for e in charted}), "one curve"
    assert charted[-1].step == 400

    with serving() as server:
        where = {"WANDB_API_KEY": KEY, "WANDB_BASE_URL": server.address, "HOME": str(place.directory)}
        done = subprocess.run(
            [sys.executable, "-m", "wandb", "sync", *sorted(place.session.glob("wandb/offline-run-*"))],
            cwd=place.directory,
            env=os.environ | where,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert set(server.history) == {first.id, summary.id}
    assert server.exit_codes == {first.id: 0, summary.id: 0}
    assert f"run-{summary.id}-trials" in server.artifacts


@pytest.mark.soak
def test_a_slow_server_delays_nobody(place):
    with serving(delay_s=1.0) as server:
        where = {"WANDB_API_KEY": KEY, "WANDB_BASE_URL": server.address, "HOME": str(place.directory)}
        process = place.search(SLOW, "--wandb", "online", **where)
        _, errors = end(process)
        assert errors == ""
        assert process.returncode in ENDED
        assert len(server.history) == 4
    first = {t.number: place.records(t.number)[0]["attempt"] for t in place.trials()}
    assert max(first.values()) - min(first.values()) < 60
    wait_for(lambda: not place.left())
