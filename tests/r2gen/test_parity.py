"""benchmarks/check_parity.py passes equal recordings and fails different ones."""

import shutil

import numpy as np
import pytest

from benchmarks import check_parity

from .golden import GOLDEN


def test_the_recordings_in_this_repository_are_matched(capsys):
    assert check_parity.main([str(GOLDEN)]) == 0
    out = capsys.readouterr().out
    assert "FAIL" not in out
    assert out.endswith("all comparisons passed\n")


@pytest.mark.parametrize(
    "difference",
    [
        ("r2gen_golden", "fwd/logprobs", 2e-5, "log-probabilities"),
        ("r2gen_golden", "fwd/rm_out", 1e-3, "relational memory"),
        ("r2gen_golden", "grad/norm", 1e-3, "gradient of"),
        ("r2gen_golden", "dec/beam3/seq", 1, "beam3"),
        ("r2gen_train_golden", "step2/sum", 1e-5, "step 2"),
        ("r2gen_train_golden", "losses", np.nan, "loss"),
    ],
)
def test_a_recording_that_differs_is_reported(tmp_path, capsys, difference):
    archive, array, change, told = difference
    directory = tmp_path / "golden"
    # Without the scores, which do not differ here: METEOR takes seconds to start.
    shutil.copytree(GOLDEN, directory, ignore=shutil.ignore_patterns("metrics_golden.json"))
    with np.load(directory / f"{archive}.npz") as file:
        arrays = dict(file)
    arrays[array] = arrays[array] + np.asarray(change, dtype=arrays[array].dtype)
    np.savez(directory / f"{archive}.npz", **arrays)
    assert check_parity.main([str(directory)]) == 1
    failed = [line for line in capsys.readouterr().out.splitlines() if line.startswith("FAIL")]
    assert failed
    assert all(told in line for line in failed)
