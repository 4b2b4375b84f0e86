"""Runs of a command line by a probe."""

import json

from autotune.probe import watching
from autotune.probe.runs import Prober


def test_an_argument_that_is_too_long_for_a_path_is_no_file(tmp_path):
    (tmp_path / "settings.yaml").write_text("lr: 0.1")
    words = ("python", "train.py", "--prompt", f"{'long' * 100} and/or more", "--config=settings.yaml")
    prober = Prober(words, tmp_path, tmp_path, print)
    assert [(one.name, one.value) for one in prober._of_files(".yaml")] == [("lr", 0.1)]


def test_constants_of_a_file_that_is_named_last_count(tmp_path):
    (tmp_path / "train.py").write_text("batch_size = 12\nlr = 0.1")
    (tmp_path / "small.py").write_text("batch_size = 64")
    prober = Prober(("python", "train.py", "small.py"), tmp_path, tmp_path, print)
    first = {one.name: (one.file, one.value) for one in reversed(prober._of_files(".py"))}
    assert first == {"batch_size": ("small.py", 64), "lr": ("train.py", 0.1)}


def options_of(*notes):
    step = {"at_s": 1.0, "rates": [], "passes": 1, "shape": [4], "dtype": "float32", "loss": None}
    lines = [json.dumps({**({"step": step} if note == "step" else note), **pids}) for note, pids in notes]
    seen = watching.read("".join(f"{line}\n" for line in lines), ["train.py", "--lr=1"], [], 1.0, None)
    return [one.name for one in seen.options]


def parser(*names):
    one = {"flag": "--x", "flags": ["--x"], "is_switch": False, "value": 1, "choices": []}
    return {"parser": [{**one, "name": name} for name in names]}


def test_the_options_are_those_of_the_process_that_trains_or_has_started_that():
    trains, compiler, launcher = ({"pid": n, "above": n - 1} for n in (2, 3, 1))
    names = {"names": {"lr": 1}}
    compiles = (parser("workers", "timeout"), compiler)
    assert options_of((parser("a"), trains), compiles, ("step", trains)) == ["a"]
    assert options_of(compiles, ("step", trains), (names, trains)) == ["lr"]
    assert options_of((parser("b", "c"), launcher), ("step", trains)) == ["b", "c"]
    assert options_of((parser("d", "e"), launcher), (parser("f"), trains), ("step", trains)) == ["f"]
    assert options_of(compiles) == ["workers", "timeout"], "before a step, it is not known who trains"
