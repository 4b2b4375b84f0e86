import json
import multiprocessing
import os
import signal

import pytest

from autotune.core.errors import InputError, SessionBusyError
from autotune.storage.store import Options, StoredSession


@pytest.fixture
def session(tmp_path, space):
    return StoredSession.create(
        tmp_path / "s", space, Options(seed=7, memory_limit_bytes=5), {"made": "here"}
    )


def test_a_session_is_read_back_as_it_was_created(session, space):
    again = StoredSession.open(session.root)
    assert again.space() == space
    assert again.options() == Options(seed=7, memory_limit_bytes=5)
    assert again.info()["provenance"] == {"made": "here"}


def test_a_session_is_never_overwritten(session, space):
    with pytest.raises(InputError, match="already exists; continue it with: python -m autotune resume"):
        StoredSession.create(session.root, space, Options(), {})


def test_a_directory_with_something_else_in_it_is_left_alone(tmp_path, space):
    (tmp_path / "precious").write_text("data")
    with pytest.raises(InputError, match="already exists"):
        StoredSession.create(tmp_path, space, Options(), {})
    assert [f.name for f in tmp_path.iterdir()] == ["precious"]


def test_an_empty_directory_may_become_a_session(tmp_path, space):
    assert StoredSession.create(tmp_path, space, Options(), {}).space() == space


def test_an_unwritable_place_is_refused(tmp_path, space):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written: Not a directory"):
        StoredSession.create(tmp_path / "file" / "s", space, Options(), {})


def test_a_directory_without_a_session_is_refused(tmp_path):
    with pytest.raises(InputError, match="there is no session here"):
        StoredSession.open(tmp_path)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("{", "cannot be read"),
        ("[]", "must be a mapping"),
        ('{"format": 0}', "has format 0, and this version reads format 2"),
    ],
)
def test_a_broken_session_says_what_is_wrong(session, text, part):
    session.info_file.write_text(text)
    with pytest.raises(InputError, match=part):
        StoredSession.open(session.root)


def hold(session, held):
    with session.lock():
        held.set()
        signal.pause()


@pytest.fixture
def holder(session):
    context = multiprocessing.get_context("spawn")
    held = context.Event()
    process = context.Process(target=hold, args=(session, held), daemon=True)
    process.start()
    assert held.wait(30)
    yield process
    process.kill()
    process.join()


def test_a_second_process_is_refused_with_the_pid_of_the_first(session, holder):
    refused = pytest.raises(SessionBusyError, match=f"in use by pid {holder.pid} on {os.uname().nodename}")
    with refused, session.lock():
        pass


def test_the_lock_dies_with_its_holder(session, holder):
    os.kill(holder.pid, signal.SIGKILL)
    holder.join()
    with session.lock():
        assert str(os.getpid()) in session.lock_file.read_text()


@pytest.mark.parametrize(
    ("name", "value"), [("memory_limit_bytes", 10**400), ("gpus_per_trial", -1.0), ("seed", -1)]
)
def test_impossible_options_are_damage(session, name, value):
    info = session.info()
    info["options"][name] = value
    session.info_file.write_text(json.dumps(info))
    with pytest.raises(InputError, match=r"session\.json"):
        session.options()


def test_options_of_a_newer_version_do_not_confuse_an_older_one(session):
    info = session.info()
    info["options"]["surprise"] = 1
    session.info_file.write_text(json.dumps(info))
    assert session.options() == Options(seed=7, memory_limit_bytes=5)


@pytest.mark.parametrize("text", ["", "{", '{"kind": 1}'])
def test_a_session_whose_cluster_is_unreadable_does_not_go_on_without_one(session, text):
    assert session.cluster is None
    session.nodes_file.write_text(text)
    with pytest.raises(InputError, match=r"nodes\.json: cannot be read, and says on which"):
        _ = session.cluster
