"""Printed lines carry their time, which only the tuner sees."""

import os
import subprocess
import sys
import time

import pytest

from autotune.inside.inbox import SITE, Inbox
from autotune.inside.site.autotune_output import marked, name_of, unmarked
from autotune.workloads.command.process import Lines


@pytest.mark.parametrize("text", ["acc 0.5\n", "a\n\nb", "\rbar 10%", "\n", "\x1b[1mbold\x1b[0m"])
def test_printed_text_is_unchanged_and_every_line_has_its_time(text):
    found = [unmarked(line) for line in marked(text, 12.25).split("\n")]
    assert "\n".join(line for line, _ in found) == text
    assert {at_s for line, at_s in found if line} <= {12.25}


def test_a_line_printed_in_parts_has_the_time_of_the_last_part():
    assert unmarked(marked("acc", 1.0) + marked(" 0.5\n", 2.0).rstrip("\n")) == ("acc 0.5", 2.0)
    assert unmarked("acc 0.5") == ("acc 0.5", None)
    assert unmarked("\x1b_of another program\x1b\\") == ("\x1b_of another program\x1b\\", None)


def test_a_line_with_a_carriage_return_has_its_own_time():
    read = Lines().add((marked("acc 0.5\r", 1.0) + marked("step\n", 2.0)).encode())
    assert [unmarked(line) for line in read] == [("acc 0.5", 1.0), ("step", 2.0)]


def printed(text, own):
    """Returns what a script writes into a pipe: the one named `own`, which the tuner reads, or another."""
    reading, writing = os.pipe()
    with Inbox() as inbox, os.fdopen(reading, "rb") as pipe:
        environment = os.environ | inbox.environment() | {"PYTHONPATH": str(SITE)}
        environment["AUTOTUNE_OUTPUT"] = own or name_of(writing)
        subprocess.run(
            [sys.executable, "-c", text], env=environment, stdout=writing, stderr=writing, check=True
        )
        os.close(writing)
        return pipe.read().decode()


def test_lines_are_stamped_only_on_their_way_to_the_tuner(tmp_path):
    text = f"""
import subprocess, sys
print("one", 1)
print("two", file=sys.stderr)
print("three", file=open({str(tmp_path / "log")!r}, "w"))
print(subprocess.run([sys.executable, "-c", "print('four')"], capture_output=True, text=True).stdout, end="")
sys.stdout.writelines(["five\\n"])
"""
    begun_s = time.monotonic()
    found = dict(map(unmarked, printed(text, None).splitlines()))
    assert set(found) == {"one 1", "two", "four", "five"}
    assert all(begun_s < at_s < time.monotonic() for at_s in found.values())
    assert (tmp_path / "log").read_text() == "three\n"
    assert "\x1b" not in printed(text, "0:0"), "through another program they go as they are"
