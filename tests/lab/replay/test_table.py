"""A table of recorded runs: reading back, looking up, and rejecting invalid ones."""

import json
from dataclasses import asdict, replace

import pytest

from autotune.core.errors import InputError
from autotune.core.trial import Failure, Outcome, Status
from lab.replay import table
from lab.replay.drift import Drift
from lab.replay.table import Header, Point, Run, Table

CONFIG = {"micro_batch_size": 4, "num_workers": 0, "learning_rate": 1e-3}
RUN = Run(
    CONFIG,
    seed=0,
    outcome=Outcome(Status.COMPLETED),
    timed=True,
    start_s=1.5,
    step_samples=(4, 4),
    step_s=(0.25, 0.125),
    evaluations=(Point(200, 0.5, 0.1), Point(400, 0.5, 0.2, 3.5, 0.15, True)),
    peak_memory_bytes=5,
)
FAILED = Run(CONFIG, 0, Outcome(Status.FAILED, Failure.OOM, "too big"), timed=True)


@pytest.fixture
def file(tmp_path, grid):
    table.create(tmp_path / "lab.jsonl", Header(grid, {"hardware": "none"}))
    return tmp_path / "lab.jsonl"


def test_a_table_is_read_back_as_it_was_written(file, grid):
    for run in (RUN, FAILED):
        table.append(file, run)
    known = Table.read(file)
    assert known.space == grid
    assert known.header.provenance == {"hardware": "none"}
    assert known.timed(CONFIG) == [RUN, FAILED]
    assert known.qualities(CONFIG) == [RUN]


def test_an_older_tables_evaluations_have_only_a_quality(file):
    line = json.dumps({**asdict(RUN), "evaluations": [[200, 0.5, 0.1]]})
    file.write_text(f"{file.read_text()}{line}\n")
    assert Table.read(file).qualities(CONFIG)[0].evaluations == (Point(200, 0.5, 0.1, None, None, False),)


def test_a_last_line_cut_short_is_left_out_and_the_next_one_is_whole(file):
    table.append(file, RUN)
    file.write_text(file.read_text() + json.dumps({"config": CONFIG})[:20])
    assert Table.read(file).timed(CONFIG) == [RUN]
    table.append(file, replace(RUN, seed=1))
    assert Table.read(file).timed(CONFIG) == [RUN, replace(RUN, seed=1)]


def test_speed_is_found_whatever_the_learning_rate_and_quality_whatever_the_workers(grid):
    known = Table(Header(grid, {}), [RUN])
    assert known.timed({**CONFIG, "learning_rate": 1.0}) == [RUN]
    assert known.timed({**CONFIG, "num_workers": 1}) == []
    assert known.qualities({**CONFIG, "num_workers": 1}) == [RUN]
    assert known.qualities({**CONFIG, "learning_rate": 1.0}) == []


def test_a_run_that_was_not_timed_shows_its_quality_alone(grid):
    known = Table(Header(grid, {}), [replace(RUN, timed=False)])
    assert known.timed(CONFIG) == []
    assert len(known.qualities(CONFIG)) == 1


def test_qualities_are_in_the_order_of_their_seeds_the_first_recorded_of_each(grid):
    later = replace(RUN, evaluations=(Point(400, 0.5, 0.9),))
    known = Table(Header(grid, {}), [replace(RUN, seed=2), RUN, later, replace(RUN, seed=1)])
    assert [run.seed for run in known.qualities(CONFIG)] == [0, 1, 2]
    assert known.qualities(CONFIG)[0] == RUN


def test_a_drift_is_a_line_of_its_own_and_the_last_one_counts(file):
    assert Table.read(file).drift is None
    for speeds in ((1.0, 1.0), (0.5, 1.5)):
        table.append_drift(file, Drift(speeds, 0.25))
    table.append(file, RUN)
    known = Table.read(file)
    assert known.drift == Drift((0.5, 1.5), 0.25)
    assert known.timed(CONFIG) == [RUN]


def test_an_invalid_drift_is_named_as_damage(file):
    file.write_text(file.read_text() + '{"drift": [], "interval_s": 1.0}\n')
    with pytest.raises(InputError, match="is damaged: ValueError: a drift is"):
        Table.read(file)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "must begin with a line that says it is a table"),
        ("[]", "must begin with a line"),
        ('{"table": 99}', "table of format 1"),
        ('{"table": 1}', "is damaged: KeyError"),
        ('{"table": 1, "space": {"workload": "x"}, "provenance": {}}', "search space .*baseline: required"),
    ],
)
def test_an_invalid_table_is_refused(tmp_path, text, part):
    (tmp_path / "lab.jsonl").write_text(text)
    with pytest.raises(InputError, match=part):
        Table.read(tmp_path / "lab.jsonl")


def test_an_invalid_run_is_named_as_damage(file):
    file.write_text(file.read_text() + '{"config": {}}\n')
    with pytest.raises(InputError, match=r"lab\.jsonl: is damaged: KeyError: 'outcome'"):
        Table.read(file)


def test_a_file_that_cannot_be_read_or_written_is_named(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        Table.read(tmp_path / "nowhere.jsonl")
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        table.append(tmp_path / "file" / "lab.jsonl", RUN)
