"""The parts of a workload: the modules it imports, the files it names, its data."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from autotune.workloads import code
from autotune.workloads.base import Workload

ENTRY = """
def fit(settings, workdir):
    try:
        import late_helper
    except ImportError:
        late_helper = None
    from shared.deep import layers
    yield {}
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project with module names that no other test uses."""
    written = {
        "own_entry.py": ENTRY,
        "late_helper.py": "import os, numpy, own_package.inner\n",
        "shared/__init__.py": "",
        "shared/deep/layers.py": "from .. import sums\nfrom . import absent\n",
        "shared/deep/unused.py": "",
        "shared/sums.py": "from json import loads\n",
        "own_package/__init__.py": "from own_package import inner\n",
        "own_package/inner.py": "import own_package.inner\n",
        "unrelated.py": "import own_entry\n",
    }
    write(tmp_path, written)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def write(place: Path, written: dict[str, str]) -> None:
    for name, text in written.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text)


def edit(file: Path) -> None:
    with file.open("a") as text:
        text.write("# edited\n")


@pytest.mark.parametrize(
    "name",
    [
        *("own_entry.py", "late_helper.py", "shared/__init__.py", "shared/deep/layers.py", "shared/sums.py"),
        *("own_package/__init__.py", "own_package/inner.py"),
    ],
)
def test_every_module_that_is_imported_counts(project, name):
    before = code.revision_of_module("own_entry")
    assert before == code.revision_of_module("own_entry")
    edit(project / name)
    assert code.revision_of_module("own_entry") != before


@pytest.mark.parametrize("name", ["unrelated.py", "shared/deep/unused.py", "notes.md"])
def test_what_is_not_imported_does_not_count(project, name):
    before = code.revision_of_module("own_entry")
    edit(project / name)
    assert code.revision_of_module("own_entry") == before


def test_a_module_that_was_not_there_when_it_was_first_looked_for_counts(project):
    before = code.revision_of_module("own_entry")
    write(project, {"shared/deep/absent.py": ""})
    assert code.revision_of_module("own_entry") != before


def test_no_code_is_run(project):
    write(project, {"shared/__init__.py": "raise SystemExit('run')", "own_entry.py": "import shared.sums"})
    assert code.revision_of_module("own_entry")
    assert not {"own_entry", "shared"} & set(sys.modules)


def test_the_location_of_the_project_does_not_count(project, tmp_path_factory):
    before = code.revision_of_module("own_entry")
    moved = shutil.copytree(project, tmp_path_factory.mktemp("moved") / "project")
    sys.path[:] = [str(moved), *(p for p in sys.path if p != str(project))]
    assert code.revision_of_module("own_entry") == before


@pytest.mark.parametrize("name", ["own_package", "own_package.inner"])
def test_only_the_bytes_of_a_package_without_imports_count(project, name):
    """Must not change: existing sessions identify their code by it."""
    import hashlib

    digest = hashlib.sha256()
    for file in ("__init__.py", "inner.py"):
        digest.update((project / "own_package" / file).read_bytes())
    assert code.revision_of_module(name) == digest.hexdigest()[:12]


def test_neither_installed_packages_nor_the_tuner_are_followed(project):
    write(project, {"own_entry.py": "import json, numpy, autotune\nfrom autotune.core import units\n"})
    assert not code._followed({"own_entry": project / "own_entry.py"})


def test_a_workload_of_ours_follows_no_module_but_its_own():
    assert not code._followed(code._package("r2gen"))


def test_there_may_be_no_such_module():
    assert Workload("is_nowhere:fit").revision() == ""
    assert Workload("time:sleep").revision() == ""


@pytest.mark.parametrize("text", ["print 'Python 2'\n", "\0", "x = '\\d'\nimport late_helper\n"])
def test_a_module_that_does_not_parse_counts_by_its_bytes(project, text):
    write(project, {"shared/sums.py": text})
    before = code.revision_of_module("own_entry")
    edit(project / "shared" / "sums.py")
    assert code.revision_of_module("own_entry") != before


def test_links_to_nowhere_and_files_that_vanish_are_left_out(project):
    (project / "own_package" / ".#inner.py").symlink_to("me@host")
    (project / "own_package" / "loop").symlink_to(project)
    assert code.revision_of_module("own_package")
    assert code.revision_of_files(project, ["**/*.py"])
    assert code.revision_of_files(project / "absent")
    assert code.fingerprint_of_data(project, ["."])
    assert code.revision_of_files(project, besides=[project / "vanished.py"])


FILES = ("main.py", "models/net.py", "models/deep/block.py", "configs/a.yaml")
SESSION = ("runs/s/session.json", "runs/s/space.yaml", "runs/s/trials/0001/work/view/main.py")
OTHERS = ("venv/pyvenv.cfg", "venv/lib.py", ".hidden/h.py", "node_modules/n.py", "__pycache__/c.py")


@pytest.fixture
def script(tmp_path):
    write(tmp_path, {name: name for name in (*FILES, *OTHERS, *SESSION)})
    return tmp_path


@pytest.mark.parametrize(
    ("patterns", "found"),
    [
        (["**/*.py"], FILES[:3]),
        (["*.py"], FILES[:1]),
        (["models/*.py", "models/net.py"], FILES[1:2]),
        (["models"], FILES[1:3]),
        (["models/**"], FILES[1:3]),
        (["**/deep/*"], FILES[2:3]),
        (["configs/?.yaml", "main.py"], (FILES[0], FILES[3])),
        (["venv/*.py", ".hidden/h.py"], ("venv/lib.py", ".hidden/h.py")),
        (["absent.py", "absent/*"], ()),
        ([], FILES[:3]),
    ],
)
def test_files_are_named_by_patterns(script, patterns, found):
    assert {str(file.relative_to(script)) for file in code.files(script, patterns)} == set(found)


def test_files_outside_of_the_directory_can_be_named(script):
    assert code.files(script / "configs", ["../models/**/*.py"]) == [
        script / "configs" / ".." / name for name in sorted(FILES[1:3])
    ]


def git(place: Path, *arguments: str) -> None:
    subprocess.run(["git", "-C", str(place), *arguments], check=True, capture_output=True)


def test_without_patterns_it_is_the_files_tracked_by_git_as_on_the_disk(script):
    git(script, "init")
    write(script, {".gitignore": "ignored*\n", "ignored.py": "", "log.txt": "", "new.py": ""})
    write(script, {"README.md": "", "docs/figure.png": "", "Makefile": "", "weights.bin": ""})
    git(script, "add", "main.py", "models", "configs", "README.md", "docs", "Makefile", "weights.bin")
    named = {str(file.relative_to(script)) for file in code.files(script)}
    assert named == {*FILES, "new.py", "Makefile", *(name for name in OTHERS[2:])}
    before = code.revision_of_files(script)
    for unrelated in ("ignored.py", "log.txt", "README.md", "docs/figure.png"):
        edit(script / unrelated)
    assert code.revision_of_files(script) == before
    edit(script / "configs" / "a.yaml")
    assert (edited := code.revision_of_files(script)) != before
    (script / "main.py").rename(script / "renamed.py")
    assert code.revision_of_files(script) not in {before, edited}
    assert [file.name for file in code.files(script / "configs")] == ["a.yaml"]


def test_a_file_as_large_as_data_counts_by_its_size_and_time(script):
    os.truncate(script / "main.py", 2**24 + 1)
    time_ns = (script / "main.py").stat().st_mtime_ns
    before = code.revision_of_files(script)
    with (script / "main.py").open("r+") as file:
        file.write("CHANGED")
    os.utime(script / "main.py", ns=(time_ns, time_ns))
    assert code.revision_of_files(script) == before
    os.utime(script / "main.py", ns=(time_ns, time_ns + 1))
    assert code.revision_of_files(script) != before


def test_data_is_identified_by_path_size_and_time(script):
    names = ["models", "main.py", "absent"]
    known = [code.fingerprint_of_data(script, names)]
    assert code.fingerprint_of_data(script, names) == known[0]
    for change in (
        lambda: edit(script / "models" / "deep" / "block.py"),
        lambda: os.utime(script / "main.py", ns=(0, 0)),
        (script / "absent").touch,
        (script / "models" / "net.py").unlink,
    ):
        change()
        known.append(code.fingerprint_of_data(script, names))
    assert len(set(known)) == len(known)
    write(script, {"models/a.py": ""})
    known = [code.fingerprint_of_data(script, ["models"], most_files=1)]
    write(script, {"models/b.py": ""})
    assert code.fingerprint_of_data(script, ["models"], most_files=1) == known[0]


def test_data_that_is_moved_with_its_project_is_the_same(script, tmp_path_factory):
    before = code.fingerprint_of_data(script, ["models", "main.py"])
    moved = tmp_path_factory.mktemp("moved") / "project"
    shutil.copytree(script, moved)
    assert code.fingerprint_of_data(moved, ["models", "main.py"]) == before
    assert code.fingerprint_of_data(moved, [str(moved / "models")]) != before
