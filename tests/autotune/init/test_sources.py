"""Which script of a project trains, and what it is made of."""

from pathlib import Path

import pytest

from autotune.core.errors import InputError
from autotune.init import sources

from . import projects


@pytest.mark.parametrize(
    ("files", "script"),
    [
        (projects.OF_CONSTANTS, "train.py"),
        (projects.OF_ARGUMENTS, "main.py"),
        (projects.OF_HYDRA, "src/train.py"),
        (projects.OF_TRANSFORMERS, "finetune.py"),
        (projects.OF_LIGHTNING, "main.py"),
    ],
)
def test_the_script_that_trains_is_found(tmp_path, files, script):
    assert sources.chosen(projects.make(tmp_path, files), None) == Path(script)


def test_of_several_that_may_be_it_one_has_to_be_named(tmp_path):
    text = "import argparse\nparser = argparse.ArgumentParser()\nif __name__ == '__main__':\n    train()\n"
    place = projects.make(
        tmp_path, {"main_pretrain.py": text, "main_finetune.py": text, "util.py": "x = 1\n"}
    )
    with pytest.raises(InputError, match=r"--script: main_finetune.py, main_pretrain.py$"):
        sources.chosen(place, None)
    assert sources.chosen(place, Path("main_pretrain.py")) == Path("main_pretrain.py")


def test_where_nothing_trains_it_has_to_be_named(tmp_path):
    place = projects.make(tmp_path, {"plot.py": "print(1)\n", "broken.py": "def (:\n", "two.py": "print 1\n"})
    with pytest.raises(InputError, match="no script that trains was found: name it with --script"):
        sources.chosen(place, None)


@pytest.mark.parametrize("script", ["missing.py", "../outside.py"])
def test_a_script_is_a_file_of_the_project(tmp_path, script):
    (tmp_path / "outside.py").write_text("")
    place = projects.make(tmp_path / "project", projects.OF_ARGUMENTS)
    with pytest.raises(InputError, match="--script"):
        sources.chosen(place, Path(script))


def test_what_the_script_imports_from_the_project_is_read_with_it(tmp_path):
    files = {
        "train.py": "import torch\nfrom . import missing\nfrom parts import model\nimport parts.loops\n",
        "parts/__init__.py": "",
        "parts/model.py": "from . import layers\n",
        "parts/loops.py": "from .model import layers\n",
        "parts/layers.py": "",
        "unused.py": "",
    }
    read = sources.read(projects.make(tmp_path, files), Path("train.py"))
    assert read[0].path == Path("train.py")
    assert {str(one.path) for one in read} == {
        *("train.py", "parts/__init__.py", "parts/model.py", "parts/loops.py", "parts/layers.py")
    }
