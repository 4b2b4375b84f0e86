"""Short steps are merged, without a loss of accuracy."""

import pytest

from autotune.core.record_names import COMPILING, FLOPS, QUEUED
from autotune.inside.messages import Stamped
from autotune.workloads.command.training import Merger

SHORT_S = 0.0101


def step(at_s: float, samples: int, **figures: object) -> Stamped:
    return Stamped({"samples": samples, **figures}, at_s)


def merged(*records: tuple[Stamped, bool]) -> list[Stamped]:
    """Returns the merged `records`, after so many steps that each of these may be short."""
    merger = Merger()
    for n in range(200):
        (own,) = merger.add(step(n * SHORT_S - 10, 0), is_step=True)
        assert own.steps == 1
    given = [one for record, is_step in records for one in merger.add(record, is_step=is_step)]
    return [*given, *merger.rest()]


def steps(*records: Stamped) -> list[Stamped]:
    return merged(*((record, True) for record in records))


def seen(records: list[Stamped]) -> list[tuple[int, int, int]]:
    return [(round(record.at_s / SHORT_S), record["samples"], record.steps) for record in records]


def test_short_steps_share_a_record_and_long_ones_do_not() -> None:
    short = steps(*(step(n * SHORT_S, 8 * n) for n in range(1, 14)))
    assert seen(short) == [(1, 8, 1), (6, 48, 5), (11, 88, 5), (13, 104, 2)]
    assert len(steps(*(step(0.06 * n, n) for n in range(1, 5)))) == 4


def test_an_evaluation_is_not_merged_and_keeps_its_place() -> None:
    records = merged(*((step(n * SHORT_S, n), n != 4) for n in range(1, 7)))
    assert seen(records) == [(1, 1, 1), (3, 3, 2), (4, 4, 1), (6, 6, 2)]


@pytest.mark.parametrize("figures", [{COMPILING: True}, {FLOPS: {"fp32": 7}}])
def test_a_step_of_its_own_kind_stands_alone(figures: dict[str, object]) -> None:
    records = [step(n * SHORT_S, n, **(figures if n == 3 else {})) for n in range(1, 6)]
    assert seen(steps(*records)) == [(1, 1, 1), (2, 2, 1), (3, 3, 1), (5, 5, 2)]


def test_figures_of_all_its_steps_are_in_a_record() -> None:
    records = [
        step(0.0, 1),
        step(0.01, 2, train_loss=3.0, learning_rate=0.1),
        step(0.02, 3, learning_rate=0.2),
    ]
    assert steps(*records)[-1] == {"samples": 3, "train_loss": 3.0, "learning_rate": 0.2}


def test_a_record_ends_when_a_step_is_known_to_have_ended() -> None:
    queued = {QUEUED: True}
    records = [step(n * SHORT_S, n, **(queued if n in {3, 4} else {})) for n in range(1, 6)]
    _, settled, last = steps(*records)
    assert seen([settled, last]) == [(2, 2, 1), (5, 5, 3)]
    assert QUEUED not in last
