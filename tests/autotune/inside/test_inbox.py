"""An inbox receives from every process of a trial, and no message does harm."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from autotune.inside import messages
from autotune.inside.inbox import Inbox
from autotune.inside.messages import GpuLost, Message, Reported, Scores, ScriptError, Step, Taken
from autotune.inside.site.autotune_wire import LONGEST_BYTES, SOCKET, Wire
from tests.autotune.inside.heard import all_of
from tests.waiting import wait_for

NOBODY = 65534


@pytest.fixture
def inbox(monkeypatch):
    with Inbox() as inbox:
        for name, value in inbox.environment().items():
            monkeypatch.setenv(name, value)
        yield inbox


def connected(inbox):
    client = socket.socket(socket.AF_UNIX)
    client.connect(inbox.environment()[SOCKET])
    return client


def line(samples, at_s=1.0):
    return json.dumps({"at_s": at_s, "record": {"samples": samples}}).encode() + b"\n"


def samples(found):
    return [message.content.record["samples"] for message in found]


def test_messages_arrive_in_order(inbox):
    wire, begun_s = Wire(), time.monotonic()
    wire.tell({"record": {"samples": 1}})
    wire.tell({"step": {"samples": None, "figures": {"loss": 0.5}}, "at_s": begun_s + 1e-9})
    first, second = sorted(
        [inbox.get(10), inbox.get(10)], key=lambda message: not isinstance(message.content, Step)
    )
    assert second.content.record == {"samples": 1}
    assert begun_s <= second.at_s <= time.monotonic()
    assert first.content == Step(None, {"loss": 0.5})
    assert inbox.get(0) is None


def test_messages_of_several_senders_are_ordered_by_time(inbox):
    """This holds however late the other connection is read."""
    wires = [Wire() for _ in range(20)]
    for number in range(200):
        wires[number % 20].tell({"record": {"samples": number}})
    assert samples(all_of(inbox)) == list(range(200))


def test_a_reader_is_not_woken_by_every_message(inbox):
    """Waking it would take time from the training, at more than a hundred messages a second."""
    wire, status = Wire(), Path(f"/proc/self/task/{inbox._thread.native_id}/status")

    def woken():
        lines = status.read_text().splitlines()
        return sum(int(line.split()[1]) for line in lines if line.startswith("voluntary"))

    before = woken()
    for number in range(200):
        wire.tell({"step": {"samples": number}})
        time.sleep(0.01)
    assert woken() - before < 100
    assert len(all_of(inbox)) == 200


def test_steps_of_a_tenth_of_a_millisecond_do_not_wait_for_the_reader(inbox):
    """Nor do the first ones after a pause such as an evaluation: a socket buffers some hundred messages."""
    wire = Wire()

    def longest_s():
        wire.tell({"step": {"samples": 1}})
        time.sleep(1.0)
        taken_s = []
        for number in range(3000):
            begun_s = time.monotonic()
            wire.tell({"step": {"samples": number}})
            taken_s.append(time.monotonic() - begun_s)
            while time.monotonic() - begun_s < 1e-4:
                pass
        return max(taken_s)

    assert any(longest_s() < 0.1 for _ in range(10)), "a busy machine may delay it, too, but not every time"


def test_twenty_thousand_records_are_all_received(inbox):
    wire = Wire()
    for number in range(20_000):
        wire.tell({"record": {"samples": number, "train_loss": 0.5}})
    assert samples(all_of(inbox)) == list(range(20_000))


GARBAGE = [
    b"garbage\n",
    b"\xff\xfe\n",
    b"\n",
    b"[1, 2]\n",
    b"null\n",
    b'{"record": {"samples": 1}}\n',
    b'{"at_s": NaN, "record": {}}\n',
    b'{"at_s": 1, "record": 5}\n',
    b'{"at_s": 1}\n',
    b'{"at_s": 1, "step": {"samples": -1}}\n',
    b'{"at_s": 1, "step": {"samples": true}}\n',
    b'{"at_s": 1, "error": {"type": "E"}}\n',
    b'{"at_s": 1%s, "record": {}}\n' % (b"0" * 400),
    b"[" * 100_000 + b"\n",
    b"1" * 10_000 + b"\n",
]


def test_garbage_is_dropped_and_its_senders_later_messages_are_received(inbox):
    assert [messages.parse(text) for text in GARBAGE] == [None] * len(GARBAGE)
    client = connected(inbox)
    client.sendall(b"".join(text + line(number) for number, text in enumerate(GARBAGE)))
    assert samples(all_of(inbox)) == list(range(len(GARBAGE)))
    client.close()


def test_a_line_of_64_mib_is_left_out_and_takes_no_memory(inbox):
    client, chunk = connected(inbox), b"x" * 2**20
    for _ in range(64):
        client.sendall(chunk)
    [lines] = inbox._clients.values()
    assert sum(map(len, lines._begun)) <= LONGEST_BYTES
    client.sendall(b"\n" + line(1))
    assert inbox.get(30).content.record == {"samples": 1}
    client.close()


def test_a_sender_killed_in_the_middle_of_a_line_does_no_harm(inbox):
    text = "import os, socket, time; s = socket.socket(socket.AF_UNIX); "
    text += "s.connect(os.environ['AUTOTUNE_SOCKET']); "
    text += f"s.sendall({line(1)!r} + {line(2)!r}[:20]); print(flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE) as program:
        program.stdout.readline()
        program.send_signal(signal.SIGKILL)
    Wire().tell({"record": {"samples": 3}})
    assert samples(all_of(inbox)) == [1, 3]


def test_a_timestamp_in_the_future_is_clipped_to_now(inbox):
    client = connected(inbox)
    client.sendall(line(1, at_s=1e12))
    assert inbox.get(30).at_s <= time.monotonic()
    client.close()


def test_a_stop_reaches_every_process_and_later_ones(inbox):
    early, late = Wire(), Wire()
    early.tell({"record": {"samples": 1}})
    assert inbox.get(30)
    assert not early.is_stopped()
    inbox.tell_to_stop()
    for wire in (early, late):
        wait_for(wire.is_stopped)


def test_messages_sent_before_the_end_are_received_and_no_later_ones(inbox):
    wire, others = Wire(), threading.Event()
    wire.tell({"record": {"samples": 1}})
    flood = connected(inbox)

    def says_on():
        while not others.is_set():
            flood.sendall(line(2) * 1000)

    def until_refused():
        try:
            says_on()
        except OSError:
            others.set()

    thread = threading.Thread(target=until_refused)
    thread.start()
    inbox.finish()
    thread.join()
    assert 1 in samples(all_of(inbox))
    flood.close()


def test_a_long_temporary_directory_leaves_room_for_a_sockets_name(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / ("x" * 120)))
    (tmp_path / ("x" * 120)).mkdir()
    with Inbox() as inbox:
        directory = Path(inbox.environment()[SOCKET]).parent
        assert directory.stat().st_mode & 0o777 == 0o700
    assert not directory.exists()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_another_user_is_refused(inbox):
    text = f"import os, socket; os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY}); "
    text += "socket.socket(socket.AF_UNIX).connect(os.environ['AUTOTUNE_SOCKET'])"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1].startswith("PermissionError")


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ({"record": {"samples": 4}, "queued": True}, Reported({"samples": 4}, is_queued=True)),
        ({"step": {"samples": 4}}, Step(4)),
        ({"logged": {"scores": {"acc": 1}, "place": "/a"}}, Scores({"acc": 1.0}, "/a")),
        ({"error": {"type": "E", "message": "m"}}, ScriptError("E", "m")),
        ({"gpu_lost": "why"}, GpuLost("why")),
        ({"taken": ["loader.batch_size"]}, Taken(("loader.batch_size",))),
    ],
)
def test_a_message_has_exactly_one_content(said, found):
    line = json.dumps({"at_s": 1.5, **said}).encode()
    assert messages.parse(line) == Message(1.5, found)
