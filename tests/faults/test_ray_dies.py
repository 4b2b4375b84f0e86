"""Ray dies or Ray Tune aborts: the search continues from its study, or says how to resume it."""

import shutil
import time

import pytest

from autotune.sessions import supervision
from autotune.storage.records import read_records
from autotune.storage.store import StoredSession, is_in_use
from tests.endings import ENDED

from . import killing

pytestmark = pytest.mark.slow


@pytest.fixture
def search(tmp_path):
    (tmp_path / "space.yaml").write_text(killing.SPACE)
    started = []

    def begin(*arguments):
        started.append(killing.begin(tmp_path, *arguments))
        return started[-1]

    yield begin
    for process in started:
        killing.end(process)


def attempts(tmp_path):
    return sum("attempt" in record for record in read_records(StoredSession(tmp_path / "s").trial_dir(0)))


def kill(process, victim):
    found = killing.kinds(killing.family(process))[victim]
    for one in found:
        one.kill()
    killing.wait_for(lambda: not killing.alive(found))


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_ray_that_dies_repeatedly_ends_the_search_in_one_line(tmp_path, search):
    """The search survives the death of its Ray twice, but not a third time; then Ray Tune aborts as often."""
    process, session = (
        search(*killing.SEARCH, "--trials", 2, "--samples", 2000),
        StoredSession(tmp_path / "s"),
    )
    for attempt, victim in enumerate(("raylet", "GCS server", "raylet"), start=1):
        killing.wait_for(lambda attempt=attempt: attempts(tmp_path) == attempt)
        kill(process, victim)
        while attempts(tmp_path) == attempt and process.poll() is None:
            is_last = attempt == supervision.MOST_DEATHS
            assert is_in_use(session) or is_last, "while another child is started, too"
            time.sleep(0.01)
    assert process.wait(240) == 1
    assert killing.output(tmp_path).count("Ray died: it is started again") == supervision.MOST_DEATHS - 1
    said = "autotune: Ray died, 3 times in a row; nothing is lost; continue with: python -m autotune resume s"
    assert said in killing.output(tmp_path).splitlines()  # Ray may print more after it
    assert "Traceback" not in killing.output(tmp_path)
    assert [t.outcome for t in killing.trials_of(tmp_path)] == [None]

    scratch = tmp_path / "s" / "ray"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.write_text("in the way of Ray Tune's directory")
    assert search("resume", "s").wait(240) == 1, killing.output(tmp_path)
    last = killing.output(tmp_path).splitlines()[-1]
    assert last.startswith("autotune: Ray Tune aborted 3 times in a row: ")
    assert last.endswith("; nothing is lost; continue with: python -m autotune resume s")
    assert "Traceback" not in killing.output(tmp_path)
    assert [t.outcome for t in killing.trials_of(tmp_path)] == [None]

    scratch.unlink()
    assert search("resume", "s").wait(240) in ENDED, killing.output(tmp_path)
    assert [t.completed for t in killing.trials_of(tmp_path)] == [True, True]
