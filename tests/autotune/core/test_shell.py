"""Paths in commands that are printed: a shell reads them back as they were."""

import os
import subprocess

import pytest

from autotune.core.errors import printable
from autotune.core.shell import quoted

NAMES = [
    *("runs/first", "a b", "a  b", " a", "it's", "$(x)`y`"),
    *("a\nb", "a\\nb\n", "tab\t'q'", "é", "é\n", "a\udcffb"),
]


@pytest.mark.parametrize("name", NAMES)
def test_a_shell_reads_a_quoted_path_back(name):
    text = quoted(name)
    assert " ".join(printable(text).split()) == text, "on one line, with its blanks unchanged"
    printed = subprocess.run(["bash", "-c", f"printf %s {text}"], check=True, capture_output=True)
    assert printed.stdout == os.fsencode(name)


def test_a_path_that_looks_like_an_option_gets_a_prefix():
    assert quoted("-dash") == "./-dash"
    assert quoted("--help me") == "'./--help me'"
