"""Trainings as small as can be, for every kind of workload: what is yielded here is what that kind reports.

Settings are numbers and texts. The score is that of an evaluation; steps come every few milliseconds.
"""

import ctypes
import itertools
import json
import os
import signal
import subprocess
import sys
import time

STEPS_PER_EVALUATION = 10
HELD = []


def trains(settings, workdir):
    """Trains until it is closed, from its checkpoint, which every evaluation writes; scores its seed.

    Like any resumed training, it reports the last evaluation again: it may not have been read.
    """
    state = workdir / "state"
    done = int(state.read_text()) if state.exists() else 0
    (workdir / "pid").write_text(str(os.getpid()))
    try:
        if done:
            yield {"samples": done * settings["micro_batch_size"], "score": settings["seed"] / 1000}
        for step in itertools.count(done + 1):
            time.sleep(0.004)
            samples = step * settings["micro_batch_size"]
            yield {"samples": samples, "train_loss": 1 / samples}
            if step % STEPS_PER_EVALUATION == 0:
                write_whole(state, str(step))
                time.sleep(settings.get("evaluation_s", 0))
                yield {"samples": samples, "score": settings["seed"] / 1000}
    finally:
        (workdir / "closed").touch()


def write_whole(file, text):
    beside = file.with_suffix(".new")
    beside.write_text(text)
    beside.replace(file)


def evaluates(settings, workdir):
    """An evaluation takes as long as all the steps before it; its own clock is in the file `own`."""
    own = []
    for step in range(1, 41):
        begun_s = time.monotonic()
        time.sleep(0.01)
        own.append(time.monotonic() - begun_s)
        yield {"samples": step * 4, "train_loss": 1.0}
        if step % STEPS_PER_EVALUATION == 0:
            time.sleep(sum(own))
            (workdir / "own").write_text(json.dumps(own))
            yield {"samples": step * 4, "score": 0.5}


def grows(settings, workdir):
    """Asks for a gigabyte, eight megabytes a step."""
    for step in range(1, 129):
        HELD.append(bytearray(2**23))
        yield {"samples": step}


def ends_badly(settings, workdir):
    yield {"samples": 1}
    match settings["how"]:
        case "abort":
            os.abort()
        case "segmentation fault":
            ctypes.string_at(0)
        case "exception":
            raise ValueError("the words of\nits own")
        case "exit":
            sys.exit(3)


def hangs(settings, workdir):
    """Hangs so that not even a signal ends it."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    (workdir / "pid").write_text(str(os.getpid()))
    yield {"samples": 1}
    time.sleep(600)


def evaluates_when_stopped(settings, workdir):
    """It is in an evaluation that does not end before the stop, and ends with it."""
    yield {"samples": 4}
    try:
        time.sleep(600)
    except SystemExit:
        yield {"samples": 4, "score": 0.5}
        raise


def no_record(settings, workdir):
    """What is reported is not one."""
    yield {"samples": 1}
    yield {
        "text": {"samples": "many"},
        "nothing": {"score": 0.5},
        "half": {"samples": 1.5},
        "less": {"samples": 0},
        "object": {"samples": 2, "what": object()},
        "no number": {"samples": 4, "score": float("nan")},
    }[settings["how"]]


def babbles(settings, workdir):
    """Prints what no human and no pattern understands, between valid records."""
    said = [
        b"\xff\xfe\0\x1b[31m\r",
        b"seen\nseen x\nscore\nscore of none\n",
        b"x" * 200_000,
        b'{"samples": 1',
        b"\n",
    ]
    for step in range(1, 21):
        os.write(1 + step % 2, said[step % len(said)])
        time.sleep(0.004)
        os.write(1, b"\n")
        yield {"samples": step * 4}
    yield {"samples": 80, "score": 0.5}


def says_nothing(settings, workdir):
    yield from ()


def leaves_somebody(settings, workdir):
    """Starts a process that would outlive it, and trains."""
    left = subprocess.Popen(["sleep", "600"])
    (workdir / "left").write_text(str(left.pid))
    yield from trains(settings, workdir)


def hurries(settings, workdir):
    """Sends as many records as are allowed in a second."""
    for samples in range(1, 20_001):
        yield {"samples": samples}
    yield {"samples": 20_000, "score": 0.5}
