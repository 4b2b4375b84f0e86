"""A value in a JSON file, such as the threshold of a running trial."""

import pytest

from autotune.core.measurement import Metric
from autotune.judging.decisions.stopping import Rival, Threshold
from autotune.storage.json_file import JsonFile
from tests.autotune.conftest import curve_of

FILE = JsonFile(Threshold)
BASELINE = curve_of([0.1, 0.2])


def test_a_threshold_is_read_as_it_was_written(tmp_path):
    rivals = (
        Rival(3, 100.0, False, 400, BASELINE, ("a device", "")),
        Rival(4, 1.0, True, 200, seconds=9.0),
    )
    metric = Metric("loss", minimize=True, unit="tokens")
    threshold = Threshold(rivals, 400, BASELINE, 0.95, 0.1, 0.02, 0.01, metric)
    FILE.write(tmp_path / "threshold.json", threshold)
    assert FILE.read(tmp_path / "threshold.json") == threshold
    assert [f.name for f in tmp_path.iterdir()] == ["threshold.json"]


@pytest.mark.parametrize("text", [None, "", "{", "[]"])
def test_without_a_threshold_no_trial_is_stopped(tmp_path, text):
    if text is not None:
        (tmp_path / "threshold.json").write_text(text)
    assert FILE.read(tmp_path / "threshold.json") is None
