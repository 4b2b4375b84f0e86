"""The shell completes commands, options, and the values that are known: asked for by a real bash."""

import os
import shlex
import subprocess
import sys

import pytest

from autotune.cli import completion

ASK = """
source ./script
COMP_WORDS=($LINE)
[[ $LINE == *" " ]] && COMP_WORDS+=("")
COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 ))
_autotune_completion autotune
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A directory with the command, its completion for bash, three sessions and a search space."""
    place = tmp_path_factory.mktemp("place")
    command = place / "bin" / "autotune"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m autotune "$@"\n')
    command.chmod(0o755)
    for session in ("runs/iu", "runs/mimic", "mine"):
        (place / session).mkdir(parents=True)
        (place / session / "session.json").touch()
    (place / "runs" / "nothing").mkdir()
    (place / "custom.yaml").touch()
    (place / "script").write_text(bash(place, "_AUTOTUNE_COMPLETE=source_bash autotune"))
    return place


def bash(place, text, **environment):
    path = f"{place / 'bin'}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", text],
        cwd=place,
        env={**os.environ, "PATH": path, **environment},
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("autotune re", ["resume", "report", "recover"]),
        ("autotune search --sp", ["--space"]),
        ("autotune search --space ", ["cpu", "gpu", "gpu-small", "laptop-8gb", "custom.yaml"]),
        ("autotune search --select ", ["same-quality", "same-training", "pareto"]),
        ("autotune search --wandb o", ["online", "offline", "off"]),
        ("autotune search --model ", ["full", "small"]),
        ("autotune status ", ["mine", "runs/iu", "runs/mimic"]),
        ("autotune resume runs/i", ["runs/iu"]),
    ],
)
def test_bash_completes(place, line, offered):
    assert bash(place, ASK, LINE=line).split() == offered


@pytest.mark.parametrize("command", ["autotune", f"{shlex.quote(sys.executable)} -m autotune"])
def test_the_script_can_be_had_from_the_command_line(place, command):
    shown = bash(place, f"{command} --show-completion; true")  # or else bash replaces itself by the command
    assert shown.strip() == (place / "script").read_text().strip()


def test_what_is_not_there_completes_nothing(place, monkeypatch):
    monkeypatch.chdir(place)
    assert completion.sessions("no/such/place/x") == []
    assert completion.sessions("runs/") == ["runs/iu", "runs/mimic"]
    assert completion.spaces("c") == ["cpu", "custom.yaml"]
    assert completion.one_of(("a", "b"))("c") == []
