"""Runs of a command line by a probe."""

from autotune.probe.runs import Prober


def test_an_argument_that_is_too_long_for_a_path_is_no_file(tmp_path):
    (tmp_path / "settings.yaml").write_text("lr: 0.1")
    words = ("python", "train.py", "--prompt", f"{'long' * 100} and/or more", "--config=settings.yaml")
    prober = Prober(words, tmp_path, tmp_path, print)
    assert [(one.name, one.value) for one in prober._of_files(".yaml")] == [("lr", 0.1)]
